//! Developer commands: `cargo xtask <command>`.

mod conformance;

use fornax_tensor::Device;
use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "cargo xtask <command>

  conformance [--suite DIR] [--device NAME] [--op NAME]
      run the cases recorded from PyTorch (all suites of testdata/conformance, on the CPU)
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let result = match command.as_str() {
        "conformance" => conformance(&rest),
        _ => Err(String::from(USAGE)),
    };
    match result {
        Ok(code) => code,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
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

fn conformance(args: &[String]) -> Result<ExitCode, String> {
    let mut settings = conformance::Options { suites: Vec::new(), device: Device::cpu(), op: None };
    for (name, value) in options(args, &["--suite", "--device", "--op"])? {
        match name {
            "--suite" => settings.suites.push(PathBuf::from(value)),
            "--device" => settings.device = Device::from_name(value).map_err(|error| error.to_string())?,
            _ => settings.op = Some(value.to_string()),
        }
    }
    let counts = conformance::run(&settings)?;
    Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
