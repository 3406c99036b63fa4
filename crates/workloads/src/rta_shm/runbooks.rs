//! The runbooks of `data/runbooks.tsv`, and an independent ranking of them (BM25).

use std::collections::BTreeMap;

const TSV: &str = include_str!("../../../../data/runbooks.tsv");

/// The service's defaults.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// All of them.
pub(super) struct Runbooks {
    names: Vec<&'static str>,
    /// How many words each has.
    lengths: Vec<f64>,
    average: f64,
    /// Where each word is, and how often.
    places: BTreeMap<Vec<u8>, BTreeMap<usize, f64>>,
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
        let lines: Vec<(&str, &str)> = TSV.lines().filter_map(|l| l.split_once('\t')).collect();
        let lengths = lines.iter().map(|(_, text)| words(text).count() as f64);
        let lengths: Vec<f64> = lengths.collect();
        let mut places: BTreeMap<Vec<u8>, BTreeMap<usize, f64>> = BTreeMap::new();
        for (number, (_, text)) in lines.iter().enumerate() {
            for word in words(text) {
                *places.entry(word).or_default().entry(number).or_default() += 1.0;
            }
        }
        Runbooks {
            names: lines.into_iter().map(|(name, _)| name).collect(),
            average: lengths.iter().sum::<f64>() / lengths.len() as f64,
            lengths,
            places,
        }
    }

    /// Names and scores of the best for a text: Okapi BM25 with the idf of Lucene.
    pub(super) fn best(&self, text: &str, k: usize) -> Vec<(&'static str, f64)> {
        let all = self.names.len() as f64;
        let mut scores: Vec<(&str, f64)> = self.names.iter().map(|name| (*name, 0.0)).collect();
        for places in words(text).filter_map(|word| self.places.get(&word)) {
            let n = places.len() as f64;
            let idf = (1.0 + (all - n + 0.5) / (n + 0.5)).ln();
            for (number, f) in places {
                let norm = K1 * (1.0 - B + B * self.lengths[*number] / self.average);
                scores[*number].1 += idf * f / (f + norm);
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
        assert_eq!(runbooks.names.len(), 49);
        let best = runbooks.best("RAID array is degraded, disk failure", 3);
        assert!(best[0].0.starts_with("raid-"), "{best:?}");
        assert!(best[0].1 >= best[1].1 && best[1].1 >= best[2].1);
        assert_eq!(runbooks.best("zzz qqq", 3), []);
    }
}
