//! One AdamW step over 150 tensors of 10 million parameters in all: how many launches it takes, and how near it comes
//! to the bandwidth of memory.
//!
//! ```text
//! cargo run --release --example adamw_step
//! ```
//!
//! A step reads parameter, gradient and two means, and writes parameter and means: 28 bytes a parameter. The bound is
//! measured in the same run, by adding two tensors of 10 million elements into a third (12 bytes an element).

use fornax::nn::optim::AdamW;
use fornax::prelude::*;
use std::time::{Duration, Instant};

const TENSORS: usize = 150;
const PARAMETERS: usize = 10_000_000;

fn main() {
    let device = Device::best();
    let mut model: Vec<Param> = sizes().iter().map(|&size| Param::new(&Tensor::randn([size], &device))).collect();
    let mut gradients = Gradients::default();
    for param in &model {
        gradients.insert(param, Tensor::randn([param.numel()], &device));
    }
    let values: Vec<Tensor> = model.iter().map(|param| gradients.get(param).expect("just put in").clone()).collect();
    device.flush();

    let mut optimizer = AdamW::new(1e-3);
    let mut step = |model: &mut Vec<Param>| {
        // A parameter is a new leaf after each step.
        let mut gradients = Gradients::default();
        for (param, value) in model.iter().zip(&values) {
            gradients.insert(param, value.clone());
        }
        let start = Instant::now();
        optimizer.step(model, &gradients);
        start.elapsed()
    };
    // The first step has no means to read yet: it is another program.
    step(&mut model);
    step(&mut model);
    let before = device.report();
    step(&mut model);
    println!(
        "one step over {} parameters in {TENSORS} tensors:\n{}",
        model.num_parameters(),
        device.report().since(&before)
    );

    let (a, b) = (Tensor::randn([PARAMETERS], &device), Tensor::randn([PARAMETERS], &device));
    device.flush();
    let (mut steps, mut sums) = (Vec::new(), Vec::new());
    let mut sum = &a + &b;
    for _ in 0..30 {
        steps.push(step(&mut model));
        let start = Instant::now();
        // The memory of the last sum is free for this one.
        drop(core::mem::replace(&mut sum, a.clone()));
        sum = &a + &b;
        device.flush();
        sums.push(start.elapsed());
    }
    let rate = |bytes: usize, time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    for (what, bytes, times) in [("AdamW step", 28, &mut steps), ("a + b", 12, &mut sums)] {
        times.sort_unstable();
        for (name, time) in [("median", times[times.len() / 2]), ("best", times[0])] {
            let rate = rate(bytes * PARAMETERS, time);
            println!("{what:<12}{name:<8}{:8.2} ms {rate:8.2} GB/s", time.as_secs_f64() * 1e3);
        }
    }
}

/// Sizes as models have them: many small, a few large.
fn sizes() -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..TENSORS).map(|i| if i % 3 == 0 { 256 } else { 32_768 + 768 * i }).collect();
    let rest = PARAMETERS - sizes.iter().sum::<usize>();
    sizes[1] += rest;
    sizes
}
