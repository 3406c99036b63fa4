//! The model: word counts by class and the probabilities derived from them.
//!
//! Multinomial naive Bayes (McCallum and Nigam, "A comparison of event models for naive Bayes text
//! classification", 1998; Manning, Raghavan and Schütze, "Introduction to information retrieval",
//! section 13.2). The maximum a posteriori class of a text with the words `w1 .. wn` is the class with the
//! greatest `ln P(c) + sum ln P(wi | c)`, where `P(c)` is the class's share of the documents and
//! `P(w | c) = (count of w in c + alpha) / (count of all words in c + alpha * words of the model)`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::vocabulary::Vocabulary;
use e3_pipeline::Lines;
use e3_sdk::Error;

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
    documents: Vec<f64>,
    /// Smoothed number of all words of each class.
    totals: Vec<f64>,
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
            return Err(lines.error_of_all("is empty, must begin with a line of classes"));
        }
        if classes.len() > CLASSES_MAX {
            let why = format!(
                "has {} classes, must have at most {CLASSES_MAX}",
                classes.len()
            );
            return Err(lines.error(why));
        }
        for (i, class) in classes.iter().enumerate() {
            let fits = (1..=CLASS_BYTES_MAX).contains(&class.len());
            if !fits || classes[..i].contains(class) {
                let length = format!("not 1..={CLASS_BYTES_MAX} bytes long");
                let why = format!("class {class:?}: is a duplicate, or {length}");
                return Err(lines.error(why));
            }
        }
        let mut row = Vec::new();
        let parsed = match lines.next()? {
            Some(line) => numbers(line.split('\t'), classes.len(), 1, &mut row),
            None => Err("documents of each class: are missing".into()),
        };
        if let Err(why) = parsed {
            return Err(lines.error(why));
        }
        let mut model = Model {
            classes,
            documents: row.clone(),
            totals: Vec::new(),
            words: Vocabulary::default(),
            log_likelihood: Vec::new(),
        };
        while let Some(line) = lines.next()? {
            if let Err(why) = model.add(line, &mut row) {
                return Err(lines.error(why));
            }
        }
        if model.words.len() == 0 {
            return Err(lines.error_of_all("has no word, must have at least 1"));
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
                "too many counts in the model, must be at most {NUMBERS_MAX}"
            ));
        }
        if word.is_empty() || !self.words.add(word.as_bytes()) {
            return Err(format!("word {word:?}: is empty or a duplicate"));
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
        let log_totals: Vec<f64> = totals.iter().copied().map(libm::log).collect();
        for row in self.log_likelihood.chunks_exact_mut(classes) {
            for (n, total) in row.iter_mut().zip(&log_totals) {
                *n = libm::log(*n + alpha) - total;
            }
        }
        self.totals = totals;
    }

    /// Names of the classes, as in the asset.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The class of this name.
    pub fn class(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|c| c == name)
    }

    /// Whether the model knows the word.
    pub fn knows(&self, word: &[u8]) -> bool {
        self.words.find(word).is_some()
    }

    /// Logarithms of the posterior probabilities of the classes, and the number of known words.
    pub fn log_posterior<'a>(
        &self,
        words: impl Iterator<Item = &'a [u8]>,
        out: &mut Vec<f64>,
    ) -> usize {
        prior(out, self.documents.iter().copied());
        let mut known = 0;
        for word in words {
            let Some(row) = self.row(word) else {
                continue;
            };
            known += 1;
            out.iter_mut().zip(row).for_each(|(o, l)| *o += l);
        }
        normalise(out);
        known
    }

    /// The same, as if the model had been trained with the learned documents too.
    pub fn log_posterior_learned<'a>(
        &self,
        words: impl Iterator<Item = &'a [u8]>,
        learned: &Totals,
        mut occurrences: impl FnMut(&[u8], &mut Vec<f64>) -> Result<bool, Error>,
        out: &mut Vec<f64>,
    ) -> Result<usize, Error> {
        let both = |(a, b): (&f64, &f64)| a + b;
        prior(out, self.documents.iter().zip(&learned.documents).map(both));
        let before: Vec<f64> = self.totals.iter().copied().map(libm::log).collect();
        let after = self.totals.iter().zip(&learned.words).map(both);
        let after: Vec<f64> = after.map(libm::log).collect();
        let mut more = Vec::new();
        let mut known = 0;
        for word in words {
            let Some(row) = self.row(word) else {
                continue;
            };
            known += 1;
            let there = occurrences(word, &mut more)?;
            for (class, o) in out.iter_mut().enumerate() {
                let mut log_count = row[class] + before[class];
                if there {
                    log_count = libm::log(libm::exp(log_count) + more[class]);
                }
                *o += log_count - after[class];
            }
        }
        normalise(out);
        Ok(known)
    }

    fn row(&self, word: &[u8]) -> Option<&[f64]> {
        let classes = self.classes.len();
        let index = self.words.find(word)?;
        Some(&self.log_likelihood[index * classes..(index + 1) * classes])
    }
}

/// Learned counts: documents and words of each class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Documents.
    pub documents: Vec<f64>,
    /// Words, with repetitions.
    pub words: Vec<f64>,
}

/// Logarithms of the shares of the documents.
fn prior(out: &mut Vec<f64>, documents: impl Iterator<Item = f64>) {
    out.clear();
    out.extend(documents);
    let all: f64 = out.iter().sum();
    out.iter_mut().for_each(|n| *n = libm::log(*n / all));
}

/// From logarithms of joint probabilities to those of posterior ones.
fn normalise(out: &mut [f64]) {
    let most = out.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = out.iter().map(|o| libm::exp(o - most)).sum();
    let evidence = most + libm::log(sum);
    out.iter_mut().for_each(|o| *o -= evidence);
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
    if row.len() == classes {
        Ok(())
    } else {
        Err(format!(
            "has {} counts, must have {classes}, one a class",
            row.len()
        ))
    }
}
