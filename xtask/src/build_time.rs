//! `cargo xtask build-time`: what a user waits for: a clean release build, and a rebuild after an edit of the model.

use crate::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The README's template.
const MANIFEST: &str = r#"[package]
name = "hello-model"
version = "0.1.0"
edition = "2024"

[dependencies]
fornax = { path = "FACADE" }

[profile.release]
incremental = true

[workspace]
"#;

const MODEL: &str = r"use fornax::prelude::*;

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
        println!(`{}`, loss.item::<f32>());
    }
}
";

/// Edits measured; the median counts.
const EDITS: usize = 5;

/// Builds and rebuilds a crate in a temporary folder.
pub fn run() -> Result<bool, String> {
    let dir = std::env::temp_dir().join(format!("fornax-build-time-{}", std::process::id()));
    let result = measure(&dir);
    // A leftover in the temporary folder harms nobody.
    let _ = fs::remove_dir_all(&dir);
    result
}

fn measure(dir: &Path) -> Result<bool, String> {
    let io = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir_all(dir.join("src")).map_err(io)?;
    let facade = root().join("crates/fornax").canonicalize().map_err(io)?;
    fs::write(dir.join("Cargo.toml"), MANIFEST.replace("FACADE", &facade.display().to_string())).map_err(io)?;
    let write = |scale: usize| {
        let text = MODEL.replace("SCALE", &format!("{scale}.0")).replace('`', "\"");
        fs::write(dir.join("src/main.rs"), text).map_err(io)
    };
    write(1)?;
    let build = || -> Result<f64, String> {
        let start = Instant::now();
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet"])
            .current_dir(dir)
            .env("CARGO_TARGET_DIR", dir.join("target"))
            .stdin(Stdio::null())
            .status()
            .map_err(io)?;
        if status.success() { Ok(start.elapsed().as_secs_f64()) } else { Err(String::from("the build failed")) }
    };
    let clean = build()?;
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--prefix", "none", "--edges", "normal,build"])
        .current_dir(dir)
        .output()
        .map_err(io)?;
    let text = String::from_utf8_lossy(&tree.stdout).into_owned();
    let crates: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty()).collect();
    let mut edits = Vec::new();
    for edit in 0..EDITS {
        write(edit + 2)?;
        edits.push(build()?);
    }
    edits.sort_by(f64::total_cmp);
    println!("clean release build      {clean:7.1} s, {} crates", crates.len());
    println!(
        "rebuild after an edit    {:7.2} s (median of {EDITS}; {:.2} to {:.2})",
        edits[EDITS / 2],
        edits[0],
        edits[EDITS - 1]
    );
    Ok(true)
}
