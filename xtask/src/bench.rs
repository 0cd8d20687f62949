//! Fornax beside its peers: the workloads of `bench/`, which is a workspace of its own.

use crate::{number, options, root, run};
use std::path::PathBuf;
use std::process::Command;

/// Builds Fornax's program, takes turns with every peer that is installed (`bench/setup.sh` installs them), and prints
/// the tables of `bench/report.py`.
pub fn run_cpu(args: &[String]) -> Result<bool, String> {
    let bench = root().join("bench");
    let peers = std::env::var_os("PEERS_ROOT").map_or_else(|| root().join("target/peers"), PathBuf::from);
    let results = peers.join("cpu.json");
    let mut measure = Command::new("python3");
    measure.arg(bench.join("run.py")).arg("--out").arg(&results).env("PEERS_ROOT", &peers);
    let known = ["--only", "--peers", "--rounds"];
    for (name, value) in options(args, &known)? {
        match name {
            "--only" => measure.args(["--workloads", value]),
            "--peers" => measure.arg("--peers").arg(format!("fornax,{value}")),
            _ => measure.arg("--rounds").arg(number(name, value)?.to_string()),
        };
    }
    std::fs::create_dir_all(&peers).map_err(|error| format!("{}: {error}", peers.display()))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo)
        .args(["build", "--release"])
        .current_dir(&bench)
        .env("CARGO_TARGET_DIR", peers.join("fornax")))?;
    if results.exists() {
        std::fs::remove_file(&results).map_err(|error| format!("{}: {error}", results.display()))?;
    }
    run(&mut measure)?;
    run(measure.arg("--rss"))?;
    run(Command::new("python3").arg(bench.join("report.py")).arg(&results))?;
    Ok(true)
}
