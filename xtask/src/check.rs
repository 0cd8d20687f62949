//! `cargo xtask check`: everything CI does, stage by stage.

use crate::{conformance, fuzz, root};
use fornax_tensor::Device;
use std::process::Command;
use std::time::{Duration, Instant};

/// Crates that build with `alloc` alone.
const NO_STD: &[&str] = &["fornax-ir", "fornax-compile", "fornax-cpu", "fornax-tensor", "fornax-nn", "fornax-store"];

/// Runs all stages; stops at the first that fails.
pub fn run(skip_tests: bool) -> Result<bool, String> {
    let start = Instant::now();
    let mut stages: Vec<(String, Vec<&str>)> = vec![
        (String::from("format"), vec!["fmt", "--all", "--check"]),
        (String::from("lints"), vec!["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    ];
    if !skip_tests {
        stages.push((String::from("tests"), vec!["test", "--workspace"]));
    }
    stages.push((String::from("docs"), vec!["doc", "--workspace", "--no-deps"]));
    for krate in NO_STD {
        let build = vec!["check", "--package", krate, "--lib", "--no-default-features"];
        stages.push((format!("{krate} without std"), build));
    }
    for (name, args) in stages {
        println!("\n-- {name} (after {} s)", start.elapsed().as_secs());
        let status = Command::new(env!("CARGO"))
            .args(&args)
            .current_dir(root())
            .env("RUSTDOCFLAGS", "-D warnings")
            .status()
            .map_err(|error| format!("cargo {}: {error}", args.join(" ")))?;
        if !status.success() {
            println!("-- {name} failed: cargo {}", args.join(" "));
            return Ok(false);
        }
    }
    for device in [Device::reference(), Device::cpu()] {
        println!("\n-- conformance on {device} (after {} s)", start.elapsed().as_secs());
        let options = conformance::Options { suites: Vec::new(), device, op: None };
        if conformance::run(&options)?.failed > 0 {
            return Ok(false);
        }
    }
    println!("\n-- fuzzing (after {} s)", start.elapsed().as_secs());
    if !fuzz::run(Duration::from_secs(60), 0) {
        return Ok(false);
    }
    println!("\n-- all passed after {} s", start.elapsed().as_secs());
    Ok(true)
}
