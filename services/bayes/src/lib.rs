//! Sorts texts into classes by their words: multinomial naive Bayes, maximum a posteriori, Laplace
//! smoothing ([`model`]).
//!
//! A record's field `field` (default `text`) is a text, split into words as [`Words`] says; words that
//! the model does not have are not counted. The record goes on with `class` (config `result`; of equally
//! probable ones the class that comes first in the model), `log_posterior` (natural logarithm of its
//! posterior probability), `log_posteriors` (of all classes, as the model has them) and `known_words`.
//!
//! Asset `model`, made by `train.py` beside this crate: lines with cells separated by tabs. The first
//! has the classes (at most 64), the second the number of documents of each, every other a word and
//! its occurrences in the documents of each class; words times classes at most 2 Mi. Lines that are
//! empty or begin with `#` do not count. Configuration: `alpha` (default 1; 1e-10..=1e6), `field`,
//! `result`, and those of [`Stage`]. No state.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod model;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_sdk::{Error, Request, Service, config, config_or};
use e3_stage::{Builder, Stage, Value, Words};
use model::Model;

/// The service.
#[derive(Debug)]
pub struct Bayes {
    stage: Stage,
    field: String,
    result: String,
    model: Model,
    words: Words,
    posteriors: Vec<f64>,
    out: Builder,
}

impl Service for Bayes {
    fn init() -> Result<Self, Error> {
        let alpha: f64 = config_or("alpha", 1.0)?;
        if !(1e-10..=1e6).contains(&alpha) {
            let value = format!("{alpha}");
            return Err(Error::Config {
                name: "alpha",
                value,
            });
        }
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "text".into()),
            result: config("result").unwrap_or_else(|| "class".into()),
            model: Model::load("model", alpha)?,
            words: Words::default(),
            posteriors: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some(record) = self.stage.statement(request)? else {
            return Ok(());
        };
        let text = match record.text(&self.field) {
            Ok(text) => text,
            Err(fault) => return self.stage.refuse(&fault),
        };
        let posteriors = &mut self.posteriors;
        let known = self.model.log_posterior(self.words.of(text), posteriors);
        let mut best = 0;
        for (class, posterior) in posteriors.iter().enumerate() {
            if *posterior > posteriors[best] {
                best = class;
            }
        }
        let added = ["log_posterior", "log_posteriors", "known_words"];
        let out = self.out.clear();
        out.copy(&record, &[&*self.result, added[0], added[1], added[2]])
            .field(&self.result, Value::Text(&self.model.classes()[best]))
            .field(added[0], Value::Float(posteriors[best]))
            .array(added[1], posteriors.len(), |a| {
                posteriors.iter().for_each(|p| a.push(Value::Float(*p)));
            })
            .field(added[2], Value::Int(known as i64));
        self.stage.pass_record(request, out)
    }
}

// what it adds to a record must fit into a message beside it
e3_sdk::service!(Bayes, request_capacity = 31744);
