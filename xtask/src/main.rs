//! Developer commands: `cargo xtask <command>`.

mod bench;
mod build_time;
mod check;
mod conformance;
mod fuzz;
mod fuzz_files;
mod no_std;
mod ops;
mod sizes;

use fornax_kernel::lockstep::LockstepBackend;
use fornax_tensor::Device;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const USAGE: &str = "cargo xtask <command>

  check [--skip STAGE]…
      everything CI does: format, lints, tests, docs, no-std builds, conformance, 2 minutes of fuzz, the build
      of the README's model, the example
  conformance [--suite DIR] [--device NAME] [--op NAME]
      run the cases recorded from PyTorch (all suites of testdata/conformance, on the CPU)
  fuzz [--seconds N] [--seed S] [--device NAME]
      compare a device with the interpreter on random graphs (60 seconds, seed 0, cpu); lockstep is the kernels of
      a GPU on the host
  fuzz-files [--seconds N] [--seed S] [--reader NAME]…
      damaged files through the readers of weights (all of them, 60 seconds each, seed 0)
  bench cpu [--only NAME,…] [--peers torch,compile,ort,jax,candle,burn] [--rounds N]
      time the workloads of bench/ beside the peers that bench/setup.sh installed
  sizes [--base REV]
      lines per source file, and the change since a revision
  build-time
      clean build of a small model crate, and rebuild after an edit
  ops [--write]
      what each op passes on each device; --write stores the table of ops as docs/ops.md";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let result = match command.as_str() {
        "check" => check(&rest),
        "conformance" => conformance(&rest),
        "fuzz" => fuzz(&rest),
        "bench" if rest.first().is_some_and(|device| device == "cpu") => bench::run_cpu(&rest[1..]),
        "fuzz-files" => fuzz_files(&rest),
        "sizes" => sizes(&rest),
        "build-time" if rest.is_empty() => build_time::measure(),
        "ops" if rest.is_empty() => ops::coverage(),
        "ops" if rest == ["--write"] => ops::write(),
        _ => Err(String::from(USAGE)),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The values of `--name value` pairs; anything else is an error.
fn options<'a>(args: &'a [String], known: &[&str]) -> Result<Vec<(&'a str, &'a str)>, String> {
    let mut found = Vec::new();
    for pair in args.chunks(2) {
        match pair {
            [name, value] if known.contains(&name.as_str()) => found.push((name.as_str(), value.as_str())),
            [name, ..] => return Err(format!("unknown or incomplete option {name}; there are {}", known.join(", "))),
            [] => {}
        }
    }
    Ok(found)
}

/// Cargo, in the root of the repository.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command; its exit code must be 0.
fn run(command: &mut Command) -> Result<(), String> {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let line = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{line}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

fn check(args: &[String]) -> Result<bool, String> {
    let skip: Vec<&str> = options(args, &["--skip"])?.into_iter().map(|(_, stage)| stage).collect();
    check::check(&skip)
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} needs a number, got {value:?}"))
}

fn conformance(args: &[String]) -> Result<bool, String> {
    let mut settings = conformance::Options { suites: Vec::new(), device: Device::cpu(), op: None };
    for (name, value) in options(args, &["--suite", "--device", "--op"])? {
        match name {
            "--suite" => settings.suites.push(PathBuf::from(value)),
            "--device" if value == "lockstep" => settings.device = Device::new(LockstepBackend::default()),
            "--device" => settings.device = Device::from_name(value).map_err(|error| error.to_string())?,
            _ => settings.op = Some(value.to_string()),
        }
    }
    let report = conformance::run(&settings)?;
    report.print(conformance::Detail::Ops);
    Ok(report.total().failed == 0)
}

fn fuzz_files(args: &[String]) -> Result<bool, String> {
    let (mut seconds, mut seed, mut readers) = (60, 0, Vec::new());
    for (name, value) in options(args, &["--seconds", "--seed", "--reader"])? {
        match name {
            "--seconds" => seconds = number(name, value)?,
            "--seed" => seed = number(name, value)?,
            _ => readers.push(value),
        }
    }
    if readers.is_empty() {
        readers = fuzz_files::READERS.iter().map(|(name, _)| *name).collect();
    }
    let mut is_fine = true;
    for reader in readers {
        is_fine &= fuzz_files::run(reader, Duration::from_secs(seconds), seed)?;
    }
    Ok(is_fine)
}

fn fuzz(args: &[String]) -> Result<bool, String> {
    let (mut seconds, mut seed, mut device) = (60, 0, "cpu");
    for (name, value) in options(args, &["--seconds", "--seed", "--device"])? {
        match name {
            "--device" => device = value,
            "--seconds" => seconds = number(name, value)?,
            _ => seed = number(name, value)?,
        }
    }
    fuzz::run(device, Duration::from_secs(seconds), seed)
}

fn sizes(args: &[String]) -> Result<bool, String> {
    let base = options(args, &["--base"])?.first().map(|&(_, value)| value.to_string());
    sizes::run(base.as_deref())
}
