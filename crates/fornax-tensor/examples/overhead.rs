//! What a tiny op costs: recording it; recording, planning and running it; and running it at once, alone.
//!
//! ```text
//! cargo run --release -p fornax-tensor --example overhead
//! ```
//!
//! Models the worst case for a lazy framework: long chains of dependent ops on eight numbers.

use fornax_tensor::{Device, Tensor};
use std::time::Instant;

const OPS: usize = 10_000;
const ROUNDS: usize = 15;

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let device = Device::cpu();
    let one = Tensor::ones([8], &device);
    device.flush();
    let (mut recording, mut whole, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut x = one.clone();
        for _ in 0..OPS {
            x = &x + &one;
        }
        recording.push(start.elapsed().as_secs_f64());
        assert_eq!(x.to_vec::<f32>(), [OPS as f32 + 1.0; 8]);
        whole.push(start.elapsed().as_secs_f64());
        let start = Instant::now();
        for _ in 0..OPS {
            x = &x + &one;
            device.flush();
        }
        alone.push(start.elapsed().as_secs_f64());
    }
    let nanoseconds = |seconds: f64| seconds / OPS as f64 * 1e9;
    println!("recording an add on [8]         {:7.1} ns", nanoseconds(median(recording)));
    println!("recording, planning, running it {:7.1} ns", nanoseconds(median(whole)));
    println!("the same, one by one            {:7.1} ns", nanoseconds(median(alone)));
    println!("{}", device.report());
}
