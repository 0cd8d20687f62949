//! Data sets: [`Dataset`], the ones that hold items or combine others, and [`InMemory`] to start from.

use std::fmt;
use std::sync::Arc;

use crate::Philox;

/// A fixed number of items, any of which can be had by index.
///
/// Two methods make a data set. `get` runs on several threads at once when the loader has workers. The trait is
/// object-safe: `Box<dyn Dataset<Item = T>>`, `Arc<…>` and `&…` of a data set are data sets too.
///
/// A data set over files that may be unreadable has `Item = Result<…>`, and the collate function of the loader
/// gathers the results: `items.into_iter().collect::<Result<Vec<_>, _>>()`.
///
/// # Example
/// ```
/// use fornax_data::Dataset;
///
/// struct Squares;
///
/// impl Dataset for Squares {
///     type Item = usize;
///     fn len(&self) -> usize {
///         10
///     }
///     fn get(&self, index: usize) -> usize {
///         index * index
///     }
/// }
/// let halves = Squares.map(|x| x as f32 / 2.0).subset([2, 3]);
/// assert_eq!((halves.len(), halves.get(1)), (2, 4.5));
/// ```
pub trait Dataset: Send + Sync {
    /// What [`get`](Self::get) returns.
    type Item;

    /// The number of items.
    fn len(&self) -> usize;

    /// The item at `index`; the same index gives the same item.
    ///
    /// # Panics
    /// If `index` is not below `len()`.
    fn get(&self, index: usize) -> Self::Item;

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies `f` to each item when it is asked for.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, InMemory};
    /// let lengths = InMemory::new(vec!["a", "bcd"]).map(str::len);
    /// assert_eq!(lengths.get(1), 3);
    /// ```
    fn map<F, U>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Item) -> U + Send + Sync,
    {
        Map { dataset: self, f }
    }

    /// The items at `indices`, in that order; a range, an array or a list.
    ///
    /// # Panics
    /// If an index is not below `len()`.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, InMemory};
    /// let letters = InMemory::new(vec!['a', 'b', 'c', 'd']);
    /// assert_eq!(letters.clone().subset(1..3).get(0), 'b');
    /// assert_eq!(letters.subset([3, 0]).get(0), 'd');
    /// ```
    #[track_caller]
    fn subset(self, indices: impl IntoIterator<Item = usize>) -> Subset<Self>
    where
        Self: Sized,
    {
        let (indices, len) = (indices.into_iter().collect::<Vec<_>>(), self.len());
        if let Some(index) = indices.iter().find(|&&index| index >= len) {
            panic!("subset: index {index} out of range for {len} items");
        }
        Subset { dataset: self, indices }
    }

    /// Cuts into consecutive parts of the given lengths.
    ///
    /// # Panics
    /// If the lengths do not add up to `len()`.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, InMemory};
    /// let [train, test] = InMemory::new(vec![1, 2, 3]).split([2, 1]);
    /// assert_eq!((train.len(), test.get(0)), (2, 3));
    /// ```
    #[track_caller]
    fn split<const N: usize>(self, lengths: [usize; N]) -> [Subset<Arc<Self>>; N]
    where
        Self: Sized,
    {
        let order = (0..self.len()).collect();
        split_by(self, lengths, order)
    }

    /// Cuts into parts of the given lengths after a shuffle; the same seed gives the same parts.
    ///
    /// # Panics
    /// If the lengths do not add up to `len()`.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, InMemory};
    /// let numbers = InMemory::from_iter(0..100);
    /// let [train, valid] = numbers.random_split([80, 20], 42);
    /// assert_eq!((train.len(), valid.len()), (80, 20));
    /// ```
    #[track_caller]
    fn random_split<const N: usize>(self, lengths: [usize; N], seed: u64) -> [Subset<Arc<Self>>; N]
    where
        Self: Sized,
    {
        let mut order: Vec<usize> = (0..self.len()).collect();
        Philox::new(seed, 0).shuffle(&mut order);
        split_by(self, lengths, order)
    }

    /// The items of `self`, then those of `other`. For many parts, see [`Concat::new`].
    ///
    /// # Example
    /// ```
    /// use fornax_data::{Dataset, InMemory};
    /// let both = InMemory::new(vec![1, 2]).concat(InMemory::new(vec![3]));
    /// assert_eq!((both.len(), both.get(2)), (3, 3));
    /// ```
    fn concat(self, other: impl Dataset<Item = Self::Item> + 'static) -> Concat<Self::Item>
    where
        Self: Sized + 'static,
    {
        Concat::new([Arc::new(self) as Part<Self::Item>, Arc::new(other)])
    }
}

macro_rules! forward_to_pointee {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Item = D::Item;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn get(&self, index: usize) -> Self::Item {
                (**self).get(index)
            }
        }
    )*};
}
forward_to_pointee!(&D, Box<D>, Arc<D>);

/// Items held in memory. Cloning is cheap: clones share the items.
///
/// # Example
/// ```
/// use fornax_data::{Dataset, InMemory};
/// let numbers = InMemory::new(vec![3, 1, 2]);
/// assert_eq!((numbers.len(), numbers.get(0)), (3, 3));
/// assert_eq!(numbers.as_slice().iter().max(), Some(&3));
/// ```
pub struct InMemory<T> {
    items: Arc<Vec<T>>,
}

impl<T> InMemory<T> {
    /// A data set of `items`.
    pub fn new(items: Vec<T>) -> Self {
        Self { items: Arc::new(items) }
    }

    /// All items.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }
}

impl<T: Clone + Send + Sync> Dataset for InMemory<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.items.len()
    }

    #[track_caller]
    fn get(&self, index: usize) -> T {
        match self.items.get(index) {
            Some(item) => item.clone(),
            None => panic!("in-memory data set: index {index} out of range for {} items", self.items.len()),
        }
    }
}

impl<T> FromIterator<T> for InMemory<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::new(items.into_iter().collect())
    }
}

impl<T> From<Vec<T>> for InMemory<T> {
    fn from(items: Vec<T>) -> Self {
        Self::new(items)
    }
}

impl<T> Clone for InMemory<T> {
    fn clone(&self) -> Self {
        Self { items: Arc::clone(&self.items) }
    }
}

impl<T> fmt::Debug for InMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemory").field("len", &self.items.len()).finish_non_exhaustive()
    }
}

/// A data set with a function applied to each item; made by [`Dataset::map`].
#[derive(Clone)]
pub struct Map<D, F> {
    dataset: D,
    f: F,
}

impl<D, F, U> Dataset for Map<D, F>
where
    D: Dataset,
    F: Fn(D::Item) -> U + Send + Sync,
{
    type Item = U;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize) -> U {
        (self.f)(self.dataset.get(index))
    }
}

impl<D: fmt::Debug, F> fmt::Debug for Map<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}

/// Some items of a data set; made by [`Dataset::subset`], [`Dataset::split`] and [`Dataset::random_split`].
#[derive(Clone)]
pub struct Subset<D> {
    dataset: D,
    /// Each is below `dataset.len()`.
    indices: Vec<usize>,
}

impl<D> Subset<D> {
    /// The positions of the items in the data set they come from.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Item = D::Item;

    fn len(&self) -> usize {
        self.indices.len()
    }

    #[track_caller]
    fn get(&self, index: usize) -> D::Item {
        match self.indices.get(index) {
            Some(&index) => self.dataset.get(index),
            None => panic!("subset: index {index} out of range for {} items", self.indices.len()),
        }
    }
}

impl<D: fmt::Debug> fmt::Debug for Subset<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subset").field("dataset", &self.dataset).field("len", &self.indices.len()).finish()
    }
}

type Part<T> = Arc<dyn Dataset<Item = T>>;

/// Data sets of one item type, one after the other.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use fornax_data::{Concat, Dataset, InMemory};
/// let parts = [InMemory::new(vec![1]), InMemory::new(vec![]), InMemory::new(vec![2, 3])];
/// let all = Concat::new(parts.map(|part| Arc::new(part) as Arc<dyn Dataset<Item = i32>>));
/// assert_eq!((all.len(), all.get(1)), (3, 2));
/// ```
pub struct Concat<T> {
    parts: Vec<Part<T>>,
    /// `ends[i]` is the number of items in `parts[..=i]`.
    ends: Vec<usize>,
}

impl<T> Concat<T> {
    /// The items of all `parts`, in order.
    pub fn new(parts: impl IntoIterator<Item = Arc<dyn Dataset<Item = T>>>) -> Self {
        let parts: Vec<_> = parts.into_iter().collect();
        let mut end = 0;
        let ends = parts.iter().map(|part| {
            end += part.len();
            end
        });
        Self { ends: ends.collect(), parts }
    }
}

impl<T> Dataset for Concat<T> {
    type Item = T;

    fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }

    #[track_caller]
    fn get(&self, index: usize) -> T {
        assert!(index < self.len(), "concat: index {index} out of range for {} items", self.len());
        let part_idx = self.ends.partition_point(|&end| end <= index);
        let start = part_idx.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.parts[part_idx].get(index - start)
    }
}

impl<T> Clone for Concat<T> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone(), ends: self.ends.clone() }
    }
}

impl<T> fmt::Debug for Concat<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Concat").field("ends", &self.ends).finish_non_exhaustive()
    }
}

#[track_caller]
fn split_by<D: Dataset, const N: usize>(dataset: D, lengths: [usize; N], order: Vec<usize>) -> [Subset<Arc<D>>; N] {
    let n_items = order.len();
    let total = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
    assert!(total == Some(n_items), "split: lengths {lengths:?} do not add up to the {n_items} items");
    let dataset = Arc::new(dataset);
    let mut order = order.into_iter();
    lengths.map(|length| Subset { dataset: Arc::clone(&dataset), indices: order.by_ref().take(length).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<D: Dataset>(dataset: &D) -> Vec<D::Item> {
        (0..dataset.len()).map(|index| dataset.get(index)).collect()
    }

    #[test]
    fn combinations_nest() {
        let numbers = InMemory::from_iter(0..6);
        let odd = numbers.clone().subset([1, 3, 5]).map(|x| x * 10);
        assert_eq!(all(&odd), [10, 30, 50]);
        let both = odd.concat(numbers.clone()).concat(numbers.subset(4..6));
        assert_eq!(all(&both), [10, 30, 50, 0, 1, 2, 3, 4, 5, 4, 5]);
    }

    #[test]
    fn data_sets_work_as_objects_and_behind_pointers() {
        let boxed: Box<dyn Dataset<Item = i32>> = Box::new(InMemory::new(vec![1, 2]));
        assert_eq!(all(&boxed.map(|x| -x)), [-1, -2]);
        let shared = Arc::new(InMemory::new(vec![1, 2]));
        assert_eq!(all(&Arc::clone(&shared).subset([1])), [2]);
        assert_eq!(all(&&*shared), [1, 2]);
    }

    #[test]
    fn random_split_is_a_partition_fixed_by_its_seed() {
        let parts = |seed| InMemory::from_iter(0..10).random_split([5, 0, 3, 2], seed).map(|part| all(&part));
        let mut items = parts(1).concat();
        items.sort_unstable();
        assert_eq!(items, (0..10).collect::<Vec<_>>());
        assert_eq!(parts(1), parts(1));
        assert_ne!(parts(1), parts(2));
    }

    #[test]
    fn concat_skips_empty_parts() {
        let empty = || InMemory::<i32>::new(vec![]);
        let joined = empty().concat(InMemory::new(vec![7])).concat(empty());
        assert_eq!(all(&joined), [7]);
        assert_eq!(Concat::<i32>::new([]).len(), 0);
    }

    #[test]
    #[should_panic(expected = "split: lengths [2, 2] do not add up to the 3 items")]
    fn split_that_leaves_items_out_panics() {
        let _ = InMemory::from_iter(0..3).split([2, 2]);
    }

    #[test]
    #[should_panic(expected = "subset: index 3 out of range for 3 items")]
    fn subset_out_of_range_panics_when_made() {
        let _ = InMemory::from_iter(0..3).subset([0, 3]);
    }

    #[test]
    #[should_panic(expected = "concat: index 2 out of range for 2 items")]
    fn concat_out_of_range_panics() {
        InMemory::new(vec![1]).concat(InMemory::new(vec![2])).get(2);
    }
}
