//! What to do about incidents: real runbooks (`data/README.md`), and an own ranking of them to hold the
//! application's against. It goes through all documents for each word, so little can be wrong in it.

use std::collections::BTreeMap;

const TSV: &str = include_str!("../../../../data/runbooks.tsv");

/// The service's defaults.
const K1: f64 = 1.2;
const B: f64 = 0.75;

struct Runbook {
    name: &'static str,
    words: BTreeMap<Vec<u8>, u32>,
    length: f64,
}

/// All of them.
pub(super) struct Runbooks {
    all: Vec<Runbook>,
    average: f64,
}

/// Runs of ASCII letters, digits, `_` and bytes beyond ASCII, two bytes or more, in lower case.
fn words(text: &str) -> impl Iterator<Item = Vec<u8>> {
    let belongs = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80;
    let parts = text.as_bytes().split(move |b| !belongs(b));
    parts
        .filter(|w| w.len() >= 2)
        .map(<[u8]>::to_ascii_lowercase)
}

impl Runbooks {
    pub(super) fn new() -> Runbooks {
        let lines = TSV.lines().filter_map(|line| line.split_once('\t'));
        let all: Vec<Runbook> = lines
            .map(|(name, text)| {
                let mut counts = BTreeMap::new();
                words(text).for_each(|w| *counts.entry(w).or_default() += 1);
                Runbook {
                    name,
                    length: f64::from(counts.values().sum::<u32>()),
                    words: counts,
                }
            })
            .collect();
        let average = all.iter().map(|r| r.length).sum::<f64>() / all.len() as f64;
        Runbooks { all, average }
    }

    /// Names and scores of the best for a text: Okapi BM25 with the idf of Lucene.
    pub(super) fn best(&self, text: &str, k: usize) -> Vec<(&'static str, f64)> {
        let mut scores: Vec<(&str, f64)> = self.all.iter().map(|r| (r.name, 0.0)).collect();
        for word in words(text) {
            let having = self.all.iter().filter(|r| r.words.contains_key(&word));
            let n = having.count() as f64;
            let idf = (1.0 + (self.all.len() as f64 - n + 0.5) / (n + 0.5)).ln();
            for (runbook, (_, score)) in self.all.iter().zip(&mut scores) {
                let f = f64::from(runbook.words.get(&word).copied().unwrap_or_default());
                let norm = K1 * (1.0 - B + B * runbook.length / self.average);
                *score += idf * f / (f + norm);
            }
        }
        scores.retain(|(_, score)| *score > 0.0);
        // of equal ones the one that comes first in the file
        scores.sort_by(|a, b| b.1.total_cmp(&a.1));
        scores.truncate(k);
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runbook_is_found_by_its_own_words() {
        let runbooks = Runbooks::new();
        assert_eq!(runbooks.all.len(), 108);
        let best = runbooks.best("RAID array is degraded, disk failure", 3);
        assert!(best[0].0.starts_with("NodeRAID"), "{best:?}");
        assert!(best[0].1 >= best[1].1 && best[1].1 >= best[2].1);
        assert_eq!(runbooks.best("zzz qqq", 3), []);
    }
}
