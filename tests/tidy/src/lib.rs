//! Rules of the house that a test can hold: arrows between crates point down, files say what they are, links lead
//! somewhere.
#![cfg(test)]

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The floors of ARCHITECTURE.md. A crate may depend on crates of lower floors only.
const FLOORS: &[(&str, u32)] = &[
    ("fornax-ir", 1),
    ("fornax-compile", 2),
    ("fornax-cpu", 3),
    ("fornax-macros", 3),
    ("fornax-tensor", 4),
    ("fornax-nn", 5),
    ("fornax-data", 5),
    // Weights are those of modules.
    ("fornax-store", 6),
    ("fornax", 7),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn floors() -> BTreeMap<&'static str, u32> {
    FLOORS.iter().copied().collect()
}

/// Every dependency of a crate on a crate of its own floor or above, and every crate without a floor.
fn upward_arrows(metadata: &Value, floors: &BTreeMap<&str, u32>) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(&floor) = floors.get(name) else {
            if name.starts_with("fornax") {
                found.push(format!("{name} has no floor"));
            }
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let is_development = dependency["kind"] == "dev";
            if let Some(&below) = floors.get(target)
                && below >= floor
                && !is_development
            {
                found.push(format!("{name} (floor {floor}) depends on {target} (floor {below})"));
            }
        }
    }
    found
}

#[test]
fn arrows_between_crates_point_down() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(upward_arrows(&metadata, &floors()), Vec::<String>::new());
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let metadata: Value = serde_json::from_str(
        r#"{"packages": [
            {"name": "fornax-ir", "dependencies": [{"name": "fornax-tensor", "kind": null}]},
            {"name": "fornax-cpu", "dependencies": [{"name": "fornax-tensor", "kind": "dev"}]},
            {"name": "fornax-new", "dependencies": []}
        ]}"#,
    )
    .unwrap();
    assert_eq!(
        upward_arrows(&metadata, &floors()),
        ["fornax-ir (floor 1) depends on fornax-tensor (floor 4)", "fornax-new has no floor"]
    );
}

/// All files below a folder whose name ends so, build results left out.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_source_file_says_what_it_is() {
    for path in files(&root().join("crates"), ".rs") {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//!"), "{} does not open with `//!`", path.display());
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for folder in ["crates", "tests", "xtask"] {
        for path in files(&root().join(folder), "Cargo.toml") {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("[lints]\nworkspace = true"), "{} has lints of its own", path.display());
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for path in files(&root(), ".md") {
        let text = fs::read_to_string(&path).unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default().split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let target_path = path.parent().unwrap().join(target);
            assert!(target_path.exists(), "{}: {target} is not there", path.display());
        }
    }
}
