//! Requests from files: captures of packets ([`pcap`]), tables and lines of JSON ([`rows`]), with the
//! times that they have there.
//!
//! A file is read and checked as a whole before anything is sent, so one with a bad line sends
//! nothing.

pub(crate) mod items;
pub mod pcap;
mod replay;
pub mod rows;
mod time;

pub use items::{Columns, Fault, Item, Place, Traffic};
pub use replay::Replay;

use crate::LoadError;
use crate::limits::{TRAFFIC_LEN_MAX, TRAFFIC_TIME_MAX};
use e3_model::Nanos;
use std::io::Read;
use std::path::Path;

/// Pace at which a file is sent.
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
    if traffic.items.is_empty() {
        Err(all(format!("has no {}", traffic.what)))
    } else {
        Ok(traffic)
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
