//! Search: ranks the documents of an inverted index ([`index`]) by Okapi BM25 ([`rank`]).
//!
//! Input: the field `field` (default `query`), a text that [`Words`] splits into at most 64 different words;
//! words that occur in no document are ignored. The service adds `documents` (names of the best `k`; config
//! `result`), `scores` and `matches` (the number of documents with at least one of the words). Documents
//! with equal scores come in the order of the index.
//!
//! Asset `index`, made by `index.py` beside this crate. All but the postings is held in memory: 24 bytes a
//! document, 8 bytes a term, names and terms. Configuration: `k` (default 10, at most 100),
//! `k1` (default 1.2, 0..=100), `b` (default 0.75, 0..=1), `field`, `result`, and that of [`Stage`].
//! No state.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod index;
pub mod rank;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Record, RecordError, Stage, Value, Words};
use e3_sdk::{Error, Request, Service, config, config_or};
use index::{Index, NAME_BYTES_MAX};
use rank::Ranker;

/// Most documents of an answer.
pub const K_MAX: usize = 100;
/// Most different words of a query.
pub const TERMS_MAX: usize = 64;
/// Longest request: with the reply it fits into a message.
const REQUEST_BYTES_MAX: usize = 4096;
const _: () = assert!(
    REQUEST_BYTES_MAX + K_MAX * (NAME_BYTES_MAX + 2 + 9) + 1024 <= e3_sdk::limits::VALUE_BYTES_MAX
);

/// The service.
#[derive(Debug)]
pub struct Bm25 {
    stage: Stage,
    field: String,
    result: String,
    k: usize,
    index: Index,
    ranker: Ranker,
    words: Words,
    terms: Vec<(usize, u32)>,
    best: Vec<(f64, u32)>,
    out: Builder,
}

impl Service for Bm25 {
    fn init() -> Result<Self, Error> {
        let bad = |name, value: String| Err(Error::Config { name, value });
        let k: usize = config_or("k", 10)?;
        if !(1..=K_MAX).contains(&k) {
            return bad("k", format!("{k}"));
        }
        let k1: f64 = config_or("k1", 1.2)?;
        if !(0.0..=100.0).contains(&k1) {
            return bad("k1", format!("{k1}"));
        }
        let b: f64 = config_or("b", 0.75)?;
        if !(0.0..=1.0).contains(&b) {
            return bad("b", format!("{b}"));
        }
        let index = Index::load("index")?;
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "query".into()),
            result: config("result").unwrap_or_else(|| "documents".into()),
            k,
            ranker: Ranker::new(&index, k1, b),
            index,
            words: Words::default(),
            terms: Vec::new(),
            best: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some(record) = self.stage.record(request)? else {
            return Ok(());
        };
        if let Err(error) = self.read(&record) {
            return self.stage.refuse(&error);
        }
        let best = &mut self.best;
        let matches = self.ranker.search(&self.index, &self.terms, self.k, best)?;
        let index = &self.index;
        let out = self.out.clear();
        out.copy(&record, &[&*self.result, "scores", "matches"])
            .array(&self.result, best.len(), |a| {
                best.iter()
                    .for_each(|(_, d)| a.push(Value::Text(index.document(*d))));
            })
            .array("scores", best.len(), |a| {
                best.iter()
                    .for_each(|(score, _)| a.push(Value::Float(*score)));
            })
            .field("matches", Value::Int(matches as i64));
        self.stage.forward_record(request, out)
    }
}

impl Bm25 {
    /// The words of the query that occur in any document, with their number in the query.
    fn read(&mut self, record: &Record<'_>) -> Result<(), RecordError> {
        let query = record.text(&self.field)?;
        self.terms.clear();
        for word in self.words.of(query) {
            let Some(term) = self.index.term(word) else {
                continue;
            };
            if let Some(at) = self.terms.iter().position(|(t, _)| *t == term) {
                self.terms[at].1 += 1;
            } else if self.terms.len() < TERMS_MAX {
                self.terms.push((term, 1));
            } else {
                let why = format!("has more than {TERMS_MAX} different words of the index");
                return Err(RecordError::value(&self.field, why));
            }
        }
        Ok(())
    }
}

e3_sdk::service!(Bm25, request_capacity = 4096);
