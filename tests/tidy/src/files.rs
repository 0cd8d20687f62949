//! What every source file and every manifest has.

use crate::find;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Source files below `root` that do not open with `//!`.
pub fn without_docs(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in find(root, "rs") {
        if !opens_with_docs(&fs::read_to_string(&path).unwrap_or_default()) {
            complaints.push(format!("{}: does not open with //! and what the file is", path.display()));
        }
    }
    complaints
}

/// Crates that do not take the lints of the workspace, of what `cargo metadata` prints.
pub fn without_lints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let manifests = packages.iter().filter_map(|package| package["manifest_path"].as_str());
    let bad = manifests.filter(|path| !takes_lints(&fs::read_to_string(path).unwrap_or_default()));
    bad.map(|path| format!("{path}: has no [lints] workspace = true")).collect()
}

fn opens_with_docs(source: &str) -> bool {
    source.strip_prefix("//!").is_some_and(|rest| rest.lines().next().is_some_and(|line| !line.trim().is_empty()))
}

fn takes_lints(manifest: &str) -> bool {
    let lines = manifest.lines().map(str::trim);
    let section = lines.skip_while(|line| *line != "[lints]").skip(1).take_while(|line| !line.starts_with('['));
    section.into_iter().any(|line| line.replace(' ', "") == "workspace=true")
}

mod tests {
    use super::*;

    #[test]
    fn a_file_without_docs_is_found() {
        assert!(opens_with_docs("//! A file.\n"));
        assert!(!opens_with_docs("//!\n"));
        assert!(!opens_with_docs("use std::fs;\n//! Late.\n"));
        assert!(!opens_with_docs(""));
    }

    #[test]
    fn a_manifest_without_lints_is_found() {
        assert!(takes_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(!takes_lints("[package]\nname = \"a\"\n"));
        assert!(!takes_lints("[lints]\n\n[dependencies.half]\nworkspace = true\n"));
    }
}
