//! What Fornax finds on this machine, as a report to paste into an issue:
//!
//! ```text
//! cargo run --release --example doctor --features cuda
//! ```

use fornax::prelude::*;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("fornax       {} on {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    let cpu = Device::cpu();
    let works = self_test(&cpu);
    println!("cpu          {}       {:?}, self-test {}", mark(works), cpu.backend(), outcome(works));
    #[cfg(feature = "cuda")]
    let is_well = {
        let (report, is_well) = fornax::cuda::doctor();
        print!("{report}");
        is_well
    };
    #[cfg(not(feature = "cuda"))]
    let is_well = {
        println!("cuda         not in this build; the feature `cuda` brings it");
        true
    };
    println!("best         {}", Device::best().name());
    if works && is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn mark(works: bool) -> &'static str {
    if works { "ok" } else { "bad" }
}

fn outcome(works: bool) -> &'static str {
    if works { "passed" } else { "FAILED" }
}

/// A map, a reduction and a product of small whole numbers, which are exact in any order of sums.
fn self_test(device: &Device) -> bool {
    let values: Vec<f32> = (0..64 * 96).map(|i| ((i * 7 + i / 5) % 11) as f32 - 5.0).collect();
    let x = Tensor::from_vec(values.clone(), [64, 96], device);
    let squares: f32 = values.iter().map(|x| x * x).sum();
    let gram = x.matmul(&x.transpose(0, 1)).to_vec::<f32>();
    let row = &values[..96];
    (&x * &x).sum(()).item::<f32>() == squares && gram[0] == row.iter().map(|x| x * x).sum::<f32>()
}
