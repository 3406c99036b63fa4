//! Shannon entropy of addresses, kept up to date packet by packet.
//!
//! With counts `c` of `N` packets, `H = log2 N - sum(c log2 c) / N` bits. So of a window only `N` and
//! the sum need to be kept, and a packet changes the sum by `F(c) - F(c - 1)`, `F(c) = c log2 c`. The
//! sum is a fixed-point number: differences cancel exactly, and no error builds up.

use alloc::vec::Vec;

use crate::limits::WEIGHTS;

/// Steps of the fixed-point numbers in 1.
const SCALE: f64 = (1 << 24) as f64;

/// `F(c)` for small counts.
#[derive(Clone, Debug)]
pub struct Weights(Vec<u64>);

fn weight(count: u64) -> u64 {
    match count {
        0 | 1 => 0,
        _ => e3_sdk::math::round(count as f64 * libm::log2(count as f64) * SCALE) as u64,
    }
}

impl Weights {
    /// Makes the table.
    pub fn new() -> Self {
        Self((0..WEIGHTS as u64).map(weight).collect())
    }

    /// The increase of the sum when a count becomes `count`.
    pub fn step(&self, count: u64) -> u64 {
        let of = |c: u64| match self.0.get(c as usize) {
            Some(weight) => *weight,
            None => weight(c),
        };
        of(count) - of(count.saturating_sub(1))
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets of a window, and the sums of their sources and destinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Packets.
    pub packets: u64,
    /// Sum over source addresses.
    pub sources: u64,
    /// Sum over destination addresses.
    pub destinations: u64,
}

impl Sums {
    /// Adds the sums of another slot.
    pub fn add(&mut self, other: Sums) {
        self.packets += other.packets;
        self.sources += other.sources;
        self.destinations += other.destinations;
    }

    /// Entropies of sources and destinations in bits; 0 without packets.
    pub fn entropies(self) -> [f64; 2] {
        let packets = self.packets as f64;
        [self.sources, self.destinations].map(|sum| match self.packets {
            0 => 0.0,
            _ => (libm::log2(packets) - sum as f64 / SCALE / packets).max(0.0),
        })
    }
}
