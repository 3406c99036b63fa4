//! Requests from files: captures of packets ([`pcap`]), tables and lines of JSON ([`rows`]), with the
//! times that they have there.
//!
//! A file is read and checked as a whole before anything is sent, so one with a bad line sends
//! nothing.

pub mod pcap;
pub mod rows;
mod time;

use crate::LoadError;
use crate::limits::{TRAFFIC_LEN_MAX, TRAFFIC_REQUESTS_MAX, TRAFFIC_TIME_MAX};
use e3_model::Nanos;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use std::fmt;
use std::io::Read;
use std::path::Path;

/// A request of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its time there, since that of the first one.
    pub at: Nanos,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// Where in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// All of it.
    File,
    /// A line, from 1.
    Line(u64),
    /// A packet of a capture.
    Packet {
        /// Its number, from 1.
        number: u64,
        /// Where its record begins.
        byte: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => Ok(()),
            Place::Line(line) => write!(f, ":{line}"),
            Place::Packet { number, byte } => write!(f, ": packet {number} (byte {byte})"),
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What.
    pub reason: String,
}

impl Fault {
    fn new(place: Place, reason: impl Into<String>) -> Fault {
        let reason = reason.into();
        Fault { place, reason }
    }
}

/// Columns of a table, or fields of objects, with a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The time of a request.
    pub time: Option<String>,
    /// Its routing key; none = its line.
    pub key: Option<String>,
}

/// What a file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// In the order of the file.
    pub items: Vec<Item>,
    /// What they are: "packets", "rows", "objects".
    pub what: &'static str,
    /// Whether they have times.
    pub timed: bool,
    /// What the file has that is no request, such as frames of other protocols.
    pub left_out: u64,
}

/// How fast a file is sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// With the times of the file, so many times as fast.
    Speed(f64),
    /// At so many requests per second.
    Rate(f64),
}

/// Reads a file; its name says what it is: `.pcap` or `.cap`, `.csv`, `.jsonl`, `.ndjson` or `.json`.
pub fn read(path: &Path, columns: &Columns) -> Result<Traffic, LoadError> {
    let file = path.display().to_string();
    let wrong = |fault: Fault| LoadError::Traffic {
        file: file.clone(),
        place: fault.place,
        reason: fault.reason,
    };
    let all = |reason: String| wrong(Fault::new(Place::File, reason));
    let kind = path.extension().and_then(|e| e.to_str());
    let kind = kind.unwrap_or_default().to_ascii_lowercase();
    if !["pcap", "cap", "csv", "jsonl", "ndjson", "json"].contains(&&*kind) {
        return Err(all(format!(
            "ends with {kind:?}, must be pcap, cap, csv, jsonl, ndjson or json"
        )));
    }
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|f| f.take(TRAFFIC_LEN_MAX + 1).read_to_end(&mut bytes));
    read.map_err(|e| all(e.to_string()))?;
    if bytes.len() as u64 > TRAFFIC_LEN_MAX {
        return Err(all(format!(
            "has more than {TRAFFIC_LEN_MAX} bytes, which is the most; send it in parts"
        )));
    }
    let traffic = match &*kind {
        "pcap" | "cap" => match columns {
            Columns {
                time: None,
                key: None,
            } => pcap::parse(&bytes),
            _ => Err(Fault::new(
                Place::File,
                "is a pcap file, which has no columns",
            )),
        },
        "csv" => rows::csv(&bytes, columns),
        _ => rows::json(&bytes, columns),
    };
    let traffic = traffic.map_err(wrong)?;
    match traffic.items.is_empty() {
        true => Err(all(format!("has no {}", traffic.what))),
        false => Ok(traffic),
    }
}

/// Takes a request, if it is within the bounds.
fn push(items: &mut Vec<Item>, place: Place, item: Item) -> Result<(), Fault> {
    let (key, len) = (item.key.len(), item.payload.len());
    if len > PAYLOAD_LEN_MAX {
        let why = format!("takes {len} bytes as a request, must be at most {PAYLOAD_LEN_MAX}");
        return Err(Fault::new(place, why));
    }
    if !(1..=KEY_LEN_MAX).contains(&key) {
        let why = format!("key has {key} bytes, must have 1..={KEY_LEN_MAX}");
        return Err(Fault::new(place, why));
    }
    if items.len() == TRAFFIC_REQUESTS_MAX {
        let why = format!(
            "is request {}, must be at most {TRAFFIC_REQUESTS_MAX}",
            items.len() + 1
        );
        return Err(Fault::new(place, why));
    }
    items.push(item);
    Ok(())
}

/// Times since the first one, from absolute ones. One that lies before that of an earlier request is
/// moved there: the order of the file is kept.
#[derive(Default)]
struct Since {
    first: Option<i128>,
    last: u64,
}

impl Since {
    fn of(&mut self, at_ns: i128) -> Nanos {
        let first = *self.first.get_or_insert(at_ns);
        let since = (at_ns - first).clamp(0, i128::from(u64::MAX)) as u64;
        self.last = self.last.max(since);
        Nanos(self.last)
    }
}

impl Traffic {
    /// When each request is due at that pace.
    pub fn times(&self, pace: Pace) -> Result<Vec<Nanos>, String> {
        let items = self.items.iter();
        let times: Vec<Nanos> = match pace {
            Pace::Speed(_) if !self.timed => {
                return Err(format!(
                    "has {} without times: name the column that has them, or give a rate",
                    self.what
                ));
            }
            Pace::Speed(speed) => items
                .map(|i| Nanos((i.at.0 as f64 / speed) as u64))
                .collect(),
            Pace::Rate(rate) => (0..items.len())
                .map(|n| Nanos((n as f64 / rate * 1e9) as u64))
                .collect(),
        };
        match times.last() {
            Some(last) if *last > TRAFFIC_TIME_MAX => Err(format!(
                "takes {} s at that pace, must be at most {} s",
                last.as_secs(),
                TRAFFIC_TIME_MAX.as_secs()
            )),
            _ => Ok(times),
        }
    }
}

#[cfg(test)]
mod tests;
