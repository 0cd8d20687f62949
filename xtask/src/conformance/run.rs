//! Runs one case: call, values, gradients; or, where the call must fail, that it is refused and not broken.

use super::compare::{compare, same_kind};
use super::decompose::settled;
use super::file::{Data, Tensors};
use super::manifest::{Case, Check, Output, argument};
use super::positions;
use fornax_tensor::ops::{Args, OpRecord};
use fornax_tensor::{Device, Error, ErrorKind, Tensor, grad_with};
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// While it lives, panics print nothing, and the last one of this thread is known with its place.
pub struct Panics(Option<Hook>);

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Sync + Send>;

impl Panics {
    /// Takes over from what prints panics.
    pub fn caught() -> Panics {
        let usual = take_hook();
        set_hook(Box::new(|info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            let place = info.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
            LAST_PANIC.set(Some(format!("{}{}", text.replace('\n', "; "), place.unwrap_or_default())));
        }));
        Panics(Some(usual))
    }

    fn last(&self) -> String {
        LAST_PANIC.take().unwrap_or_else(|| String::from("no message"))
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        if let Some(usual) = self.0.take() {
            set_hook(usual);
        }
    }
}

/// Runs one case. A panic is a failure even where the call must be refused: records call the `try_` twins, so a refusal
/// is an [`Error`], and a panic a bug.
pub fn case(case: &Case, record: &OpRecord, tensors: &Tensors, device: &Device, panics: &Panics) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| check(case, record, tensors, device)))
        .unwrap_or_else(|_| Err(format!("panicked: {}", panics.last())))
}

fn check(case: &Case, record: &OpRecord, tensors: &Tensors, device: &Device) -> Result<(), String> {
    let find = |name: &str| tensors.get(name).ok_or_else(|| format!("there is no tensor {name} in {}", case.file));
    let mut inputs: HashMap<String, Tensor> = HashMap::new();
    let mut input = |name: &str| {
        if let Some(tensor) = inputs.get(name) {
            return Ok(tensor.clone());
        }
        let tensor = find(name)?.upload(device);
        let is_tracked = case.grads.iter().any(|grad| grad.input == name);
        let tensor = if is_tracked { tensor.requires_grad() } else { tensor };
        inputs.insert(name.to_string(), tensor.clone());
        Ok(tensor)
    };
    let mut named = Vec::new();
    for (name, value) in &case.args {
        named.push((name.clone(), argument(value, &mut input)?));
    }
    let args = Args::new(device, named);
    let result = (record.call)(&args);
    if case.is_error {
        return refused(result);
    }
    let outputs = result.map_err(|error| format!("was refused: {error}"))?;
    let outputs = settled(case, &args, outputs)?;
    if outputs.len() != case.outputs.len() {
        return Err(format!("got {} outputs, want {}", outputs.len(), case.outputs.len()));
    }
    let got: Vec<Data> = outputs.iter().map(Data::of).collect::<Result<_, _>>()?;
    let values = case.outputs.iter().position(|output| output.check != Check::Index).map(|i| &got[i]);
    for (want, got) in case.outputs.iter().zip(&got) {
        let expected = want.tensor.as_deref().map(find).transpose()?;
        value(case, want, got, expected, values, &args).map_err(|why| format!("output {}: {why}", want.name))?;
    }
    gradients(case, &outputs, &inputs, &find)
}

/// A call that must fail: its error comes at once, or, if it is about data, when the result is read. Arguments that the
/// record cannot read and trouble with the device are no refusals.
fn refused(result: Result<Vec<Tensor>, Error>) -> Result<(), String> {
    let error = match result {
        Err(error) => error,
        Ok(outputs) => match outputs.iter().find_map(|output| output.detach().try_to_bytes().err()) {
            Some(error) => error,
            None => return Err(String::from("was not refused")),
        },
    };
    match (error.op(), error.kind()) {
        ("call", _) => Err(format!("could not be called: {error}")),
        ("device", ErrorKind::Execution) | (_, ErrorKind::Gradient) => Err(format!("failed otherwise: {error}")),
        _ => Ok(()),
    }
}

fn value(
    case: &Case,
    want: &Output,
    got: &Data,
    expected: Option<&Data>,
    values: Option<&Data>,
    args: &Args,
) -> Result<(), String> {
    same_kind(got, want.dtype, &want.shape)?;
    match (want.check, expected) {
        (Check::None, _) => Ok(()),
        (Check::Index, Some(expected)) if got == expected => Ok(()),
        (Check::Index, _) => positions::check(got, values, args),
        (check @ (Check::Close | Check::Exact { .. }), Some(expected)) => compare(got, expected, check, case.tolerance),
        (Check::Close | Check::Exact { .. }, None) => Err(String::from("the case has no tensor to compare with")),
    }
}

fn gradients<'a>(
    case: &Case,
    outputs: &[Tensor],
    inputs: &HashMap<String, Tensor>,
    find: &dyn Fn(&str) -> Result<&'a Data, String>,
) -> Result<(), String> {
    if case.grads.is_empty() {
        return Ok(());
    }
    let (mut weighted, mut cotangents) = (Vec::new(), Vec::new());
    for (want, output) in case.outputs.iter().zip(outputs) {
        // An output that depends on nothing tracked adds nothing; the comparison below tells whether that is right.
        if let Some(name) = want.cotangent.as_deref().filter(|_| output.is_tracked()) {
            weighted.push(output);
            cotangents.push(find(name)?.upload(output.device()));
        }
    }
    let mut of = Vec::new();
    for grad in &case.grads {
        of.push(inputs.get(&grad.input).ok_or_else(|| format!("no argument is {}", grad.input))?);
    }
    let found = grad_with(&weighted, &of, &cotangents.iter().collect::<Vec<_>>())
        .map_err(|error| format!("has no gradient: {error}"))?;
    for ((grad, input), found) in case.grads.iter().zip(of).zip(found) {
        let found = Data::of(&found.unwrap_or_else(|| input.zeros_like()))?;
        compare(&found, find(&grad.tensor)?, Check::Close, case.grad_tolerance)
            .map_err(|why| format!("gradient of {}: {why}", grad.input))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_error_about_the_call() {
        assert_eq!(refused(Err(Error::shape("add", "shapes do not broadcast"))), Ok(()));
        let unread = Error::argument("call", "argument `dim` does not take None");
        assert!(refused(Err(unread)).unwrap_err().starts_with("could not be called"));
        let lost = Error::new(ErrorKind::Execution, "device", "the device is lost");
        assert!(refused(Err(lost)).unwrap_err().starts_with("failed otherwise"));
        let fine = Tensor::from_slice(&[1.0f32], [1], &Device::reference());
        assert_eq!(refused(Ok(vec![fine])).unwrap_err(), "was not refused");
    }
}
