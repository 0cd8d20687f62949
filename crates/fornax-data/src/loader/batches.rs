//! [`Batches`]: one pass over an epoch.
//!
//! A batch is a pure function of (seed, epoch, position), so it does not matter which thread makes it or when.
//! The iterator hands out requests in order, at most `prefetch` ahead of the consumer, and puts the answers back
//! into order. Since an answer is only ever sent when it was asked for, no thread waits for room in a queue, and an
//! iterator may be dropped at any time.

use std::any::Any;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{DataLoader, Load};
use crate::Indices;

/// The batches of one epoch; from [`DataLoader::iter`].
///
/// Dropping it early is fine: workers skip what was still asked for.
pub struct Batches<'a, B> {
    loader: &'a DataLoader<B>,
    iterator: u64,
    epoch: u64,
    indices: Indices,
    /// Position in the epoch of the next item to request.
    requested: usize,
    n_unrequested: usize,
    n_requested: usize,
    /// Position in the epoch of this iterator's first item.
    start: usize,
    /// Batches requested and not handed out, oldest first; `None` until the answer is here.
    slots: VecDeque<Option<Result<B, String>>>,
    /// Batches handed out, or lost to a panic: the number of the request in `slots[0]`.
    n_taken: usize,
    reply: Sender<Reply<B>>,
    replies: Receiver<Reply<B>>,
    cancelled: Arc<AtomicBool>,
    ended: bool,
}

/// What it takes to make one batch.
pub(super) struct Request {
    pub(super) epoch: u64,
    /// Of the first item within the epoch.
    pub(super) position: usize,
    pub(super) indices: Vec<usize>,
    /// The item being fetched, for the message of a panic.
    pub(super) current: Cell<Option<usize>>,
}

pub(super) struct Job<B> {
    request: Request,
    /// Counts the requests of one iterator.
    number: usize,
    reply: Sender<Reply<B>>,
    /// The iterator is gone: skip.
    cancelled: Arc<AtomicBool>,
}

struct Reply<B> {
    number: usize,
    /// Or the message for the consumer.
    result: Result<B, String>,
}

impl<'a, B: Send + 'static> Batches<'a, B> {
    /// From `position` of `epoch` on. `iterator` is its number among those of the loader.
    pub(super) fn new(loader: &'a DataLoader<B>, iterator: u64, epoch: u64, position: usize) -> Self {
        let mut indices = loader.sampler.indices(epoch);
        if let Some(last) = position.checked_sub(1) {
            indices.nth(last);
        }
        let (reply, replies) = channel();
        let mut batches = Self {
            loader,
            iterator,
            epoch,
            indices,
            requested: position,
            n_unrequested: loader.n_batches(position),
            n_requested: 0,
            start: position,
            slots: VecDeque::new(),
            n_taken: 0,
            reply,
            replies,
            cancelled: Arc::new(AtomicBool::new(false)),
            ended: false,
        };
        batches.request_ahead();
        batches
    }

    fn next_request(&mut self) -> Option<Request> {
        self.n_unrequested = self.n_unrequested.checked_sub(1)?;
        let n_left = self.loader.sampler.len() - self.requested;
        let n_items = n_left.min(self.loader.batch_size);
        let indices: Vec<usize> = self.indices.by_ref().take(n_items).collect();
        let n_given = self.requested + indices.len();
        assert!(indices.len() == n_items, "data loader: sampler: len is more than the {n_given} indices of the epoch");
        let request = Request { epoch: self.epoch, position: self.requested, indices, current: Cell::new(None) };
        self.requested += n_items;
        Some(request)
    }

    /// Keeps the workers busy: sends requests until `prefetch` batches are on their way.
    fn request_ahead(&mut self) {
        let Some(pool) = &self.loader.pool else { return };
        while self.slots.len() < self.loader.prefetch
            && let Some(request) = self.next_request()
        {
            let (reply, cancelled) = (self.reply.clone(), Arc::clone(&self.cancelled));
            pool.send(Job { request, number: self.n_requested, reply, cancelled });
            self.n_requested += 1;
            self.slots.push_back(None);
        }
    }

    /// Waits for the oldest of the batches on their way.
    fn receive(&mut self) -> Option<Result<B, String>> {
        while self.slots.front()?.is_none() {
            // Every job is answered, so this ends.
            let Reply { number, result } = self.replies.recv().expect("this iterator holds a sender itself");
            self.slots[number - self.n_taken] = Some(result);
        }
        self.n_taken += 1;
        self.slots.pop_front().flatten()
    }

    /// Position in the epoch of the next item to hand out.
    fn position(&self) -> usize {
        self.loader.sampler.len().min(self.start + self.n_taken * self.loader.batch_size)
    }

    /// Notes that a batch was handed out. One lost to a panic does not get here: a resumed run tries it again.
    fn advance(&self) {
        let position = self.position();
        let mut progress = self.loader.progress();
        if progress.iterator == self.iterator {
            progress.position = position;
            progress.under_way = true;
        }
    }

    fn end(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        let mut progress = self.loader.progress();
        if progress.iterator == self.iterator {
            progress.enter(self.epoch.wrapping_add(1), 0);
        }
    }
}

impl<B: Send + 'static> Iterator for Batches<'_, B> {
    type Item = B;

    fn next(&mut self) -> Option<B> {
        let batch = if self.loader.pool.is_some() {
            let result = self.receive();
            self.request_ahead();
            match result {
                Some(Err(message)) => panic!("{message}"),
                Some(Ok(batch)) => Some(batch),
                None => None,
            }
        } else {
            self.next_request().map(|request| {
                self.n_taken += 1;
                (self.loader.load)(&request)
            })
        };
        match batch {
            Some(_) => self.advance(),
            None => self.end(),
        }
        batch
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_left = self.n_unrequested + self.slots.len();
        (n_left, Some(n_left))
    }
}

impl<B: Send + 'static> ExactSizeIterator for Batches<'_, B> {}

impl<B: Send + 'static> std::iter::FusedIterator for Batches<'_, B> {}

impl<B> Drop for Batches<'_, B> {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl<B> fmt::Debug for Batches<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("epoch", &self.epoch).field("n_taken", &self.n_taken).finish_non_exhaustive()
    }
}

/// Runs on a worker.
pub(super) fn answer<B>(job: Job<B>, load: &Load<B>) {
    if job.cancelled.load(Ordering::Relaxed) {
        return;
    }
    let Job { request, number, reply, .. } = job;
    let result = catch_unwind(AssertUnwindSafe(|| load(&request))).map_err(|payload| {
        let place = format!("position {} of epoch {}", request.position, request.epoch);
        let what = match request.current.get() {
            Some(index) => format!("loading item {index} for the batch at {place}"),
            None => format!("collating the batch at {place}"),
        };
        format!("data loader: a worker panicked while {what}: {}", panic_message(&*payload))
    });
    // An error means that the iterator is gone, and nobody wants the batch.
    let _ = reply.send(Reply { number, result });
}

fn panic_message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}
