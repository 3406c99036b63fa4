//! Network intrusion detection: matches packets against rules ([`rule`] is their syntax, [`detect`] the
//! search), counts alerts, and drops packets that match a `drop` rule.
//!
//! Input: an IPv4 packet, which is forwarded unchanged unless a `drop` rule matches; a dropped packet is
//! answered here. As the last stage the service replies with a record: `alerts`, the number of matching
//! rules; `sids`, the numbers of the first 100 in the order of the file (no more are counted either);
//! `dropped`. A malformed packet is answered with an error and not forwarded, and so is one whose payload
//! has more than 65,536 occurrences of contents.
//!
//! Asset: `rules`, lines of text; a bad line keeps the service from starting and is named. State:
//! none, unless the manifest declares an ordered map `alerts`, which then holds how often each rule
//! matched, under the slot of the request's key and the rule's `sid` (2 and 4 bytes, big endian), so that a
//! shard can be split. Query `report`: adds up the slots of the shard: `total`, and `rules`, the `limit`
//! (1..=500, default 100) that matched most often, each with `sid`, count and message.
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
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
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
                Ok(record) => self.on_query(request, &record),
                Err(error) => self.stage.refuse(&error),
            },
            _ => self.on_packet(request),
        }
    }
}

impl Nids {
    fn on_packet(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let matched = match self.detector.detect(request.payload()) {
            Ok(Ok(matched)) => matched,
            Ok(Err(error)) => return reply(status::MALFORMED, error.to_string().as_bytes()),
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

    fn on_query(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        match self.stage.query(request, record)? {
            Query::Mine("report") => self.report(record),
            Query::Mine(other) => {
                let why = format!("is {other:?}, must be \"report\"");
                self.stage.refuse(&RecordError::value("op", why))
            }
            Query::Forwarded => Ok(()),
            Query::None => self.stage.refuse(&RecordError::Missing("op".into())),
        }
    }

    fn report(&mut self, query: &Record<'_>) -> Result<(), Error> {
        let limit = if query.has("limit") {
            query.int("limit")
        } else {
            Ok(SIDS_MAX as i64)
        };
        let limit = match limit {
            Ok(limit @ 1..=REPORT_MAX) => limit as usize,
            Ok(limit) => {
                let why = format!("is {limit}, must be 1..={REPORT_MAX}");
                return self.stage.refuse(&RecordError::value("limit", why));
            }
            Err(error) => return self.stage.refuse(&error),
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
        let messages: BTreeMap<u32, &str> = if most.is_empty() {
            BTreeMap::new()
        } else {
            let rules = self.detector.rules().iter();
            rules.map(|rule| (rule.sid, &*rule.msg)).collect()
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
    let mut buffer = [0; 8];
    let before = alerts.get(&key, &mut buffer)?;
    let before = before
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes);
    alerts.put(&key, &(before + 1).to_le_bytes())
}

e3_sdk::service!(Nids, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests;
