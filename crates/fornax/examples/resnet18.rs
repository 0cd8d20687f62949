//! ResNet-18 from public modules, with PyTorch's names: its summary, a strict load, a prediction.
//!
//! ```text
//! cargo run --release --example resnet18 [-- WEIGHTS.safetensors]
//! ```
//!
//! With a file it loads that, strictly: the weights of torchvision's `resnet18` fit as they are. Without one it loads
//! random weights under the names that torchvision gives them.
//!
//! References: He, Zhang, Ren, Sun (2015), *Deep Residual Learning for Image Recognition*, arXiv:1512.03385.

use fornax::nn::AdaptiveAvgPool2d;
use fornax::prelude::*;
use std::error::Error;

#[derive(Module, Debug, Clone)]
struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<(Conv2d, BatchNorm2d)>,
}

impl BasicBlock {
    fn new(input: usize, output: usize, stride: usize, device: &Device) -> BasicBlock {
        let conv3x3 = |input, stride| {
            let config = ConvConfig::default().stride(stride).padding(1).without_bias();
            Conv2d::new(input, output, [3, 3], &config, device)
        };
        let downsample = (stride != 1 || input != output).then(|| {
            let config = ConvConfig::default().stride(stride).without_bias();
            (Conv2d::new(input, output, [1, 1], &config, device), BatchNorm2d::new(output, device))
        });
        BasicBlock {
            conv1: conv3x3(input, stride),
            bn1: BatchNorm2d::new(output, device),
            conv2: conv3x3(output, 1),
            bn2: BatchNorm2d::new(output, device),
            downsample,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.bn1.forward(&self.conv1.forward(x)).relu();
        let y = self.bn2.forward(&self.conv2.forward(&y));
        (y + self.downsample.forward(x)).relu()
    }
}

#[derive(Module, Debug, Clone)]
struct ResNet18 {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    maxpool: MaxPool2d,
    layer1: [BasicBlock; 2],
    layer2: [BasicBlock; 2],
    layer3: [BasicBlock; 2],
    layer4: [BasicBlock; 2],
    avgpool: AdaptiveAvgPool2d,
    fc: Linear,
}

impl ResNet18 {
    fn new(classes: usize, device: &Device) -> ResNet18 {
        let stage = |input, output, stride| {
            [BasicBlock::new(input, output, stride, device), BasicBlock::new(output, output, 1, device)]
        };
        let config = ConvConfig::default().stride(2).padding(3).without_bias();
        let mut pool = PoolOptions::new(3);
        (pool.stride, pool.padding) = (Some(2.into()), 1.into());
        ResNet18 {
            conv1: Conv2d::new(3, 64, [7, 7], &config, device),
            bn1: BatchNorm2d::new(64, device),
            maxpool: MaxPool2d::new(pool),
            layer1: stage(64, 64, 1),
            layer2: stage(64, 128, 2),
            layer3: stage(128, 256, 2),
            layer4: stage(256, 512, 2),
            avgpool: AdaptiveAvgPool2d::new([Some(1), Some(1)]),
            fc: Linear::new(512, classes, device),
        }
    }

    /// Logits `[n, classes]` of images `[n, 3, height, width]`.
    fn forward(&self, images: &Tensor) -> Tensor {
        let mut x = self.maxpool.forward(&self.bn1.forward(&self.conv1.forward(images)).relu()); // [n, 64, h / 4, w / 4]
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward(&x);
        }
        self.fc.forward(&self.avgpool.forward(&x).flatten(1, -1)) // x: [n, 512, h / 32, w / 32]
    }
}

/// Random weights under the names and in the shapes of torchvision's `resnet18`, written down without the model above.
fn torchvision_state(device: &Device) -> Vec<(String, Tensor)> {
    let mut state: Vec<(String, Tensor)> = Vec::new();
    let conv = |state: &mut Vec<(String, Tensor)>, name: &str, shape: [usize; 4]| {
        let fan = (shape[0] * shape[2] * shape[3]) as f64;
        state.push((format!("{name}.weight"), Tensor::normal(shape, 0.0, (2.0 / fan).sqrt(), device)));
    };
    let norm = |state: &mut Vec<(String, Tensor)>, name: &str, channels: usize| {
        for (part, value) in [("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0)] {
            state.push((format!("{name}.{part}"), Tensor::full([channels], value, DType::F32, device)));
        }
        state.push((format!("{name}.num_batches_tracked"), Tensor::full((), 0, DType::I64, device)));
    };
    conv(&mut state, "conv1", [64, 3, 7, 7]);
    norm(&mut state, "bn1", 64);
    for (stage, width) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let name = format!("layer{}.{block}", stage + 1);
            let input = if block == 0 && stage > 0 { width / 2 } else { width };
            conv(&mut state, &format!("{name}.conv1"), [width, input, 3, 3]);
            norm(&mut state, &format!("{name}.bn1"), width);
            conv(&mut state, &format!("{name}.conv2"), [width, width, 3, 3]);
            norm(&mut state, &format!("{name}.bn2"), width);
            if input != width {
                conv(&mut state, &format!("{name}.downsample.0"), [width, input, 1, 1]);
                norm(&mut state, &format!("{name}.downsample.1"), width);
            }
        }
    }
    state.push(("fc.weight".into(), Tensor::uniform([1000, 512], -0.04, 0.04, device)));
    state.push(("fc.bias".into(), Tensor::zeros([1000], device)));
    state
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::best();
    let mut model = ResNet18::new(1000, &device);
    println!("{}\n", summary(&model, |model, device| drop(model.forward(&Tensor::zeros([1, 3, 224, 224], device)))));

    let state = match std::env::args().nth(1) {
        Some(path) => fornax::store::load(path, &device)?,
        None => torchvision_state(&device),
    };
    model.load_state_dict(&state)?;
    println!("{} tensors loaded, none missing, none left over", state.len());

    let images = Tensor::rand([1, 3, 224, 224], &device);
    let probabilities = model.eval().forward(&images).softmax(-1);
    println!("probabilities {} sum up to {:.4}", probabilities.shape(), probabilities.sum(()).item::<f32>());
    Ok(())
}
