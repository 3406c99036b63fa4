//! The vocabulary of a model.

use alloc::vec::Vec;

/// Words by number: a hash table with open addressing, at most half full.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// All words, one behind the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    /// Number of a word + 1; 0 = free. The length is a power of two.
    table: Vec<u32>,
}

impl Vocabulary {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn word(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |i| self.ends[i]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// The word's number, or the free place for it. The table must not be empty.
    fn place(&self, word: &[u8]) -> Result<usize, usize> {
        let mask = self.table.len() - 1;
        let mut place = hash(word) as usize & mask;
        loop {
            match self.table[place] {
                0 => return Err(place),
                n if self.word(n as usize - 1) == word => return Ok(n as usize - 1),
                _ => place = (place + 1) & mask,
            }
        }
    }

    pub(crate) fn find(&self, word: &[u8]) -> Option<usize> {
        self.place(word).ok()
    }

    /// Adds a word with the next number; false if it is there.
    pub(crate) fn add(&mut self, word: &[u8]) -> bool {
        if (self.len() + 1) * 2 > self.table.len() {
            let size = (self.table.len() * 2).max(16);
            self.table = alloc::vec![0; size];
            for index in 0..self.len() {
                if let Err(place) = self.place(self.word(index)) {
                    self.table[place] = index as u32 + 1;
                }
            }
        }
        let Err(place) = self.place(word) else {
            return false;
        };
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len() as u32);
        self.table[place] = self.len() as u32;
        true
    }
}

/// Of a word and its length, eight bytes at a time; what is left over is taken with bytes before it.
fn hash(word: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, part: u64| {
        let h = (h ^ part).wrapping_mul(FACTOR);
        h ^ (h >> 32)
    };
    let mut h = word.len() as u64;
    if let Some(last) = word.last_chunk() {
        let (parts, _) = word.as_chunks();
        let parts = parts.iter().map(|part| u64::from_le_bytes(*part));
        h = mix(parts.fold(h, mix), u64::from_le_bytes(*last));
    } else if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
        let [first, last] = [first, last].map(|part| u64::from(u32::from_le_bytes(*part)));
        h = mix(h, first | last << 32);
    } else {
        h = word.iter().fold(h, |h, byte| mix(h, u64::from(*byte)));
    }
    // the high bits of a product follow from all bits of its factors
    h.wrapping_mul(FACTOR) >> 32
}
