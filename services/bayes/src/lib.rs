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
//! `result`, and those of [`Stage`].
//!
//! With config `learn`, the name of a field, it goes on learning: a record that has the field, which
//! must be one of the classes, is classified as if it had not, then learned, and goes on with
//! `learned`, the documents that its slot has learned, this one included. What is learned is of the
//! slot of the request's key: later texts of the slot are classified as if the model had been trained
//! with the slot's documents too, each `learn-weight` times (default 1; 1e-3..=1e6). The model's words
//! stay the same, and one with another number of classes forgets what was learned; of a document its first words are learned, 20 KiB of counts. The question
//! ([`Stage::question`]) `report` is answered with `classes` and `documents`, how many of each all slots of
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

use e3_pipeline::{Builder, Fault, Question, Record, Stage, Value, Words, status};
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
            Err(fault) => return self.stage.refuse(&fault),
        };
        let told = match self.told(&record) {
            Ok(told) => told,
            Err(fault) => return self.stage.refuse(&fault),
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
        self.stage.pass_record(request, out)
    }
}

impl Bayes {
    /// The record, if it is one to be classified; all else is dealt with.
    fn document<'a>(&mut self, request: &Request<'a>) -> Result<Option<Record<'a>>, Error> {
        let Some(learned) = &self.learned else {
            return self.stage.statement(request);
        };
        let record = match Record::parse(request.payload()) {
            Ok(record) => record,
            Err(fault) => return self.stage.refuse(&fault).map(|()| None),
        };
        match self.stage.question(request, &record)? {
            Question::None => return Ok(Some(record)),
            Question::PassedOn => {}
            Question::Mine("report") => {
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
            Question::Mine(op) => {
                let why = format!("is {op:?}, must be \"report\"");
                self.stage.refuse(&Fault::value("op", why))?;
            }
        }
        Ok(None)
    }

    /// The class that a record tells of itself.
    fn told(&self, record: &Record<'_>) -> Result<Option<usize>, Fault> {
        let field = self.learned.as_ref().map(|l| &*l.field);
        let Some(field) = field.filter(|f| record.has(f)) else {
            return Ok(None);
        };
        let name = record.text(field)?;
        let class = self.model.class(name).ok_or_else(|| {
            let classes = self.model.classes().join(", ");
            Fault::value(field, format!("is {name:?}, must be one of {classes}"))
        })?;
        Ok(Some(class))
    }
}

// what it adds to a record must fit into a message beside it
e3_sdk::service!(Bayes, request_capacity = 31744);
