//! k-nearest-neighbours classifier ([`points`]): Euclidean distance, majority of the labels.
//!
//! *Ties*: of points at the same distance, the first in the asset is the nearer; of labels with the same
//! number of votes, the first in byte order wins.
//!
//! Input: the field `field` (default `features`), an array of as many finite numbers as a training point
//! has, each within ±1e150. The service adds `class` (config `result`), `votes` (how many of the k have
//! this label), `distances` and `neighbours` (the k nearest points, nearest first: Euclidean distance and
//! place in the asset, from 0).
//!
//! Asset `points`: one line for each point, `label,number,number,...`, all of the same length. Empty lines
//! and lines that begin with `#` are skipped. At most 256 features, 1024 labels and 2 Mi numbers.
//! Configuration: `k` (default 5, at most 64 and at most the number of points), `field`, `result`, and that
//! of [`Stage`]. No state.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod points;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Record, RecordError, Stage, Value};
use e3_sdk::{Error, Request, Service, config, config_or};
use points::{FEATURE_MAX, FEATURES_MAX, Neighbour, Points};

/// Largest k.
pub const K_MAX: usize = 64;

/// The service.
#[derive(Debug)]
pub struct Knn {
    stage: Stage,
    field: String,
    result: String,
    k: usize,
    points: Points,
    nearest: Vec<Neighbour>,
    out: Builder,
}

impl Service for Knn {
    fn init() -> Result<Self, Error> {
        let k: usize = config_or("k", 5)?;
        if !(1..=K_MAX).contains(&k) {
            let value = format!("{k}");
            return Err(Error::Config { name: "k", value });
        }
        let points = Points::load("points")?;
        if points.count() < k {
            return Err(Error::Asset {
                name: "points",
                line: 0,
                reason: format!("has {} points, must have at least k = {k}", points.count()),
            });
        }
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "features".into()),
            result: config("result").unwrap_or_else(|| "class".into()),
            k,
            points,
            nearest: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some(record) = self.stage.record(request)? else {
            return Ok(());
        };
        let query = match self.read(&record) {
            Ok(query) => query,
            Err(error) => return self.stage.refuse(&error),
        };
        self.points.nearest(&query, self.k, &mut self.nearest);
        let (class, votes) = self.points.vote(&self.nearest);
        let names = [&*self.result, "votes", "distances", "neighbours"];
        let out = self.out.clear();
        out.copy(&record, &names)
            .field(&self.result, Value::Text(class))
            .field("votes", Value::Int(votes as i64))
            .array("distances", self.nearest.len(), |a| {
                let distances = self.nearest.iter().map(|n| e3_sdk::math::sqrt(n.squared));
                distances.for_each(|d| a.push(Value::Float(d)));
            })
            .array("neighbours", self.nearest.len(), |a| {
                let points = self.nearest.iter().map(|n| i64::from(n.point));
                points.for_each(|p| a.push(Value::Int(p)));
            });
        self.stage.forward_record(request, out)
    }
}

impl Knn {
    fn read(&self, record: &Record<'_>) -> Result<Vec<f64>, RecordError> {
        let query = record.numbers(&self.field, FEATURES_MAX)?;
        let features = self.points.features();
        if query.len() != features {
            let why = format!("has {} elements, must have {features}", query.len());
            return Err(RecordError::value(&self.field, why));
        }
        if let Some(bad) = query.iter().find(|x| x.abs() > FEATURE_MAX) {
            let why = format!("has {bad:e}, must be within ±{FEATURE_MAX:e}");
            return Err(RecordError::value(&self.field, why));
        }
        Ok(query)
    }
}

e3_sdk::service!(Knn, request_capacity = 16384);
