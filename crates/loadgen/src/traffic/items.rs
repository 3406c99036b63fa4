//! The requests of a file, and the places where it is wrong.

use crate::limits::TRAFFIC_REQUESTS_MAX;
use e3_model::Nanos;
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use std::fmt;

/// A request of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Its time in the file, since that of the first one.
    pub at: Nanos,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// A place in a file.
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
    pub(super) fn new(place: Place, reason: impl Into<String>) -> Fault {
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
    /// What else the file holds, such as frames of other protocols.
    pub left_out: u64,
}

/// Takes a request, if it is within the bounds.
pub(super) fn push(items: &mut Vec<Item>, place: Place, item: Item) -> Result<(), Fault> {
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
pub(super) struct Since {
    first: Option<i128>,
    last: u64,
}

impl Since {
    pub(super) fn of(&mut self, at_ns: i128) -> Nanos {
        let first = *self.first.get_or_insert(at_ns);
        let since = (at_ns - first).clamp(0, i128::from(u64::MAX)) as u64;
        self.last = self.last.max(since);
        Nanos(self.last)
    }
}
