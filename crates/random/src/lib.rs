//! Pseudo-random numbers that follow from a seed, for load generators, the simulator and tests.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014): a counter and a mixing function. It is fast, every seed is a good one,
//! and a stream stays the same for ever, so a seed in a report replays a run. It is not for keys or
//! identities: those need bytes that nobody can predict.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::vec::Vec;

/// What the counter advances by: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of numbers that follows from its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, or 0 if `bound` is 0; the bias is below 2^-32 for bounds below 2^32.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index in `0..len`, or 0 if `len` is 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// An element of a slice, which must not be empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// Eight bits.
    pub fn byte(&mut self) -> u8 {
        (self.next_u64() >> 56) as u8
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    /// A number in `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A rank in `0..count`, roughly by Zipf's law: the density falls as 1 / (rank + 1).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn zipf(&mut self, count: u64) -> u64 {
        let drawn = (count as f64 + 1.0).powf(self.unit());
        (drawn as u64 - 1).min(count.saturating_sub(1))
    }

    /// A normal deviate (Box and Muller, 1958).
    #[cfg(not(target_arch = "wasm32"))]
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (core::f64::consts::TAU * self.unit()).cos()
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_reference() {
        // the first outputs of the authors' splitmix64.c for the seed 1234567
        let mut random = Random::new(1_234_567);
        let first = [(); 5].map(|()| random.next_u64());
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn numbers_are_within_their_bounds_and_even() {
        let mut random = Random::new(7);
        assert_eq!((random.below(0), random.index(0)), (0, 0));
        let mut counts = [0; 6];
        for _ in 0..60_000 {
            counts[random.index(6)] += 1;
            assert!((0.0..1.0).contains(&random.unit()));
        }
        assert!(
            counts.iter().all(|n| (9_600..10_400).contains(n)),
            "{counts:?}"
        );
        let rare = (0..100_000).filter(|_| random.one_in(100)).count();
        let often = (0..100_000).filter(|_| random.chance(900)).count();
        assert!((850..1_150).contains(&rare), "{rare}");
        assert!((89_500..90_500).contains(&often), "{often}");
    }
}
