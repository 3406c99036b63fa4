//! Flow monitor: counts the packets of every flow in little memory and finds the heavy flows, for each
//! window of time, by a count-min sketch ([`sketch`]).
//!
//! Input: an IPv4 packet, which is counted and forwarded unchanged, or a query. The reply to a packet, if
//! this is the last stage: `window` (number: seconds since the epoch divided by `window-s`), `estimate`
//! (the flow's packets so far), `packets` (of the key's slot). Query `report`, optionally with `which` =
//! `current` (default) or `last` window: returns `window`, `packets`, `heavy` (arrays of source, source
//! port, destination, destination port, protocol, estimate; largest first, at most 100), and, if the query
//! has `source`, `source-port`, `destination`, `destination-port` and `protocol` of a flow, its `estimate`.
//!
//! Configuration: `width` (default 2048) and `depth` (4) of the sketch, `window-s` (10), `share`
//! (0.01): a flow with a larger share of a window's packets is heavy; `width` must be at least
//! `2 e / share`. `seed` (0) of the hash functions: who knows it can make flows collide. Collections:
//! counters `cells`, ordered map `heavy`. All keys begin with the slot of the request's key; a query adds up
//! all slots of the shard. The two directions of a connection are two flows.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod limits;
pub mod sketch;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::ToString;
use core::net::Ipv4Addr;

use e3_packet::{Flow, Packet};
use e3_pipeline::{Builder, Query, Record, RecordError, Stage, Value, status};
use e3_sdk::{Error, Request, Service, config_or, now, reply};

use limits::{DEPTH, REPORTED_MAX, SHARE_MAX, SHARE_MIN, WIDTH, WINDOW_S};
use sketch::{Part, Sketch};

/// Counts flows.
#[derive(Debug)]
pub struct Flowmon {
    stage: Stage,
    sketch: Sketch,
    window_ns: i64,
}

impl Service for Flowmon {
    fn init() -> Result<Self, Error> {
        let wrong = |name, value: &dyn ToString| Error::Config {
            name,
            value: value.to_string(),
        };
        let share = config_or("share", 0.01)?;
        let width = config_or("width", 2048)?;
        let depth = config_or("depth", 4)?;
        let window_s = config_or("window-s", 10)?;
        if !(SHARE_MIN..=SHARE_MAX).contains(&share) {
            return Err(wrong("share", &share));
        }
        if !WIDTH.contains(&width) || f64::from(width) * share < 2.0 * core::f64::consts::E {
            return Err(wrong("width", &width));
        }
        if !DEPTH.contains(&depth) {
            return Err(wrong("depth", &depth));
        }
        if !WINDOW_S.contains(&window_s) {
            return Err(wrong("window-s", &window_s));
        }
        Ok(Self {
            stage: Stage::open()?,
            sketch: Sketch::open(width, depth, share, config_or("seed", 0)?)?,
            window_ns: window_s * 1_000_000_000,
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
        let flow = match Packet::parse(payload).and_then(|packet| packet.flow()) {
            Ok(flow) => flow,
            Err(error) => return reply(status::MALFORMED, error.to_string().as_bytes()),
        };
        let part = Part {
            slot: request.slot(),
            window: self.window(),
        };
        let seen = self.sketch.add(part, &flow.to_bytes())?;
        self.stage.forward_and_reply(request, payload, || {
            let mut out = Builder::new();
            out.field("window", Value::Int(part.window as i64))
                .field("estimate", Value::Int(seen.estimate as i64))
                .field("packets", Value::Int(seen.packets as i64));
            out
        })
    }
}

impl Flowmon {
    fn window(&self) -> u64 {
        (now() / self.window_ns).max(0) as u64
    }

    fn on_record(&self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        match self.stage.query(request, record)? {
            Query::Mine("report") => {}
            Query::Mine(op) => {
                let error = RecordError::value("op", format!("is {op:?}, must be report"));
                return self.stage.refuse(&error);
            }
            Query::Forwarded => return Ok(()),
            Query::None => return self.stage.refuse(&RecordError::Missing("op".into())),
        }
        match asked(record) {
            Ok((last, flow)) => self.on_report(last, flow),
            Err(error) => self.stage.refuse(&error),
        }
    }

    fn on_report(&self, last: bool, flow: Option<Flow>) -> Result<(), Error> {
        let window = self.window().saturating_sub(u64::from(last));
        let report = self.sketch.report(window)?;
        let mut out = Builder::new();
        out.field("window", Value::Int(window as i64))
            .field("packets", Value::Int(report.packets as i64));
        if let Some(flow) = flow {
            let (estimate, _) = self.sketch.total_estimate(window, &flow.to_bytes())?;
            out.field("estimate", Value::Int(estimate as i64));
        }
        let shown = report.heavy.len().min(REPORTED_MAX);
        out.array("heavy", shown, |array| {
            for (flow, estimate) in &report.heavy[..shown] {
                let flow = Flow::from_bytes(flow);
                array.array(6, |a| {
                    a.push(Value::Text(&flow.source.to_string()));
                    a.push(Value::Int(i64::from(flow.source_port)));
                    a.push(Value::Text(&flow.destination.to_string()));
                    a.push(Value::Int(i64::from(flow.destination_port)));
                    a.push(Value::Int(i64::from(flow.protocol)));
                    a.push(Value::Int(*estimate as i64));
                });
            }
        });
        reply(status::OK, out.bytes())
    }
}

/// The arguments of a query: whether it asks for the last window, and for which flow.
fn asked(record: &Record<'_>) -> Result<(bool, Option<Flow>), RecordError> {
    let last = match record
        .has("which")
        .then(|| record.text("which"))
        .transpose()?
    {
        None | Some("current") => false,
        Some("last") => true,
        Some(other) => {
            let why = format!("is {other:?}, must be current or last");
            return Err(RecordError::value("which", why));
        }
    };
    if !record.has("source") {
        return Ok((last, None));
    }
    let address = |field| {
        let text = record.text(field)?;
        text.parse::<Ipv4Addr>()
            .map_err(|_| RecordError::value(field, format!("is {text:?}, must be an IPv4 address")))
    };
    let number = |field, max: u16| match record.int(field)? {
        n if (0..=i64::from(max)).contains(&n) => Ok(n as u16),
        n => Err(RecordError::value(
            field,
            format!("is {n}, must be 0..={max}"),
        )),
    };
    let flow = Flow {
        source: address("source")?,
        destination: address("destination")?,
        protocol: number("protocol", 255)? as u8,
        source_port: number("source-port", u16::MAX)?,
        destination_port: number("destination-port", u16::MAX)?,
    };
    Ok((last, Some(flow)))
}

// a jumbo frame
e3_sdk::service!(Flowmon, request_capacity = 9216);
