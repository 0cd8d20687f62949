//! [`Embedding`].

use crate::{Module, Param};
use fornax_tensor::{Device, Tensor};

/// A table of vectors, looked up by integers: `[…]` gives `[…, embedding_dim]`.
#[derive(Module, Clone, Debug)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`, normal at first.
    pub weight: Param,
    #[module(skip)]
    padding_idx: Option<i64>,
}

impl Embedding {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, device: &Device) -> Embedding {
        let weight = Tensor::randn([num_embeddings, embedding_dim], device);
        Embedding { weight: Param::new(&weight), padding_idx: None }
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
