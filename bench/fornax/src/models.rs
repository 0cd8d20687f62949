//! The models of the workloads, as in `py/bench_torch.py`.

use fornax::prelude::*;
use fornax::AttentionOptions;

#[derive(Module, Clone, Debug)]
pub struct Mlp {
    layers: [Linear; 3],
}

impl Mlp {
    pub fn new(device: &Device) -> Mlp {
        Mlp { layers: [Linear::new(784, 512, device), Linear::new(512, 512, device), Linear::new(512, 10, device)] }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let [a, b, c] = &self.layers;
        c.forward(&b.forward(&a.forward(x).relu()).relu())
    }
}

#[derive(Module, Clone, Debug)]
pub struct Cnn {
    conv1: Conv2d,
    norm1: BatchNorm2d,
    conv2: Conv2d,
    norm2: BatchNorm2d,
    layers: [Linear; 3],
    pool: MaxPool2d,
    dropout: Dropout,
}

impl Cnn {
    pub fn new(dropout: f64, device: &Device) -> Cnn {
        let config = ConvConfig::default();
        Cnn {
            conv1: Conv2d::new(1, 64, [3, 3], &config, device),
            norm1: BatchNorm2d::new(64, device),
            conv2: Conv2d::new(64, 64, [3, 3], &config, device),
            norm2: BatchNorm2d::new(64, device),
            layers: [Linear::new(1600, 128, device), Linear::new(128, 128, device), Linear::new(128, 10, device)],
            pool: MaxPool2d::new(PoolOptions::new(2)),
            dropout: Dropout::new(dropout),
        }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.pool.forward(&self.norm1.forward(&self.conv1.forward(x)).relu());
        let x = self.pool.forward(&self.norm2.forward(&self.conv2.forward(&x)).relu());
        let [a, b, c] = &self.layers;
        let x = self.dropout.forward(&a.forward(&x.flatten(1, -1)).gelu());
        c.forward(&self.dropout.forward(&b.forward(&x).gelu()))
    }
}

const WIDTH: usize = 256;
const HEADS: usize = 4;
pub const VOCAB: usize = 1024;
pub const CTX: usize = 256;

/// Keys and values of the tokens so far, `[batch, heads, tokens, width / heads]`.
pub type KvCache = Option<(Tensor, Tensor)>;

#[derive(Module, Clone, Debug)]
struct Block {
    ln1: LayerNorm,
    ln2: LayerNorm,
    qkv: Linear,
    proj: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn new(device: &Device) -> Block {
        Block {
            ln1: LayerNorm::new([WIDTH], device),
            ln2: LayerNorm::new([WIDTH], device),
            qkv: Linear::new(WIDTH, 3 * WIDTH, device),
            proj: Linear::new(WIDTH, WIDTH, device),
            up: Linear::new(WIDTH, 4 * WIDTH, device),
            down: Linear::new(4 * WIDTH, WIDTH, device),
        }
    }

    /// Queries see the keys up to their own; with a cache, the last token sees all.
    fn forward(&self, x: &Tensor, cache: Option<&mut KvCache>) -> Tensor {
        let [batch, tokens, _] = x.dims();
        let qkv = self.qkv.forward(&self.ln1.forward(x));
        let [q, mut k, mut v] = [0, 1, 2].map(|part| {
            let part = qkv.narrow(2, part * WIDTH as i64, WIDTH);
            part.reshape([batch, tokens, HEADS, WIDTH / HEADS]).transpose(1, 2)
        });
        let is_causal = cache.is_none();
        if let Some(cache) = cache {
            if let Some((old_k, old_v)) = cache.take() {
                (k, v) = (Tensor::cat(&[&old_k, &k], 2), Tensor::cat(&[&old_v, &v], 2));
            }
            *cache = Some((k.clone(), v.clone()));
        }
        let options = AttentionOptions { is_causal, ..AttentionOptions::default() };
        let attended = q.scaled_dot_product_attention(&k, &v, &options);
        let x = x + self.proj.forward(&attended.transpose(1, 2).reshape([batch, tokens, WIDTH]));
        &x + self.down.forward(&self.up.forward(&self.ln2.forward(&x)).gelu())
    }
}

#[derive(Module, Clone, Debug)]
pub struct Gpt {
    tok: Embedding,
    pos: Embedding,
    blocks: Vec<Block>,
    ln: LayerNorm,
    head: Linear,
}

impl Gpt {
    pub fn new(device: &Device) -> Gpt {
        Gpt {
            tok: Embedding::new(VOCAB, WIDTH, device),
            pos: Embedding::new(CTX, WIDTH, device),
            blocks: (0..4).map(|_| Block::new(device)).collect(),
            ln: LayerNorm::new([WIDTH], device),
            head: Linear::without_bias(WIDTH, VOCAB, device),
        }
    }

    pub fn caches(&self) -> Vec<KvCache> {
        vec![None; self.blocks.len()]
    }

    pub fn forward(&self, tokens: &Tensor, positions: &Tensor) -> Tensor {
        let x = self.tok.forward(tokens) + self.pos.forward(positions);
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x, None));
        self.head.forward(&self.ln.forward(&x))
    }

    pub fn decode(&self, token: &Tensor, position: &Tensor, caches: &mut [KvCache]) -> Tensor {
        let x = self.tok.forward(token) + self.pos.forward(position);
        let x = self.blocks.iter().zip(caches).fold(x, |x, (block, cache)| block.forward(&x, Some(cache)));
        self.head.forward(&self.ln.forward(&x))
    }
}

#[derive(Module, Clone, Debug)]
struct ConvNorm {
    conv: Conv2d,
    norm: BatchNorm2d,
}

impl ConvNorm {
    fn new(from: usize, to: usize, kernel: usize, stride: usize, device: &Device) -> ConvNorm {
        let config = ConvConfig::default().stride(stride).padding(kernel / 2).without_bias();
        ConvNorm {
            conv: Conv2d::new(from, to, [kernel, kernel], &config, device),
            norm: BatchNorm2d::new(to, device),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.norm.forward(&self.conv.forward(x))
    }
}

#[derive(Module, Clone, Debug)]
struct Residual {
    a: ConvNorm,
    b: ConvNorm,
    down: Option<ConvNorm>,
}

impl Residual {
    fn forward(&self, x: &Tensor) -> Tensor {
        let y = self.b.forward(&self.a.forward(x).relu());
        let x = self.down.as_ref().map_or_else(|| x.clone(), |down| down.forward(x));
        (y + x).relu()
    }
}

#[derive(Module, Clone, Debug)]
pub struct ResNet18 {
    stem: ConvNorm,
    pool: MaxPool2d,
    blocks: Vec<Residual>,
    fc: Linear,
}

impl ResNet18 {
    pub fn new(device: &Device) -> ResNet18 {
        let mut blocks = Vec::new();
        let mut from = 64;
        for (stage, to) in [64, 128, 256, 512].into_iter().enumerate() {
            for place in 0..2 {
                let stride = if place == 0 && stage > 0 { 2 } else { 1 };
                blocks.push(Residual {
                    a: ConvNorm::new(from, to, 3, stride, device),
                    b: ConvNorm::new(to, to, 3, 1, device),
                    down: (stride != 1 || from != to).then(|| ConvNorm::new(from, to, 1, stride, device)),
                });
                from = to;
            }
        }
        let pool = PoolOptions { stride: Some(2.into()), padding: 1.into(), ..PoolOptions::new(3) };
        ResNet18 {
            stem: ConvNorm::new(3, 64, 7, 2, device),
            pool: MaxPool2d::new(pool),
            blocks,
            fc: Linear::new(512, 1000, device),
        }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.pool.forward(&self.stem.forward(x).relu());
        let x = self.blocks.iter().fold(x, |x, block| block.forward(&x));
        self.fc.forward(&x.mean([2, 3]))
    }
}
