//! PyTorch's modules, made of those of Fornax.

#![allow(clippy::wildcard_imports, reason = "every module is used; the lint is silent in tests")]

use crate::config::Config;
use crate::fixture::{Wrong, compare};
use crate::nn::{Call, Inputs, Model};
use fornax_nn::*;
use fornax_tensor::{BagMode, Device, InterpolateMode, PoolOptions, ResizeTo, Tensor};
use serde_json::Value;

/// A layer of one tensor.
fn layer(layer: impl Layer + 'static) -> Box<dyn Model> {
    Box::new(Call(layer, |layer: &_, inputs: &Inputs| vec![Layer::forward(layer, &inputs["input"])]))
}

fn call<M: Module + 'static>(module: M, run: impl Fn(&M, &Inputs) -> Vec<Tensor> + 'static) -> Box<dyn Model> {
    Box::new(Call(module, run))
}

/// A module of two tensors.
macro_rules! pair {
    ($module:expr, $a:literal, $b:literal) => {
        call($module, |module, inputs| vec![module.forward(&inputs[$a], &inputs[$b])])
    };
}

/// A module of three tensors.
macro_rules! triple {
    ($module:expr, $a:literal, $b:literal, $c:literal) => {
        call($module, |module, inputs| vec![module.forward(&inputs[$a], &inputs[$b], &inputs[$c])])
    };
}

fn mask<'a>(inputs: &'a Inputs, prefix: &str) -> AttentionMask<'a> {
    AttentionMask {
        attn_mask: inputs.get(&format!("{prefix}_mask")),
        key_padding_mask: inputs.get(&format!("{prefix}_key_padding_mask")),
        is_causal: false,
    }
}

fn integers(x: &Tensor) -> Vec<i64> {
    x.to_vec()
}

/// The first of the whole models.
#[derive(Module, Debug)]
struct Net {
    features: (Conv2d, BatchNorm2d, Relu, MaxPool2d, Conv2d, GroupNorm, Gelu, AdaptiveAvgPool2d),
    head: (Flatten, Linear, Tanh, Linear),
}

/// The second.
#[derive(Module, Debug)]
struct TinyLm {
    pos: Param,
    mask: Buffer,
    embed: Embedding,
    blocks: Vec<TransformerEncoderLayer>,
    norm: LayerNorm,
    out: Linear,
}

impl TinyLm {
    fn forward(&self, tokens: &Tensor) -> Tensor {
        let x = self.embed.forward(tokens);
        let length = x.shape()[x.rank() - 2];
        let mut x = x + self.pos.narrow(0, 0, length);
        let mask = self.mask.get().narrow(0, 0, length).narrow(1, 0, length);
        for block in &self.blocks {
            x = block.forward(&x, AttentionMask { attn_mask: Some(&mask), ..AttentionMask::default() });
        }
        self.out.forward(&self.norm.forward(&x))
    }
}

macro_rules! batch_norm {
    ($name:ident, $c:expr, $d:expr) => {{
        let mut norm = $name::new($c.usize("num_features", 0), $d).eps($c.f64("eps", 1e-5));
        norm = match &$c.0["momentum"] {
            Value::Null if $c.0.get("momentum").is_some() => norm.momentum(None),
            momentum => norm.momentum(Some(momentum.as_f64().unwrap_or(0.1))),
        };
        if !$c.bool("affine", true) {
            norm = norm.without_affine();
        }
        if !$c.bool("track_running_stats", true) {
            norm = norm.without_running_stats();
        }
        layer(norm)
    }};
}

macro_rules! instance_norm {
    ($name:ident, $c:expr, $d:expr) => {{
        let norm = $name::new($c.usize("num_features", 0));
        let mut norm = norm.eps($c.f64("eps", 1e-5)).momentum($c.f64("momentum", 0.1));
        if $c.bool("affine", false) {
            norm = norm.with_affine($d);
        }
        if $c.bool("track_running_stats", false) {
            norm = norm.with_running_stats($d);
        }
        layer(norm)
    }};
}

macro_rules! conv {
    ($name:ident, $config:ident, $c:expr, $d:expr) => {
        layer($name::new(
            $c.usize("in_channels", 0),
            $c.usize("out_channels", 0),
            $c.sizes("kernel_size"),
            &$c.$config(),
            $d,
        ))
    };
}

macro_rules! lp_pool {
    ($name:ident, $c:expr) => {{
        let mut pool = $name::new($c.f64("norm_type", 2.0), $c.sizes("kernel_size"));
        pool.stride = (!$c.list("stride").is_empty()).then(|| $c.sizes("stride"));
        pool.ceil_mode = $c.bool("ceil_mode", false);
        layer(pool)
    }};
}

/// The module of a case, with fresh parameters.
pub(crate) fn build(case: &Value, d: &Device) -> Result<Box<dyn Model>, Wrong> {
    let c = Config(&case["config"]);
    let outputs = case["outputs"].as_array().map_or(0, Vec::len);
    let reduction = c.reduction();
    Ok(match case["module"].as_str().unwrap_or_default() {
        "Linear" => {
            let (input, output) = (c.usize("in_features", 0), c.usize("out_features", 0));
            layer(if c.bool("bias", true) {
                Linear::new(input, output, d)
            } else {
                Linear::without_bias(input, output, d)
            })
        }
        "Bilinear" => {
            let (a, b, out) = (c.usize("in1_features", 0), c.usize("in2_features", 0), c.usize("out_features", 0));
            let bilinear = Bilinear::new(a, b, out, d);
            pair!(if c.bool("bias", true) { bilinear } else { bilinear.without_bias() }, "input1", "input2")
        }
        "Identity" => layer(Identity),
        "Conv1d" => conv!(Conv1d, conv, c, d),
        "Conv2d" => conv!(Conv2d, conv, c, d),
        "Conv3d" => conv!(Conv3d, conv, c, d),
        "ConvTranspose1d" => conv!(ConvTranspose1d, conv_transpose, c, d),
        "ConvTranspose2d" => conv!(ConvTranspose2d, conv_transpose, c, d),
        "ConvTranspose3d" => conv!(ConvTranspose3d, conv_transpose, c, d),
        "BatchNorm1d" => batch_norm!(BatchNorm1d, c, d),
        "BatchNorm2d" => batch_norm!(BatchNorm2d, c, d),
        "BatchNorm3d" => batch_norm!(BatchNorm3d, c, d),
        "InstanceNorm1d" => instance_norm!(InstanceNorm1d, c, d),
        "InstanceNorm2d" => instance_norm!(InstanceNorm2d, c, d),
        "InstanceNorm3d" => instance_norm!(InstanceNorm3d, c, d),
        "LayerNorm" => {
            let shape: Vec<usize> = c.list("normalized_shape").iter().map(|&size| size as usize).collect();
            let norm = LayerNorm::new(shape, d).eps(c.f64("eps", 1e-5));
            layer(match (c.bool("elementwise_affine", true), c.bool("bias", true)) {
                (false, _) => norm.without_affine(),
                (true, false) => norm.without_bias(),
                (true, true) => norm,
            })
        }
        "RMSNorm" => {
            let shape: Vec<usize> = c.list("normalized_shape").iter().map(|&size| size as usize).collect();
            let norm = RmsNorm::new(shape, c.f64("eps", f64::from(f32::EPSILON)), d);
            layer(if c.bool("elementwise_affine", true) { norm } else { norm.without_affine() })
        }
        "GroupNorm" => {
            let norm = GroupNorm::new(c.usize("num_groups", 1), c.usize("num_channels", 0), d).eps(c.f64("eps", 1e-5));
            layer(if c.bool("affine", true) { norm } else { norm.without_affine() })
        }
        "LocalResponseNorm" => layer(LocalResponseNorm {
            size: c.usize("size", 1),
            alpha: c.f64("alpha", 1e-4),
            beta: c.f64("beta", 0.75),
            k: c.f64("k", 1.0),
        }),
        "Embedding" => {
            let mut table = Embedding::new(c.usize("num_embeddings", 0), c.usize("embedding_dim", 0), d);
            table.max_norm = c.0["max_norm"].as_f64();
            table.norm_type = c.f64("norm_type", 2.0);
            table.scale_grad_by_freq = c.bool("scale_grad_by_freq", false);
            layer(match c.0["padding_idx"].as_i64() {
                Some(index) => table.padding_idx(index),
                None => table,
            })
        }
        "EmbeddingBag" => {
            let mode = match c.str("mode", "mean") {
                "sum" => BagMode::Sum,
                "max" => BagMode::Max,
                _ => BagMode::Mean,
            };
            let mut bag = EmbeddingBag::new(c.usize("num_embeddings", 0), c.usize("embedding_dim", 0), mode, d);
            if let Some(index) = c.0["padding_idx"].as_i64() {
                bag = bag.padding_idx(index);
            }
            bag.include_last_offset = c.bool("include_last_offset", false);
            bag.max_norm = c.0["max_norm"].as_f64();
            bag.norm_type = c.f64("norm_type", 2.0);
            bag.scale_grad_by_freq = c.bool("scale_grad_by_freq", false);
            call(bag, |bag, inputs| {
                let weights = inputs.get("per_sample_weights");
                vec![bag.forward_weighted(&inputs["input"], inputs.get("offsets"), weights)]
            })
        }
        "RNN" => {
            call(Rnn::new(c.usize("input_size", 0), c.usize("hidden_size", 0), &c.recurrent(), d), |rnn, inputs| {
                let (output, hn) = rnn.forward(&inputs["input"], inputs.get("h0"));
                vec![output, hn]
            })
        }
        "GRU" => {
            call(Gru::new(c.usize("input_size", 0), c.usize("hidden_size", 0), &c.recurrent(), d), |gru, inputs| {
                let (output, hn) = gru.forward(&inputs["input"], inputs.get("h0"));
                vec![output, hn]
            })
        }
        "LSTM" => {
            call(Lstm::new(c.usize("input_size", 0), c.usize("hidden_size", 0), &c.recurrent(), d), |lstm, inputs| {
                let (output, (hn, cn)) = lstm.forward(&inputs["input"], inputs.get("h0").zip(inputs.get("c0")));
                vec![output, hn, cn]
            })
        }
        "RNNCell" => {
            let cell =
                RnnCell::new(c.usize("input_size", 0), c.usize("hidden_size", 0), d).nonlinearity(c.nonlinearity());
            call(if c.bool("bias", true) { cell } else { cell.without_bias() }, |cell, inputs| {
                vec![cell.forward(&inputs["input"], inputs.get("h0"))]
            })
        }
        "GRUCell" => {
            let cell = GruCell::new(c.usize("input_size", 0), c.usize("hidden_size", 0), d);
            call(if c.bool("bias", true) { cell } else { cell.without_bias() }, |cell, inputs| {
                vec![cell.forward(&inputs["input"], inputs.get("h0"))]
            })
        }
        "LSTMCell" => {
            let cell = LstmCell::new(c.usize("input_size", 0), c.usize("hidden_size", 0), d);
            call(if c.bool("bias", true) { cell } else { cell.without_bias() }, |cell, inputs| {
                let (h, c) = cell.forward(&inputs["input"], inputs.get("h0").zip(inputs.get("c0")));
                vec![h, c]
            })
        }
        "MultiheadAttention" => {
            let config = AttentionConfig {
                dropout: c.f64("dropout", 0.0),
                bias: c.bool("bias", true),
                add_bias_kv: c.bool("add_bias_kv", false),
                add_zero_attn: c.bool("add_zero_attn", false),
                kdim: c.0["kdim"].as_u64().map(|size| size as usize),
                vdim: c.0["vdim"].as_u64().map(|size| size as usize),
                batch_first: c.bool("batch_first", false),
                ..AttentionConfig::default()
            };
            let attention = MultiheadAttention::new(c.usize("embed_dim", 0), c.usize("num_heads", 1), &config, d);
            let setting =
                case["inputs"].as_array().unwrap().iter().find(|input| input["name"] == "average_attn_weights");
            let average = setting.and_then(|input| input["value"].as_bool());
            let average = average.unwrap_or_else(|| c.bool("average_attn_weights", true));
            call(attention, move |attention, inputs| {
                let (query, key, value) = (&inputs["query"], &inputs["key"], &inputs["value"]);
                let mask = AttentionMask {
                    attn_mask: inputs.get("attn_mask"),
                    key_padding_mask: inputs.get("key_padding_mask"),
                    is_causal: false,
                };
                let plain = attention.forward(query, key, value, mask);
                let (output, weights) = attention.forward_with_weights(query, key, value, mask, average);
                compare(&plain.detach(), &output.detach(), 1e-5, 1e-6).expect("both ways give the same");
                if outputs == 1 { vec![plain] } else { vec![output, weights] }
            })
        }
        "TransformerEncoderLayer" => {
            let (width, heads) = c.heads();
            call(TransformerEncoderLayer::new(width, heads, &c.transformer(), d), |layer, inputs| {
                vec![layer.forward(&inputs["src"], mask(inputs, "src"))]
            })
        }
        "TransformerDecoderLayer" => {
            let (width, heads) = c.heads();
            call(TransformerDecoderLayer::new(width, heads, &c.transformer(), d), |layer, inputs| {
                vec![layer.forward(&inputs["tgt"], &inputs["memory"], mask(inputs, "tgt"), mask(inputs, "memory"))]
            })
        }
        "TransformerEncoder" => {
            let inner = Config(&c.0["layer"]);
            let (width, heads) = inner.heads();
            let layer = |_| TransformerEncoderLayer::new(width, heads, &inner.transformer(), d);
            let layers = (0..c.usize("num_layers", 1)).map(layer).collect();
            let norm = c.bool("norm", false).then(|| LayerNorm::new(width, d));
            call(TransformerEncoder::new(layers, norm), |encoder, inputs| {
                vec![encoder.forward(&inputs["src"], mask(inputs, "src"))]
            })
        }
        "TransformerDecoder" => {
            let inner = Config(&c.0["layer"]);
            let (width, heads) = inner.heads();
            let layer = |_| TransformerDecoderLayer::new(width, heads, &inner.transformer(), d);
            let layers = (0..c.usize("num_layers", 1)).map(layer).collect();
            let norm = c.bool("norm", false).then(|| LayerNorm::new(width, d));
            call(TransformerDecoder::new(layers, norm), |decoder, inputs| {
                vec![decoder.forward(&inputs["tgt"], &inputs["memory"], mask(inputs, "tgt"), mask(inputs, "memory"))]
            })
        }
        "Transformer" => {
            let (width, heads) = c.heads();
            let counts = (c.usize("num_encoder_layers", 6), c.usize("num_decoder_layers", 6));
            call(Transformer::new(width, heads, counts, &c.transformer(), d), |transformer, inputs| {
                let masks = TransformerMasks {
                    src: mask(inputs, "src"),
                    tgt: mask(inputs, "tgt"),
                    memory: mask(inputs, "memory"),
                };
                vec![transformer.forward(&inputs["src"], &inputs["tgt"], masks)]
            })
        }
        "L1Loss" => pair!(L1Loss::new().reduction(reduction), "input", "target"),
        "MSELoss" => pair!(MseLoss::new().reduction(reduction), "input", "target"),
        "SmoothL1Loss" => pair!(SmoothL1Loss::new().beta(c.f64("beta", 1.0)).reduction(reduction), "input", "target"),
        "HuberLoss" => pair!(HuberLoss::new().delta(c.f64("delta", 1.0)).reduction(reduction), "input", "target"),
        "CrossEntropyLoss" => pair!(
            CrossEntropyLoss::new()
                .weight(c.weight("weight", d))
                .ignore_index(c.i64("ignore_index", -100))
                .label_smoothing(c.f64("label_smoothing", 0.0))
                .reduction(reduction),
            "input",
            "target"
        ),
        "NLLLoss" => pair!(
            NllLoss::new().weight(c.weight("weight", d)).ignore_index(c.i64("ignore_index", -100)).reduction(reduction),
            "input",
            "target"
        ),
        "BCELoss" => pair!(BceLoss::new().weight(c.weight("weight", d)).reduction(reduction), "input", "target"),
        "BCEWithLogitsLoss" => pair!(
            BceWithLogitsLoss::new()
                .weight(c.weight("weight", d))
                .pos_weight(c.weight("pos_weight", d))
                .reduction(reduction),
            "input",
            "target"
        ),
        "KLDivLoss" => pair!(
            KlDivLoss::new()
                .log_target(c.bool("log_target", false))
                .batch_mean(c.str("reduction", "mean") == "batchmean")
                .reduction(reduction),
            "input",
            "target"
        ),
        "CTCLoss" => {
            let mut ctc = CtcLoss::new();
            ctc.blank = c.usize("blank", 0);
            ctc.zero_infinity = c.bool("zero_infinity", false);
            ctc.reduction = reduction;
            call(ctc, |ctc, inputs| {
                let lengths = |name: &str| integers(&inputs[name]);
                let (input, target) = (lengths("input_lengths"), lengths("target_lengths"));
                vec![ctc.forward(&inputs["log_probs"], &inputs["targets"], input, target)]
            })
        }
        "MarginRankingLoss" => triple!(
            MarginRankingLoss::new().margin(c.f64("margin", 0.0)).reduction(reduction),
            "input1",
            "input2",
            "target"
        ),
        "HingeEmbeddingLoss" => {
            pair!(HingeEmbeddingLoss::new().margin(c.f64("margin", 1.0)).reduction(reduction), "input", "target")
        }
        "CosineEmbeddingLoss" => triple!(
            CosineEmbeddingLoss::new().margin(c.f64("margin", 0.0)).reduction(reduction),
            "input1",
            "input2",
            "target"
        ),
        "TripletMarginLoss" => triple!(
            TripletMarginLoss::new()
                .margin(c.f64("margin", 1.0))
                .p(c.f64("p", 2.0))
                .eps(c.f64("eps", 1e-6))
                .swap(c.bool("swap", false))
                .reduction(reduction),
            "anchor",
            "positive",
            "negative"
        ),
        "PoissonNLLLoss" => pair!(
            PoissonNllLoss::new()
                .log_input(c.bool("log_input", true))
                .full(c.bool("full", false))
                .eps(c.f64("eps", 1e-8))
                .reduction(reduction),
            "input",
            "target"
        ),
        "GaussianNLLLoss" => triple!(
            GaussianNllLoss::new().full(c.bool("full", false)).eps(c.f64("eps", 1e-6)).reduction(reduction),
            "input",
            "target",
            "var"
        ),
        "MultiMarginLoss" => pair!(
            MultiMarginLoss::new()
                .p(c.i64("p", 1))
                .margin(c.f64("margin", 1.0))
                .weight(c.weight("weight", d))
                .reduction(reduction),
            "input",
            "target"
        ),
        "MultiLabelMarginLoss" => pair!(MultiLabelMarginLoss::new().reduction(reduction), "input", "target"),
        "MultiLabelSoftMarginLoss" => {
            pair!(MultiLabelSoftMarginLoss::new().weight(c.weight("weight", d)).reduction(reduction), "input", "target")
        }
        "SoftMarginLoss" => pair!(SoftMarginLoss::new().reduction(reduction), "input", "target"),
        "PixelShuffle" => layer(PixelShuffle::new(c.usize("upscale_factor", 1))),
        "PixelUnshuffle" => layer(PixelUnshuffle::new(c.usize("downscale_factor", 1))),
        "ChannelShuffle" => layer(ChannelShuffle::new(c.usize("groups", 1))),
        "Upsample" => {
            let mode = match c.str("mode", "nearest") {
                "nearest" => InterpolateMode::Nearest,
                "nearest-exact" => InterpolateMode::NearestExact,
                "bicubic" => InterpolateMode::Cubic,
                "area" => InterpolateMode::Area,
                _ => InterpolateMode::Linear,
            };
            let spatial = case["outputs"][0]["shape"].as_array().unwrap().len() - 2;
            let to = match (&c.0["size"], &c.0["scale_factor"]) {
                (Value::Null, Value::Array(factors)) => {
                    ResizeTo::Scale(factors.iter().map(|factor| factor.as_f64().unwrap()).collect())
                }
                (Value::Null, factor) => ResizeTo::Scale(vec![factor.as_f64().unwrap()]),
                (_, _) => {
                    let sizes = c.list("size");
                    ResizeTo::Size((0..spatial).map(|i| sizes[i.min(sizes.len() - 1)] as usize).collect())
                }
            };
            let upsample = Upsample::new(to, mode);
            layer(if c.bool("align_corners", false) { upsample.align_corners() } else { upsample })
        }
        "MaxPool1d" => layer(MaxPool1d::new(c.pool())),
        "MaxPool2d" => layer(MaxPool2d::new(c.pool())),
        "MaxPool3d" => layer(MaxPool3d::new(c.pool())),
        "AvgPool1d" => layer(AvgPool1d::new(c.avg_pool())),
        "AvgPool2d" => layer(AvgPool2d::new(c.avg_pool())),
        "AvgPool3d" => layer(AvgPool3d::new(c.avg_pool())),
        "AdaptiveAvgPool1d" => layer(AdaptiveAvgPool1d::new(c.optional_sizes("output_size"))),
        "AdaptiveAvgPool2d" => layer(AdaptiveAvgPool2d::new(c.optional_sizes("output_size"))),
        "AdaptiveAvgPool3d" => layer(AdaptiveAvgPool3d::new(c.optional_sizes("output_size"))),
        "AdaptiveMaxPool1d" => layer(AdaptiveMaxPool1d::new(c.optional_sizes("output_size"))),
        "AdaptiveMaxPool2d" => layer(AdaptiveMaxPool2d::new(c.optional_sizes("output_size"))),
        "AdaptiveMaxPool3d" => layer(AdaptiveMaxPool3d::new(c.optional_sizes("output_size"))),
        "LPPool1d" => lp_pool!(LpPool1d, c),
        "LPPool2d" => lp_pool!(LpPool2d, c),
        "LPPool3d" => lp_pool!(LpPool3d, c),
        "ReflectionPad1d" => layer(ReflectionPad1d::new(c.pads("padding"))),
        "ReflectionPad2d" => layer(ReflectionPad2d::new(c.pads("padding"))),
        "ReflectionPad3d" => layer(ReflectionPad3d::new(c.pads("padding"))),
        "ReplicationPad1d" => layer(ReplicationPad1d::new(c.pads("padding"))),
        "ReplicationPad2d" => layer(ReplicationPad2d::new(c.pads("padding"))),
        "ReplicationPad3d" => layer(ReplicationPad3d::new(c.pads("padding"))),
        "CircularPad1d" => layer(CircularPad1d::new(c.pads("padding"))),
        "CircularPad2d" => layer(CircularPad2d::new(c.pads("padding"))),
        "CircularPad3d" => layer(CircularPad3d::new(c.pads("padding"))),
        "ZeroPad1d" => layer(ZeroPad1d::new(c.pads("padding"))),
        "ZeroPad2d" => layer(ZeroPad2d::new(c.pads("padding"))),
        "ZeroPad3d" => layer(ZeroPad3d::new(c.pads("padding"))),
        "ConstantPad1d" => layer(ConstantPad1d::new(c.pads("padding"), c.f64("value", 0.0))),
        "ConstantPad2d" => layer(ConstantPad2d::new(c.pads("padding"), c.f64("value", 0.0))),
        "ConstantPad3d" => layer(ConstantPad3d::new(c.pads("padding"), c.f64("value", 0.0))),
        "Fold" => layer(Fold::new(c.sizes("output_size"), c.unfold())),
        "Unfold" => layer(Unfold::new(c.unfold())),
        "PReLU" => layer(PRelu::new(c.usize("num_parameters", 1), d)),
        "GLU" => layer(Glu { dim: c.i64("dim", -1) }),
        "GELU" => match c.str("approximate", "none") {
            "tanh" => layer(GeluTanh),
            _ => layer(Gelu),
        },
        "ReLU" => layer(Relu),
        "ReLU6" => layer(Relu6),
        "SELU" => layer(Selu),
        "SiLU" => layer(Silu),
        "Mish" => layer(Mish),
        "Sigmoid" => layer(Sigmoid),
        "LogSigmoid" => layer(LogSigmoid),
        "Tanh" => layer(Tanh),
        "Tanhshrink" => layer(Tanhshrink),
        "Softsign" => layer(Softsign),
        "Hardsigmoid" => layer(Hardsigmoid),
        "Hardswish" => layer(Hardswish),
        "Softmax" => layer(Softmax { dim: c.i64("dim", -1) }),
        "Softmax2d" => layer(Softmax { dim: -3 }),
        "LogSoftmax" => layer(LogSoftmax { dim: c.i64("dim", -1) }),
        "Softmin" => layer(Softmin { dim: c.i64("dim", -1) }),
        "Softplus" => layer(Softplus { beta: c.f64("beta", 1.0), threshold: c.f64("threshold", 20.0) }),
        "ELU" => layer(Elu { alpha: c.f64("alpha", 1.0) }),
        "CELU" => layer(Celu { alpha: c.f64("alpha", 1.0) }),
        "LeakyReLU" => layer(LeakyRelu { negative_slope: c.f64("negative_slope", 0.01) }),
        "RReLU" => layer(RRelu::new(c.f64("lower", 1.0 / 8.0), c.f64("upper", 1.0 / 3.0))),
        "Hardtanh" => layer(Hardtanh { min_val: c.f64("min_val", -1.0), max_val: c.f64("max_val", 1.0) }),
        "Threshold" => layer(Threshold { threshold: c.f64("threshold", 0.0), value: c.f64("value", 0.0) }),
        "Hardshrink" => layer(Hardshrink { lambd: c.f64("lambd", 0.5) }),
        "Softshrink" => layer(Softshrink { lambd: c.f64("lambd", 0.5) }),
        "CosineSimilarity" => pair!(CosineSimilarity { dim: c.i64("dim", 1), eps: c.f64("eps", 1e-8) }, "x1", "x2"),
        "PairwiseDistance" => pair!(
            PairwiseDistance { p: c.f64("p", 2.0), eps: c.f64("eps", 1e-6), keepdim: c.bool("keepdim", false) },
            "x1",
            "x2"
        ),
        "Flatten" => layer(Flatten { start_dim: c.i64("start_dim", 1), end_dim: c.i64("end_dim", -1) }),
        "Unflatten" => layer(Unflatten::new(c.i64("dim", 0), c.list("unflattened_size"))),
        "Net" => {
            let conv = ConvConfig::default().padding(1);
            let features = (
                Conv2d::new(1, 4, [3, 3], &conv, d),
                BatchNorm2d::new(4, d),
                Relu,
                MaxPool2d::new(PoolOptions::new(2)),
                Conv2d::new(4, 6, [3, 3], &conv, d),
                GroupNorm::new(2, 6, d),
                Gelu,
                AdaptiveAvgPool2d::new([Some(2), Some(2)]),
            );
            let head = (Flatten::default(), Linear::new(24, 16, d), Tanh, Linear::new(16, 5, d));
            call(Net { features, head }, |net, inputs| vec![net.head.forward(&net.features.forward(&inputs["input"]))])
        }
        "TinyLM" => {
            let config = TransformerConfig {
                dim_feedforward: 16,
                dropout: 0.0,
                batch_first: true,
                norm_first: true,
                ..TransformerConfig::default()
            };
            let block = |_| TransformerEncoderLayer::new(8, 2, &config, d);
            let model = TinyLm {
                pos: Param::new(&Tensor::zeros([6, 8], d)),
                mask: Buffer::new(&Transformer::causal_mask(6, d)),
                embed: Embedding::new(11, 8, d),
                blocks: (0..2).map(block).collect(),
                norm: LayerNorm::new(8, d),
                out: Linear::without_bias(8, 11, d),
            };
            call(model, |model, inputs| vec![model.forward(&inputs["input"])])
        }
        _ => return Err(Wrong::Missing),
    })
}
