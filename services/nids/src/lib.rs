//! Network intrusion detection: looks for rules in packets ([`rule`] has their syntax, [`detect`]
//! the way they are found), counts alerts, and keeps packets that match a `drop` rule.
//!
//! A request is an IPv4 packet, which is passed on as it came, unless a `drop` rule matches; then it
//! is answered, since nobody further on will. As a last stage the service answers with a record:
//! `alerts`, how many rules match; `sids`, the numbers of the first 100, in the order of the file (no
//! more are counted either); `dropped`. A packet that is malformed is answered with an error; so is, and goes no further, one
//! whose payload has more than 65,536 occurrences of contents.
//!
//! Asset: `rules`, lines of text; a bad line keeps the service from starting and is named. State:
//! none, unless the manifest gives it an ordered-map `alerts`, which then holds how often each rule
//! matched, under the slot of the request's key and the rule's `sid` (2 and 4 bytes, most significant
//! first), so that a shard can be split. `op: report` adds the slots of its shard up: `total`, and
//! `rules`, the `limit` (1..=500, default 100) that matched most, each with `sid`, count and message.
//! Configuration: `to` and `reply`, see [`e3_pipeline::Stage`]. Accelerator: `match`.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod detect;
pub mod rule;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use detect::Detector;
use e3_pipeline::{Builder, Fault, Question, Record, Stage, Value, status};
use e3_sdk::limits::MATCHES_MAX;
use e3_sdk::{Asset, Error, OrderedMap, Request, Service, reply};
use rule::Rule;

/// Most rules.
pub const RULES_MAX: usize = 20_000;
/// Most bytes of the asset.
const RULES_BYTES_MAX: u64 = 8 << 20;
/// Rules of a packet that are counted and named.
const SIDS_MAX: usize = 100;
/// Rules in a report.
const REPORT_MAX: i64 = 500;

/// The service.
pub struct Nids {
    detector: Detector,
    alerts: Option<OrderedMap>,
    stage: Stage,
    record: Builder,
}

fn wrong(line: u32, reason: String) -> Error {
    Error::Asset {
        name: "rules",
        line,
        reason,
    }
}

/// Reads the asset.
fn rules() -> Result<Vec<Rule>, Error> {
    let asset = Asset::open("rules").ok_or(Error::NoAsset("rules"))?;
    let len = asset.len();
    if len > RULES_BYTES_MAX {
        let why = format!("has {len} bytes, must be at most {RULES_BYTES_MAX}");
        return Err(wrong(0, why));
    }
    let mut text = alloc::vec![0; len as usize];
    let read = asset.read(0, &mut text)?;
    let text = str::from_utf8(&text[..read]).map_err(|e| {
        let before = &text[..e.valid_up_to()];
        let line = 1 + before.iter().filter(|b| **b == b'\n').count() as u32;
        wrong(line, "is not UTF-8".into())
    })?;
    rule::parse_all(text, RULES_MAX).map_err(|(line, why)| wrong(line, why))
}

impl Service for Nids {
    fn init() -> Result<Self, Error> {
        let detector = Detector::new(rules()?).map_err(|error| match error {
            Error::Bound => wrong(0, "contents of more than 262144 bytes together".into()),
            error => error,
        })?;
        Ok(Self {
            detector,
            alerts: OrderedMap::open("alerts").ok(),
            stage: Stage::open()?,
            record: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        match request.payload().first() {
            // not a packet, whose first half byte is 4
            Some(0xa0..=0xb7) => match Record::parse(request.payload()) {
                Ok(record) => self.on_question(request, &record),
                Err(fault) => self.stage.refuse(&fault),
            },
            _ => self.on_packet(request),
        }
    }
}

impl Nids {
    fn on_packet(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let matched = match self.detector.detect(request.payload()) {
            Ok(Ok(matched)) => matched,
            Ok(Err(fault)) => return reply(status::MALFORMED, fault.to_string().as_bytes()),
            Err(Error::Bound) => {
                let why = format!("packet: more than {MATCHES_MAX} occurrences of contents");
                return reply(status::REFUSED, why.as_bytes());
            }
            Err(error) => return Err(error),
        };
        let named = &matched[..matched.len().min(SIDS_MAX)];
        if let Some(alerts) = self.alerts {
            for rule in named {
                count(alerts, request.slot(), rule.sid)?;
            }
        }
        let dropped = detect::drops(&matched);
        if !dropped {
            self.stage.send(request, request.payload())?;
        }
        if !dropped && !self.stage.replies() {
            return Ok(());
        }
        let record = self
            .record
            .clear()
            .field("alerts", Value::Int(matched.len() as i64))
            .array("sids", named.len(), |array| {
                for rule in named {
                    array.push(Value::Int(rule.sid.into()));
                }
            })
            .field("dropped", Value::Bool(dropped));
        reply(status::OK, record.bytes())
    }

    fn on_question(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        match self.stage.question(request, record)? {
            Question::Mine("report") => self.report(record),
            Question::Mine(other) => {
                let why = format!("is {other:?}, must be \"report\"");
                self.stage.refuse(&Fault::value("op", why))
            }
            Question::PassedOn => Ok(()),
            Question::None => self.stage.refuse(&Fault::Missing("op".into())),
        }
    }

    fn report(&mut self, question: &Record<'_>) -> Result<(), Error> {
        let limit = match question.has("limit") {
            false => Ok(SIDS_MAX as i64),
            true => question.int("limit"),
        };
        let limit = match limit {
            Ok(limit @ 1..=REPORT_MAX) => limit as usize,
            Ok(limit) => {
                let why = format!("is {limit}, must be 1..={REPORT_MAX}");
                return self.stage.refuse(&Fault::value("limit", why));
            }
            Err(fault) => return self.stage.refuse(&fault),
        };
        let Some(alerts) = self.alerts else {
            let why = "collection \"alerts\": is not in the manifest";
            return reply(status::NOT_FOUND, why.as_bytes());
        };
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        let mut all = alerts.scan(&[], &[]);
        while let Some((key, value)) = all.next()? {
            let sid = key.last_chunk().map(|sid| u32::from_be_bytes(*sid));
            let value = value.first_chunk().map(|count| u64::from_le_bytes(*count));
            *counts.entry(sid.unwrap_or(0)).or_default() += value.unwrap_or(0);
        }
        let total: u64 = counts.values().sum();
        let mut most: Vec<(u32, u64)> = counts.into_iter().collect();
        most.sort_unstable_by_key(|(sid, count)| (u64::MAX - count, *sid));
        most.truncate(limit);
        let messages: BTreeMap<u32, &str> = match most.is_empty() {
            true => BTreeMap::new(),
            false => {
                let rules = self.detector.rules().iter();
                rules.map(|rule| (rule.sid, &*rule.msg)).collect()
            }
        };
        let record = self.record.clear();
        record
            .field("total", Value::Int(total as i64))
            .array("rules", most.len(), |array| {
                for (sid, count) in &most {
                    let msg = messages.get(sid).copied().unwrap_or_default();
                    // 500 messages of 200 bytes would not fit a reply
                    let msg = &msg[..msg.floor_char_boundary(40)];
                    array.array(3, |row| {
                        row.push(Value::Int((*sid).into()));
                        row.push(Value::Int(*count as i64));
                        row.push(Value::Text(msg));
                    });
                }
            });
        reply(status::OK, record.bytes())
    }
}

/// One more alert of a rule.
fn count(alerts: OrderedMap, slot: u16, sid: u32) -> Result<(), Error> {
    let mut key = [0; 6];
    key[..2].copy_from_slice(&slot.to_be_bytes());
    key[2..].copy_from_slice(&sid.to_be_bytes());
    let mut room = [0; 8];
    let before = alerts.get(&key, &mut room)?;
    let before = before
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes);
    alerts.put(&key, &(before + 1).to_le_bytes())
}

e3_sdk::service!(Nids, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests;
