//! `cargo xtask ops`: the tables of ops, made from their records.

use crate::{conformance, root};
use fornax_tensor::Device;
use fornax_tensor::ops::{OpRecord, records};
use std::fmt::Write;
use std::fs;

/// Prints op × device: passed cases of recorded ones, and whether the device left primitives in them to the interpreter.
pub fn coverage() -> Result<bool, String> {
    let mut reports = Vec::new();
    for device in [Device::cpu(), Device::reference()] {
        reports.push(conformance::run(&conformance::Options { suites: Vec::new(), device: device.clone(), op: None })?);
        print!("{:>24}", device.name());
    }
    println!("  gradient  op");
    let mut untested = 0;
    for record in sorted() {
        untested += usize::from(reports.iter().all(|report| report.of_method(record.name).is_none()));
        for report in &reports {
            let cell = report.of_method(record.name).map_or(String::from("no cases"), |method| {
                let all = method.counts.passed + method.counts.failed;
                let left = if method.interpreted > 0 { " interpreted" } else { "" };
                format!("{:3}/{all:3}{left:12}", method.counts.passed)
            });
            print!("{cell:>24}");
        }
        println!("  {:8}  {} ({})", if record.grad { "yes" } else { "no" }, record.name, record.group);
    }
    println!("\n{} ops, {untested} of them without recorded cases", records().count());
    Ok(true)
}

/// Stores the table of ops as `docs/ops.md`.
pub fn write() -> Result<bool, String> {
    let path = root().join("docs/ops.md");
    fs::write(&path, table()).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(true)
}

fn sorted() -> Vec<&'static OpRecord> {
    let mut all: Vec<&OpRecord> = records().collect();
    all.sort_by_key(|record| (record.group, record.name));
    all
}

/// The table as Markdown, by group and name.
pub fn table() -> String {
    let all = sorted();
    let mut text = String::from(
        "# Ops\n\nMade by `cargo xtask ops --write` from the records of the ops; a test holds it fresh.\n\
         Every op runs on every device: devices know primitives only.\n",
    );
    let mut group = "";
    for record in &all {
        if record.group != group {
            group = record.group;
            let _ = write!(text, "\n## {group}\n\n| op | gradient | PyTorch | what it does |\n|---|---|---|---|\n");
        }
        let torch = record.torch.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let gradient = if record.grad { "yes" } else { "–" };
        let _ = writeln!(text, "| `{}` | {gradient} | {torch} | {} |", record.name, record.doc.replace('|', "\\|"));
    }
    let _ = write!(text, "\n{} ops.\n", all.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_stored_table_is_fresh() {
        let stored = fs::read_to_string(root().join("docs/ops.md")).unwrap();
        assert!(stored == table(), "docs/ops.md is stale: run `cargo xtask ops --write`");
    }

    #[test]
    fn no_two_ops_serve_one_pytorch_name() {
        let mut seen = BTreeSet::new();
        for record in records() {
            for name in record.torch {
                assert!(seen.insert(*name), "{name} is served twice");
            }
        }
    }
}
