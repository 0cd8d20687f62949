//! `cargo xtask build-time`: what a user waits for: a clean release build, and a rebuild after an edit of the model.
//!
//! The crate that is built has the manifest that the README recommends.

use crate::{cargo, root, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

const MODEL: &str = r#"use fornax::prelude::*;

#[derive(Module, Debug, Clone)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn new(device: &Device) -> Mlp {
        Mlp { fc1: Linear::new(8, 32, device), fc2: Linear::new(32, 1, device) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&(self.fc1.forward(x) * SCALE).gelu())
    }
}

fn main() {
    let device = Device::best();
    let mut model = Mlp::new(&device);
    let mut optimizer = AdamW::new(1e-2);
    let x = Tensor::randn([64, 8], &device);
    for _ in 0..10 {
        let loss = (model.forward(&x) - x.sum(keepdim(-1))).square().mean(());
        let gradients = loss.backward();
        optimizer.step(&mut model, &gradients);
        println!("{}", loss.item::<f32>());
    }
}
"#;

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
    let write = |scale: usize| {
        let text = MODEL.replace("SCALE", &format!("{scale}.0"));
        fs::write(dir.join("src/main.rs"), text).map_err(io)
    };
    let build = || -> Result<(f64, Vec<u8>), String> {
        let start = Instant::now();
        let target = dir.join("target");
        run(cargo().args(["build", "--release", "--quiet"]).current_dir(dir).env("CARGO_TARGET_DIR", &target))?;
        let seconds = start.elapsed().as_secs_f64();
        let program = target.join("release").join(format!("hello-model{}", std::env::consts::EXE_SUFFIX));
        Ok((seconds, fs::read(program).map_err(io)?))
    };
    // Downloads are no part of building.
    write(1)?;
    run(cargo().args(["fetch", "--quiet"]).current_dir(dir))?;
    let (clean, mut program) = build()?;
    let mut edits = Vec::new();
    for edit in 0..EDITS {
        write(edit + 2)?;
        let (seconds, rebuilt) = build()?;
        if rebuilt == program {
            return Err(String::from("an edit did not change the program"));
        }
        program = rebuilt;
        edits.push(seconds);
    }
    edits.sort_by(f64::total_cmp);
    let (least, most) = (edits[0], edits[EDITS - 1]);
    println!("clean release build    {clean:7.1} s, {} crates", crates(dir)?);
    println!("rebuild after an edit  {:7.2} s (median of {EDITS}; {least:.2} to {most:.2})", edits[EDITS / 2]);
    println!("program                {:7.1} MB", program.len() as f64 / 1e6);
    Ok(true)
}

/// The README's manifest for users' crates, made whole.
fn manifest(readme: &str, facade: &Path) -> Result<String, String> {
    let blocks = readme.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block =
        blocks.into_iter().find(|block| block.contains("[profile.release]") && block.contains("…/crates/fornax"));
    let block = block.ok_or("README.md has no manifest with [profile.release] and …/crates/fornax")?;
    let block = block.replace("…/crates/fornax", &facade.display().to_string().replace('\\', "/"));
    let package = "[package]\nname = \"hello-model\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    Ok(format!("{package}\n{block}\n[workspace]\n"))
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
    fn the_readme_has_a_manifest_for_users() {
        let readme = fs::read_to_string(root().join("README.md")).unwrap();
        let manifest = manifest(&readme, Path::new("/somewhere/fornax")).unwrap();
        assert!(manifest.contains("fornax = { path = \"/somewhere/fornax\" }"), "{manifest}");
        assert!(manifest.contains("[profile.release]"), "{manifest}");
    }
}
