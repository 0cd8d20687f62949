//! Threads that stay: a fixed number of them takes jobs from one queue until the pool is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Runs jobs of type `J`, in the order in which they were sent, on several threads.
///
/// Dropping it lets the threads finish what is queued, and waits for them.
pub(crate) struct Pool<J> {
    /// `None` only while dropping.
    jobs: Option<Sender<J>>,
    threads: Vec<JoinHandle<()>>,
}

impl<J: Send + 'static> Pool<J> {
    /// `run` catches its own panics if anyone waits for it; one that gets out ends the job, not the thread.
    pub(crate) fn new(n_threads: usize, run: impl Fn(J) + Send + Sync + 'static) -> Self {
        let (sender, receiver) = channel();
        let (run, receiver) = (Arc::new(run), Arc::new(Mutex::new(receiver)));
        let mut pool = Self { jobs: Some(sender), threads: Vec::new() };
        for thread_idx in 0..n_threads {
            let (run, receiver) = (Arc::clone(&run), Arc::clone(&receiver));
            let work = move || {
                while let Some(job) = next_job(&receiver) {
                    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| run(job))) {
                        // Dropping the payload could panic again.
                        std::mem::forget(payload);
                    }
                }
            };
            match Builder::new().name(format!("fornax-data-{thread_idx}")).spawn(work) {
                Ok(thread) => pool.threads.push(thread),
                Err(error) => panic!(
                    "data loader: cannot start worker {thread_idx} of {n_threads}: {error}; \
                     help: with workers(0) the calling thread loads"
                ),
            }
        }
        pool
    }

    pub(crate) fn send(&self, job: J) {
        let jobs = self.jobs.as_ref().expect("taken only in `drop`");
        jobs.send(job).expect("the threads keep the receiver until the sender is gone");
    }
}

impl<J> Pool<J> {
    pub(crate) fn n_threads(&self) -> usize {
        self.threads.len()
    }
}

/// The idle threads wait in line for the lock, the first of them for a job.
fn next_job<J>(receiver: &Mutex<Receiver<J>>) -> Option<J> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl<J> Drop for Pool<J> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread ends without a panic: see `new`.
            let _ = thread.join();
        }
    }
}
