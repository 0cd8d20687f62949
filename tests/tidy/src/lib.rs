//! Rules that the whole workspace keeps, as ordinary tests: `cargo test -p tidy`.
//!
//! `floors` says which crate may use which, `files` what every source file and manifest has, `links` that docs
//! point at something. A rule is a function that gives a list of complaints, each telling what to do about it.
#![cfg(test)]

mod files;
mod floors;
mod links;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("this crate lies in tests/")
}

/// All files below `dir` whose names end in `.extension`, sorted; build outputs and hidden folders are left out.
fn find(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                found.extend(find(&path, extension));
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[track_caller]
fn nothing(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// What `cargo metadata` says of the crates of the workspace.
fn metadata() -> Value {
    let arguments = ["metadata", "--format-version=1", "--no-deps", "--offline"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn arrows_between_crates_point_down() {
    nothing(&floors::complaints(&metadata()));
}

#[test]
fn source_files_open_with_their_docs() {
    nothing(&files::without_docs(&root()));
}

#[test]
fn crates_take_the_lints_of_the_workspace() {
    nothing(&files::without_lints(&metadata()));
}

#[test]
fn links_in_docs_lead_somewhere() {
    nothing(&links::dead(&root()));
}
