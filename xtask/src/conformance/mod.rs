//! `cargo xtask conformance`: runs the cases recorded from PyTorch, and reports passed, failed and missing ones.
//!
//! The suites of modules, optimizers and schedules are run by the crate `conformance`; those of ops here:
//! [`manifest`] reads a suite and [`file`](mod@file) the tensors of its cases; [`run`](mod@run) runs one case, with
//! [`compare`], [`positions`] and [`decompose`] for what an output has to fulfil; [`report`] counts and prints.

mod compare;
mod decompose;
mod file;
#[cfg(test)]
mod gradients;
#[cfg(test)]
mod layouts;
mod manifest;
mod positions;
mod report;
mod run;

pub use report::{Detail, Report};

use crate::root;
use conformance::Outcome;
use fornax_tensor::Device;
use fornax_tensor::ops::{OpRecord, records};
use manifest::Suite;
use std::collections::HashMap;
use std::path::PathBuf;

/// What to run.
pub struct Options {
    /// Suite folders; all of `testdata/conformance/` if empty.
    pub suites: Vec<PathBuf>,
    /// The device to run on.
    pub device: Device,
    /// Only this operator, by PyTorch's name or the method's; or module, optimizer or schedule.
    pub op: Option<String>,
}

/// Runs the suites. A case whose operator no record names is missing.
///
/// # Errors
/// If a suite or a file cannot be read.
pub fn run(options: &Options) -> Result<Report, String> {
    let mut by_name: HashMap<&str, &OpRecord> = HashMap::new();
    for record in records() {
        by_name.extend(record.torch.iter().map(|&name| (name, record)));
    }
    let mut report = Report::new(options.device.name());
    let panics = run::Panics::caught();
    for dir in suites(options)? {
        let suite = Suite::read(&dir)?;
        if conformance::Suite::is_known(&suite.name) {
            let is_wanted = |name: &str| options.op.as_ref().is_none_or(|op| op == name);
            conformance::Suite::read(&dir, &options.device)?.run(is_wanted, |id, name, outcome| {
                report.add(&suite.name, id, (name, "all"), outcome);
            });
            continue;
        }
        if !["ops", "edge"].contains(&suite.name.as_str()) {
            return Err(format!("{}: there is no runner for suite {:?}", dir.display(), suite.name));
        }
        let mut files = HashMap::new();
        for case in suite.cases()? {
            let record = by_name.get(case.op.as_str()).copied();
            let is_wanted = |op: &String| *op == case.op || record.is_some_and(|record| *op == record.name);
            if !options.op.as_ref().is_none_or(is_wanted) {
                continue;
            }
            let Some(record) = record else {
                report.add(&suite.name, &case.id, (&case.op, &case.group), Outcome::Missing);
                continue;
            };
            if !files.contains_key(&case.file) {
                files.insert(case.file.clone(), file::read(&suite.root.join(&case.file))?);
            }
            let before = options.device.report();
            let outcome = match run::case(&case, record, &files[&case.file], &options.device, &panics) {
                Ok(()) => Outcome::Passed,
                Err(why) => Outcome::Failed(why),
            };
            let interpreted = options.device.report().since(&before).counter("interpreted");
            report.add_run(&suite.name, &case, record.name, interpreted, outcome);
        }
    }
    if let Some(op) = options.op.as_ref().filter(|_| report.is_empty()) {
        return Err(format!("no case is for an operator {op:?}"));
    }
    Ok(report)
}

fn suites(options: &Options) -> Result<Vec<PathBuf>, String> {
    if !options.suites.is_empty() {
        return Ok(options.suites.clone());
    }
    let all = root().join("testdata/conformance");
    let entries = std::fs::read_dir(&all).map_err(|error| format!("{}: {error}", all.display()))?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut dirs: Vec<PathBuf> = folders.filter(|path| path.join("manifest.json").exists()).collect();
    dirs.sort();
    Ok(dirs)
}
