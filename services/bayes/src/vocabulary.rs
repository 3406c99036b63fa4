//! The vocabulary of a model.

use alloc::vec::Vec;

/// Words by number: a hash table with open addressing, at most half full.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// All words, concatenated.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    /// The length is a power of two.
    table: Vec<Place>,
}

/// An entry of the table: a word's length and its first eight bytes, or all if it has fewer. So a
/// short word is compared without a look at its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: u64,
    len: u32,
    /// Number of the word + 1; 0 = free.
    number: u32,
}

/// Where the rest of a word after its first eight bytes begins.
const START_LEN: usize = 8;

fn start_of(word: &[u8]) -> u64 {
    if let Some(eight) = word.first_chunk() {
        u64::from_le_bytes(*eight)
    } else if let (Some(first), Some(last)) = (word.first_chunk(), word.last_chunk()) {
        // the two may overlap
        let [first, last] = [first, last].map(|part| u64::from(u32::from_le_bytes(*part)));
        first | last << 32
    } else {
        word.iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }
}

impl Vocabulary {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn word(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |i| self.ends[i]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// The word's number, or the free entry for it. The table must not be empty.
    fn place(&self, word: &[u8]) -> Result<usize, usize> {
        let (start, len) = (start_of(word), word.len() as u32);
        let rest = word.get(START_LEN..).unwrap_or_default();
        let is_rest = |n: u32| rest.is_empty() || self.word(n as usize - 1)[START_LEN..] == *rest;
        let mask = self.table.len() - 1;
        let mut at = hash(start, len, rest) as usize & mask;
        loop {
            match self.table[at] {
                Place { number: 0, .. } => return Err(at),
                place if (place.start, place.len) == (start, len) && is_rest(place.number) => {
                    return Ok(place.number as usize - 1);
                }
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub(crate) fn find(&self, word: &[u8]) -> Option<usize> {
        self.place(word).ok()
    }

    /// Adds a word with the next number; false if it exists.
    pub(crate) fn add(&mut self, word: &[u8]) -> bool {
        if (self.len() + 1) * 2 > self.table.len() {
            let size = (self.table.len() * 2).max(16);
            self.table = alloc::vec![Place::default(); size];
            for index in 0..self.len() {
                self.enter(index);
            }
        }
        if self.find(word).is_some() {
            return false;
        }
        self.bytes.extend_from_slice(word);
        self.ends.push(self.bytes.len() as u32);
        self.enter(self.len() - 1);
        true
    }

    /// Enters a word that is not in the table.
    fn enter(&mut self, index: usize) {
        let word = self.word(index);
        let (start, len) = (start_of(word), word.len() as u32);
        if let Err(at) = self.place(word) {
            let number = index as u32 + 1;
            self.table[at] = Place { start, len, number };
        }
    }
}

/// Hash of a word: its start, its length and the rest, eight bytes at a time.
fn hash(start: u64, len: u32, rest: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |h: u64, part: u64| {
        let h = (h ^ part).wrapping_mul(FACTOR);
        h ^ (h >> 32)
    };
    let mut h = mix(u64::from(len), start);
    let (parts, left) = rest.as_chunks();
    for part in parts {
        h = mix(h, u64::from_le_bytes(*part));
    }
    h = left.iter().fold(h, |h, byte| mix(h, u64::from(*byte)));
    // the high bits of a product depend on all bits of its factors
    h.wrapping_mul(FACTOR) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn every_word_is_found_by_its_number() {
        let mut vocabulary = Vocabulary::default();
        let mut expected = BTreeMap::new();
        let mut random = e3_testkit::Random::new(1);
        for _ in 0..20_000 {
            // few letters, so that words are similar and repeat
            let letters = [(); 8].map(|()| b'a' + random.byte() % 2);
            let len = 1 + random.index(20);
            let word: Vec<u8> = letters.into_iter().cycle().take(len).collect();
            let number = expected.len();
            let is_new = !expected.contains_key(&word);
            assert_eq!(vocabulary.add(&word), is_new, "{word:?}");
            expected.entry(word).or_insert(number);
        }
        assert_eq!(vocabulary.len(), expected.len());
        for (word, number) in &expected {
            assert_eq!(vocabulary.find(word), Some(*number));
            assert_eq!(vocabulary.word(*number), word);
        }
        for other in [&b"c"[..], b"abababac", b"ababababc", b""] {
            assert_eq!(vocabulary.find(other), None);
        }
    }
}
