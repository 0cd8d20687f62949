//! [`Config`]: the constructor arguments of a case, under PyTorch's names.

use fornax_nn::{
    Buffer, ConvConfig, ConvTransposeConfig, FeedForwardActivation, Nonlinearity, PaddingMode, RecurrentConfig,
    TransformerConfig,
};
use fornax_tensor::{AvgPoolOptions, Device, Padding, PerDim, PoolOptions, Reduction, Tensor, UnfoldOptions};
use serde_json::Value;

/// Settings of a case under PyTorch's names, with defaults for what is not given.
pub(crate) struct Config<'a>(pub &'a Value);

impl Config<'_> {
    pub fn f64(&self, name: &str, default: f64) -> f64 {
        self.0[name].as_f64().unwrap_or(default)
    }
    pub fn usize(&self, name: &str, default: usize) -> usize {
        self.0[name].as_u64().map_or(default, |value| value as usize)
    }
    pub fn bool(&self, name: &str, default: bool) -> bool {
        self.0[name].as_bool().unwrap_or(default)
    }
    pub fn str(&self, name: &str, default: &'static str) -> &str {
        self.0[name].as_str().unwrap_or(default)
    }
    pub fn pair(&self, name: &str, default: (f64, f64)) -> (f64, f64) {
        match self.0[name].as_array() {
            Some(pair) => (pair[0].as_f64().unwrap_or(default.0), pair[1].as_f64().unwrap_or(default.1)),
            None => default,
        }
    }

    pub fn i64(&self, name: &str, default: i64) -> i64 {
        self.0[name].as_i64().unwrap_or(default)
    }
    pub fn list(&self, name: &str) -> Vec<i64> {
        match &self.0[name] {
            Value::Array(list) => list.iter().map(|value| value.as_i64().unwrap()).collect(),
            value => value.as_i64().into_iter().collect(),
        }
    }
    pub fn sizes<const N: usize>(&self, name: &str) -> [usize; N] {
        let list = self.list(name);
        std::array::from_fn(|i| list[i.min(list.len() - 1)] as usize)
    }
    /// As many sizes as are given; `None` where one is null.
    pub fn optional_sizes<const N: usize>(&self, name: &str) -> [Option<usize>; N] {
        std::array::from_fn(|i| match &self.0[name] {
            Value::Array(list) => list[i].as_u64().map(|size| size as usize),
            value => value.as_u64().map(|size| size as usize),
        })
    }
    pub fn pads<const N: usize>(&self, name: &str) -> [i64; N] {
        let list = self.list(name);
        std::array::from_fn(|i| list[i.min(list.len() - 1)])
    }
    pub fn per_dim(&self, name: &str, default: usize) -> PerDim {
        let list = self.list(name);
        if list.is_empty() {
            return default.into();
        }
        list.into_iter().map(|value| value as usize).collect::<Vec<_>>().into()
    }
    pub fn reduction(&self) -> Reduction {
        match self.str("reduction", "mean") {
            "none" => Reduction::None,
            "sum" => Reduction::Sum,
            _ => Reduction::Mean,
        }
    }
    pub fn weight(&self, name: &str, device: &Device) -> Option<Buffer> {
        let list: Vec<f32> = self.0[name].as_array()?.iter().map(|value| value.as_f64().unwrap() as f32).collect();
        let count = list.len();
        Some(Buffer::new(&Tensor::from_vec(list, [count], device)))
    }
    pub fn conv(&self) -> ConvConfig {
        let mut config = ConvConfig::default()
            .stride(self.per_dim("stride", 1))
            .dilation(self.per_dim("dilation", 1))
            .groups(self.usize("groups", 1))
            .padding(match self.str("padding", "") {
                "same" => Padding::Same,
                "valid" => Padding::Valid,
                _ => Padding::Each(self.per_dim("padding", 0)),
            })
            .padding_mode(match self.str("padding_mode", "zeros") {
                "reflect" => PaddingMode::Reflect,
                "replicate" => PaddingMode::Replicate,
                "circular" => PaddingMode::Circular,
                _ => PaddingMode::Zeros,
            });
        config.bias = self.bool("bias", true);
        config
    }
    pub fn conv_transpose(&self) -> ConvTransposeConfig {
        let mut config = ConvTransposeConfig::default()
            .stride(self.per_dim("stride", 1))
            .dilation(self.per_dim("dilation", 1))
            .groups(self.usize("groups", 1))
            .padding(self.per_dim("padding", 0))
            .output_padding(self.per_dim("output_padding", 0));
        config.bias = self.bool("bias", true);
        config
    }
    pub fn pool(&self) -> PoolOptions {
        let mut options = PoolOptions::new(self.per_dim("kernel_size", 1));
        options.stride = (!self.list("stride").is_empty()).then(|| self.per_dim("stride", 1));
        options.padding = self.per_dim("padding", 0);
        options.dilation = self.per_dim("dilation", 1);
        options.ceil_mode = self.bool("ceil_mode", false);
        options
    }
    pub fn avg_pool(&self) -> AvgPoolOptions {
        let mut options = AvgPoolOptions::new(1);
        options.windows = self.pool();
        options.count_include_pad = self.bool("count_include_pad", true);
        options.divisor_override = self.0["divisor_override"].as_i64();
        options
    }
    pub fn unfold(&self) -> UnfoldOptions {
        let mut options = UnfoldOptions::new(self.per_dim("kernel_size", 1));
        options.stride = self.per_dim("stride", 1);
        options.padding = self.per_dim("padding", 0);
        options.dilation = self.per_dim("dilation", 1);
        options
    }
    pub fn recurrent(&self) -> RecurrentConfig {
        RecurrentConfig {
            num_layers: self.usize("num_layers", 1),
            bias: self.bool("bias", true),
            batch_first: self.bool("batch_first", false),
            dropout: self.f64("dropout", 0.0),
            bidirectional: self.bool("bidirectional", false),
            proj_size: self.usize("proj_size", 0),
            nonlinearity: self.nonlinearity(),
        }
    }
    pub fn nonlinearity(&self) -> Nonlinearity {
        if self.str("nonlinearity", "tanh") == "relu" { Nonlinearity::Relu } else { Nonlinearity::Tanh }
    }
    pub fn transformer(&self) -> TransformerConfig {
        TransformerConfig {
            dim_feedforward: self.usize("dim_feedforward", 2048),
            dropout: self.f64("dropout", 0.1),
            activation: match self.str("activation", "relu") {
                "gelu" => FeedForwardActivation::Gelu,
                _ => FeedForwardActivation::Relu,
            },
            layer_norm_eps: self.f64("layer_norm_eps", 1e-5),
            batch_first: self.bool("batch_first", false),
            norm_first: self.bool("norm_first", false),
            bias: self.bool("bias", true),
        }
    }
    pub fn heads(&self) -> (usize, usize) {
        (self.usize("d_model", 512), self.usize("nhead", 8))
    }
}
