//! `cargo xtask conformance`: runs the cases recorded from PyTorch, and reports passed, failed and missing ones.

mod compare;
mod manifest;

use compare::{Check, compare, floats, integers, same_kind};
use fornax_tensor::ops::{Args, OpRecord, records};
use fornax_tensor::{DType, Device, Tensor};
use manifest::{Data, Suite, argument, read_safetensors};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// What to run.
pub struct Options {
    /// Suite folders; all of `testdata/conformance/` if empty.
    pub suites: Vec<PathBuf>,
    /// The device to run on.
    pub device: Device,
    /// Only this operator.
    pub op: Option<String>,
}

/// What became of the cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Right.
    pub passed: usize,
    /// Wrong.
    pub failed: usize,
    /// Without an op to run them.
    pub missing: usize,
}

/// Runs the suites and prints a line for each failing case, the missing ops, counts by group, and the total last.
pub fn run(options: &Options) -> Result<Counts, String> {
    let mut total = Counts::default();
    for dir in suites(options)? {
        let suite = Suite::read(&dir)?;
        let counts = match suite.name.as_str() {
            "ops" | "edge" => run_ops(&suite, options)?,
            other => return Err(format!("{}: there is no runner for suite {other:?}", dir.display())),
        };
        total.passed += counts.passed;
        total.failed += counts.failed;
        total.missing += counts.missing;
    }
    println!("{} passed, {} failed, {} missing", total.passed, total.failed, total.missing);
    Ok(total)
}

fn suites(options: &Options) -> Result<Vec<PathBuf>, String> {
    if !options.suites.is_empty() {
        return Ok(options.suites.clone());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/conformance");
    let entries = std::fs::read_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let mut dirs: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("manifest.json").exists())
        .collect();
    dirs.sort();
    Ok(dirs)
}

fn run_ops(suite: &Suite, options: &Options) -> Result<Counts, String> {
    let by_name: HashMap<&str, &OpRecord> =
        records().flat_map(|record| record.torch.iter().map(move |&name| (name, record))).collect();
    let mut files: HashMap<String, HashMap<String, Data>> = HashMap::new();
    let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
    let mut missing: BTreeMap<String, usize> = BTreeMap::new();
    // Failing cases print one line of their own; the panic's would only repeat it.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut outcome = Ok(());
    for case in &suite.cases {
        let text = |key: &str| case[key].as_str().unwrap_or_default();
        if options.op.as_deref().is_some_and(|op| op != text("op")) {
            continue;
        }
        let counts = groups.entry(text("group").to_string()).or_default();
        let Some(record) = by_name.get(text("op")).or_else(|| by_name.get(text("fn"))) else {
            counts.missing += 1;
            *missing.entry(text("op").to_string()).or_default() += 1;
            continue;
        };
        let file = text("file").to_string();
        if !files.contains_key(&file) {
            match read_safetensors(&suite.root.join(&file)) {
                Ok(tensors) => {
                    files.insert(file.clone(), tensors);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        match run_case(case, record, &files[&file], &options.device) {
            Ok(()) => counts.passed += 1,
            Err(why) => {
                counts.failed += 1;
                println!("FAILED {} {} on {}: {why}", suite.name, text("id"), options.device);
            }
        }
    }
    std::panic::set_hook(hook);
    outcome?;
    for (op, cases) in &missing {
        println!("MISSING {op} ({cases} cases)");
    }
    let mut total = Counts::default();
    for (group, counts) in &groups {
        println!(
            "{}/{group}: {} passed, {} failed, {} missing on {}",
            suite.name, counts.passed, counts.failed, counts.missing, options.device
        );
        total.passed += counts.passed;
        total.failed += counts.failed;
        total.missing += counts.missing;
    }
    Ok(total)
}

/// Runs one case; a panic is a failure that tells its message.
fn run_case(case: &Value, record: &OpRecord, data: &HashMap<String, Data>, device: &Device) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check_case(case, record, data, device))).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string()));
        let message = message.unwrap_or_else(|| String::from("no message"));
        // Ops panic with an error's text, `op: rule`; anything else is a bug of ours.
        let clean = message.split_once(": ").is_some_and(|(op, _)| {
            !op.contains(' ') && op.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        });
        if case["error"] == true && clean { Ok(()) } else { Err(format!("panicked: {}", message.replace('\n', " "))) }
    })
}

fn check_case(case: &Value, record: &OpRecord, data: &HashMap<String, Data>, device: &Device) -> Result<(), String> {
    let grads = case["grads"].as_array().map_or(&[][..], Vec::as_slice);
    let mut leaves: HashMap<String, Tensor> = HashMap::new();
    let mut leaf = |name: &str| {
        if let Some(tensor) = leaves.get(name) {
            return Ok(tensor.clone());
        }
        let tensor = data.get(name).ok_or_else(|| format!("no tensor {name}"))?.upload(device);
        let tracked = grads.iter().any(|grad| grad["input"] == name);
        let tensor = if tracked { tensor.requires_grad() } else { tensor };
        leaves.insert(name.to_string(), tensor.clone());
        Ok(tensor)
    };
    let mut named = Vec::new();
    for arg in case["args"].as_array().ok_or("no args")? {
        let name = arg["name"].as_str().ok_or("an argument without a name")?;
        named.push((name.to_string(), argument(&arg["value"], &mut leaf)?));
    }
    let args = Args::new(device, named);
    let outputs = match (record.call)(&args) {
        Ok(outputs) => outputs,
        Err(_) if case["error"] == true => return Ok(()),
        Err(error) => return Err(format!("refused: {error}")),
    };
    if case["error"] == true {
        return match outputs.iter().find_map(|output| output.try_to_vec::<f64>().err()) {
            Some(_) => Ok(()),
            None => Err(String::from("was not refused")),
        };
    }
    let outputs = decomposed(case, &args, outputs)?;
    let wanted = case["outputs"].as_array().ok_or("no outputs")?;
    if outputs.len() < wanted.len() {
        return Err(format!("{} outputs in place of {}", outputs.len(), wanted.len()));
    }
    let tolerance = |key: &str, default: f64| case["tol"][key].as_f64().unwrap_or(default);
    for (output, want) in outputs.iter().zip(wanted) {
        check_output(output, want, data, &args, &outputs, wanted, (tolerance("rtol", 1e-5), tolerance("atol", 1e-6)))
            .map_err(|why| format!("output {}: {why}", want["name"].as_str().unwrap_or("?")))?;
    }
    if grads.is_empty() {
        return Ok(());
    }
    let mut weighted = Vec::new();
    let mut cotangents = Vec::new();
    for (output, want) in outputs.iter().zip(wanted) {
        if let Some(name) = want["cotangent"].as_str()
            && output.is_tracked()
        {
            weighted.push(output);
            cotangents.push(data.get(name).ok_or_else(|| format!("no tensor {name}"))?.upload(device));
        }
    }
    let inputs: Vec<&Tensor> = grads.iter().filter_map(|grad| leaves.get(grad["input"].as_str()?)).collect();
    let found = fornax_tensor::grad_with(&weighted, &inputs, &cotangents.iter().collect::<Vec<_>>())
        .map_err(|error| format!("no gradient: {error}"))?;
    let check = Check::Close { rtol: tolerance("grad_rtol", 1e-5), atol: tolerance("grad_atol", 1e-6) };
    for ((grad, input), found) in grads.iter().zip(&inputs).zip(found) {
        let name = grad["tensor"].as_str().ok_or("a gradient without a tensor")?;
        let want = data.get(name).ok_or_else(|| format!("no tensor {name}"))?;
        let found = found.unwrap_or_else(|| input.zeros_like());
        compare(&found, want, check).map_err(|why| format!("gradient of {}: {why}", grad["input"]))?;
    }
    Ok(())
}

fn check_output(
    output: &Tensor,
    want: &Value,
    data: &HashMap<String, Data>,
    args: &Args,
    outputs: &[Tensor],
    wanted: &[Value],
    (rtol, atol): (f64, f64),
) -> Result<(), String> {
    let shape: Vec<usize> =
        want["shape"].as_array().ok_or("no shape")?.iter().filter_map(|n| n.as_u64()).map(|n| n as usize).collect();
    let dtype = DType::from_name(want["dtype"].as_str().unwrap_or_default()).ok_or("no dtype")?;
    same_kind(output, &shape, dtype)?;
    let expected = want["tensor"].as_str().and_then(|name| data.get(name));
    match want["check"].as_str().unwrap_or_default() {
        "close" => compare(output, expected.ok_or("no tensor")?, Check::Close { rtol, atol }),
        "exact" => {
            let signed_zero = want["signed_zero"] == true;
            compare(output, expected.ok_or("no tensor")?, Check::Exact { signed_zero })
        }
        "index" => check_positions(output, args, outputs, wanted),
        "none" => Ok(()),
        other => Err(format!("no check {other:?}")),
    }
}

/// Positions where ties leave a choice: in range, and the input there is what the values say.
fn check_positions(positions: &Tensor, args: &Args, outputs: &[Tensor], wanted: &[Value]) -> Result<(), String> {
    let input = args.get::<Tensor>("input").map_err(|error| error.to_string())?.detach();
    let dim = args.get::<Option<i64>>("dim").ok().flatten();
    let values = outputs.iter().zip(wanted).find(|(_, want)| want["check"] != "index").map(|(output, _)| output);
    let picks = integers(&positions.to_bytes(), DType::I64);
    let Some(dim) = dim else {
        // Over all dims, or spatial positions of a pool: numbers of the flattened input or plane.
        let planes = input.numel().max(1);
        return match picks.iter().find(|&&pick| pick < 0 || pick as usize >= planes) {
            Some(pick) => Err(format!("position {pick} is out of range")),
            None => Ok(()),
        };
    };
    if input.rank() == 0 {
        return if picks.iter().all(|&pick| pick == 0) {
            Ok(())
        } else {
            Err(String::from("position is out of range"))
        };
    }
    let size =
        input.shape()[usize::try_from(if dim < 0 { dim + input.rank() as i64 } else { dim }).unwrap_or(0)] as i64;
    if let Some(pick) = picks.iter().find(|&&pick| pick < 0 || pick >= size) {
        return Err(format!("position {pick} is out of range for size {size}"));
    }
    let squeezed = positions.rank() < input.rank();
    let index = if squeezed { positions.unsqueeze(dim) } else { positions.clone() };
    let found = input.gather(dim, &index);
    let found = if squeezed { found.squeeze(dim) } else { found };
    match values {
        Some(values) => {
            let want = Data { dtype: found.dtype(), shape: found.shape().to_vec(), bytes: values.detach().to_bytes() };
            compare(&found, &want, Check::Exact { signed_zero: false })
        }
        None => {
            // Positions alone (`argsort`): what they gather must be sorted.
            let descending = args.get::<Option<bool>>("descending").ok().flatten().unwrap_or(false);
            let sorted = found.sort(dim, descending).0;
            let want = Data { dtype: found.dtype(), shape: found.shape().to_vec(), bytes: sorted.to_bytes() };
            compare(&found, &want, Check::Exact { signed_zero: false })
        }
    }
}

/// Factorizations are unique up to signs: `qr` is turned so that the diagonal of R is not negative, and what the
/// others promise of their vectors is checked here.
fn decomposed(case: &Value, args: &Args, outputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    let tolerance = case["tol"]["atol"].as_f64().unwrap_or(1e-6).max(1e-4);
    match case["op"].as_str().unwrap_or_default() {
        "linalg.qr" => {
            let (q, r) = (&outputs[0], &outputs[1]);
            let k = r.shape()[r.rank() - 2];
            let identity = Tensor::arange(0, k, 1, DType::I64, r.device())
                .unsqueeze(1)
                .eq(Tensor::arange(0, r.shape()[r.rank() - 1], 1, DType::I64, r.device()))
                .to_dtype(r.dtype());
            let diagonal = (r.detach() * identity).sum(-1);
            let signs = diagonal.lt(0.0).where_(-1.0, 1.0).to_dtype(r.dtype());
            let (q, r) = (q * signs.unsqueeze(-2), r * signs.unsqueeze(-1));
            near(
                &q.detach().matmul(&r.detach()),
                &args.get::<Tensor>("A").map_err(|e| e.to_string())?.detach(),
                tolerance,
            )?;
            Ok(if case["outputs"].as_array().is_some_and(|list| list.len() == 1) { vec![r] } else { vec![q, r] })
        }
        "linalg.svd" => {
            let full = args.get::<Option<bool>>("full_matrices").ok().flatten().unwrap_or(true);
            let input = args.get::<Tensor>("A").map_err(|error| error.to_string())?.detach();
            let (u, s, vh) = (outputs[0].detach(), outputs[1].detach(), outputs[2].detach());
            let k = s.shape()[s.rank() - 1];
            let (uk, vk) = (u.narrow(-1, 0, k), vh.narrow(-2, 0, k));
            near(&(uk * s.unsqueeze(-2)).matmul(&vk), &input, tolerance)?;
            if full {
                orthonormal(&u, tolerance)?;
            }
            orthonormal(&vh.mt(), tolerance)?;
            Ok(outputs)
        }
        "linalg.eigh" => {
            let (w, v) = (outputs[0].detach(), outputs[1].detach());
            orthonormal(&v, tolerance)?;
            let upper = args.get::<Option<String>>("UPLO").ok().flatten().is_some_and(|name| name == "U");
            let a = args.get::<Tensor>("input").map_err(|error| error.to_string())?.detach();
            let whole = if upper { a.triu(0) + a.triu(1).mt() } else { a.tril(0) + a.tril(-1).mt() };
            near(&(&v * w.unsqueeze(-2)).matmul(&v.mt()), &whole, tolerance)?;
            Ok(outputs)
        }
        _ => Ok(outputs),
    }
}

fn orthonormal(q: &Tensor, tolerance: f64) -> Result<(), String> {
    let n = q.shape()[q.rank() - 1];
    let counted = Tensor::arange(0, n, 1, DType::I64, q.device());
    let identity = counted.unsqueeze(1).eq(&counted).to_dtype(q.dtype());
    let gram = q.mt().matmul(q);
    near(&gram, &identity.expand(gram.shape()), tolerance).map_err(|why| format!("not orthonormal: {why}"))
}

fn near(got: &Tensor, want: &Tensor, tolerance: f64) -> Result<(), String> {
    let (a, b) = (floats(&got.to_bytes(), got.dtype()), floats(&want.to_bytes(), want.dtype()));
    let scale = b.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
    let is_off = |(a, b): (&f64, &f64)| (a - b).is_nan() || (a - b).abs() > tolerance * scale;
    match a.iter().zip(&b).position(is_off) {
        Some(i) => Err(format!("the parts do not make the input: element {i}: got {}, want {}", a[i], b[i])),
        None => Ok(()),
    }
}
