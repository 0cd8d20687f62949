//! Whether the crates that must build with `alloc` alone do.
//!
//! A machine that has the standard library hides its use: a dependency with a `std` feature left on compiles there.
//! So beside linting each crate with its default features off, all of them are linked into a library that brings its
//! own panic handler; the standard library has one too, and two are an error.

use crate::{cargo, root, run};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that build with `alloc` alone.
const CRATES: &[&str] = &["fornax-ir", "fornax-compile", "fornax-cpu", "fornax-tensor", "fornax-nn", "fornax-store"];

const MANIFEST: &str = r#"[package]
name = "without-std"
version = "0.0.0"
edition = "2024"

[lib]
crate-type = ["staticlib"]

[profile.dev]
panic = "abort"

[workspace]

[dependencies]
"#;

const SOURCE: &str = "#![no_std]

use core::alloc::{GlobalAlloc, Layout};

struct NoMemory;

unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 { core::ptr::null_mut() }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static NO_MEMORY: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }

";

/// Lints each crate by itself, then all without a standard library.
pub fn check() -> Result<(), String> {
    for krate in CRATES {
        // What only the standard library's part uses is dead code without it.
        let package = ["clippy", "--package", krate, "--lib", "--no-default-features"];
        run(cargo().args(package).args(["--", "-D", "warnings"]))?;
    }
    let dir = std::env::temp_dir().join(format!("fornax-without-std-{}", std::process::id()));
    let result = write(&dir).and_then(|()| {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
        let target = target.join("without-std");
        run(cargo().current_dir(&dir).env("CARGO_TARGET_DIR", target).args(["check", "--lib"]))
    });
    // A leftover in the temporary folder harms nobody.
    let _ = fs::remove_dir_all(&dir);
    result
}

fn write(dir: &Path) -> Result<(), String> {
    let io = |error: std::io::Error| format!("{}: {error}", dir.display());
    let root = root().canonicalize().map_err(io)?;
    let (mut manifest, mut source) = (String::from(MANIFEST), String::from(SOURCE));
    for krate in CRATES {
        let path = root.join("crates").join(krate);
        // A literal string: no path needs escapes there.
        manifest += &format!("{krate} = {{ path = '{}', default-features = false }}\n", path.display());
        source += &format!("extern crate {};\n", krate.replace('-', "_"));
    }
    fs::create_dir_all(dir.join("src")).map_err(io)?;
    fs::write(dir.join("Cargo.toml"), manifest).map_err(io)?;
    fs::write(dir.join("src/lib.rs"), source).map_err(io)?;
    // The versions that the workspace is tested with.
    fs::copy(root.join("Cargo.lock"), dir.join("Cargo.lock")).map_err(io)?;
    Ok(())
}
