//! The loader: order, ends, epochs, resuming, panics, dropping; each for several numbers of workers.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fornax_data::{
    DataLoader, DataLoaderBuilder, DataLoaderState, Dataset, ErrorKind, InMemory, Indices, Sampler, WithReplacement,
};

const WORKERS: [usize; 4] = [0, 1, 2, 5];

fn numbers(n: usize) -> InMemory<usize> {
    InMemory::from_iter(0..n)
}

/// Items `0..len` that take unequal times, so that workers overtake each other.
struct Uneven(usize);

impl Dataset for Uneven {
    type Item = usize;

    fn len(&self) -> usize {
        self.0
    }

    fn get(&self, index: usize) -> usize {
        if index.is_multiple_of(7) {
            thread::sleep(Duration::from_micros(300));
        }
        index
    }
}

fn builder(n_items: usize) -> DataLoaderBuilder<usize, Vec<usize>> {
    DataLoader::builder(Uneven(n_items)).batch_size(4).shuffle(42)
}

fn epoch<B: Send + 'static>(loader: &DataLoader<B>) -> Vec<B> {
    loader.iter().collect()
}

#[test]
fn order_does_not_depend_on_the_number_of_workers() {
    let make = |n_workers: usize| {
        let random = |items: Vec<usize>, rng: &mut fornax_data::Philox| (items, rng.next_u64());
        let loader = builder(101).workers(n_workers).collate_random(7, random).build();
        [epoch(&loader), epoch(&loader), epoch(&loader)]
    };
    let expected = make(0);
    assert_ne!(expected[0], expected[1]);
    let draws: BTreeSet<u64> = expected.iter().flatten().map(|(_, draw)| *draw).collect();
    assert_eq!(draws.len(), 3 * 26, "every batch has its own random numbers");
    for batches in &expected {
        let mut items: Vec<usize> = batches.iter().flat_map(|(items, _)| items.clone()).collect();
        items.sort_unstable();
        assert!(items.into_iter().eq(0..101));
    }
    for n_workers in WORKERS {
        assert_eq!(make(n_workers), expected, "{n_workers} workers");
    }
}

/// Case C146, and its neighbors.
#[test]
fn epochs_end_after_the_last_batch() {
    for n_workers in WORKERS {
        let sizes = |n_items, drop_last| {
            let builder = DataLoader::builder(numbers(n_items)).batch_size(2).workers(n_workers);
            let loader = if drop_last { builder.drop_last() } else { builder }.build();
            let mut batches = loader.iter();
            assert_eq!((batches.len(), loader.len()), (loader.len(), batches.len()));
            let sizes: Vec<usize> = batches.by_ref().map(|batch| batch.len()).collect();
            assert_eq!((batches.next(), batches.next(), batches.len()), (None, None, 0));
            assert_eq!(sizes.len(), loader.len());
            sizes
        };
        assert_eq!(sizes(6, false), [2, 2, 2]);
        assert_eq!(sizes(7, false), [2, 2, 2, 1]);
        assert_eq!(sizes(6, true), [2, 2, 2]);
        assert_eq!(sizes(7, true), [2, 2, 2]);
        assert_eq!(sizes(1, true), [0; 0]);
        assert_eq!(sizes(0, false), [0; 0]);
    }
}

#[test]
fn without_shuffle_the_order_is_that_of_the_data() {
    let loader = DataLoader::builder(numbers(5)).batch_size(2).build();
    assert_eq!(epoch(&loader), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(epoch(&loader), [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn size_hint_counts_down() {
    for n_workers in WORKERS {
        let loader = builder(22).workers(n_workers).build();
        let mut batches = loader.iter();
        for n_left in (0..6).rev() {
            assert!(batches.next().is_some());
            assert_eq!(batches.len(), n_left);
        }
    }
}

#[test]
fn epochs_count_and_can_be_set() {
    for n_workers in WORKERS {
        let loader = builder(20).workers(n_workers).build();
        let first = epoch(&loader);
        assert_eq!(loader.epoch(), 1);
        let second = epoch(&loader);
        loader.set_epoch(0);
        assert_eq!(epoch(&loader), first);
        assert_eq!(epoch(&loader), second);
        assert_eq!(loader.epoch(), 2);
    }
}

#[test]
fn dropping_an_iterator_early_skips_to_the_next_epoch() {
    for n_workers in WORKERS {
        let loader = builder(100).workers(n_workers).build();
        let expected = {
            let other = builder(100).build();
            epoch(&other);
            epoch(&other)
        };
        for (batch_idx, _) in loader.iter().enumerate() {
            if batch_idx == 2 {
                break;
            }
        }
        assert_eq!(loader.epoch(), 0);
        assert_eq!(epoch(&loader), expected, "{n_workers} workers");
        // Before its first batch, an iterator has not begun the epoch.
        drop(loader.iter());
        drop(loader.iter());
        assert_eq!(loader.epoch(), 2);
        let _ = loader.iter().next();
        let _ = loader.iter().next();
        assert_eq!(loader.epoch(), 3);
    }
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one() {
    for n_workers in WORKERS {
        let make = |workers: usize| builder(46).workers(workers).build();
        let whole: Vec<Vec<usize>> = {
            let loader = make(0);
            (0..3).flat_map(|_| epoch(&loader)).collect()
        };
        for n_before in 0..=whole.len() {
            let before = make(n_workers);
            let mut seen = vec![];
            let mut state = before.state();
            'run: for _ in 0..3 {
                for batch in &before {
                    if seen.len() == n_before {
                        break 'run;
                    }
                    seen.push(batch);
                    state = before.state();
                }
            }
            let after = make(5 - n_workers);
            after.restore(&state).unwrap();
            assert_eq!(after.state(), state);
            while after.epoch() < 3 {
                seen.extend(after.iter());
            }
            assert_eq!(seen, whole, "{n_workers} workers, {n_before} batches before");
        }
    }
}

#[test]
fn the_place_stays_after_a_break() {
    let loader = builder(40).workers(2).build();
    let mut batches = loader.iter();
    batches.nth(2);
    let rest_state = loader.state();
    let rest: Vec<_> = batches.collect();
    loader.set_epoch(0);
    let _ = loader.iter().nth(2);
    assert_eq!(loader.state(), rest_state);
    loader.restore(&rest_state).unwrap();
    assert_eq!(epoch(&loader), rest);
    assert_eq!(loader.epoch(), 1);
}

#[test]
fn resuming_with_another_batch_size_goes_on_at_the_same_item() {
    let items = |loader: DataLoader<Vec<usize>>| loader.iter().flatten().collect::<Vec<_>>();
    let expected = items(builder(50).build());
    let loader = builder(50).build();
    let _ = loader.iter().nth(4);
    let other = builder(50).batch_size(7).build();
    other.restore(&loader.state()).unwrap();
    assert_eq!(items(other), expected[20..]);
}

#[test]
fn foreign_states_are_refused() {
    let loader = builder(50).build();
    let good = loader.state();
    #[track_caller]
    fn check(loader: &DataLoader<Vec<usize>>, state: DataLoaderState, message: &str) {
        let before = loader.state();
        let error = loader.restore(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(error.to_string().contains(message), "{error}");
        assert_eq!(loader.state(), before);
    }
    check(&loader, builder(51).build().state(), "the saved epoch has 51 items, this one 50");
    check(&loader, builder(50).shuffle(43).build().state(), "epoch 0 has another order");
    check(&loader, DataLoader::builder(numbers(50)).build().state(), "epoch 0 has another order");
    check(&loader, DataLoaderState { position: 51, ..good }, "position 51 is beyond the 50 items");
    check(&loader, DataLoaderState { epoch: 1, ..good }, "epoch 1 has another order");
    check(&loader, DataLoaderState { epoch: u64::MAX, ..good }, "another order");
}

#[test]
fn iterators_of_one_loader_do_not_disturb_each_other() {
    for n_workers in WORKERS {
        let loader = builder(60).workers(n_workers).build();
        let expected = epoch(&loader);
        loader.set_epoch(0);
        let mut first = loader.iter();
        let mut start: Vec<_> = first.by_ref().take(3).collect();
        let second = loader.iter();
        assert_eq!(loader.epoch(), 1);
        start.extend(first);
        assert_eq!(start, expected);
        assert_eq!((loader.epoch(), loader.state().position), (1, 0), "only the latest iterator counts");
        assert_eq!(second.count(), 15);
        assert_eq!(loader.epoch(), 2);
    }
}

#[test]
fn threads_stay_for_all_epochs() {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let record = {
        let seen = Arc::clone(&seen);
        move |items: Vec<usize>| {
            let name = thread::current().name().unwrap().to_string();
            seen.lock().unwrap().insert((name, format!("{:?}", thread::current().id())));
            items
        }
    };
    let loader = builder(200).workers(2).collate(record).build();
    for _ in 0..5 {
        assert_eq!(loader.iter().count(), 50);
    }
    let seen = seen.lock().unwrap();
    assert!(seen.len() <= 2, "{seen:?}");
    assert!(seen.iter().all(|(name, _)| name.starts_with("fornax-data-")));
}

#[test]
fn workers_run_at_most_prefetch_batches_ahead() {
    let n_made = Arc::new(AtomicUsize::new(0));
    let count = {
        let n_made = Arc::clone(&n_made);
        move |items: Vec<usize>| {
            n_made.fetch_add(1, Ordering::SeqCst);
            items
        }
    };
    let loader = builder(400).workers(2).prefetch(3).collate(count).build();
    let mut batches = loader.iter();
    for n_taken in 1..=10 {
        batches.next();
        assert!(n_made.load(Ordering::SeqCst) <= n_taken + 3);
    }
    while n_made.load(Ordering::SeqCst) < 13 {
        thread::yield_now(); // Ends because they do run ahead.
    }
    thread::sleep(Duration::from_millis(20));
    assert_eq!(n_made.load(Ordering::SeqCst), 13);
}

#[test]
fn dropping_mid_epoch_neither_hangs_nor_leaks() {
    for n_workers in WORKERS {
        let guard = Arc::new(());
        let in_dataset = Arc::clone(&guard);
        let dataset = Uneven(1000).map(move |index| (index, Arc::clone(&in_dataset)));
        let loader = DataLoader::builder(dataset).batch_size(4).workers(n_workers).prefetch(9).build();
        for n_batches in [0, 1, 7] {
            assert_eq!(loader.iter().take(n_batches).count(), n_batches);
        }
        let kept = loader.iter().next().unwrap();
        drop(loader);
        // All that is left: the batch kept here, of four items.
        assert_eq!(Arc::strong_count(&guard), 1 + kept.len(), "{n_workers} workers");
    }
}

fn panic_text(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).unwrap_err();
    let text = payload.downcast_ref::<String>().cloned();
    text.or_else(|| payload.downcast_ref::<&str>().map(|text| text.to_string())).unwrap()
}

#[test]
fn a_panic_in_a_worker_reaches_the_consumer() {
    for n_workers in WORKERS {
        let dataset = numbers(20).map(|x| if x == 13 { panic!("file {x} is broken") } else { x });
        let loader = DataLoader::builder(dataset).batch_size(2).workers(n_workers).build();
        let mut batches = loader.iter();
        assert_eq!(batches.by_ref().take(6).last(), Some(vec![10, 11]));
        let text = panic_text(|| drop(batches.next()));
        if n_workers == 0 {
            assert_eq!(text, "file 13 is broken");
        } else {
            assert_eq!(
                text,
                "data loader: a worker panicked while loading item 13 for the batch at position 12 of epoch 0: \
                 file 13 is broken"
            );
        }
        // The place is before the lost batch; the loader and even the iterator go on.
        assert_eq!(loader.state().position, 12);
        assert_eq!(batches.next(), Some(vec![14, 15]));
        assert_eq!(loader.state().position, 16);
        drop(batches);
        assert_eq!(loader.iter().next(), Some(vec![0, 1]));
    }
}

#[test]
fn a_panic_while_collating_names_the_batch() {
    let collate = |items: Vec<usize>| assert!(items.len() == 2, "short batch");
    let loader = DataLoader::builder(numbers(3)).batch_size(2).workers(1).collate(collate).build();
    let text = panic_text(|| drop(epoch(&loader)));
    let expected = "data loader: a worker panicked while collating the batch at position 2 of epoch 0: short batch";
    assert_eq!(text, expected);
}

#[test]
fn items_need_not_be_sendable_but_batches() {
    let loader = DataLoader::builder(numbers(4).map(std::rc::Rc::new))
        .batch_size(2)
        .workers(2)
        .collate(|items| items.iter().map(|item| **item).sum::<usize>())
        .build();
    assert_eq!(epoch(&loader), [1, 5]);
}

#[test]
fn loaders_move_and_can_be_shared_between_threads() {
    let loader = builder(40).workers(2).build();
    let n_items: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| loader.iter().flatten().count())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(n_items, 120);
}

#[test]
fn fallible_items_collate_into_a_result() {
    let parsed = InMemory::new(vec!["1", "2", "x", "4"]).map(str::parse::<i32>);
    let collate = |items: Vec<Result<i32, _>>| items.into_iter().collect::<Result<Vec<_>, _>>();
    let loader = DataLoader::builder(parsed).batch_size(2).collate(collate).build();
    let batches = epoch(&loader);
    assert_eq!(batches[0], Ok(vec![1, 2]));
    assert!(batches[1].is_err());
}

#[test]
fn samplers_may_be_larger_than_the_data() {
    let loader = DataLoader::builder(numbers(3)).sampler(WithReplacement::new(3, 10, 1)).batch_size(4).build();
    assert_eq!(epoch(&loader).concat().len(), 10);
}

#[test]
#[should_panic(expected = "data loader: sampler: len is more than the 3 indices of the epoch")]
fn a_sampler_that_promises_too_much_panics() {
    struct Short;
    impl Sampler for Short {
        fn len(&self) -> usize {
            5
        }
        fn indices(&self, _epoch: u64) -> Indices {
            Box::new(0..3)
        }
    }
    epoch(&DataLoader::builder(numbers(9)).sampler(Short).batch_size(2).workers(2).build());
}

#[test]
#[should_panic(expected = "data loader: batch_size must be at least 1")]
fn empty_batches_panic() {
    let _ = DataLoader::builder(numbers(9)).batch_size(0);
}
