//! [`Embedding`] and [`EmbeddingBag`].

use crate::{Module, Param};
use fornax_tensor::{BagMode, Device, EmbeddingBagOptions, Tensor, no_grad};

/// A table of vectors, looked up by integers: `[…]` gives `[…, embedding_dim]`.
///
/// ```
/// use fornax_nn::Embedding;
/// use fornax_tensor::{Device, Tensor};
/// let table = Embedding::new(10, 3, &Device::cpu());
/// let tokens = Tensor::from_vec(vec![1i64, 4, 4, 0], [2, 2], &Device::cpu());
/// assert_eq!(table.forward(&tokens).dims(), [2, 2, 3]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`, normal at first.
    pub weight: Param,
    padding_idx: Option<i64>,
}

impl Embedding {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, device: &Device) -> Embedding {
        let weight = Tensor::randn([num_embeddings, embedding_dim], device);
        Embedding { weight: Param::new(&weight), padding_idx: None }
    }

    /// A table of given vectors `[num_embeddings, embedding_dim]`, trained further unless it is frozen.
    ///
    /// # Panics
    /// If `vectors` is not a matrix of floats.
    #[track_caller]
    pub fn from_pretrained(vectors: &Tensor) -> Embedding {
        assert!(vectors.rank() == 2, "Embedding: {} is not [num_embeddings, embedding_dim]", vectors.shape());
        Embedding { weight: Param::new(vectors), padding_idx: None }
    }

    /// Makes the vector at `index` zero, and keeps it so: it gets no gradient. Negative counts from the end.
    #[must_use]
    pub fn padding_idx(mut self, index: i64) -> Embedding {
        self.weight = without_row(&self.weight, index);
        self.padding_idx = Some(index);
        self
    }

    /// Looks up.
    ///
    /// # Panics
    /// If `index` is not of an integer dtype. An index out of range is an error when the result is read.
    #[track_caller]
    pub fn forward(&self, index: &Tensor) -> Tensor {
        index.embedding(&self.weight, self.padding_idx)
    }
}

/// Sums, means or maxima of bags of vectors, without making the vectors first.
#[derive(Module, Clone, Debug)]
pub struct EmbeddingBag {
    /// `[num_embeddings, embedding_dim]`, normal at first.
    pub weight: Param,
    /// What becomes of the vectors of a bag; their mean.
    pub mode: BagMode,
    /// Whether the last offset is the end of the last bag; false.
    pub include_last_offset: bool,
    padding_idx: Option<i64>,
}

impl EmbeddingBag {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, mode: BagMode, device: &Device) -> EmbeddingBag {
        let weight = Param::new(&Tensor::randn([num_embeddings, embedding_dim], device));
        EmbeddingBag { weight, mode, include_last_offset: false, padding_idx: None }
    }

    /// Makes the vector at `index` zero, and leaves it out of every bag. Negative counts from the end.
    #[must_use]
    pub fn padding_idx(mut self, index: i64) -> EmbeddingBag {
        self.weight = without_row(&self.weight, index);
        self.padding_idx = Some(index);
        self
    }

    /// Bags `[bags, length]` of indices; or all indices in a row, with the position where each bag begins.
    ///
    /// # Panics
    /// If `index` is neither.
    #[track_caller]
    pub fn forward(&self, index: &Tensor, offsets: Option<&Tensor>) -> Tensor {
        self.forward_weighted(index, offsets, None)
    }

    /// As [`EmbeddingBag::forward`], each vector multiplied with a weight first (mode sum).
    ///
    /// # Panics
    /// If `index` is neither.
    #[track_caller]
    pub fn forward_weighted(
        &self,
        index: &Tensor,
        offsets: Option<&Tensor>,
        per_sample_weights: Option<&Tensor>,
    ) -> Tensor {
        let options = EmbeddingBagOptions {
            mode: self.mode,
            offsets: offsets.cloned(),
            per_sample_weights: per_sample_weights.cloned(),
            include_last_offset: self.include_last_offset,
            padding_idx: self.padding_idx,
        };
        index.embedding_bag(&self.weight, &options)
    }
}

#[track_caller]
fn without_row(weight: &Param, index: i64) -> Param {
    let rows = weight.shape()[0] as i64;
    let row = if index < 0 { index + rows } else { index };
    assert!((0..rows).contains(&row), "Embedding: padding_idx {index} is out of range for {rows} vectors");
    no_grad(|| {
        let counted = Tensor::arange(0, rows, 1, fornax_tensor::DType::I64, weight.device()).unsqueeze(1);
        Param::new(&weight.detach().masked_fill(&counted.eq(row), 0.0))
    })
}
