//! Ranks items by their scores: the best K, by quickselect and quicksort ([`top`]).
//!
//! *Order*: the higher score first; equal scores by the bytes of the items, the smaller first; the same
//! item twice with the same score by its place in the record.
//!
//! Input: `items` (texts, at most 1024) and `scores` (as many finite numbers; config `items` and `scores`
//! name the fields; a single text and a single number count as lists of one). The service adds `top` and
//! `top_scores`, the best K of the record. With config `keep` other than `no`, the record first updates
//! running scores (at most 64 items of at most 255 bytes a record), and `top` ranks the items of the record
//! by their running scores:
//!
//! - `keep: last`: the latest score counts;
//! - `keep: sum`: the scores of an item are added;
//! - `keep: max`: the highest score counts.
//!
//! Query ([`Stage::query`]) `top`, optionally with `k`: returns `top` and `top_scores`, the best running
//! scores over all slots of the shard, and `items`, their total number. An item that came under routing
//! keys of several slots is ranked in each slot separately, so route by the item or by its owner.
//!
//! Configuration: `k` (default 10, 1..=1000), `items`, `scores`, `keep` (default `no`), `window-s`
//! (default 0: running scores never end; else they start again in each window), and that of [`Stage`].
//!
//! Collection, only with `keep`: ordered map `scores` (slot, item -> window, score). Each new item drops
//! up to two entries of earlier windows that follow it in key order, so the stored entries stay in
//! proportion to the items of one window.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

#[cfg(test)]
mod tests;
pub mod top;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_random::Random;
use e3_sdk::{Error, OrderedMap, Request, Service, config, config_or, now, reply};
use top::top;

/// Most items of a record.
pub const ITEMS_MAX: usize = 1024;
/// Most items of a record that are entered into running scores.
pub const KEPT_MAX: usize = 64;
/// Longest item that is entered into running scores.
pub const ITEM_BYTES_MAX: usize = 255;
/// Largest K.
pub const K_MAX: usize = 1000;
/// Candidates that a query holds before it drops all but the best K.
const CANDIDATES_MAX: usize = 4096;
const _: () = assert!(CANDIDATES_MAX >= 2 * K_MAX);
/// Bytes of items that an answer may have, so that it fits into a message.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
const _: () = assert!(ANSWER_BYTES_MAX + K_MAX * 12 < e3_sdk::limits::VALUE_BYTES_MAX - 1024);
/// Where the generator of pivots begins.
const PIVOT_SEED: u64 = 1;
/// Entries of earlier windows that a new item drops.
const DROPPED: usize = 2;

const NANOS: i64 = 1_000_000_000;

/// How a score joins those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    No,
    Last,
    Sum,
    Max,
}

/// The service.
#[derive(Debug)]
pub struct TopRanker {
    stage: Stage,
    items: String,
    scores: String,
    k: usize,
    keep: Keep,
    window_s: i64,
    kept: Option<OrderedMap>,
    pivots: Random,
    ranks: Vec<(f64, u32)>,
    out: Builder,
}

impl Service for TopRanker {
    fn init() -> Result<Self, Error> {
        let bad = |name, value: String| Err(Error::Config { name, value });
        let k: usize = config_or("k", 10)?;
        if !(1..=K_MAX).contains(&k) {
            return bad("k", format!("{k}"));
        }
        let window_s: i64 = config_or("window-s", 0)?;
        if !(0..=i64::MAX / NANOS).contains(&window_s) {
            return bad("window-s", format!("{window_s}"));
        }
        let keep = match config("keep").as_deref() {
            None | Some("no") => Keep::No,
            Some("last") => Keep::Last,
            Some("sum") => Keep::Sum,
            Some("max") => Keep::Max,
            Some(other) => return bad("keep", other.into()),
        };
        Ok(Self {
            stage: Stage::open()?,
            items: config("items").unwrap_or_else(|| "items".into()),
            scores: config("scores").unwrap_or_else(|| "scores".into()),
            k,
            keep,
            window_s,
            kept: match keep {
                Keep::No => None,
                _ => Some(OrderedMap::open("scores")?),
            },
            pivots: Random::new(PIVOT_SEED),
            ranks: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.stage.refuse(&error),
        };
        match self.stage.query(request, &record)? {
            Query::None => {}
            Query::Forwarded => return Ok(()),
            Query::Mine(op) => {
                return match self.query(op, &record) {
                    Ok((kept, k)) => self.on_top(kept, k),
                    Err(error) => self.stage.refuse(&error),
                };
            }
        }
        match self.read(&record) {
            Ok((items, scores)) => self.on_scores(request, &record, &items, scores),
            Err(error) => self.stage.refuse(&error),
        }
    }
}

impl TopRanker {
    fn read<'a>(&self, record: &Record<'a>) -> Result<(Vec<&'a str>, Vec<f64>), RecordError> {
        let max = match self.keep {
            Keep::No => ITEMS_MAX,
            _ => KEPT_MAX,
        };
        let items = match record.texts(&self.items, max) {
            Err(error @ RecordError::Type { .. }) => {
                alloc::vec![record.text(&self.items).map_err(|_| error)?]
            }
            other => other?,
        };
        let scores = match record.numbers(&self.scores, max) {
            Err(error @ RecordError::Type { .. }) => {
                alloc::vec![record.number(&self.scores).map_err(|_| error)?]
            }
            other => other?,
        };
        if items.len() != scores.len() {
            let why = format!(
                "has {} elements, must be as many as field {:?} has: {}",
                scores.len(),
                self.items,
                items.len()
            );
            return Err(RecordError::value(&self.scores, why));
        }
        let length = 1..=ITEM_BYTES_MAX;
        let kept = self.keep != Keep::No;
        if let Some(bad) = items.iter().find(|i| kept && !length.contains(&i.len())) {
            let why = format!(
                "an item has {} bytes, must be 1..={ITEM_BYTES_MAX}",
                bad.len()
            );
            return Err(RecordError::value(&self.items, why));
        }
        Ok((items, scores))
    }

    fn query(&self, op: &str, record: &Record<'_>) -> Result<(OrderedMap, usize), RecordError> {
        if op != "top" {
            return Err(RecordError::value(
                "op",
                format!("is {op:?}, must be \"top\""),
            ));
        }
        let Some(kept) = self.kept else {
            let why = "is \"top\", but the configuration \"keep\" is \"no\"";
            return Err(RecordError::value("op", why));
        };
        if !record.has("k") {
            return Ok((kept, self.k));
        }
        let k = record.int("k")?;
        match usize::try_from(k).ok().filter(|k| (1..=K_MAX).contains(k)) {
            Some(k) => Ok((kept, k)),
            None => Err(RecordError::value(
                "k",
                format!("is {k}, must be 1..={K_MAX}"),
            )),
        }
    }

    fn on_scores(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
        items: &[&str],
        mut scores: Vec<f64>,
    ) -> Result<(), Error> {
        if let Some(kept) = self.kept {
            let prefix = request.slot().to_be_bytes();
            let mut key = Vec::with_capacity(2 + ITEM_BYTES_MAX);
            for (item, score) in items.iter().zip(&mut scores) {
                key.clear();
                key.extend_from_slice(&prefix);
                key.extend_from_slice(item.as_bytes());
                *score = self.enter(kept, &key, *score)?;
            }
        }
        self.ranks.clear();
        let numbered = scores.iter().zip(0..);
        self.ranks.extend(numbered.map(|(score, at)| (*score, at)));
        let item = |at: u32| items[at as usize].as_bytes();
        let before =
            |a: &(f64, u32), b: &(f64, u32)| before((a.0, item(a.1), a.1), (b.0, item(b.1), b.1));
        let count = top(&mut self.ranks, self.k, &mut self.pivots, &before);
        let best = &self.ranks[..count];
        self.out.clear().copy(record, &["top", "top_scores"]);
        self.out.array("top", count, |a| {
            best.iter()
                .for_each(|(_, at)| a.push(Value::Text(items[*at as usize])));
        });
        self.out.array("top_scores", count, |a| {
            best.iter()
                .for_each(|(score, _)| a.push(Value::Float(*score)));
        });
        self.stage.forward_record(request, &mut self.out)
    }

    fn window(&self) -> i64 {
        now()
            .checked_div_euclid(self.window_s * NANOS)
            .unwrap_or_default()
    }

    /// Enters a score; returns the running one.
    fn enter(&self, kept: OrderedMap, key: &[u8], score: f64) -> Result<f64, Error> {
        let mut buffer = [0; ENTRY_BYTES];
        let window = self.window();
        let stored = kept.get(key, &mut buffer)?.and_then(parse);
        let entry = match stored.filter(|(w, _)| *w >= window) {
            None => (window, score),
            Some((w, before)) => {
                let score = match self.keep {
                    // scores are finite, and so are their sums
                    Keep::Sum => (before + score).clamp(f64::MIN, f64::MAX),
                    Keep::Max => before.max(score),
                    Keep::Last | Keep::No => score,
                };
                (w, score)
            }
        };
        kept.put(key, &bytes(entry))?;
        if stored.is_none() && self.window_s > 0 {
            self.drop_old(kept, key)?;
        }
        Ok(entry.1)
    }

    /// Drops what is of earlier windows among the entries after `key` in its slot.
    fn drop_old(&self, kept: OrderedMap, key: &[u8]) -> Result<(), Error> {
        let from = [key, &[0]].concat();
        let slot = u16::from_be_bytes([key[0], key[1]]);
        let to = slot.saturating_add(1).to_be_bytes();
        let mut old = Vec::new();
        let mut scan = kept.scan(&from, &to).chunk(DROPPED as u32);
        for _ in 0..DROPPED {
            let Some((key, value)) = scan.next()? else {
                break;
            };
            if parse(value).is_none_or(|(w, _)| w < self.window()) {
                old.push(key.to_vec());
            }
        }
        old.iter().try_for_each(|key| kept.delete(key).map(drop))
    }

    fn on_top(&mut self, kept: OrderedMap, k: usize) -> Result<(), Error> {
        let window = self.window();
        let mut names = Vec::new();
        let mut candidates: Vec<(f64, Range<usize>)> = Vec::new();
        let mut items = 0i64;
        let mut scan = kept.scan(&[], &[]);
        while let Some((key, value)) = scan.next()? {
            let Some((_, score)) = parse(value).filter(|(w, _)| *w >= window) else {
                continue;
            };
            items += 1;
            let start = names.len();
            names.extend_from_slice(key.get(2..).unwrap_or_default());
            candidates.push((score, start..names.len()));
            if candidates.len() == CANDIDATES_MAX {
                self.cut(&mut candidates, &mut names, k);
            }
        }
        self.cut(&mut candidates, &mut names, k);
        // an answer has the best that fit into it
        let mut left = ANSWER_BYTES_MAX;
        let fitting = candidates.iter().take_while(|(_, range)| {
            let fits = range.len() <= left;
            left = left.saturating_sub(range.len());
            fits
        });
        let best = &candidates[..fitting.count()];
        let out = self.out.clear();
        out.array("top", best.len(), |a| {
            for (_, range) in best {
                // items came as text
                let name = core::str::from_utf8(&names[range.clone()]);
                a.push(Value::Text(name.unwrap_or_default()));
            }
        });
        out.array("top_scores", best.len(), |a| {
            best.iter()
                .for_each(|(score, _)| a.push(Value::Float(*score)));
        });
        out.field("items", Value::Int(items));
        reply(status::OK, out.bytes())
    }

    /// Leaves the best `k` candidates, in order, and their names.
    fn cut(&mut self, candidates: &mut Vec<(f64, Range<usize>)>, names: &mut Vec<u8>, k: usize) {
        self.ranks.clear();
        let numbered = candidates.iter().zip(0..);
        self.ranks
            .extend(numbered.map(|((score, _), at)| (*score, at)));
        let name = |at: u32| &names[candidates[at as usize].1.clone()];
        let before =
            |a: &(f64, u32), b: &(f64, u32)| before((a.0, name(a.1), a.1), (b.0, name(b.1), b.1));
        let count = top(&mut self.ranks, k, &mut self.pivots, &before);
        let mut kept_names = Vec::new();
        let mut kept = Vec::with_capacity(CANDIDATES_MAX);
        for (score, at) in &self.ranks[..count] {
            let start = kept_names.len();
            kept_names.extend_from_slice(name(*at));
            kept.push((*score, start..kept_names.len()));
        }
        *candidates = kept;
        *names = kept_names;
    }
}

/// Whether one comes before the other: (score, item, place).
fn before(a: (f64, &[u8], u32), b: (f64, &[u8], u32)) -> bool {
    if a.0 != b.0 {
        return a.0 > b.0;
    }
    (a.1, a.2) < (b.1, b.2)
}

const ENTRY_BYTES: usize = 16;

fn parse(bytes: &[u8]) -> Option<(i64, f64)> {
    let (window, score) = bytes.split_first_chunk::<8>()?;
    let score = f64::from_le_bytes(score.try_into().ok()?);
    Some((i64::from_le_bytes(*window), score))
}

fn bytes((window, score): (i64, f64)) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..8].copy_from_slice(&window.to_le_bytes());
    bytes[8..].copy_from_slice(&score.to_le_bytes());
    bytes
}

// a record with its own best items again, and their scores, must fit into a message
e3_sdk::service!(TopRanker, request_capacity = 8192);
