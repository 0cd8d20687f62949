//! Files of every format, sound and hostile; runs that go on from checkpoints.

// `#[derive(Module)]` writes paths into the facade.
extern crate fornax_nn as fornax;

mod checkpoint;
mod formats;
mod hostile;
mod loading;
mod resume;

use std::path::{Path, PathBuf};

/// A file of `testdata`; `make.py` there says how it was made.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// A place for a file, in a folder that each test has for itself.
fn scratch(test: &str, name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("fornax-store-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}
