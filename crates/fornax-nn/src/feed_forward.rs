//! Feed-forward parts of transformers: [`SwiGlu`], [`MixtureOfExperts`].

use crate::{Layer, Linear, Module};
use alloc::format;
use alloc::vec::Vec;
use fornax_tensor::{DType, Device, Error, Tensor};

/// A gated feed-forward block without biases: `down(silu(gate(x)) · up(x))`.
///
/// # References
/// Shazeer (2020), *GLU Variants Improve Transformer*, arXiv:2002.05202, equation 6.
#[derive(Module, Clone, Debug)]
pub struct SwiGlu {
    /// `[hidden, width]`.
    pub gate_proj: Linear,
    /// `[hidden, width]`.
    pub up_proj: Linear,
    /// `[width, hidden]`.
    pub down_proj: Linear,
}

impl SwiGlu {
    /// A block from `width` over `hidden` back to `width`.
    #[track_caller]
    pub fn new(width: usize, hidden: usize, device: &Device) -> SwiGlu {
        SwiGlu {
            gate_proj: Linear::without_bias(width, hidden, device),
            up_proj: Linear::without_bias(width, hidden, device),
            down_proj: Linear::without_bias(hidden, width, device),
        }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not `width`.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.down_proj.forward(&(self.gate_proj.forward(x).silu() * self.up_proj.forward(x)))
    }
}

/// Several layers of one kind, of which each token takes the `top_k` that a router prefers; their results are added,
/// weighted by the softmax of the router's scores among the chosen.
///
/// Each expert computes its own tokens only. Which they are is read from the device in between, so a forward pass is not
/// one graph; no token is dropped.
///
/// ```
/// use fornax_nn::{MixtureOfExperts, SwiGlu};
/// use fornax_tensor::{Device, Tensor};
/// let device = Device::cpu();
/// let experts = (0..4).map(|_| SwiGlu::new(8, 16, &device)).collect();
/// let layer = MixtureOfExperts::new(8, experts, 2, &device);
/// let (y, balance) = layer.forward_with_balance(&Tensor::randn([2, 5, 8], &device));
/// assert_eq!(y.dims(), [2, 5, 8]);
/// assert!(balance.item::<f32>() >= 0.5); // 1 where all experts are used alike
/// ```
///
/// # References
/// Shazeer et al. (2017), *Outrageously Large Neural Networks*, arXiv:1701.06538; Jiang et al. (2024), *Mixtral of
/// Experts*, arXiv:2401.04088; balance: Fedus, Zoph, Shazeer (2021), *Switch Transformers*, arXiv:2101.03961, equation 4.
#[derive(Module, Clone, Debug)]
pub struct MixtureOfExperts<E: Layer> {
    /// The router, `[experts, width]`.
    pub gate: Linear,
    /// The experts.
    pub experts: Vec<E>,
    /// How many of them each token takes.
    pub top_k: usize,
}

impl<E: Layer> MixtureOfExperts<E> {
    /// A layer over a width, with these experts.
    ///
    /// # Panics
    /// If `top_k` is 0, or larger than the number of experts.
    #[track_caller]
    pub fn new(width: usize, experts: Vec<E>, top_k: usize, device: &Device) -> MixtureOfExperts<E> {
        let count = experts.len();
        assert!((1..=count).contains(&top_k), "MixtureOfExperts: top_k {top_k} is not between 1 and {count}");
        MixtureOfExperts { gate: Linear::without_bias(width, count, device), experts, top_k }
    }

    /// Applies the layer.
    ///
    /// # Panics
    /// If the last dim of `x` is not the width.
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.forward_with_balance(x).0
    }

    /// Applies the layer, and gives how unevenly experts are used, to add to the loss: `experts · Σ fᵢ Pᵢ`, with the part
    /// `fᵢ` of choices that expert `i` gets and its mean probability `Pᵢ`. It is 1 where they are used alike.
    ///
    /// # Panics
    /// If the last dim of `x` is not the width.
    #[track_caller]
    pub fn forward_with_balance(&self, x: &Tensor) -> (Tensor, Tensor) {
        let width = self.gate.weight.shape()[1];
        if x.shape().last() != Some(&width) {
            Error::shape("MixtureOfExperts", format!("x {} is not […, {width}]", x.shape())).raise();
        }
        let tokens = x.reshape([-1, width as i64]); // [tokens, width]
        let (count, experts) = (tokens.shape()[0], self.experts.len());
        let scores = self.gate.forward(&tokens); // [tokens, experts]
        let (best, chosen) = scores.topk(self.top_k, -1, true); // [tokens, top_k]
        let weights = best.softmax(-1).flatten(0, -1); // [tokens · top_k]
        let chosen = chosen.flatten(0, -1);
        let share = chosen.one_hot(experts).to_dtype(DType::F32).mean(0); // [experts]
        let balance = (share * scores.to_dtype(DType::F32).softmax(-1).mean(0)).sum(()) * experts as f64;

        // The choices of each expert, by their position in `[tokens · top_k]`.
        let mut choices: Vec<Vec<i64>> = alloc::vec![Vec::new(); experts];
        for (position, expert) in chosen.to_vec::<i64>().into_iter().enumerate() {
            choices[expert as usize].push(position as i64);
        }
        let mut sum = Tensor::full([count, width], 0.0, x.dtype(), x.device());
        for (expert, positions) in self.experts.iter().zip(choices).filter(|(_, positions)| !positions.is_empty()) {
            let length = positions.len();
            let owners = positions.iter().map(|position| position / self.top_k as i64).collect();
            let owners = Tensor::from_vec::<i64>(owners, [length], x.device());
            let positions = Tensor::from_vec(positions, [length], x.device());
            let y = expert.forward(&tokens.index_select(0, &owners)); // [length, width]
            let y = y * weights.index_select(0, &positions).unsqueeze(1);
            sum = sum.index_add(0, &owners, &y, 1.into());
        }
        (sum.reshape(x.shape()), balance)
    }
}
