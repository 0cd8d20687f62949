//! [`Places`]: where the buffers of a program lay in its last runs. The next run puts them there again if it can, so that a
//! CUDA graph of the program needs no new addresses.
//!
//! A training step reads parameters and writes new ones, which the next step reads: its addresses alternate between two
//! sets. So two runs are remembered, told apart by where their inputs lay.

use std::collections::HashSet;

/// Runs that are remembered.
pub(crate) const SETS: usize = 2;

/// The addresses of the last runs of one program.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// For each run, the address of every buffer, 0 for none. The likeliest first, else the newest.
    runs: Vec<Vec<u64>>,
    /// Whether the inputs of the run at hand lie where those of the first in `runs` did.
    is_known: bool,
    /// All addresses of `runs`.
    all: HashSet<u64>,
}

/// Where a buffer should lie.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish<'a> {
    /// The best places first; 0 for none.
    pub places: [u64; SETS],
    /// Places that other buffers of the same program wish for.
    pub others: Option<&'a HashSet<u64>>,
}

impl Wish<'_> {
    /// Whether another buffer of the program wishes for the place.
    pub fn is_others(&self, place: u64) -> bool {
        self.others.is_some_and(|others| others.contains(&place))
    }
}

impl Places {
    /// Begins a run. `is_like` tells of a run before whether its inputs lay where those of this one do.
    pub fn begin(&mut self, is_like: impl Fn(&[u64]) -> bool) {
        let known = self.runs.iter().position(|run| is_like(run));
        self.is_known = known.is_some();
        if let Some(known) = known {
            self.runs.swap(0, known);
        }
    }

    /// Where a buffer of the run at hand should lie.
    pub fn wish(&self, buffer: usize) -> Wish<'_> {
        let place = |run: usize| self.runs.get(run).map_or(0, |run| run[buffer]);
        Wish { places: [place(0), place(1)], others: Some(&self.all) }
    }

    /// Ends a run whose buffers lay at `places`; tells whether all lay as in a run before.
    pub fn end(&mut self, places: &[u64]) -> bool {
        if self.is_known && self.runs[0] == places {
            return true;
        }
        if self.is_known {
            self.runs[0] = places.to_vec();
        } else {
            self.runs.insert(0, places.to_vec());
            self.runs.truncate(SETS);
        }
        self.all = self.runs.iter().flatten().copied().collect();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FreeBlocks;

    /// Blocks of one size, made as they are needed.
    #[derive(Default)]
    struct Heap {
        free: FreeBlocks,
        made: u64,
        may_grow: bool,
    }

    impl Heap {
        fn alloc(&mut self, wish: Wish<'_>, is_upload: bool) -> u64 {
            self.free.take(256, wish, is_upload, self.may_grow).unwrap_or_else(|| {
                self.made += 1;
                self.made * 256
            })
        }

        fn give(&mut self, places: impl IntoIterator<Item = u64>, is_upload: bool) {
            places.into_iter().for_each(|place| self.free.give(256, place, is_upload));
        }
    }

    const PARAMS: usize = 4;
    const TEMPS: usize = 9;

    /// A training step: buffers are a batch, parameters, temporaries and new parameters. A temporary lives for two steps;
    /// a new parameter is made after every second one.
    struct Trainer {
        heap: Heap,
        places: Places,
        params: Vec<u64>,
        /// Parameters are given away, and freed in the middle of the run.
        gives: bool,
    }

    impl Trainer {
        fn new(gives: bool) -> Trainer {
            let mut heap = Heap { may_grow: true, ..Heap::default() };
            let params = (0..PARAMS).map(|_| heap.alloc(Wish::default(), true)).collect();
            Trainer { heap, places: Places::default(), params, gives }
        }

        /// Tells whether everything lay as in a run before.
        fn step(&mut self) -> bool {
            let batch = self.heap.alloc(Wish::default(), true);
            let mut run = vec![0; 1 + PARAMS + TEMPS + PARAMS];
            run[0] = batch;
            run[1..=PARAMS].copy_from_slice(&self.params);
            let inputs = run[..=PARAMS].to_vec();
            self.places.begin(|before| before[..=PARAMS] == inputs);
            let first_new = 1 + PARAMS + TEMPS;
            let mut made = 0;
            for temp in 0..TEMPS {
                let idx = 1 + PARAMS + temp;
                run[idx] = self.heap.alloc(self.places.wish(idx), false);
                if temp > 0 {
                    self.heap.give([run[idx - 1]], false);
                }
                if temp % 2 == 1 && made < PARAMS {
                    run[first_new + made] = self.heap.alloc(self.places.wish(first_new + made), false);
                    if self.gives {
                        self.heap.give([self.params[made]], false);
                    }
                    made += 1;
                }
            }
            self.heap.give([run[first_new - 1]], false);
            let live: HashSet<u64> = run[first_new..].iter().copied().chain([batch]).collect();
            assert_eq!(live.len(), PARAMS + 1, "results lie apart");
            if !self.gives {
                assert!(self.params.iter().all(|param| !live.contains(param)), "nor over what still lives");
                self.heap.give(self.params.iter().copied(), false);
            }
            self.heap.give([batch], true);
            self.params = run[first_new..].to_vec();
            self.places.end(&run)
        }
    }

    #[test]
    fn training_steps_alternate_between_two_sets_of_places() {
        for gives in [false, true] {
            let mut trainer = Trainer::new(gives);
            let first = (0..100).position(|_| trainer.step()).expect("places settle");
            assert!(first < 10, "they settle soon: {first}, given away: {gives}");
            let made = trainer.heap.made;
            assert!((0..100).all(|_| trainer.step()), "and stay; given away: {gives}");
            assert_eq!(trainer.heap.made, made);
            let needed = (1 + 2 * PARAMS + 2) as u64;
            assert!(made <= needed + PARAMS as u64, "two sets of parameters and a few temporaries: {made}");
        }
    }

    #[test]
    fn without_memory_to_spare_no_step_takes_more_than_the_first() {
        let mut trainer = Trainer::new(true);
        trainer.heap.may_grow = false;
        trainer.step();
        let made = trainer.heap.made;
        (0..50).for_each(|_| {
            trainer.step();
        });
        assert_eq!(trainer.heap.made, made);
    }

    #[test]
    fn places_settle_again_after_others_took_some() {
        for gives in [false, true] {
            let mut trainer = Trainer::new(gives);
            for _ in 0..20 {
                trainer.step();
            }
            let taken: Vec<u64> = (0..5).map(|_| trainer.heap.alloc(Wish::default(), true)).collect();
            assert!((0..20).map(|_| trainer.step()).skip(10).all(|settled| settled), "given away: {gives}");
            trainer.heap.give(taken, true);
            assert!((0..20).map(|_| trainer.step()).skip(10).all(|settled| settled), "given away: {gives}");
        }
    }

    #[test]
    fn inputs_tell_which_run_is_repeated() {
        let mut places = Places::default();
        let mut run = |all: [u64; 3]| {
            places.begin(|before| before[0] == all[0]);
            let wished = places.wish(1).places;
            (wished, places.end(&all))
        };
        assert_eq!(run([1, 10, 20]), ([0, 0], false));
        assert_eq!(run([2, 11, 21]), ([10, 0], false));
        assert_eq!(run([1, 10, 20]), ([10, 11], true));
        assert_eq!(run([2, 11, 21]), ([11, 10], true));
        assert_eq!(run([2, 12, 21]), ([11, 10], false), "a newer run of the same inputs counts");
        assert_eq!(run([3, 13, 23]), ([12, 10], false), "the oldest is forgotten");
        assert_eq!(run([1, 10, 20]), ([13, 12], false));
    }
}
