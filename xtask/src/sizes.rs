//! `cargo xtask sizes`: lines per source file, and the change since a revision.

use crate::root;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Prints every Rust file with its lines, largest first, and sums by crate. Files gone since `base` have 0.
pub fn run(base: Option<&str>) -> Result<bool, String> {
    let now = lines(None)?;
    let before = base.map(|base| lines(Some(base))).transpose()?;
    let mut files: Vec<(&str, usize, i64)> = Vec::new();
    for path in now.keys().chain(before.iter().flatten().map(|(path, _)| path)).collect::<BTreeSet<_>>() {
        let count = now.get(path).copied().unwrap_or(0);
        let change = before.as_ref().map_or(0, |before| count as i64 - before.get(path).map_or(0, |&n| n as i64));
        files.push((path, count, change));
    }
    files.sort_by_key(|&(_, count, _)| Reverse(count));
    let mut crates: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    for &(path, count, change) in &files {
        println!("{}  {path}", line(count, change));
        let name = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("xtask and tests");
        for name in [name, "all"] {
            let sum = crates.entry(name).or_default();
            *sum = (sum.0 + count, sum.1 + change);
        }
    }
    let all = crates.remove_entry("all");
    println!();
    for (name, (count, change)) in crates.into_iter().chain(all) {
        println!("{}  {name}", line(count, change));
    }
    Ok(true)
}

fn line(count: usize, change: i64) -> String {
    let change = if change == 0 { String::new() } else { format!("{change:+}") };
    format!("{count:6} {change:>7}")
}

/// Lines of every Rust file, in the working tree or at a revision.
fn lines(revision: Option<&str>) -> Result<BTreeMap<String, usize>, String> {
    let git = |args: &[&str]| -> Result<String, String> {
        let output = Command::new("git").args(args).current_dir(root()).output();
        let output = output.map_err(|error| format!("git: {error}"))?;
        if !output.status.success() {
            return Err(format!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let list = match revision {
        Some(revision) => git(&["ls-tree", "-r", "--name-only", revision])?,
        // With files that are not committed yet.
        None => git(&["ls-files", "--cached", "--others", "--exclude-standard"])?,
    };
    let mut found = BTreeMap::new();
    for path in list.lines().filter(|path| path.ends_with(".rs")) {
        let text = match revision {
            Some(revision) => git(&["show", &format!("{revision}:{path}")])?,
            None => match std::fs::read_to_string(root().join(path)) {
                Ok(text) => text,
                // Deleted, and the deletion is not committed yet.
                Err(_) => continue,
            },
        };
        found.insert(path.to_string(), text.lines().count());
    }
    Ok(found)
}
