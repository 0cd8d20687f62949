//! Counter-based random numbers: [`Philox`], the Philox4x32-10 generator.
//!
//! A counter-based generator is a pure function from (seed, stream, position) to numbers. Any part of a sequence
//! can be had without the part before it, so an epoch, a batch or a worker gets numbers of its own that depend on
//! nothing else: not on the number of threads, not on the machine, not on what ran earlier.

/// A sequence of random numbers fixed by a seed and a stream.
///
/// Philox4x32-10 with key = seed and counter = (block, stream), both low word first. Equal on every machine;
/// not for cryptography.
///
/// # Example
/// ```
/// use fornax_data::Philox;
/// let mut rng = Philox::new(42, 0);
/// assert!(rng.below(6) < 6);
/// assert_eq!(Philox::new(42, 0).next_u32(), Philox::new(42, 0).next_u32());
/// assert_ne!(Philox::new(42, 0).next_u64(), Philox::new(42, 1).next_u64());
/// ```
///
/// # References
/// Salmon, Moraes, Dror, Shaw (2011), *Parallel Random Numbers: As Easy as 1, 2, 3*, SC'11.
#[derive(Debug, Clone)]
pub struct Philox {
    key: [u32; 2],
    stream: u64,
    /// Counter of the next block to compute.
    block: u64,
    buffer: [u32; 4],
    /// Words of `buffer` already handed out; 4 when it is spent.
    n_used: usize,
}

impl Philox {
    /// The sequence number `stream` of `seed`. Streams of one seed do not overlap.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { key: words(seed), stream, block: 0, buffer: [0; 4], n_used: 4 }
    }

    /// A generator for one member of a family that needs two numbers to name it, such as an epoch and a batch.
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// let mut a = Philox::keyed(42, 3, 7);
    /// let mut b = Philox::keyed(42, 7, 3);
    /// assert_ne!(a.next_u64(), b.next_u64());
    /// ```
    pub fn keyed(seed: u64, first: u64, second: u64) -> Self {
        // The last block of a stream, which no sequence of practical length reaches, is the derived seed.
        let [a, b, ..] = philox4x32([u32::MAX, u32::MAX, words(first)[0], words(first)[1]], words(seed));
        Self::new(u64::from(a) | u64::from(b) << 32, second)
    }

    /// 32 random bits.
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// assert_eq!(Philox::new(0, 0).next_u32(), 0x6627e8d5);
    /// ```
    pub fn next_u32(&mut self) -> u32 {
        if self.n_used == 4 {
            let ([b0, b1], [s0, s1]) = (words(self.block), words(self.stream));
            self.buffer = philox4x32([b0, b1, s0, s1], self.key);
            self.block = self.block.wrapping_add(1);
            self.n_used = 0;
        }
        let word = self.buffer[self.n_used];
        self.n_used += 1;
        word
    }

    /// 64 random bits, low word first.
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// assert_eq!(Philox::new(0, 0).next_u64(), 0xe169c58d_6627e8d5);
    /// ```
    pub fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        u64::from(low) | u64::from(self.next_u32()) << 32
    }

    /// A float in `[0, 1)`, a multiple of 2⁻²⁴.
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// let x = Philox::new(1, 0).next_f32();
    /// assert!((0.0..1.0).contains(&x));
    /// ```
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u32() >> 8) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// A whole number in `0..n`, each equally likely.
    ///
    /// # Panics
    /// If `n` is 0.
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// let die = 1 + Philox::new(1, 0).below(6);
    /// assert!((1..=6).contains(&die));
    /// ```
    ///
    /// # References
    /// Lemire (2019), *Fast Random Integer Generation in an Interval*, algorithm 5.
    #[track_caller]
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "below: the range 0..0 is empty");
        let n = n as u64; // One path for 32 and 64 bit targets: they draw the same numbers.
        loop {
            let product = u128::from(self.next_u64()) * u128::from(n);
            // Multiplying and keeping the high half favors some results unless these low halves are thrown back.
            if product as u64 >= n.wrapping_neg() % n {
                return (product >> 64) as usize;
            }
        }
    }

    /// Puts `items` into a random order, each order equally likely (Fisher–Yates).
    ///
    /// # Example
    /// ```
    /// # use fornax_data::Philox;
    /// let mut cards = [1, 2, 3, 4];
    /// Philox::new(1, 0).shuffle(&mut cards);
    /// cards.sort();
    /// assert_eq!(cards, [1, 2, 3, 4]);
    /// ```
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.shuffle_front(items, items.len());
    }

    /// Puts a random choice of items, in random order, into `items[..n]`.
    pub(crate) fn shuffle_front<T>(&mut self, items: &mut [T], n: usize) {
        for i in 0..n {
            items.swap(i, i + self.below(items.len() - i));
        }
    }
}

/// One block of Philox4x32-10: four random words from a counter and a key.
///
/// # Example
/// ```
/// use fornax_data::philox4x32;
/// // The first known-answer test of the reference implementation, Random123.
/// assert_eq!(philox4x32([0; 4], [0; 2]), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let ([mut c0, mut c1, mut c2, mut c3], [mut k0, mut k1]) = (counter, key);
    for _ in 0..10 {
        let [low0, high0] = words(u64::from(c0) * 0xD251_1F53);
        let [low1, high1] = words(u64::from(c2) * 0xCD9E_8D57);
        (c0, c1, c2, c3) = (high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0);
        k0 = k0.wrapping_add(0x9E37_79B9); // golden ratio
        k1 = k1.wrapping_add(0xBB67_AE85); // √3 − 1
    }
    [c0, c1, c2, c3]
}

fn words(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from `kat_vectors` of Random123.
    #[test]
    fn philox_gives_the_known_answers() {
        let ones = u32::MAX;
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([ones; 4], [ones; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn sequence_walks_through_the_blocks_of_its_stream() {
        let mut rng = Philox::new(0x0000_0002_0000_0001, 0x0000_0004_0000_0003);
        for block in 0..3 {
            for word in philox4x32([block, 0, 3, 4], [1, 2]) {
                assert_eq!(rng.next_u32(), word);
            }
        }
    }

    #[test]
    fn below_is_even_and_in_range() {
        let mut rng = Philox::new(5, 0);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7)] += 1;
        }
        // χ² with 6 degrees of freedom: 22.5 is passed once in a thousand seeds, and this seed is fixed.
        let chi2: f64 = counts.iter().map(|&n| (f64::from(n) - 1e4).powi(2) / 1e4).sum();
        assert!(chi2 < 22.5, "{counts:?}");
        assert_eq!(rng.below(1), 0);
        assert!(rng.below(usize::MAX) < usize::MAX);
    }
}
