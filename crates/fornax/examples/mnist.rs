//! A convolutional network learns handwritten digits: train, validate, save, load, predict.
//!
//! ```text
//! cargo run --release --example mnist
//! ```
//!
//! trains on the 8,000 digits that ship with Fornax and tests on 2,000 others. `--data DIR` reads the IDX files of the
//! full MNIST or of Fashion-MNIST instead; `--epochs N`, `--seed N` and `--save FILE` do what they say.
//!
//! References: LeCun, Bottou, Bengio, Haffner (1998), *Gradient-Based Learning Applied to Document Recognition*;
//! Loshchilov, Hutter (2016), *SGDR*, arXiv:1608.03983, for the cosine schedule.

use fornax::data::mnist::{Mnist, MnistItem};
use fornax::data::{DataLoader, Dataset, Philox};
use fornax::prelude::*;
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::time::Instant;

const BATCH_SIZE: usize = 64;
const PEAK_LR: f64 = 2e-3;

#[derive(Module, Debug, Clone)]
struct Cnn {
    conv1: Conv2d,
    norm1: BatchNorm2d,
    conv2: Conv2d,
    norm2: BatchNorm2d,
    pool: MaxPool2d,
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl Cnn {
    fn new(device: &Device) -> Cnn {
        let config = ConvConfig::default().padding(1);
        Cnn {
            conv1: Conv2d::new(1, 16, [3, 3], &config, device),
            norm1: BatchNorm2d::new(16, device),
            conv2: Conv2d::new(16, 32, [3, 3], &config, device),
            norm2: BatchNorm2d::new(32, device),
            pool: MaxPool2d::new(PoolOptions::new(2)),
            fc1: Linear::new(32 * 7 * 7, 128, device),
            dropout: Dropout::new(0.3),
            fc2: Linear::new(128, 10, device),
        }
    }

    fn forward(&self, images: &Tensor) -> Tensor {
        let x = self.pool.forward(&self.norm1.forward(&self.conv1.forward(images)).relu()); // [batch, 16, 14, 14]
        let x = self.pool.forward(&self.norm2.forward(&self.conv2.forward(&x)).relu()); // [batch, 32, 7, 7]
        let x = self.fc1.forward(&x.flatten(1, -1)).relu(); // [batch, 128]
        self.fc2.forward(&self.dropout.forward(&x)) // [batch, 10]
    }
}

struct Batch {
    pixels: Vec<u8>,
    labels: Vec<i64>,
}

impl Batch {
    /// Images as `[batch, 1, 28, 28]` between 0 and 1, and their labels.
    fn tensors(&self, device: &Device) -> (Tensor, Tensor) {
        let count = self.labels.len();
        let images = Tensor::from_slice(&self.pixels, [count, 1, 28, 28], device).to_dtype(DType::F32) / 255.0;
        (images, Tensor::from_slice(&self.labels, [count], device))
    }
}

fn collate(items: Vec<MnistItem>) -> Batch {
    let labels = items.iter().map(|item| i64::from(item.label)).collect();
    Batch { labels, pixels: items.into_iter().flat_map(|item| item.image).collect() }
}

/// Moves each image by up to two pixels: a digit stays what it is, and the network cannot learn its place by heart.
fn collate_shifted(items: Vec<MnistItem>, random: &mut Philox) -> Batch {
    let shifted = items.into_iter().map(|item| {
        let (down, right) = (random.below(5) as isize - 2, random.below(5) as isize - 2);
        let mut image = [0; 784];
        for row in 0..28isize {
            for column in 0..28isize {
                let (from_row, from_column) = (row - down, column - right);
                if (0..28).contains(&from_row) && (0..28).contains(&from_column) {
                    image[(row * 28 + column) as usize] = item.image[(from_row * 28 + from_column) as usize];
                }
            }
        }
        MnistItem { image, ..item }
    });
    collate(shifted.collect())
}

/// Share of the items whose label is the most likely class.
fn accuracy(model: &Cnn, loader: &DataLoader<Batch>, device: &Device) -> f64 {
    let (mut hits, mut seen) = (0, 0);
    for batch in loader {
        let (images, labels) = batch.tensors(device);
        let predicted = no_grad(|| model.forward(&images)).argmax(-1);
        hits += predicted.eq(&labels).sum(()).item::<i64>();
        seen += batch.labels.len();
    }
    hits as f64 / seen as f64
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse()?;
    let device = Device::best();
    device.seed(options.seed);
    let digits = match &options.data {
        Some(dir) => Mnist::load(dir)?,
        None => Mnist::digits(),
    };
    let train = DataLoader::builder(digits.train.clone())
        .batch_size(BATCH_SIZE)
        .shuffle(options.seed)
        .drop_last()
        .workers(1)
        .collate_random(options.seed, collate_shifted)
        .build();
    let test = DataLoader::builder(digits.test.clone()).batch_size(250).collate(collate).build();

    let mut model = Cnn::new(&device);
    println!("{model}\n{} parameters on {device}", model.num_parameters());
    let mut optimizer = AdamW::new(PEAK_LR);
    let steps = options.epochs * train.len();
    let mut step_report = device.report();
    let start = Instant::now();
    for epoch in 1..=options.epochs {
        let bar = ProgressBar::new(train.len() as u64);
        bar.set_style(ProgressStyle::with_template("epoch {prefix} {bar:30} {pos}/{len} {msg}")?);
        bar.set_prefix(epoch.to_string());
        model.train();
        let mut losses = Vec::new();
        for batch in &train {
            let done = optimizer.state.step as f64 / steps as f64;
            optimizer.lr = PEAK_LR * (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
            let (images, labels) = batch.tensors(&device);
            let before = device.report();
            let loss = model.forward(&images).cross_entropy(&labels);
            let gradients = loss.backward();
            optimizer.step(&mut model, &gradients);
            step_report = device.report().since(&before);
            losses.push(loss);
            bar.inc(1);
        }
        let mean_loss = Tensor::stack(&losses.iter().collect::<Vec<_>>(), 0).mean(()).item::<f32>();
        let accuracy = accuracy(model.eval(), &test, &device);
        bar.finish_and_clear();
        let memory = device.report().memory.peak as f64 / 1e6;
        println!(
            "epoch {epoch:2}  loss {mean_loss:.4}  test accuracy {:.2} %  {:.1} s  peak {memory:.0} MB",
            accuracy * 100.0,
            start.elapsed().as_secs_f64(),
        );
    }

    println!("the last training step:\n{step_report}");

    model.eval().save(&options.save)?;
    let mut loaded = Cnn::new(&device);
    loaded.load(&options.save)?;
    let final_accuracy = accuracy(loaded.eval(), &test, &device);
    println!("saved to {}, loaded, test accuracy {:.2} %", options.save, final_accuracy * 100.0);

    let few: Vec<MnistItem> = (0..4).map(|i| digits.test.get(i)).collect();
    let (images, _) = collate(few.clone()).tensors(&device);
    let chances = no_grad(|| loaded.forward(&images)).softmax(-1);
    let (sure, predicted) = chances.max(-1);
    let (sure, predicted) = (sure.to_vec::<f32>(), predicted.to_vec::<i64>());
    for (i, item) in few.iter().enumerate() {
        println!("{item}\nlabel {}, predicted {} ({:.1} %)\n", item.label, predicted[i], sure[i] * 100.0);
    }
    Ok(())
}

struct Options {
    data: Option<String>,
    epochs: usize,
    seed: u64,
    save: String,
}

impl Options {
    fn parse() -> Result<Options, Box<dyn Error>> {
        let default_save = std::env::temp_dir().join("mnist.safetensors").display().to_string();
        let mut options = Options { data: None, epochs: 12, seed: 1, save: default_save };
        let mut args = std::env::args().skip(1);
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--data" => options.data = Some(value),
                "--epochs" => options.epochs = value.parse()?,
                "--seed" => options.seed = value.parse()?,
                "--save" => options.save = value,
                _ => return Err(format!("unknown option {name}; there are --data, --epochs, --seed, --save").into()),
            }
        }
        Ok(options)
    }
}
