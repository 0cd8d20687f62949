//! [`DataLoader`]: batches of a data set, epoch after epoch, with or without threads.
//!
//! Which thread makes a batch, and how batches keep their order, is the matter of `loader/batches.rs`.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

mod batches;

pub use batches::Batches;
use batches::{Job, Request, answer};

use crate::pool::Pool;
use crate::{Dataset, Error, ErrorKind, Philox, Sampler, Sequential, Shuffled};

/// Batches of a data set. Made by [`DataLoader::builder`]; `B` is what the collate function returns.
///
/// The order depends on data set, sampler and epoch alone: not on the number of workers.
///
/// # Example
/// ```
/// use fornax_data::{DataLoader, InMemory};
///
/// let loader = DataLoader::builder(InMemory::from_iter(0..10))
///     .batch_size(4)
///     .shuffle(42)
///     .workers(2)
///     .collate(|items| items.iter().sum::<i32>())
///     .build();
/// for _epoch in 0..3 {
///     let sums: Vec<i32> = loader.iter().collect();
///     assert_eq!(sums.len(), 3); // 4, 4 and 2 items
///     assert_eq!(sums.iter().sum::<i32>(), 45);
/// }
/// ```
pub struct DataLoader<B> {
    load: Arc<Load<B>>,
    sampler: Box<dyn Sampler>,
    batch_size: usize,
    drop_last: bool,
    prefetch: usize,
    /// `None` without workers.
    pool: Option<Pool<Job<B>>>,
    progress: Mutex<Progress>,
}

/// Settings of a [`DataLoader`]; from [`DataLoader::builder`].
///
/// Defaults: batches of 1 item in the order of the data set, the last batch kept even if it is short, no workers,
/// and `Vec<Item>` as batch.
///
/// # Example
/// ```
/// use fornax_data::{DataLoader, InMemory};
/// let loader = DataLoader::builder(InMemory::new(vec!["a", "b", "c"])).batch_size(2).build();
/// assert_eq!(loader.iter().collect::<Vec<_>>(), [vec!["a", "b"], vec!["c"]]);
/// ```
#[must_use]
pub struct DataLoaderBuilder<I, B> {
    dataset: Arc<dyn Dataset<Item = I>>,
    sampler: Box<dyn Sampler>,
    collate: Arc<Collate<I, B>>,
    collate_seed: u64,
    batch_size: usize,
    drop_last: bool,
    n_workers: usize,
    prefetch: Option<usize>,
}

/// Where a [`DataLoader`] is: to be kept in a checkpoint. From [`DataLoader::state`].
///
/// The fields are public to be written and read in any format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataLoaderState {
    /// The epoch being read, or the next one if none is.
    pub epoch: u64,
    /// Items of the epoch that have been handed out.
    pub position: u64,
    /// Items per epoch.
    pub len: u64,
    /// A fingerprint of the epoch's order, to notice another seed or sampler.
    pub order: u64,
}

/// Four numbers, as [`FromStr`] reads them.
impl fmt::Display for DataLoaderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.epoch, self.position, self.len, self.order)
    }
}

impl FromStr for DataLoaderState {
    type Err = Error;

    /// # Errors
    /// [`State`](ErrorKind::State) if the text is not what `Display` gives.
    fn from_str(text: &str) -> Result<DataLoaderState, Error> {
        let numbers = text.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>();
        match numbers.as_deref() {
            Ok(&[epoch, position, len, order]) => Ok(DataLoaderState { epoch, position, len, order }),
            _ => Err(Error::new(ErrorKind::State, format!("{text:?} is no state of a loader"))),
        }
    }
}

type Collate<I, B> = dyn Fn(Vec<I>, &mut Philox) -> B + Send + Sync;
type Load<B> = dyn Fn(&Request) -> B + Send + Sync;

/// Shared by the loader and its latest iterator.
struct Progress {
    epoch: u64,
    /// Items of `epoch` handed out.
    position: usize,
    /// The next `iter` leaves this epoch: some of it was handed out, and not restored.
    under_way: bool,
    /// The latest iterator; an older one that is still alive no longer counts.
    iterator: u64,
    /// The fingerprint of an epoch's order, once asked for.
    order: Option<(u64, u64)>,
}

impl<I: 'static> DataLoader<Vec<I>> {
    /// A loader over `dataset`; see [`DataLoaderBuilder`] for the settings.
    pub fn builder(dataset: impl Dataset<Item = I> + 'static) -> DataLoaderBuilder<I, Vec<I>> {
        DataLoaderBuilder {
            sampler: Box::new(Sequential::new(dataset.len())),
            dataset: Arc::new(dataset),
            collate: Arc::new(|items, _| items),
            collate_seed: 0,
            batch_size: 1,
            drop_last: false,
            n_workers: 0,
            prefetch: None,
        }
    }
}

impl<I: 'static, B: 'static> DataLoaderBuilder<I, B> {
    /// Items per batch; 1 if not set.
    ///
    /// # Panics
    /// If `batch_size` is 0.
    #[track_caller]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        assert!(batch_size > 0, "data loader: batch_size must be at least 1");
        self.batch_size = batch_size;
        self
    }

    /// Visits each item once per epoch, in an order drawn from `seed` and the epoch. See [`Shuffled`].
    pub fn shuffle(self, seed: u64) -> Self {
        let sampler = Shuffled::new(self.dataset.len(), seed);
        self.sampler(sampler)
    }

    /// Visits the items that `sampler` names.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory, WithReplacement};
    /// let rare = InMemory::new(vec![1, 2, 3]);
    /// let loader = DataLoader::builder(rare).sampler(WithReplacement::new(3, 100, 42)).build();
    /// assert_eq!(loader.len(), 100);
    /// ```
    pub fn sampler(mut self, sampler: impl Sampler + 'static) -> Self {
        self.sampler = Box::new(sampler);
        self
    }

    /// Leaves out the last batch of an epoch if it is short.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory};
    /// let loader = DataLoader::builder(InMemory::from_iter(0..7)).batch_size(2).drop_last().build();
    /// assert_eq!(loader.iter().count(), 3);
    /// ```
    pub fn drop_last(mut self) -> Self {
        self.drop_last = true;
        self
    }

    /// Loads on `n_workers` threads that live as long as the loader; with 0 the calling thread loads.
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.n_workers = n_workers;
        self
    }

    /// How many batches the workers may be ahead of the consumer; twice the number of workers if not set.
    ///
    /// So many batches are in memory beside the one in use.
    ///
    /// # Panics
    /// If `n_batches` is 0.
    #[track_caller]
    pub fn prefetch(mut self, n_batches: usize) -> Self {
        assert!(n_batches > 0, "data loader: prefetch must be at least 1; help: workers(0) loads when asked");
        self.prefetch = Some(n_batches);
        self
    }

    /// Makes a batch out of items. It runs on the workers.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory};
    /// let pairs = InMemory::new(vec![(1.0, 'a'), (2.0, 'b')]);
    /// let loader = DataLoader::builder(pairs)
    ///     .batch_size(2)
    ///     .collate(|items| items.into_iter().unzip::<f64, char, Vec<_>, String>())
    ///     .build();
    /// assert_eq!(loader.iter().next(), Some((vec![1.0, 2.0], "ab".to_string())));
    /// ```
    pub fn collate<C>(self, collate: impl Fn(Vec<I>) -> C + Send + Sync + 'static) -> DataLoaderBuilder<I, C> {
        self.with_collate(0, move |items, _| collate(items))
    }

    /// Makes a batch out of items with random numbers, for augmentation.
    ///
    /// The generator is a batch's own, fixed by seed, epoch and position: the numbers are the same for any number
    /// of workers and after a resume.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory};
    /// let loader = DataLoader::builder(InMemory::new(vec![1.0_f32; 100]))
    ///     .batch_size(10)
    ///     .collate_random(42, |items, rng| items.iter().map(|x| x + 0.1 * rng.next_f32()).collect::<Vec<_>>())
    ///     .build();
    /// assert_ne!(loader.iter().next(), loader.iter().next()); // two epochs
    /// ```
    pub fn collate_random<C>(
        self,
        seed: u64,
        collate: impl Fn(Vec<I>, &mut Philox) -> C + Send + Sync + 'static,
    ) -> DataLoaderBuilder<I, C> {
        self.with_collate(seed, collate)
    }

    fn with_collate<C>(
        self,
        seed: u64,
        collate: impl Fn(Vec<I>, &mut Philox) -> C + Send + Sync + 'static,
    ) -> DataLoaderBuilder<I, C> {
        DataLoaderBuilder {
            collate: Arc::new(collate),
            collate_seed: seed,
            dataset: self.dataset,
            sampler: self.sampler,
            batch_size: self.batch_size,
            drop_last: self.drop_last,
            n_workers: self.n_workers,
            prefetch: self.prefetch,
        }
    }

    /// The loader; starts its workers.
    ///
    /// # Panics
    /// If a thread cannot be started, as on `wasm32-unknown-unknown`, where `workers(0)` works.
    #[must_use]
    pub fn build(self) -> DataLoader<B>
    where
        B: Send,
    {
        let (dataset, collate, seed) = (self.dataset, self.collate, self.collate_seed);
        let load: Arc<Load<B>> = Arc::new(move |request| {
            let fetch = |&index| {
                request.current.set(Some(index));
                dataset.get(index)
            };
            let items = request.indices.iter().map(fetch).collect();
            request.current.set(None);
            collate(items, &mut Philox::keyed(seed, request.epoch, request.position as u64))
        });
        let start_pool = || {
            let load = Arc::clone(&load);
            Pool::new(self.n_workers, move |job| answer(job, &*load))
        };
        DataLoader {
            pool: (self.n_workers > 0).then(start_pool),
            load,
            sampler: self.sampler,
            batch_size: self.batch_size,
            drop_last: self.drop_last,
            prefetch: self.prefetch.unwrap_or(2 * self.n_workers),
            progress: Mutex::new(Progress { epoch: 0, position: 0, under_way: false, iterator: 0, order: None }),
        }
    }
}

impl<B: Send + 'static> DataLoader<B> {
    /// The batches of the next epoch, or what is left of a restored one.
    ///
    /// An epoch ends when its iterator has returned `None`. If the iterator is dropped before that and after its
    /// first batch, the rest of the epoch is skipped: the next call starts the epoch after it.
    ///
    /// # Panics
    /// The iterator panics when the data set or the collate function does. With workers, the message names the item
    /// or the batch, and the loader stays usable.
    pub fn iter(&self) -> Batches<'_, B> {
        let (epoch, position, iterator) = {
            let mut progress = self.progress();
            if progress.under_way {
                let next = progress.epoch.wrapping_add(1);
                progress.enter(next, 0);
            }
            progress.iterator += 1;
            (progress.epoch, progress.position, progress.iterator)
        };
        Batches::new(self, iterator, epoch, position)
    }

    /// Batches per epoch.
    pub fn len(&self) -> usize {
        self.n_batches(0)
    }

    /// Whether an epoch has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The epoch being read, or the next one if none is; begins at 0.
    pub fn epoch(&self) -> u64 {
        self.progress().epoch
    }

    /// Makes the next [`iter`](Self::iter) start `epoch` from its beginning.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory};
    /// let loader = DataLoader::builder(InMemory::from_iter(0..100)).shuffle(42).build();
    /// let first: Vec<_> = loader.iter().collect();
    /// loader.set_epoch(0);
    /// assert!(loader.iter().eq(first));
    /// ```
    pub fn set_epoch(&self, epoch: u64) {
        self.progress().enter(epoch, 0);
    }

    /// Where the loader is, counting what was handed out and not what workers have ready.
    ///
    /// Call it between batches, also while iterating. After an iterator was dropped early the place is still there,
    /// until the next [`iter`](Self::iter). The first call in an epoch asks the sampler for its order.
    ///
    /// # Example
    /// ```
    /// use fornax_data::{DataLoader, InMemory};
    /// let loader = || DataLoader::builder(InMemory::from_iter(0..100)).batch_size(8).shuffle(42).build();
    /// let before = loader();
    /// let mut batches = before.iter();
    /// batches.nth(4);
    /// let state = before.state();
    ///
    /// let after = loader(); // in another run of the program
    /// after.restore(&state)?;
    /// assert!(after.iter().eq(batches));
    /// # Ok::<(), fornax_data::Error>(())
    /// ```
    pub fn state(&self) -> DataLoaderState {
        let (epoch, position, known) = {
            let progress = self.progress();
            (progress.epoch, progress.position, progress.order)
        };
        let order = match known {
            Some((of_epoch, order)) if of_epoch == epoch => order,
            // Not under the lock: the sampler may be the user's.
            _ => self.fingerprint(epoch),
        };
        self.progress().order = Some((epoch, order));
        DataLoaderState { epoch, position: position as u64, len: self.sampler.len() as u64, order }
    }

    /// Makes the next [`iter`](Self::iter) go on at `state`.
    ///
    /// The batch size may differ from that of the saved loader: the place is counted in items.
    ///
    /// # Errors
    /// [`State`](ErrorKind::State) if `state` is of a loader with another number of items, sampler or seed. The
    /// loader stays where it was.
    pub fn restore(&self, state: &DataLoaderState) -> Result<(), Error> {
        let fail =
            |message: String| Err(Error::new(ErrorKind::State, format!("data loader: cannot restore: {message}")));
        let len = self.sampler.len();
        if state.len != len as u64 {
            return fail(format!("the saved epoch has {} items, this one {len}", state.len));
        }
        if state.position > state.len {
            return fail(format!("position {} is beyond the {len} items", state.position));
        }
        if state.order != self.fingerprint(state.epoch) {
            return fail(format!("epoch {} has another order; help: are sampler and seed the same?", state.epoch));
        }
        let position = usize::try_from(state.position).expect("at most `len`, as checked above");
        let mut progress = self.progress();
        progress.enter(state.epoch, position);
        progress.order = Some((state.epoch, state.order));
        Ok(())
    }
}

impl<B> DataLoader<B> {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Batches from `position` to the end of an epoch.
    fn n_batches(&self, position: usize) -> usize {
        let n_items = self.sampler.len() - position;
        if self.drop_last { n_items / self.batch_size } else { n_items.div_ceil(self.batch_size) }
    }

    /// FNV-1a over the first indices of an epoch, enough of them to tell shuffles apart.
    fn fingerprint(&self, epoch: u64) -> u64 {
        let bytes = self.sampler.indices(epoch).take(32).flat_map(|index| (index as u64).to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }
}

impl Progress {
    fn enter(&mut self, epoch: u64, position: usize) {
        self.epoch = epoch;
        self.position = position;
        self.under_way = false;
        self.iterator += 1;
    }
}

impl<'a, B: Send + 'static> IntoIterator for &'a DataLoader<B> {
    type Item = B;
    type IntoIter = Batches<'a, B>;

    fn into_iter(self) -> Batches<'a, B> {
        self.iter()
    }
}

impl<B> fmt::Debug for DataLoader<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoader")
            .field("items", &self.sampler.len())
            .field("batch_size", &self.batch_size)
            .field("drop_last", &self.drop_last)
            .field("workers", &self.pool.as_ref().map_or(0, Pool::n_threads))
            .field("epoch", &self.progress().epoch)
            .finish_non_exhaustive()
    }
}

impl<I, B> fmt::Debug for DataLoaderBuilder<I, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderBuilder")
            .field("items", &self.sampler.len())
            .field("batch_size", &self.batch_size)
            .field("drop_last", &self.drop_last)
            .field("workers", &self.n_workers)
            .finish_non_exhaustive()
    }
}
