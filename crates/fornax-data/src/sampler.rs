//! Samplers: which items an epoch visits, and in which order.
//!
//! A sampler is a pure function from an epoch to a list of indices. The randomized ones draw from [`Philox`]
//! with the seed as key and the epoch as stream: every machine gets the same order.

use crate::Philox;

/// The indices of one epoch, in order.
pub type Indices = Box<dyn Iterator<Item = usize> + Send>;

/// The order in which an epoch visits the items of a data set.
///
/// # Example
/// ```
/// use fornax_data::{Indices, Sampler};
///
/// /// Every second item: the even ones, then the odd ones, in turns.
/// struct EverySecond(usize);
///
/// impl Sampler for EverySecond {
///     fn len(&self) -> usize {
///         self.0 / 2
///     }
///     fn indices(&self, epoch: u64) -> Indices {
///         let first = (epoch % 2) as usize;
///         Box::new((0..self.len()).map(move |i| 2 * i + first))
///     }
/// }
/// assert_eq!(EverySecond(6).indices(1).collect::<Vec<_>>(), [1, 3, 5]);
/// ```
pub trait Sampler: Send + Sync {
    /// How many indices every epoch has.
    fn len(&self) -> usize;

    /// The `len()` indices of `epoch`. The same epoch always gives the same indices.
    fn indices(&self, epoch: u64) -> Indices;

    /// Whether an epoch has no indices.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The items in their own order, `0..len`.
///
/// # Example
/// ```
/// use fornax_data::{Sampler, Sequential};
/// assert_eq!(Sequential::new(3).indices(0).collect::<Vec<_>>(), [0, 1, 2]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequential {
    len: usize,
}

impl Sequential {
    /// The order `0..len`.
    pub fn new(len: usize) -> Self {
        Self { len }
    }
}

impl Sampler for Sequential {
    fn len(&self) -> usize {
        self.len
    }

    fn indices(&self, _epoch: u64) -> Indices {
        Box::new(0..self.len)
    }
}

/// Each item once, in an order drawn afresh for each epoch; every order is equally likely.
///
/// Costs 8 bytes per item while an epoch runs.
///
/// # Example
/// ```
/// use fornax_data::{Sampler, Shuffled};
/// let sampler = Shuffled::new(100, 42);
/// let epoch = |n| sampler.indices(n).collect::<Vec<_>>();
/// assert_eq!(epoch(0), epoch(0));
/// assert_ne!(epoch(0), epoch(1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shuffled {
    len: usize,
    seed: u64,
}

impl Shuffled {
    /// Orders of `0..len` drawn from `seed`.
    pub fn new(len: usize, seed: u64) -> Self {
        Self { len, seed }
    }
}

impl Sampler for Shuffled {
    fn len(&self) -> usize {
        self.len
    }

    fn indices(&self, epoch: u64) -> Indices {
        WithoutReplacement { n_items: self.len, size: self.len, seed: self.seed }.indices(epoch)
    }
}

/// `size` items, each drawn from all of them: some may come twice, some not at all.
///
/// # Example
/// ```
/// use fornax_data::{Sampler, WithReplacement};
/// let sampler = WithReplacement::new(10, 1000, 42);
/// assert_eq!(sampler.indices(0).count(), 1000);
/// assert!(sampler.indices(0).all(|index| index < 10));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithReplacement {
    n_items: usize,
    size: usize,
    seed: u64,
}

impl WithReplacement {
    /// `size` draws from `0..n_items` per epoch.
    ///
    /// # Panics
    /// If there is nothing to draw from: `n_items` is 0 and `size` is not.
    #[track_caller]
    pub fn new(n_items: usize, size: usize, seed: u64) -> Self {
        assert!(n_items > 0 || size == 0, "sampler with replacement: cannot draw {size} items from 0");
        Self { n_items, size, seed }
    }
}

impl Sampler for WithReplacement {
    fn len(&self) -> usize {
        self.size
    }

    fn indices(&self, epoch: u64) -> Indices {
        let (n_items, mut rng) = (self.n_items, Philox::new(self.seed, epoch));
        Box::new((0..self.size).map(move |_| rng.below(n_items)))
    }
}

/// `size` items as evenly as possible: each comes ⌊size / n_items⌋ or ⌈size / n_items⌉ times.
///
/// Which items get the extra visit is random, and so is the order: every arrangement of the visits is equally
/// likely, so the same item may come twice in a row once `size` is larger than `n_items`.
///
/// # Example
/// ```
/// use fornax_data::{Sampler, WithoutReplacement};
/// let mut counts = [0; 10];
/// for index in WithoutReplacement::new(10, 25, 42).indices(0) {
///     counts[index] += 1;
/// }
/// assert!(counts.iter().all(|n| (2..=3).contains(n)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutReplacement {
    n_items: usize,
    size: usize,
    seed: u64,
}

impl WithoutReplacement {
    /// `size` visits of the items `0..n_items` per epoch.
    ///
    /// # Panics
    /// If there is nothing to draw from: `n_items` is 0 and `size` is not.
    #[track_caller]
    pub fn new(n_items: usize, size: usize, seed: u64) -> Self {
        assert!(n_items > 0 || size == 0, "sampler without replacement: cannot draw {size} items from 0");
        Self { n_items, size, seed }
    }
}

impl Sampler for WithoutReplacement {
    fn len(&self) -> usize {
        self.size
    }

    fn indices(&self, epoch: u64) -> Indices {
        if self.size == 0 {
            return Box::new(0..0);
        }
        let mut rng = Philox::new(self.seed, epoch);
        let mut indices: Vec<usize> = (0..self.n_items).collect();
        let (n_rounds, n_extra) = (self.size / self.n_items, self.size % self.n_items);
        if n_rounds == 0 || (n_rounds == 1 && n_extra == 0) {
            rng.shuffle_front(&mut indices, self.size);
            indices.truncate(self.size);
            return Box::new(indices.into_iter());
        }
        rng.shuffle_front(&mut indices, n_extra);
        indices.truncate(n_extra);
        indices.extend((0..n_rounds).flat_map(|_| 0..self.n_items));
        // One shuffle over everything. Shuffled rounds in a row would never show an item again before all others.
        rng.shuffle(&mut indices);
        Box::new(indices.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sampler: &dyn Sampler, n_items: usize, epoch: u64) -> Vec<usize> {
        let mut counts = vec![0; n_items];
        sampler.indices(epoch).for_each(|index| counts[index] += 1);
        assert_eq!(counts.iter().sum::<usize>(), sampler.len());
        counts
    }

    /// Asserts that `sampler(seed)` puts each of `n_items` equally often at each position, over 4000 seeds.
    #[track_caller]
    fn check_uniform(n_items: usize, sampler: impl Fn(u64) -> Box<dyn Sampler>) {
        let n_seeds = 4000;
        let n_positions = sampler(0).len();
        let mut table = vec![vec![0.0_f64; n_items]; n_positions];
        for seed in 0..n_seeds {
            for (position, index) in sampler(seed).indices(0).enumerate() {
                table[position][index] += 1.0;
            }
        }
        let expected = n_seeds as f64 / n_items as f64;
        for (position, row) in table.iter().enumerate() {
            let chi2: f64 = row.iter().map(|n| (n - expected).powi(2) / expected).sum();
            // 9 degrees of freedom: P(χ² > 35) = 6e-5, for each of at most 60 positions.
            assert!(chi2 < 35.0, "position {position}: χ² {chi2}, {row:?}");
        }
    }

    #[test]
    fn without_replacement_visits_evenly() {
        for seed in 0..200 {
            let counts_of = |size| counts(&WithoutReplacement::new(10, size, seed), 10, seed % 3);
            assert_eq!(counts_of(10), [1; 10]);
            assert_eq!(counts_of(20), [2; 10]);
            assert!(counts_of(4).iter().all(|&n| n <= 1));
            assert!(counts_of(25).iter().all(|n| (2..=3).contains(n)));
            assert_eq!(counts(&Shuffled::new(10, seed), 10, 0), [1; 10]);
        }
    }

    #[test]
    fn every_item_is_equally_likely_at_every_position() {
        check_uniform(10, |seed| Box::new(Shuffled::new(10, seed)));
        check_uniform(10, |seed| Box::new(WithoutReplacement::new(10, 4, seed)));
        check_uniform(10, |seed| Box::new(WithoutReplacement::new(10, 25, seed)));
        check_uniform(10, |seed| Box::new(WithReplacement::new(10, 12, seed)));
    }

    #[test]
    fn every_order_of_four_items_is_equally_likely() {
        let mut counts = std::collections::BTreeMap::<Vec<usize>, f64>::new();
        for epoch in 0..24_000 {
            *counts.entry(Shuffled::new(4, 9).indices(epoch).collect()).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 24);
        let chi2: f64 = counts.values().map(|n| (n - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi2 < 49.7, "{counts:?}"); // 23 degrees of freedom, P = 0.001
    }

    /// An arrangement of 2 of each of 2 items is one of six; a round of each in turn would reach only four.
    #[test]
    fn oversized_order_is_one_shuffle_over_all_visits() {
        let mut counts = std::collections::BTreeMap::<Vec<usize>, f64>::new();
        for epoch in 0..6000 {
            *counts.entry(WithoutReplacement::new(2, 4, 9).indices(epoch).collect()).or_default() += 1.0;
        }
        assert_eq!(counts.len(), 6);
        let chi2: f64 = counts.values().map(|n| (n - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi2 < 20.5, "{counts:?}"); // 5 degrees of freedom, P = 0.001
    }

    #[test]
    fn order_depends_on_seed_and_epoch_only() {
        let order = |seed, epoch| Shuffled::new(50, seed).indices(epoch).collect::<Vec<_>>();
        assert_eq!(order(1, 2), order(1, 2));
        assert_ne!(order(1, 2), order(1, 3));
        assert_ne!(order(1, 2), order(2, 2));
    }

    #[test]
    fn empty_samplers_end_at_once() {
        let samplers: [&dyn Sampler; 4] = [
            &Sequential::new(0),
            &Shuffled::new(0, 1),
            &WithReplacement::new(0, 0, 1),
            &WithoutReplacement::new(0, 0, 1),
        ];
        for sampler in samplers {
            assert!(sampler.is_empty());
            assert_eq!(sampler.indices(0).count(), 0);
        }
    }

    #[test]
    #[should_panic(expected = "sampler without replacement: cannot draw 3 items from 0")]
    fn drawing_from_nothing_panics() {
        WithoutReplacement::new(0, 3, 1);
    }
}
