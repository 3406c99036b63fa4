//! Linear counting by a bitmap (Whang, Vander-Zanden and Taylor, "A linear-time probabilistic counting
//! algorithm for database applications", 1990).
//!
//! Every item is hashed to one of `m` bits, which is set. If `u` bits are still 0 after `n`
//! different items, the maximum-likelihood estimate of `n` is `-m ln(u / m)`. With the load
//! `t = n / m` its standard error is `sqrt(m (e^t - t - 1))` items (equation 13 there) and its bias
//! `(e^t - t - 1) / 2` items (equation 11), less than one item up to `t = 1.5`.

use alloc::vec::Vec;

/// Words of 64 bits of the bitmap, little endian, as they are stored.
pub const WORD_BYTES: usize = 8;

/// Hash of an item: independent of the slot that a key like it would have.
pub fn hash(item: &[u8]) -> u64 {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut h = K ^ item.len() as u64;
    let mut words = item.chunks_exact(8);
    for word in &mut words {
        h = mix(h ^ u64::from_le_bytes(word.try_into().unwrap_or_default())).wrapping_mul(K);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(h ^ u64::from_le_bytes(last))
}

fn mix(h: u64) -> u64 {
    let h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// Sets a bit.
pub fn set(bitmap: &mut [u8], bit: usize) {
    bitmap[bit / 8] |= 1 << (bit % 8);
}

/// Adds the bits of `other`: the bitmap of the union.
pub fn merge(bitmap: &mut [u8], other: &[u8]) {
    for (a, b) in bitmap.iter_mut().zip(other) {
        *a |= b;
    }
}

/// Bits that are set.
pub fn ones(bitmap: &[u8]) -> u32 {
    let words = bitmap.chunks_exact(WORD_BYTES);
    let word = |w: &[u8]| u64::from_le_bytes(w.try_into().unwrap_or_default());
    words.map(|w| word(w).count_ones()).sum()
}

/// An estimate of the number of different items.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distinct {
    /// The estimate.
    pub items: f64,
    /// Its standard error, in items.
    pub error: f64,
    /// The probability that an item shares its bit with no other.
    pub alone: f64,
    /// Every bit is set: the estimate is only a lower bound.
    pub saturated: bool,
}

/// Reads a bitmap.
pub fn estimate(bitmap: &[u8]) -> Distinct {
    let m = (bitmap.len() * 8) as f64;
    let zeros = m - f64::from(ones(bitmap));
    let saturated = zeros == 0.0;
    // a full bitmap is read as if one bit were left
    let items = -m * libm::log(zeros.max(1.0) / m);
    let t = items / m;
    Distinct {
        items: items.max(0.0),
        error: e3_sdk::math::sqrt(m * (libm::exp(t) - t - 1.0).max(0.0)),
        alone: libm::exp(-t),
        saturated,
    }
}

/// Cells of a block: they are read and written together.
pub const BLOCK_CELLS: usize = 16;
/// Bytes of a block as it is stored: window, cells.
pub const BLOCK_BYTES: usize = 8 + 4 * BLOCK_CELLS;

/// Counters of one window for the bits of a part of the bitmap.
#[derive(Clone, Debug)]
pub struct Block {
    /// Number of the window.
    pub window: i64,
    /// Occurrences of the items of each bit.
    pub cells: [u32; BLOCK_CELLS],
}

impl Block {
    /// An empty block of a window.
    pub fn new(window: i64) -> Block {
        Block {
            window,
            cells: [0; BLOCK_CELLS],
        }
    }

    /// Reads one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Block> {
        let (window, cells) = bytes.split_first_chunk::<8>()?;
        let mut block = Block::new(i64::from_le_bytes(*window));
        for (cell, bytes) in block.cells.iter_mut().zip(cells.chunks_exact(4)) {
            *cell = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        Some(block)
    }

    /// Writes it.
    pub fn to_bytes(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..8].copy_from_slice(&self.window.to_le_bytes());
        for (bytes, cell) in bytes[8..].chunks_exact_mut(4).zip(self.cells) {
            bytes.copy_from_slice(&cell.to_le_bytes());
        }
        bytes
    }
}

/// A stored bitmap with its window.
pub fn bitmap_bytes(window: i64, bits: usize) -> Vec<u8> {
    let mut bytes = alloc::vec![0; 8 + bits / 8];
    bytes[..8].copy_from_slice(&window.to_le_bytes());
    bytes
}

/// Window and bits of a stored bitmap of `bits` bits.
pub fn parse_bitmap(bytes: &[u8], bits: usize) -> Option<(i64, &[u8])> {
    let (window, map) = bytes.split_first_chunk::<8>()?;
    (map.len() == bits / 8).then(|| (i64::from_le_bytes(*window), map))
}
