//! Detects floods: Shannon entropy of the source and destination addresses in each window of time
//! ([`entropy`]), and an alarm when one of them is abnormal ([`verdict`]).
//!
//! Input: an IPv4 packet, which is counted and forwarded unchanged, or a query. The reply to a packet, if
//! this is the last stage: `window` (number: seconds since the epoch divided by `window-s`), `packets` (of
//! the key's slot in the window so far), `alarm` (of the last complete window). Query `report`: returns
//! `window`, `packets`, `source-entropy`, `destination-entropy` (bits) of the window in progress, `alarm`,
//! and the earlier windows, oldest first, in the arrays `windows`, `windows-packets`,
//! `windows-source-entropy`, `windows-destination-entropy`, `windows-alarm`; `source-mean`, `source-sigma`,
//! `destination-mean`, `destination-sigma` of the normal ones among them.
//!
//! Configuration: `window-s` (default 10), `sigmas` (4) from the mean that raise an alarm,
//! `sigma-min` (0.05 bits), `history` (32 windows), `warmup` (8 windows before the first alarm),
//! `packets-min` (64 in a window that counts). Collections: counters `addresses`, arrays `seen`, hash
//! map `now`, ordered map `past`.
//!
//! *Slots* ([`slots`]): all state belongs to the slot of the request's key, and a window of the shard is
//! the sum over its slots. An address in two slots counts as two. The entropy is that of the addresses if
//! all packets of an address have the same key, or if all packets do; else it is that of pairs of slot and
//! address, which an attack changes in the same way. The sums of past windows are computed once a window and
//! cached in memory.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod entropy;
pub mod limits;
pub mod slots;
#[cfg(test)]
mod tests;
pub mod verdict;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use e3_packet::Packet;
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Error, Level, Request, Service, config_or, now, reply};

use limits::{HISTORY, SIGMA_MIN_MAX, SIGMAS_MAX, WINDOW_S};
use slots::Slots;
use verdict::{Rule, Window, judge, ordinary};

/// Finds floods.
#[derive(Debug)]
pub struct Ddos {
    stage: Stage,
    slots: Slots,
    rule: Rule,
    window_ns: i64,
    /// The number of the window in progress, and the judged windows before it. A cache.
    judged: Option<(u64, Vec<Window>)>,
}

impl Service for Ddos {
    fn init() -> Result<Self, Error> {
        let window_s = in_range("window-s", 10, WINDOW_S)?;
        let history = in_range("history", 32, HISTORY)?;
        let rule = Rule {
            sigmas: in_range("sigmas", 4.0, 0.0..=SIGMAS_MAX)?,
            sigma_min: in_range("sigma-min", 0.05, 0.0..=SIGMA_MIN_MAX)?,
            warmup: in_range("warmup", 8.min(history), 1..=history)?,
            packets_min: in_range("packets-min", 64, 1..=u64::MAX)?,
        };
        Ok(Self {
            stage: Stage::open()?,
            slots: Slots::open(history)?,
            rule,
            window_ns: window_s * 1_000_000_000,
            judged: None,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let payload = request.payload();
        if e3_packet::is_record(payload) {
            return match Record::parse(payload) {
                Ok(record) => self.on_record(request, &record),
                Err(error) => self.stage.refuse(&error),
            };
        }
        let packet = match Packet::parse(payload) {
            Ok(packet) => packet,
            Err(error) => return reply(status::MALFORMED, error.to_string().as_bytes()),
        };
        let window = self.window();
        let judged = match self.judged.take() {
            Some((at, judged)) if at == window => judged,
            _ => self.judge(window)?,
        };
        let (source, destination) = (packet.source().octets(), packet.destination().octets());
        let slot = request.slot();
        let sums = self.slots.add(slot, window, source, destination, &judged)?;
        let alarm = is_alarm(window, &judged);
        self.judged = Some((window, judged));
        self.stage.forward_and_reply(request, payload, || {
            let mut out = Builder::new();
            out.field("window", Value::Int(window as i64))
                .field("packets", Value::Int(sums.packets as i64))
                .field("alarm", Value::Bool(alarm));
            out
        })
    }
}

fn in_range<T>(
    name: &'static str,
    default: T,
    range: core::ops::RangeInclusive<T>,
) -> Result<T, Error>
where
    T: core::str::FromStr + PartialOrd + ToString,
{
    let value = config_or(name, default)?;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(Error::Config {
            name,
            value: value.to_string(),
        })
    }
}

fn is_alarm(current: u64, judged: &[Window]) -> bool {
    let last = judged.last();
    last.is_some_and(|w| w.number + 1 == current && w.alarm == Some(true))
}

impl Ddos {
    fn window(&self) -> u64 {
        (now() / self.window_ns).max(0) as u64
    }

    /// Judges the windows before this one, which do not change any more.
    fn judge(&self, window: u64) -> Result<Vec<Window>, Error> {
        let (_, mut windows) = self.slots.windows(window)?;
        judge(&self.rule, &mut windows);
        if is_alarm(window, &windows)
            && let Some(last) = windows.last()
        {
            let [source, destination] = last.sums.entropies();
            e3_sdk::log!(
                Level::Warn,
                "window {}: entropy of sources {source:.2}, of destinations {destination:.2}",
                last.number
            );
        }
        Ok(windows)
    }

    fn on_record(&self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        match self.stage.query(request, record)? {
            Query::Mine("report") => self.on_report(),
            Query::Mine(op) => {
                let error = RecordError::value("op", format!("is {op:?}, must be report"));
                self.stage.refuse(&error)
            }
            Query::Forwarded => Ok(()),
            Query::None => self.stage.refuse(&RecordError::Missing("op".into())),
        }
    }

    fn on_report(&self) -> Result<(), Error> {
        let window = self.window();
        let (sums, mut windows) = self.slots.windows(window)?;
        judge(&self.rule, &mut windows);
        let ([source, destination], _) = ordinary(&self.rule, &windows);
        let now = sums.entropies();
        let mut out = Builder::new();
        out.field("window", Value::Int(window as i64))
            .field("packets", Value::Int(sums.packets as i64))
            .field("source-entropy", Value::Float(now[0]))
            .field("destination-entropy", Value::Float(now[1]))
            .field("alarm", Value::Bool(is_alarm(window, &windows)))
            .field("source-mean", Value::Float(source.0))
            .field("source-sigma", Value::Float(source.1))
            .field("destination-mean", Value::Float(destination.0))
            .field("destination-sigma", Value::Float(destination.1));
        let mut column = |name: &str, of: &dyn Fn(&Window) -> Value<'static>| {
            out.array(name, windows.len(), |a| {
                windows.iter().for_each(|w| a.push(of(w)));
            });
        };
        column("windows", &|w| Value::Int(w.number as i64));
        column("windows-packets", &|w| Value::Int(w.sums.packets as i64));
        column("windows-source-entropy", &|w| {
            Value::Float(w.sums.entropies()[0])
        });
        column("windows-destination-entropy", &|w| {
            Value::Float(w.sums.entropies()[1])
        });
        column("windows-alarm", &|w| Value::Bool(w.alarm == Some(true)));
        reply(status::OK, out.bytes())
    }
}

// a jumbo frame
e3_sdk::service!(Ddos, request_capacity = 9216);
