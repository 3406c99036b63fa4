//! Okapi BM25 (Robertson and Walker, 1994; Robertson and Zaragoza, "The probabilistic relevance
//! framework: BM25 and beyond", 2009), with the idf of Lucene and Elasticsearch:
//!
//! `score(d, q) = sum over words t of q: idf(t) * f / (f + k1 * (1 - b + b * |d| / avg))`
//! `idf(t) = ln(1 + (N - n + 0.5) / (n + 0.5))`
//!
//! `f`: occurrences of `t` in `d`; `|d|`: words of `d`; `avg`: their mean over all `N` documents;
//! `n`: documents that have `t`. A word that is in the query several times counts so often. This is
//! Lucene's form since version 8; Elasticsearch multiplies by `k1 + 1`, which changes no order. Both
//! round `|d|` to 8 bits, which is not done here.

use alloc::vec::Vec;

use crate::index::Index;
use e3_sdk::Error;

/// Scores of all documents, for one query at a time.
#[derive(Debug)]
pub struct Ranker {
    /// `k1 * (1 - b + b * |d| / avg)` of each document.
    norms: Vec<f64>,
    /// Scores; 0 between two queries.
    scores: Vec<f64>,
    /// Documents whose score is not 0.
    found: Vec<u32>,
}

impl Ranker {
    /// For the documents of an index.
    pub fn new(index: &Index, k1: f64, b: f64) -> Ranker {
        let lengths = || index.lengths.iter().copied().map(f64::from);
        let average = lengths().sum::<f64>() / lengths().len() as f64;
        // without words there are no results
        let average = if average > 0.0 { average } else { 1.0 };
        let norm = |length| k1 * (1.0 - b + b * length / average);
        Ranker {
            norms: lengths().map(norm).collect(),
            scores: alloc::vec![0.0; index.lengths.len()],
            found: Vec::new(),
        }
    }

    /// Scores the documents that have any of `terms` (with how often the query has each); puts the
    /// best `k` into `best`, the best first, of equal ones the one that comes first in the index.
    /// Returns how many documents were found.
    pub fn search(
        &mut self,
        index: &Index,
        terms: &[(usize, u32)],
        k: usize,
        best: &mut Vec<(f64, u32)>,
    ) -> Result<usize, Error> {
        let documents = index.lengths.len() as f64;
        for (term, times) in terms {
            let n = index.frequency(*term) as f64;
            let idf = libm::log1p((documents - n + 0.5) / (n + 0.5));
            let weight = idf * f64::from(*times);
            let (scores, norms, found) = (&mut self.scores, &self.norms, &mut self.found);
            index.postings(*term, |document, count| {
                let at = document as usize;
                if scores[at] == 0.0 {
                    found.push(document);
                }
                let count = f64::from(count);
                scores[at] += weight * (count / (count + norms[at]));
            })?;
        }
        best.clear();
        for document in &self.found {
            let score = core::mem::take(&mut self.scores[*document as usize]);
            if best.len() == k {
                if best
                    .last()
                    .is_some_and(|worst| !before((score, *document), *worst))
                {
                    continue;
                }
                best.pop();
            }
            let place = best.partition_point(|b| before(*b, (score, *document)));
            best.insert(place, (score, *document));
        }
        let found = self.found.len();
        self.found.clear();
        Ok(found)
    }
}

fn before(a: (f64, u32), b: (f64, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}
