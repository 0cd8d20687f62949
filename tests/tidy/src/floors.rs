//! Floors: a crate may use crates of lower floors only.
//!
//! Tests may use everything, so dev-dependencies and crates outside `crates/` are free; but no crate of a floor may use
//! what lies outside the floors.

use serde_json::Value;

/// The floor of each crate. A crate that is not here fails the test: give it one.
///
/// `fornax-macros` writes code that names `fornax-tensor`, so nothing below tensors can use it.
const FLOORS: &[(&str, u8)] = &[
    ("fornax", 7),
    ("fornax-train", 6),
    ("fornax-onnx", 6),
    ("fornax-vision", 6),
    ("fornax-rl", 6),
    ("fornax-nn", 5),
    ("fornax-store", 5),
    ("fornax-data", 5),
    ("fornax-tensor", 4),
    ("fornax-macros", 3),
    ("fornax-cpu", 3),
    ("fornax-cuda", 3),
    ("fornax-hip", 3),
    ("fornax-wgpu", 3),
    ("fornax-remote", 3),
    ("fornax-compile", 2),
    ("fornax-kernel", 2),
    ("fornax-ir", 1),
];

/// Arrows within a floor. Weights are loaded into modules; kernels are made from plans.
const SIDEWAYS: &[(&str, &str)] = &[("fornax-store", "fornax-nn"), ("fornax-kernel", "fornax-compile")];

/// The arrows that break the rule, of what `cargo metadata` prints.
pub fn complaints(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let named = |name: &str| packages.iter().find(|package| package["name"] == name);
    let mut complaints = Vec::new();
    for package in packages.iter().filter(|package| has_floor(package)) {
        let name = text(&package["name"]);
        let Some(floor) = floor(name) else {
            complaints.push(format!("{name} has no floor; add it to FLOORS in tests/tidy/src/floors.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().map_or(&[][..], Vec::as_slice) {
            let used = text(&dependency["name"]);
            let Some(target) = named(used).filter(|_| dependency["kind"] != "dev") else { continue };
            if !has_floor(target) {
                complaints.push(format!("{name} uses {used}, which lies outside the floors"));
            } else if let Some(below) = self::floor(used)
                && below >= floor
                && !SIDEWAYS.contains(&(name, used))
            {
                complaints.push(format!("{name} (floor {floor}) uses {used} (floor {below}); arrows point down"));
            }
        }
    }
    complaints
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|&(_, floor)| floor)
}

/// Whether a package lies in `crates/`.
fn has_floor(package: &Value) -> bool {
    let path = text(&package["manifest_path"]).replace('\\', "/");
    path.trim_end_matches("/Cargo.toml").rsplit('/').nth(1) == Some("crates")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        let folder = if name.starts_with("fornax") { "crates" } else { "tests" };
        json!({"name": name, "manifest_path": format!("/w/{folder}/{name}/Cargo.toml"), "dependencies": dependencies})
    }

    #[track_caller]
    fn check(packages: &[Value], want: &[&str]) {
        assert_eq!(complaints(&json!({"packages": packages})), want);
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        let ir = package("fornax-ir", &[("half", None)]);
        let tensor = package("fornax-tensor", &[("fornax-ir", None), ("fornax-macros", None)]);
        let store = package("fornax-store", &[("fornax-nn", None), ("fornax-tensor", None)]);
        let nn = package("fornax-nn", &[("fornax-tensor", None)]);
        let tool = package("tool", &[("fornax-store", None), ("fornax-ir", None)]);
        check(&[ir, package("fornax-macros", &[]), tensor, store, nn, tool], &[]);
    }

    #[test]
    fn an_arrow_that_points_up_is_found() {
        let ir = package("fornax-ir", &[("fornax-cpu", None)]);
        let up = "fornax-ir (floor 1) uses fornax-cpu (floor 3); arrows point down";
        check(&[ir, package("fornax-cpu", &[])], &[up]);
        let build = package("fornax-ir", &[("fornax-cpu", Some("build"))]);
        check(&[build, package("fornax-cpu", &[])], &[up]);
    }

    #[test]
    fn an_arrow_within_a_floor_is_found() {
        let nn = package("fornax-nn", &[("fornax-store", None)]);
        let sideways = "fornax-nn (floor 5) uses fornax-store (floor 5); arrows point down";
        check(&[nn, package("fornax-store", &[])], &[sideways]);
    }

    #[test]
    fn macros_are_for_floor_4_and_above() {
        let compile = package("fornax-compile", &[("fornax-macros", None)]);
        let up = "fornax-compile (floor 2) uses fornax-macros (floor 3); arrows point down";
        check(&[compile, package("fornax-macros", &[])], &[up]);
    }

    #[test]
    fn tests_may_use_everything() {
        let ir = package("fornax-ir", &[("fornax-cpu", Some("dev"))]);
        check(&[ir, package("fornax-cpu", &[])], &[]);
    }

    #[test]
    fn a_crate_without_a_floor_is_found() {
        let new = package("fornax-new", &[]);
        check(&[new], &["fornax-new has no floor; add it to FLOORS in tests/tidy/src/floors.rs"]);
    }

    #[test]
    fn crates_outside_the_floors_are_used_by_tests_only() {
        let ir = package("fornax-ir", &[("tool", None)]);
        check(&[ir, package("tool", &[])], &["fornax-ir uses tool, which lies outside the floors"]);
    }
}
