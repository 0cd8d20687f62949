//! `cargo xtask ops`: the coverage table of ops, made from their records.

use crate::root;
use fornax_tensor::ops::{OpRecord, records};
use std::fmt::Write;
use std::fs;

/// Prints the table, or stores it as `docs/ops.md`.
pub fn run(write: bool) -> Result<bool, String> {
    let table = table();
    if write {
        let path = root().join("docs/ops.md");
        fs::write(&path, table).map_err(|error| format!("{}: {error}", path.display()))?;
    } else {
        print!("{table}");
    }
    Ok(true)
}

/// The table as Markdown, by group and name.
pub fn table() -> String {
    let mut all: Vec<&OpRecord> = records().collect();
    all.sort_by_key(|record| (record.group, record.name));
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
