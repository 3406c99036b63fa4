//! The model: word counts by class, and what follows from them.
//!
//! Multinomial naive Bayes (McCallum and Nigam, "A comparison of event models for naive Bayes text
//! classification", 1998; Manning, Raghavan and Schütze, "Introduction to information retrieval",
//! section 13.2). The maximum a posteriori class of a text with the words `w1 .. wn` is that with the
//! greatest `ln P(c) + sum ln P(wi | c)`, where `P(c)` is the class's share of the documents and
//! `P(w | c) = (count of w in c + alpha) / (count of all words in c + alpha * words of the model)`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_sdk::Error;
use e3_stage::Lines;

/// Most classes.
pub const CLASSES_MAX: usize = 64;
/// Longest name of a class.
pub const CLASS_BYTES_MAX: usize = 255;
/// Most numbers of the model: words times classes.
pub const NUMBERS_MAX: usize = 2 << 20;

/// Logarithms of probabilities by class and word.
#[derive(Debug)]
pub struct Model {
    classes: Vec<String>,
    log_prior: Vec<f64>,
    words: Vocabulary,
    /// For each word, one number a class.
    log_likelihood: Vec<f64>,
}

impl Model {
    /// Reads the asset of this name.
    pub fn load(name: &'static str, alpha: f64) -> Result<Model, Error> {
        let mut lines = Lines::open(name)?;
        let mut classes: Vec<String> = Vec::new();
        if let Some(line) = lines.next()? {
            classes.extend(line.split('\t').map(Into::into));
        }
        if classes.is_empty() {
            return Err(lines.fault_of_all("is empty, must begin with a line of classes"));
        }
        if classes.len() > CLASSES_MAX {
            let why = format!(
                "has {} classes, must have at most {CLASSES_MAX}",
                classes.len()
            );
            return Err(lines.fault(why));
        }
        for (i, class) in classes.iter().enumerate() {
            let fits = (1..=CLASS_BYTES_MAX).contains(&class.len());
            if !fits || classes[..i].contains(class) {
                let length = format!("not 1..={CLASS_BYTES_MAX} bytes long");
                let why = format!("class {class:?}: is there already, or {length}");
                return Err(lines.fault(why));
            }
        }
        let mut row = Vec::new();
        let parsed = match lines.next()? {
            Some(line) => numbers(line.split('\t'), classes.len(), 1, &mut row),
            None => Err("documents of each class: are missing".into()),
        };
        if let Err(why) = parsed {
            return Err(lines.fault(why));
        }
        let documents: f64 = row.iter().sum();
        let log_prior = row.iter().map(|n| libm::log(n / documents)).collect();
        let mut model = Model {
            classes,
            log_prior,
            words: Vocabulary::default(),
            log_likelihood: Vec::new(),
        };
        while let Some(line) = lines.next()? {
            if let Err(why) = model.add(line, &mut row) {
                return Err(lines.fault(why));
            }
        }
        if model.words.len() == 0 {
            return Err(lines.fault_of_all("has no word, must have at least 1"));
        }
        model.smooth(alpha);
        Ok(model)
    }

    fn add(&mut self, line: &str, row: &mut Vec<f64>) -> Result<(), String> {
        let mut cells = line.split('\t');
        let word = cells.next().unwrap_or_default();
        numbers(cells, self.classes.len(), 0, row)?;
        if self.log_likelihood.len() + row.len() > NUMBERS_MAX {
            return Err(format!(
                "is one too many: a model may have {NUMBERS_MAX} counts"
            ));
        }
        if word.is_empty() || !self.words.add(word.as_bytes()) {
            return Err(format!("word {word:?}: is empty or there already"));
        }
        self.log_likelihood.extend_from_slice(row);
        Ok(())
    }

    /// From counts to logarithms of smoothed shares.
    fn smooth(&mut self, alpha: f64) {
        let classes = self.classes.len();
        let mut totals = alloc::vec![alpha * self.words.len() as f64; classes];
        for row in self.log_likelihood.chunks_exact(classes) {
            totals.iter_mut().zip(row).for_each(|(t, n)| *t += n);
        }
        let totals: Vec<f64> = totals.into_iter().map(libm::log).collect();
        for row in self.log_likelihood.chunks_exact_mut(classes) {
            for (n, total) in row.iter_mut().zip(&totals) {
                *n = libm::log(*n + alpha) - total;
            }
        }
    }

    /// Names of the classes, as in the asset.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Logarithms of the posterior probabilities of the classes, and how many words are the model's.
    pub fn log_posterior<'a>(
        &self,
        words: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<f64>,
    ) -> usize {
        let classes = self.classes.len();
        out.clear();
        out.extend_from_slice(&self.log_prior);
        let mut known = 0;
        for word in words {
            let Some(index) = self.words.find(word) else {
                continue;
            };
            known += 1;
            let row = &self.log_likelihood[index * classes..(index + 1) * classes];
            out.iter_mut().zip(row).for_each(|(o, l)| *o += l);
        }
        let most = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = out.iter().map(|o| libm::exp(o - most)).sum();
        let evidence = most + libm::log(sum);
        out.iter_mut().for_each(|o| *o -= evidence);
        known
    }
}

/// As many whole numbers as there are classes.
fn numbers<'a>(
    cells: impl Iterator<Item = &'a str>,
    classes: usize,
    least: u32,
    row: &mut Vec<f64>,
) -> Result<(), String> {
    row.clear();
    for cell in cells {
        let number: Option<u32> = cell.parse().ok().filter(|n| *n >= least);
        let must = format!("must be a whole number, {least}..={}", u32::MAX);
        row.push(
            number
                .ok_or_else(|| format!("count {cell:?}: {must}"))?
                .into(),
        );
    }
    match row.len() == classes {
        true => Ok(()),
        false => Err(format!(
            "has {} counts, must have {classes}, one a class",
            row.len()
        )),
    }
}

/// Words by number: a hash table with open addressing, at most half full.
#[derive(Debug, Default)]
struct Vocabulary {
    /// All words, one behind the other.
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
    /// Number of a word + 1; 0 = free. The length is a power of two.
    table: Vec<u32>,
}

impl Vocabulary {
    fn len(&self) -> usize {
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

    fn find(&self, word: &[u8]) -> Option<usize> {
        self.place(word).ok()
    }

    /// Adds a word with the next number; false if it is there.
    fn add(&mut self, word: &[u8]) -> bool {
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
