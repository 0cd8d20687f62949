//! Fornax on a GPU: a line of JSON for each workload of `bench/py/gpu.py`, which times PyTorch on the same.
//!
//! ```text
//! cd bench && cargo run --release --features cuda --bin bench-gpu [NAME…]
//! ```
//!
//! The device is `FORNAX_DEVICE`, else the first GPU. A time is the wall clock over `n` calls and one wait for the device,
//! divided by `n`; the median of five such, with the least and the most.

use fornax::prelude::*;
use std::time::Instant;

const BATCHES: usize = 5;
/// Seconds that the calls of one batch should take.
const TARGET: f64 = 0.03;
const MAX_CALLS: usize = 400;

struct Bench {
    device: Device,
    only: Vec<String>,
}

impl Bench {
    /// Times `step`; `bytes` must be moved at least, or `operations` done.
    fn row(&self, name: &str, bytes: f64, operations: f64, mut step: impl FnMut() -> Vec<Tensor>) {
        let device = &self.device;
        let mut call = || {
            let values = step();
            device.flush();
            drop(values);
        };
        let wait = || device.sync().expect("the device works");
        let mut timed = |n: usize| {
            let start = Instant::now();
            (0..n).for_each(|_| call());
            wait();
            start.elapsed().as_secs_f64() / n as f64
        };
        let first = timed(1);
        timed(4);
        let once = timed(1);
        let n = ((TARGET / once.max(1e-6)) as usize).clamp(1, MAX_CALLS);
        let mut times: Vec<f64> = (0..BATCHES).map(|_| timed(n) * 1e3).collect();
        times.sort_by(f64::total_cmp);
        let ms = times[BATCHES / 2];
        println!(
            "{{\"fw\": \"fornax\", \"row\": \"{name}\", \"ms\": {ms:.4}, \"lo\": {:.4}, \"hi\": {:.4}, \
             \"first_s\": {first:.3}, \"gbs\": {:.0}, \"tflops\": {:.1}}}",
            times[0],
            times[BATCHES - 1],
            bytes / ms / 1e6,
            operations / ms / 1e9,
        );
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    fn normal(&self, shape: impl Into<Shape>, dtype: DType) -> Tensor {
        Tensor::randn(shape, &self.device).to_dtype(dtype)
    }
}

fn main() {
    let device = Device::best();
    let bench = Bench { device: device.clone(), only: std::env::args().skip(1).collect() };
    let dtypes = [(DType::F32, "f32", 4.0), (DType::BF16, "bf16", 2.0)];
    for (dtype, name, size) in dtypes {
        if bench.wants("elementwise") {
            let (rows, columns) = (8192, 8192);
            let [x, w, b] =
                [bench.normal([rows, columns], dtype), bench.normal([columns], dtype), bench.normal([columns], dtype)];
            let bytes = 2.0 * size * (rows * columns) as f64;
            bench.row(&format!("elementwise {name}"), bytes, 0.0, || vec![no_grad(|| (&x * &w + &b).gelu() * 0.5)]);
        }
        if bench.wants("softmax") {
            let x = bench.normal([16384, 4096], dtype);
            let bytes = 2.0 * size * f64::from(16384 * 4096);
            bench.row(&format!("softmax {name}"), bytes, 0.0, || vec![no_grad(|| x.softmax(-1))]);
        }
    }
    if bench.wants("layernorm") {
        layer_norm(&bench);
    }
    if bench.wants("sum") {
        let x = bench.normal([16384, 8192], DType::F32);
        let bytes = 4.0 * f64::from(16384 * 8192);
        bench.row("sum rows", bytes, 0.0, || vec![no_grad(|| x.sum(1))]);
        bench.row("sum columns", bytes, 0.0, || vec![no_grad(|| x.sum(0))]);
        bench.row("sum all", bytes, 0.0, || vec![no_grad(|| x.sum(()))]);
    }
    if bench.wants("matmul") {
        for (dtype, name, n) in [(DType::BF16, "bf16", 4096), (DType::BF16, "bf16", 8192), (DType::F32, "f32", 4096)] {
            let [a, b] = [(); 2].map(|()| bench.normal([n, n], dtype));
            let operations = 2.0 * (n as f64).powi(3);
            let tf32 = if dtype == DType::F32 && std::env::var("FORNAX_TF32").is_ok_and(|set| set == "1") {
                " tf32"
            } else {
                ""
            };
            bench.row(&format!("matmul {name}{tf32} {n}"), 0.0, operations, || vec![no_grad(|| a.matmul(&b))]);
        }
    }
    if bench.wants("adds") {
        let x = bench.normal([16], DType::F32);
        // A value that is read by nobody else is fused away: each add is run by itself.
        bench.row("adds, 100 unfused", 0.0, 0.0, || {
            let mut y = x.clone();
            for _ in 0..100 {
                y = no_grad(|| &y + 1.0);
                y.device().flush();
            }
            vec![y]
        });
    }
    if bench.wants("mlp") {
        mlp(&bench);
    }
    eprintln!("{:#?}", device.report());
}

fn layer_norm(bench: &Bench) {
    let (rows, columns) = (16384, 4096);
    let elements = (rows * columns) as f64;
    let [x, dy] = [(); 2].map(|()| bench.normal([rows, columns], DType::F32));
    let norm = LayerNorm::new([columns], &bench.device);
    bench.row("layernorm forward f32", 8.0 * elements, 0.0, || vec![no_grad(|| norm.forward(&x))]);
    let x = x.requires_grad();
    bench.row("layernorm forward and backward f32", 20.0 * elements, 0.0, || {
        let y = norm.forward(&x);
        let loss = (&y * &dy).sum(());
        let gradients = loss.backward();
        let mut kept = vec![y.detach(), gradients.get(&x).expect("x is tracked").clone()];
        kept.extend(norm.parameters().iter().filter_map(|parameter| gradients.get(parameter)).cloned());
        kept
    });
}

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

fn mlp(bench: &Bench) {
    let device = &bench.device;
    let mut model = Mlp {
        fc1: Linear::new(784, 512, device),
        fc2: Linear::new(512, 512, device),
        fc3: Linear::new(512, 10, device),
    };
    let x = bench.normal([128, 784], DType::F32);
    let y = Tensor::randint(0, 10, [128], device);
    let mut adam = Adam::new(1e-3);
    bench.row("mlp step", 0.0, 0.0, || {
        let hidden = model.fc2.forward(&model.fc1.forward(&x).relu()).relu();
        let loss = model.fc3.forward(&hidden).cross_entropy(&y);
        let gradients = loss.backward();
        adam.step(&mut model, &gradients);
        vec![loss.detach()]
    });
}
