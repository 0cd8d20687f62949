//! `cargo xtask build-time`: what a user waits for: a clean release build, and a rebuild after an edit of the model.
//!
//! The crate that is built is the README's: its model, which must run, and the manifest it recommends.

use crate::{cargo, root, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// What the README's model leaves to its reader.
const BATCHES: &str = "
fn batches(device: &Device) -> Vec<(Tensor, Tensor)> {
    let batch = |_| (Tensor::randn([64, 784], device), Tensor::randint(0, 10, [64], device));
    (0..4).map(batch).collect()
}
";

/// What is edited in the README's model.
const EDITED: &str = "Dropout::new(0.2)";

/// Edits measured; the median counts.
const EDITS: usize = 5;

/// Builds and rebuilds a crate in a temporary folder, and prints how long that takes.
pub fn measure() -> Result<bool, String> {
    let dir = std::env::temp_dir().join(format!("fornax-build-time-{}", std::process::id()));
    let result = measure_in(&dir);
    // A leftover in the temporary folder harms nobody.
    let _ = fs::remove_dir_all(&dir);
    result
}

fn measure_in(dir: &Path) -> Result<bool, String> {
    let io = |error: std::io::Error| format!("{}: {error}", dir.display());
    let root = root().canonicalize().map_err(io)?;
    let readme = fs::read_to_string(root.join("README.md")).map_err(io)?;
    fs::create_dir_all(dir.join("src")).map_err(io)?;
    fs::write(dir.join("Cargo.toml"), manifest(&readme, &root.join("crates/fornax"))?).map_err(io)?;
    // The versions that the workspace is tested with.
    fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock")).map_err(io)?;
    let model = model(&readme)?;
    let write = |edit: usize| {
        let text = model.replace(EDITED, &format!("Dropout::new(0.2{edit})"));
        fs::write(dir.join("src/main.rs"), text).map_err(io)
    };
    let target = dir.join("target");
    let program = target.join("release").join(format!("hello-model{}", std::env::consts::EXE_SUFFIX));
    let build = || -> Result<(f64, Vec<u8>), String> {
        let start = Instant::now();
        run(cargo().args(["build", "--release", "--quiet"]).current_dir(dir).env("CARGO_TARGET_DIR", &target))?;
        let seconds = start.elapsed().as_secs_f64();
        Ok((seconds, fs::read(&program).map_err(io)?))
    };
    // Downloads are no part of building.
    write(0)?;
    run(cargo().args(["fetch", "--quiet"]).current_dir(dir))?;
    let (clean, mut built) = build()?;
    run(Command::new(&program).current_dir(dir))?;
    let mut edits = Vec::new();
    for edit in 0..EDITS {
        write(edit + 1)?;
        let (seconds, rebuilt) = build()?;
        if rebuilt == built {
            return Err(String::from("an edit did not change the program"));
        }
        built = rebuilt;
        edits.push(seconds);
    }
    edits.sort_by(f64::total_cmp);
    let (least, most) = (edits[0], edits[EDITS - 1]);
    println!("clean release build    {clean:7.1} s, {} crates", crates(dir)?);
    println!("rebuild after an edit  {:7.2} s (median of {EDITS}; {least:.2} to {most:.2})", edits[EDITS / 2]);
    println!("program                {:7.1} MB", built.len() as f64 / 1e6);
    Ok(true)
}

/// The README's model, made whole.
fn model(readme: &str) -> Result<String, String> {
    let model = blocks(readme, "rust").find(|block| block.contains("fn main()") && block.contains(EDITED));
    let model = model.ok_or_else(|| format!("README.md has no model with fn main() and {EDITED}"))?;
    Ok(format!("{model}{BATCHES}"))
}

/// The README's manifest for users' crates, made whole.
fn manifest(readme: &str, facade: &Path) -> Result<String, String> {
    let mut blocks = blocks(readme, "toml");
    let block = blocks.find(|block| block.contains("[profile.release]") && block.contains("…/crates/fornax"));
    let block = block.ok_or("README.md has no manifest with [profile.release] and …/crates/fornax")?;
    let block = block.replace("…/crates/fornax", &facade.display().to_string().replace('\\', "/"));
    let package = "[package]\nname = \"hello-model\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    Ok(format!("{package}\n{block}\n[workspace]\n"))
}

/// The fenced code of a language.
fn blocks<'a>(readme: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let opening = format!("```{language}\n");
    readme.split("\n```\n").filter_map(move |part| Some(part.split_once(&opening)?.1))
}

/// How many crates the program is built of.
fn crates(dir: &Path) -> Result<usize, String> {
    let tree = cargo().args(["tree", "--prefix", "none", "--edges", "normal,build"]).current_dir(dir).output();
    let tree = tree.map_err(|error| format!("cargo tree: {error}"))?;
    let text = String::from_utf8_lossy(&tree.stdout);
    // `name v1.2.3 (*)`: a star marks repetitions.
    let crates: BTreeSet<String> =
        text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ")).collect();
    Ok(crates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_has_a_model_and_a_manifest() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        assert!(model(&readme).is_ok_and(|model| model.contains("#[derive(Module")));
        let manifest = manifest(&readme, Path::new("/somewhere/fornax")).unwrap();
        assert!(manifest.contains("fornax = { path = \"/somewhere/fornax\" }"), "{manifest}");
        assert!(manifest.contains("[profile.release]"), "{manifest}");
    }
}
