//! `cargo xtask check`: everything CI does, stage by stage.

use crate::{build_time, cargo, conformance, fuzz, fuzz_files, no_std, run};
use fornax_tensor::Device;
use std::time::{Duration, Instant};

/// A name, and what is done.
type Stage = (&'static str, fn() -> Result<(), String>);

const STAGES: &[Stage] = &[
    ("format", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("lints", || run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("tests", || run(cargo().args(["test", "--workspace"]))),
    ("docs", || run(cargo().args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))),
    ("no-std", no_std::check),
    ("conformance", || {
        let devices = [Device::reference(), Device::cpu(), Device::cpu_unfused()];
        let failed: Vec<String> = devices.iter().filter_map(|device| conformance_on(device).err()).collect();
        if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
    }),
    ("fuzz", || {
        let differs = |device: &str| format!("{device} and interpreter differ");
        ["cpu", "lockstep"].into_iter().try_for_each(|device| match fuzz::run(device, Duration::from_secs(30), 0)? {
            true => Ok(()),
            false => Err(differs(device)),
        })
    }),
    ("fuzz-files", || {
        let mut is_fine = true;
        for (reader, _) in fuzz_files::READERS {
            is_fine &= fuzz_files::run(reader, Duration::from_secs(10), 0)?;
        }
        if is_fine { Ok(()) } else { Err(String::from("a damaged file went wrong")) }
    }),
    ("build-time", || build_time::measure().map(|_| ())),
    ("example", || run(cargo().args(["run", "--release", "--example", "mnist", "--", "--epochs", "1"]))),
];

/// Runs all stages but those named; a stage that fails does not keep the others from running.
pub fn check(skip: &[&str]) -> Result<bool, String> {
    if let Some(unknown) = skip.iter().find(|name| STAGES.iter().all(|(stage, _)| stage != *name)) {
        let stages: Vec<&str> = STAGES.iter().map(|(stage, _)| *stage).collect();
        return Err(format!("there is no stage {unknown:?}, only {}", stages.join(", ")));
    }
    let start = Instant::now();
    let mut lines = Vec::new();
    let mut is_fine = true;
    for (name, work) in STAGES.iter().filter(|(name, _)| !skip.contains(name)) {
        println!("\n== {name}");
        let begun = Instant::now();
        let result = work();
        is_fine &= result.is_ok();
        let verdict = result.map_or_else(|why| format!("FAILED: {why}"), |()| String::from("passed"));
        lines.push(format!("{name:12} {:6.1} s  {verdict}", begun.elapsed().as_secs_f64()));
        println!("== {}", lines[lines.len() - 1]);
    }
    println!("\n{}\n{:12} {:6.1} s", lines.join("\n"), "all", start.elapsed().as_secs_f64());
    Ok(is_fine)
}

fn conformance_on(device: &Device) -> Result<(), String> {
    let options = conformance::Options { suites: Vec::new(), device: device.clone(), op: None };
    let report = conformance::run(&options)?;
    report.print(conformance::Detail::Short);
    match report.total().failed {
        0 => Ok(()),
        failed => Err(format!("{failed} cases on {device}")),
    }
}
