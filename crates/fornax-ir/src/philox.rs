//! Philox4x32-10: the counter-based generator behind [`crate::Op::Random`]. Any word of its stream is a pure function
//! of key and counter, so every device and every number of threads draws the same numbers.
//!
//! Salmon, Moraes, Dror, Shaw (2011), *Parallel random numbers: as easy as 1, 2, 3*, SC '11.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// The four words at `counter` under `key`, both lowest word first.
///
/// ```
/// // The first known-answer vector of the Random123 library.
/// let words = fornax_ir::philox4x32([0; 4], [0; 2]);
/// assert_eq!(words, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
/// ```
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let product = [u64::from(MULTIPLIERS[0]) * u64::from(c[0]), u64::from(MULTIPLIERS[1]) * u64::from(c[2])];
        let [low, high] = [product.map(|p| p as u32), product.map(|p| (p >> 32) as u32)];
        c = [high[1] ^ c[1] ^ k[0], low[1], high[0] ^ c[3] ^ k[1], low[0]];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// Word `i` of [`crate::Op::Random`] under `seed` and `offset`: word `i % 4` at counter `offset + i / 4` (wrapping).
pub fn random_word(seed: u64, offset: u64, i: u64) -> u32 {
    let counter = offset.wrapping_add(i / 4);
    let words = philox4x32([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    words[(i % 4) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kat_vectors` of Random123 1.14, lines `philox4x32 10`.
    #[test]
    fn known_answers_of_random123() {
        for (counter, key, want) in [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox4x32(counter, key), want);
        }
    }

    #[test]
    fn words_take_the_counter_low_word_first() {
        let seed = 0x299f_31d0_a409_3822;
        for i in 0..8 {
            let counter = [u32::MAX, 7, 0, 0];
            let counter = if i < 4 { counter } else { [0, 8, 0, 0] };
            let want = philox4x32(counter, [0xa409_3822, 0x299f_31d0])[i as usize % 4];
            assert_eq!(random_word(seed, 0x7_FFFF_FFFF, i), want);
        }
        assert_eq!(random_word(1, u64::MAX, 5), random_word(1, 0, 1));
    }
}
