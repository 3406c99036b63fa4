//! Words by number: a hash table with open addressing, at most half full.

use alloc::vec::Vec;

/// The words.
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
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn word(&self, index: usize) -> &[u8] {
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

    /// The word's number.
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

/// FNV-1a, with the high bits mixed into the low ones.
fn hash(word: &[u8]) -> u64 {
    let h = word.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    h ^ (h >> 32)
}
