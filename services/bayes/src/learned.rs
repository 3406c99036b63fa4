//! Online learning: counts like those of the model, from documents with a known class, for each slot.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::model::Totals;
use e3_sdk::{Error, HashMap, OrderedMap, config, config_or};

/// Longest word that is learned.
pub const WORD_BYTES_MAX: usize = 64;
/// Bytes that the counts of one document may write. The document itself is forwarded in addition.
pub const WRITES_BYTES_MAX: usize = 20 * 1024;
/// What a write counts in addition to its value: the key and the platform's overhead.
const WRITE_OVERHEAD_BYTES: usize = 2 + WORD_BYTES_MAX + 16;
/// Bytes of a number.
const NUMBER: usize = 4;

/// The collections.
#[derive(Debug)]
pub struct Learned {
    /// The field with a document's class.
    pub field: String,
    /// How many documents of the model one learned document counts for.
    weight: f64,
    words: HashMap,
    totals: OrderedMap,
    buffer: Vec<u8>,
}

impl Learned {
    /// From the configuration; None if learning is off.
    pub fn open(classes: usize) -> Result<Option<Learned>, Error> {
        let Some(field) = config("learn") else {
            return Ok(None);
        };
        let weight: f64 = config_or("learn-weight", 1.0)?;
        if !(1e-3..=1e6).contains(&weight) {
            let value = alloc::format!("{weight}");
            return Err(Error::Config {
                name: "learn-weight",
                value,
            });
        }
        Ok(Some(Learned {
            field,
            weight,
            words: HashMap::open("words")?,
            totals: OrderedMap::open("totals")?,
            buffer: alloc::vec![0; classes * NUMBER],
        }))
    }

    /// What a slot has learned, weighted; None if nothing yet.
    pub fn totals(&self, slot: u16) -> Option<Totals> {
        let bytes = self.stored(slot)?;
        let (documents, words) = bytes.split_at(bytes.len() / 2);
        let mut totals = Totals::default();
        weighted(documents, self.weight, &mut totals.documents);
        weighted(words, self.weight, &mut totals.words);
        Some(totals)
    }

    /// Weighted occurrences of a word in each class; false if there are none.
    pub fn occurrences(
        &mut self,
        slot: u16,
        word: &[u8],
        out: &mut Vec<f64>,
    ) -> Result<bool, Error> {
        let Some(key) = key(slot, word) else {
            return Ok(false);
        };
        let there = self.read(&key)?;
        if there {
            weighted(&self.buffer, self.weight, out);
        }
        Ok(there)
    }

    /// The stored totals; none if they belong to a model with another number of classes.
    fn stored(&self, slot: u16) -> Option<Vec<u8>> {
        let bytes = self.totals.get_vec(&slot.to_be_bytes())?;
        (bytes.len() == 2 * self.buffer.len()).then_some(bytes)
    }

    /// Reads a word's counts into `buffer`; false if there are none for these classes.
    fn read(&mut self, key: &[u8]) -> Result<bool, Error> {
        let classes_bytes = self.buffer.len();
        match self.words.get(key, &mut self.buffer) {
            Ok(found) => Ok(found.is_some_and(|b| b.len() == classes_bytes)),
            Err(Error::Short { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Learns a document from those of its words that the model has. Words beyond
    /// [`WRITES_BYTES_MAX`] are left out. Returns how many documents the slot has learned.
    pub fn learn<'a>(
        &mut self,
        slot: u16,
        class: usize,
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u64, Error> {
        let mut counts: BTreeMap<&[u8], u32> = BTreeMap::new();
        let most = WRITES_BYTES_MAX / (WRITE_OVERHEAD_BYTES + self.buffer.len());
        for word in words.filter(|w| w.len() <= WORD_BYTES_MAX) {
            if counts.len() < most || counts.contains_key(word) {
                *counts.entry(word).or_default() += 1;
            }
        }
        let classes = self.buffer.len() / NUMBER;
        let slot_key = slot.to_be_bytes();
        let mut totals = self
            .stored(slot)
            .unwrap_or_else(|| alloc::vec![0; 2 * self.buffer.len()]);
        add(&mut totals, class, 1);
        add(&mut totals, classes + class, counts.values().sum());
        self.totals.put(&slot_key, &totals)?;
        for (word, count) in counts {
            let Some(key) = key(slot, word) else {
                continue;
            };
            if !self.read(&key)? {
                self.buffer.fill(0);
            }
            add(&mut self.buffer, class, count);
            self.words.put(&key, &self.buffer)?;
        }
        Ok(numbers(&totals[..self.buffer.len()]).map(u64::from).sum())
    }

    /// Documents of each class that all slots of the shard have learned.
    pub fn report(&self) -> Result<Vec<u64>, Error> {
        let mut documents = alloc::vec![0; self.buffer.len() / NUMBER];
        let mut scan = self.totals.scan(&[], &[]);
        while let Some((_, value)) = scan.next()? {
            let counted = numbers(&value[..value.len() / 2]);
            for (all, here) in documents.iter_mut().zip(counted) {
                *all += u64::from(here);
            }
        }
        Ok(documents)
    }
}

/// None if the word is too long to be learned.
fn key(slot: u16, word: &[u8]) -> Option<Vec<u8>> {
    (word.len() <= WORD_BYTES_MAX).then(|| [&slot.to_be_bytes()[..], word].concat())
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let numbers = bytes.as_chunks::<NUMBER>().0.iter();
    numbers.map(|n| u32::from_le_bytes(*n))
}

fn weighted(bytes: &[u8], weight: f64, out: &mut Vec<f64>) {
    out.clear();
    out.extend(numbers(bytes).map(|n| weight * f64::from(n)));
}

fn add(bytes: &mut [u8], at: usize, count: u32) {
    if let Some(number) = bytes.as_chunks_mut::<NUMBER>().0.get_mut(at) {
        *number = u32::from_le_bytes(*number)
            .saturating_add(count)
            .to_le_bytes();
    }
}
