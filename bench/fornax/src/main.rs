//! Fornax as a peer: the workloads of `workloads.toml` on the CPU device.
//!
//! ```text
//! bench-fornax                    serves the line protocol of `benchproto`
//! bench-fornax dump NAME DIR      runs NAME; writes its inputs and results to DIR, for check.py
//! bench-fornax profile NAME SECS  runs NAME for so long, for a profiler; prints mean, minimum and counters
//! ```

mod models;

use benchproto::Case;
use fornax::nn::optim::{Adam, AdamW};
use fornax::prelude::*;
use fornax::{Affine, ConvOptions};
use models::{CTX, Cnn, Gpt, KvCache, Mlp, ResNet18, VOCAB};
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// A workload that is ready to run: what goes in, by name, and one iteration, which gives the values it made.
struct Workload {
    tensors: Vec<(String, Tensor)>,
    step: Box<dyn FnMut() -> Vec<Tensor>>,
}

/// A workload of a function of some tensors.
fn plain<const N: usize>(inputs: [Tensor; N], f: impl Fn(&[Tensor; N]) -> Tensor + 'static) -> Workload {
    let tensors = inputs.iter().enumerate().map(|(i, tensor)| (i.to_string(), tensor.clone())).collect();
    Workload { tensors, step: Box::new(move || vec![no_grad(|| f(&inputs))]) }
}

fn normal(shape: impl Into<Shape>, device: &Device) -> Tensor {
    Tensor::randn(shape, device)
}

fn integers(shape: impl Into<Shape>, below: i64, device: &Device) -> Tensor {
    Tensor::randint(0, below, shape, device)
}

fn product(a: &[usize], b: &[usize], dtype: DType, device: &Device) -> Workload {
    let inputs = [a, b].map(|shape| normal(shape, device).to_dtype(dtype));
    plain(inputs, |[a, b]| a.matmul(b))
}

fn chain(rows: usize, columns: usize, device: &Device) -> Workload {
    let [w, b, s] = [(); 3].map(|()| normal([columns], device));
    plain([normal([rows, columns], device), w, b, s], |[x, w, b, s]| (x * w + b).gelu() * s)
}

fn sum(device: &Device, f: impl Fn(&Tensor) -> Tensor + 'static) -> Workload {
    plain([normal([4096, 4096], device)], move |[x]| f(x))
}

fn convolution(
    x: [usize; 4],
    w: [usize; 4],
    stride: usize,
    padding: usize,
    groups: usize,
    device: &Device,
) -> Workload {
    let options = ConvOptions { stride: stride.into(), padding: padding.into(), groups, ..ConvOptions::default() };
    plain([normal(x, device), normal(w, device)], move |[x, w]| x.conv2d(w, None, &options))
}

/// Plain ops on a million elements.
fn million(name: &str, device: &Device) -> Option<Workload> {
    let n = 1 << 20;
    let run = |inputs: Vec<Tensor>, f: fn(&[Tensor]) -> Vec<Tensor>| {
        let tensors = inputs.iter().enumerate().map(|(i, tensor)| (i.to_string(), tensor.clone())).collect();
        Some(Workload { tensors, step: Box::new(move || no_grad(|| f(&inputs))) })
    };
    match name {
        "sort" => run(vec![normal([n], device)], |x| <[Tensor; 2]>::from(x[0].sort(0, false)).to_vec()),
        "sort_rows" => run(vec![normal([1024, 1024], device)], |x| <[Tensor; 2]>::from(x[0].sort(1, false)).to_vec()),
        "topk" => run(vec![normal([n], device)], |x| <[Tensor; 2]>::from(x[0].topk(100, 0, true)).to_vec()),
        "cumsum" => run(vec![normal([n], device)], |x| vec![x[0].cumsum(0)]),
        "cumsum_dim0" => run(vec![normal([1024, 1024], device)], |x| vec![x[0].cumsum(0)]),
        "gather" | "scatter_add" => {
            let inputs = vec![normal([n], device), integers([n], n as i64, device), normal([n], device)];
            match name {
                "gather" => run(inputs, |x| vec![x[0].gather(0, &x[1])]),
                _ => run(inputs, |x| vec![x[0].scatter_add(0, &x[1], &x[2])]),
            }
        }
        "unique" => run(vec![integers([n], 1000, device)], |x| <[Tensor; 3]>::from(x[0].unique()).to_vec()),
        "einsum" => {
            let inputs = vec![normal([8, 8, 128, 64], device), normal([8, 8, 128, 64], device)];
            run(inputs, |x| vec![Tensor::einsum("bhqd,bhkd->bhqk", &[&x[0], &x[1]])])
        }
        _ => None,
    }
}

fn state(model: &impl Module) -> Vec<(String, Tensor)> {
    model.named_parameters().into_iter().map(|(name, param)| (name, param.detach())).collect()
}

/// Training steps on one batch; the result is the loss.
fn training<M: Module + 'static>(
    mut model: M,
    data: [Tensor; 2],
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor + 'static,
    mut update: impl FnMut(&mut M, &Gradients) + 'static,
) -> Workload {
    let mut tensors = state(&model);
    tensors.extend([("x".to_string(), data[0].clone()), ("y".to_string(), data[1].clone())]);
    let step = move || {
        let loss = loss(&model, &data[0], &data[1]);
        let gradients = loss.backward();
        update(&mut model, &gradients);
        vec![loss.detach()]
    };
    Workload { tensors, step: Box::new(step) }
}

fn workload(name: &str, dropout: f64, device: &Device) -> Option<Workload> {
    let (f32, bf16) = (DType::F32, DType::BF16);
    let square = |n: usize, dtype| product(&[n, n], &[n, n], dtype, device);
    Some(match name {
        "ew_4096" => chain(4096, 4096, device),
        "ew_256x1024" => chain(256, 1024, device),
        "softmax_4096x1024" => plain([normal([4096, 1024], device)], |[x]| x.softmax(-1)),
        "layernorm_8192x768" => {
            let inputs = [normal([8192, 768], device), normal([768], device), normal([768], device)];
            plain(inputs, |[x, w, b]| x.layer_norm(&[768], &Affine::new(w, b), 1e-5))
        }
        "sum_dim0_4096" => sum(device, |x| x.sum(0)),
        "sum_dim1_4096" => sum(device, |x| x.sum(1)),
        "sum_all_4096" => sum(device, |x| x.sum(())),
        "mm_f32_512" => square(512, f32),
        "mm_f32_1024" => square(1024, f32),
        "mm_f32_2048" => square(2048, f32),
        "mm_bf16_1024" => square(1024, bf16),
        "mm_bf16_2048" => square(2048, bf16),
        "mm_i8_1024" => {
            let inputs = [(); 2].map(|()| Tensor::randint(-127, 127, [1024, 1024], device).to_dtype(DType::I8));
            plain(inputs, |[a, b]| a.matmul_to(b, DType::I32))
        }
        "bmm_32x128x64x128" => product(&[32, 128, 64], &[32, 64, 128], f32, device),
        "mv_1x4096x4096" => product(&[1, 4096], &[4096, 4096], f32, device),
        "conv3x3_64" => convolution([8, 64, 56, 56], [64, 64, 3, 3], 1, 1, 1, device),
        "conv7x7_s2" => convolution([8, 3, 224, 224], [64, 3, 7, 7], 2, 3, 1, device),
        "conv_dw3x3" => convolution([8, 64, 56, 56], [64, 1, 3, 3], 1, 1, 64, device),
        "train_mlp" => {
            let mut optimizer = Adam::new(1e-3);
            training(
                Mlp::new(device),
                [normal([128, 784], device), integers([128], 10, device)],
                |model, x, y| model.forward(x).cross_entropy(y),
                move |model, gradients| optimizer.step(model, gradients),
            )
        }
        "train_mnist_cnn" => {
            let mut optimizer = Adam::new(1e-3);
            training(
                Cnn::new(dropout, device),
                [normal([64, 1, 28, 28], device), integers([64], 10, device)],
                |model, x, y| model.forward(x).cross_entropy(y),
                move |model, gradients| optimizer.step(model, gradients),
            )
        }
        "train_gpt" => {
            let mut optimizer = AdamW::new(1e-3);
            let positions = Tensor::arange(0, 128, 1, DType::I64, device);
            training(
                Gpt::new(device),
                [integers([8, 128], VOCAB as i64, device), integers([8 * 128], VOCAB as i64, device)],
                move |model, x, y| model.forward(x, &positions).reshape([8 * 128, VOCAB]).cross_entropy(y),
                move |model, gradients| optimizer.step(model, gradients),
            )
        }
        "decode_gpt" => {
            let model = Gpt::new(device);
            let device = device.clone();
            let tensors = state(&model);
            let step = move || {
                let mut caches: Vec<KvCache> = model.caches();
                let mut logits = Vec::new();
                for i in 0..CTX {
                    let token = Tensor::from_slice(&[(i % VOCAB) as i64], [1, 1], &device);
                    let position = Tensor::from_slice(&[i as i64], [1, 1], &device);
                    let next = no_grad(|| model.decode(&token, &position, &mut caches));
                    device.flush(); // every token is there before the next one is asked for
                    logits = vec![next];
                }
                logits
            };
            Workload { tensors, step: Box::new(step) }
        }
        "resnet18_b1" | "resnet18_b8" => {
            let count = if name.ends_with('1') { 1 } else { 8 };
            let mut model = ResNet18::new(device);
            model.eval();
            let x = normal([count, 3, 224, 224], device);
            let mut tensors = state(&model);
            tensors.push(("x".to_string(), x.clone()));
            Workload { tensors, step: Box::new(move || vec![no_grad(|| model.forward(&x))]) }
        }
        "ovh_add8" => {
            let inputs = [normal([8], device), normal([8], device)];
            plain(inputs, |[x, y]| {
                let mut sum = x.clone();
                for _ in 0..10_000 {
                    sum = &sum + y;
                }
                sum
            })
        }
        _ => return million(name.strip_prefix("million_")?, device),
    })
}

/// A workload whose inputs are in memory.
fn ready(name: &str, dropout: f64, device: &Device) -> Option<Workload> {
    device.seed(1);
    let made = workload(name, dropout, device)?;
    device.flush();
    Some(made)
}

fn case(name: &str, device: &Device) -> Option<Case> {
    let Workload { mut step, .. } = ready(name, 0.25, device)?;
    let device = device.clone();
    Some(Box::new(move || {
        let made = step();
        device.flush();
        black_box(made);
    }))
}

/// Writes tensors as raw files `PREFIX.NAME` with a line each in a manifest.
fn write(dir: &Path, prefix: &str, tensors: &[(String, Tensor)], manifest: &mut String) {
    for (name, tensor) in tensors {
        let shape: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
        manifest.push_str(&format!("{prefix}.{name} {} {}\n", tensor.dtype(), shape.join(",")));
        fs::write(dir.join(format!("{prefix}.{name}")), tensor.to_bytes()).expect("the folder can be written");
    }
}

fn dump(name: &str, dir: &Path, device: &Device) {
    let Some(Workload { tensors, mut step }) = ready(name, 0.0, device) else { return println!("no {name}") };
    fs::create_dir_all(dir).expect("the folder can be made");
    let mut manifest = String::new();
    write(dir, "in", &tensors, &mut manifest);
    let results: Vec<Tensor> = (0..3).flat_map(|_| step()).collect();
    let results: Vec<_> = results.into_iter().enumerate().map(|(i, tensor)| (i.to_string(), tensor)).collect();
    write(dir, "out", &results, &mut manifest);
    fs::write(dir.join("manifest"), manifest).expect("the folder can be written");
}

fn profile(name: &str, seconds: f64, device: &Device) {
    let Some(mut run) = case(name, device) else { return println!("no {name}") };
    (0..3).for_each(|_| run());
    let (before, start, mut count, mut least) = (device.report(), Instant::now(), 0u32, f64::INFINITY);
    while start.elapsed().as_secs_f64() < seconds {
        let begin = Instant::now();
        run();
        least = least.min(begin.elapsed().as_secs_f64());
        count += 1;
    }
    let mean = start.elapsed().as_secs_f64() / f64::from(count);
    let since = device.report().since(&before);
    println!("{name}: mean {:.4} ms, fastest {:.4} ms, {count} times\n{since}", mean * 1e3, least * 1e3);
}

fn main() {
    let threads = std::env::var("BENCH_THREADS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let device = match threads {
        0 => Device::cpu(),
        count => Device::new(fornax_cpu::CpuBackend::with_threads(count)),
    };
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["dump", name, dir] => dump(name, Path::new(dir), &device),
        ["profile", name, seconds] => profile(name, seconds.parse().expect("seconds are a number"), &device),
        _ => {
            let mut last = device.report();
            benchproto::serve_with(
                |name| case(name, &device),
                || {
                    let now = device.report();
                    let since = now.since(&last);
                    last = now;
                    let mut all = vec![format!("ops_recorded={}", since.ops_recorded)];
                    all.extend(since.counters.iter().map(|(name, count)| format!("{name}={count}")));
                    all.push(format!("memory_peak={}", since.memory.peak));
                    device.backend().reset_peak_memory();
                    all.join(" ")
                },
            );
        }
    }
}
