//! Text classifier: multinomial naive Bayes, maximum a posteriori, Laplace smoothing ([`model`]).
//!
//! Input: the field `field` (default `text`), split into words by [`Words`]; words that the model does not
//! have are ignored. The service adds `class` (config `result`; of equally probable classes the first in the
//! model), `log_posterior` (natural logarithm of its posterior probability), `log_posteriors` (of all
//! classes, in the order of the model) and `known_words`.
//!
//! Asset `model`, made by `train.py` beside this crate: lines of cells separated by tabs. The first line has
//! the classes (at most 64), the second the number of documents of each class, every other line a word and
//! its occurrences in each class; at most 2 Mi occurrences (words times classes). Empty lines and lines that
//! begin with `#` are skipped. Configuration: `alpha` (default 1; 1e-10..=1e6), `field`, `result`, and that
//! of [`Stage`].
//!
//! Online learning: config `learn` names a field with the true class. A record that has the field is
//! classified without it, then learned; the service adds `learned`, the number of documents that the slot
//! has learned, including this one. Counts belong to the slot of the request's key: later texts of the slot
//! are classified as if the model had been trained with the slot's documents too, each `learn-weight` times
//! (default 1; 1e-3..=1e6). The vocabulary stays that of the model, and a model with another number of
//! classes discards what was learned. Of a long document only the first words are learned, 20 KiB of counts.
//! Query ([`Stage::query`]) `report`: returns `classes` and `documents`, how many of each class all slots of
//! the shard have learned. Learning needs the collections hash map `words` (slot, word -> occurrences
//! in each class) and ordered map `totals` (slot -> documents and words of each class); without it
//! there is no state.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod learned;
pub mod model;
#[cfg(test)]
mod tests;
mod vocabulary;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, Words, status};
use e3_sdk::{Error, Request, Service, config, config_or, reply};
use learned::Learned;
use model::Model;

/// The service.
#[derive(Debug)]
pub struct Bayes {
    stage: Stage,
    field: String,
    result: String,
    model: Model,
    learned: Option<Learned>,
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
        let model = Model::load("model", alpha)?;
        Ok(Self {
            stage: Stage::open()?,
            field: config("field").unwrap_or_else(|| "text".into()),
            result: config("result").unwrap_or_else(|| "class".into()),
            learned: Learned::open(model.classes().len())?,
            model,
            words: Words::default(),
            posteriors: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some(record) = self.document(request)? else {
            return Ok(());
        };
        let text = match record.text(&self.field) {
            Ok(text) => text,
            Err(error) => return self.stage.refuse(&error),
        };
        let told = match self.told(&record) {
            Ok(told) => told,
            Err(error) => return self.stage.refuse(&error),
        };
        let slot = request.slot();
        let words = self.words.of(text);
        let (model, posteriors) = (&self.model, &mut self.posteriors);
        let totals = self.learned.as_ref().and_then(|l| l.totals(slot));
        let known = match (&mut self.learned, totals) {
            (Some(learned), Some(totals)) => {
                let occurrences =
                    |word: &[u8], out: &mut Vec<f64>| learned.occurrences(slot, word, out);
                model.log_posterior_learned(words, &totals, occurrences, posteriors)?
            }
            _ => model.log_posterior(words, posteriors),
        };
        let mut best = 0;
        for (class, posterior) in posteriors.iter().enumerate() {
            if *posterior > posteriors[best] {
                best = class;
            }
        }
        let added = ["log_posterior", "log_posteriors", "known_words"];
        let out = self.out.clear();
        let mut without = alloc::vec![&*self.result, added[0], added[1], added[2]];
        if self.learned.is_some() {
            without.push("learned");
        }
        out.copy(&record, &without)
            .field(&self.result, Value::Text(&self.model.classes()[best]))
            .field(added[0], Value::Float(posteriors[best]))
            .array(added[1], posteriors.len(), |a| {
                posteriors.iter().for_each(|p| a.push(Value::Float(*p)));
            })
            .field(added[2], Value::Int(known as i64));
        if let (Some(learned), Some(class)) = (&mut self.learned, told) {
            let words = self.words.of(text).filter(|w| self.model.knows(w));
            let documents = learned.learn(slot, class, words)?;
            out.field("learned", Value::Int(documents as i64));
        }
        self.stage.forward_record(request, out)
    }
}

impl Bayes {
    /// The record, if it is to be classified; other requests are already answered.
    fn document<'a>(&mut self, request: &Request<'a>) -> Result<Option<Record<'a>>, Error> {
        let Some(learned) = &self.learned else {
            return self.stage.record(request);
        };
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(error) => return self.stage.refuse(&error).map(|()| None),
        };
        match self.stage.query(request, &record)? {
            Query::None => return Ok(Some(record)),
            Query::Forwarded => {}
            Query::Mine("report") => {
                let (classes, documents) = (self.model.classes(), learned.report()?);
                let out = self.out.clear();
                out.array("classes", classes.len(), |a| {
                    classes.iter().for_each(|c| a.push(Value::Text(c)));
                });
                out.array("documents", documents.len(), |a| {
                    let counts = documents.iter().map(|n| Value::Int(*n as i64));
                    counts.for_each(|n| a.push(n));
                });
                reply(status::OK, out.bytes())?;
            }
            Query::Mine(op) => {
                let why = format!("is {op:?}, must be \"report\"");
                self.stage.refuse(&RecordError::value("op", why))?;
            }
        }
        Ok(None)
    }

    /// The class in a record that is to be learned.
    fn told(&self, record: &Record<'_>) -> Result<Option<usize>, RecordError> {
        let field = self.learned.as_ref().map(|l| &*l.field);
        let Some(field) = field.filter(|f| record.has(f)) else {
            return Ok(None);
        };
        let name = record.text(field)?;
        let class = self.model.class(name).ok_or_else(|| {
            let classes = self.model.classes().join(", ");
            RecordError::value(field, format!("is {name:?}, must be one of {classes}"))
        })?;
        Ok(Some(class))
    }
}

// the record and the added fields must fit into a message
e3_sdk::service!(Bayes, request_capacity = 31744);
