//! [`Embedding`] and [`EmbeddingBag`].

use crate::{Module, Param};
use fornax_tensor::{BagMode, DType, Device, EmbeddingBagOptions, Tensor, custom_gradient, keepdim, no_grad};

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
    /// Vectors with a larger norm are shortened to it when they are read; none. PyTorch shortens them in the table, too.
    pub max_norm: Option<f64>,
    /// Which norm that is; 2.
    pub norm_type: f64,
    /// Whether the gradient of a vector is divided by how often it is looked up in a call; false.
    pub scale_grad_by_freq: bool,
    padding_idx: Option<i64>,
}

impl Embedding {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, device: &Device) -> Embedding {
        let weight = Tensor::randn([num_embeddings, embedding_dim], device);
        Embedding::of(Param::new(&weight))
    }

    /// A table of given vectors `[num_embeddings, embedding_dim]`, trained further unless it is frozen.
    ///
    /// # Panics
    /// If `vectors` is not a matrix of floats.
    #[track_caller]
    pub fn from_pretrained(vectors: &Tensor) -> Embedding {
        assert!(vectors.rank() == 2, "Embedding: {} is not [num_embeddings, embedding_dim]", vectors.shape());
        Embedding::of(Param::new(vectors))
    }

    fn of(weight: Param) -> Embedding {
        Embedding { weight, max_norm: None, norm_type: 2.0, scale_grad_by_freq: false, padding_idx: None }
    }

    /// Shortens vectors with a larger norm when they are read.
    #[must_use]
    pub fn max_norm(mut self, max_norm: f64) -> Embedding {
        self.max_norm = Some(max_norm);
        self
    }

    /// Divides the gradient of a vector by how often it is looked up in a call.
    #[must_use]
    pub fn scale_grad_by_freq(mut self) -> Embedding {
        self.scale_grad_by_freq = true;
        self
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
    #[fornax_macros::traced]
    #[track_caller]
    pub fn forward(&self, index: &Tensor) -> Tensor {
        let table = read_table(&self.weight, index, self.max_norm, self.norm_type, self.scale_grad_by_freq);
        index.embedding(&table, self.padding_idx)
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
    /// Vectors with a larger norm are shortened to it when they are read; none. PyTorch shortens them in the table, too.
    pub max_norm: Option<f64>,
    /// Which norm that is; 2.
    pub norm_type: f64,
    /// Whether the gradient of a vector is divided by how often it is looked up in a call; false.
    pub scale_grad_by_freq: bool,
    padding_idx: Option<i64>,
}

impl EmbeddingBag {
    /// A table of `num_embeddings` vectors of `embedding_dim` numbers.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize, mode: BagMode, device: &Device) -> EmbeddingBag {
        let weight = Param::new(&Tensor::randn([num_embeddings, embedding_dim], device));
        EmbeddingBag {
            weight,
            mode,
            include_last_offset: false,
            max_norm: None,
            norm_type: 2.0,
            scale_grad_by_freq: false,
            padding_idx: None,
        }
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
    #[fornax_macros::traced]
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
        let table = read_table(&self.weight, index, self.max_norm, self.norm_type, self.scale_grad_by_freq);
        index.embedding_bag(&table, &options)
    }
}

/// The table as a lookup reads it: vectors no longer than `max_norm`, gradients divided by how often `index` names them.
#[track_caller]
fn read_table(weight: &Param, index: &Tensor, max_norm: Option<f64>, norm_type: f64, by_frequency: bool) -> Tensor {
    let mut table = Tensor::clone(weight);
    if let Some(max_norm) = max_norm {
        let norms = table.detach().to_dtype(DType::F32).vector_norm(norm_type, keepdim(-1)); // [rows, 1]
        let factor = norms.gt(max_norm).where_((&norms + 1e-7).reciprocal() * max_norm, 1.0).to_dtype(table.dtype());
        // As if the table itself had been changed: gradients are those of the shortened vectors.
        table = passed_through(&table, move |table| table * factor, Clone::clone);
    }
    if by_frequency {
        let index = index.flatten(0, -1).to_dtype(DType::I64);
        let zeros = Tensor::full([table.shape()[0]], 0.0, table.dtype(), table.device());
        let ones = Tensor::full([index.numel()], 1.0, table.dtype(), table.device());
        let counts = zeros.scatter_add(0, &index, &ones).maximum(1.0).unsqueeze(1); // [rows, 1]
        table = passed_through(&table, Clone::clone, move |dy| dy / &counts);
    }
    table
}

/// `forward(x)`, whose gradient is that of the result through `backward`.
#[track_caller]
fn passed_through(
    x: &Tensor,
    forward: impl FnOnce(&Tensor) -> Tensor,
    backward: impl Fn(&Tensor) -> Tensor + Send + Sync + 'static,
) -> Tensor {
    let mut results =
        custom_gradient(&[x], |x| alloc::vec![forward(&x[0])], move |dy| alloc::vec![dy[0].as_ref().map(&backward)]);
    results.pop().expect("there is one result")
}

#[track_caller]
fn without_row(weight: &Param, index: i64) -> Param {
    let rows = weight.shape()[0] as i64;
    let row = if index < 0 { index + rows } else { index };
    assert!((0..rows).contains(&row), "Embedding: padding_idx {index} is out of range for {rows} vectors");
    no_grad(|| {
        let counted = Tensor::arange(0, rows, 1, DType::I64, weight.device()).unsqueeze(1);
        Param::new(&weight.detach().masked_fill(&counted.eq(row), 0.0))
    })
}
