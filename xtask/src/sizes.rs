//! `cargo xtask sizes`: lines per source file, and the change since a revision.

use crate::root;
use std::collections::BTreeMap;
use std::process::Command;

/// Prints every Rust file with its lines, largest first, and sums by crate.
pub fn run(base: Option<&str>) -> Result<bool, String> {
    let now = lines(None)?;
    let before = base.map(|base| lines(Some(base))).transpose()?;
    let mut files: Vec<(&String, &usize)> = now.iter().collect();
    files.sort_by_key(|(_, lines)| std::cmp::Reverse(**lines));
    let mut crates: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    for (path, &count) in files {
        let change = before.as_ref().map_or(0, |before| count as i64 - before.get(path).map_or(0, |&n| n as i64));
        let text = if change == 0 { String::new() } else { format!("{change:+}") };
        println!("{count:6} {text:>7}  {path}");
        let name = path.strip_prefix("crates/").and_then(|rest| rest.split('/').next()).unwrap_or("xtask and tests");
        let sum = crates.entry(name).or_default();
        *sum = (sum.0 + count, sum.1 + change);
    }
    println!();
    for (name, (count, change)) in &crates {
        println!("{count:6} {change:>+7}  {name}");
    }
    println!("{:6} {:>+7}  all", now.values().sum::<usize>(), crates.values().map(|(_, change)| change).sum::<i64>());
    Ok(true)
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
        None => git(&["ls-files"])?,
    };
    let mut found = BTreeMap::new();
    for path in list.lines().filter(|path| path.ends_with(".rs")) {
        let text = match revision {
            Some(revision) => git(&["show", &format!("{revision}:{path}")])?,
            None => std::fs::read_to_string(root().join(path)).unwrap_or_default(),
        };
        found.insert(path.to_string(), text.lines().count());
    }
    Ok(found)
}
