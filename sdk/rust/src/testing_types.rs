//! What tests give the [`testing`](crate::testing) host, and what it gives them.

use crate::topic::Topic;
use crate::{RequestId, outbound};
use std::collections::{BTreeMap, VecDeque};

/// Slot of a key: 64-bit FNV-1a, mixed, as docs/abi.md has it.
pub fn slot_of(key: &[u8]) -> u16 {
    let mut h: u64 = 0xcbf2_9ce4_8422_2325;
    for b in key {
        h = (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    h ^= h >> 33;
    h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^= h >> 33;
    (h % u64::from(crate::limits::SLOTS)) as u16
}

/// What a collection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A map without order.
    Hash,
    /// A map ordered by key.
    Ordered,
    /// Arrays by key.
    Array,
    /// Counters by key.
    Counter,
}

/// Contents of a collection, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collection {
    /// A map without order (kept in order here).
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// A map ordered by key.
    Ordered(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Arrays by key.
    Array(BTreeMap<Vec<u8>, VecDeque<Vec<u8>>>),
    /// Counters by key.
    Counter(BTreeMap<Vec<u8>, i64>),
}

/// A message that a service sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The channel's name.
    pub channel: String,
    /// The routing key.
    pub key: Vec<u8>,
    /// The message.
    pub payload: Vec<u8>,
}

/// A timer that a service set or cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerCall {
    /// Its name.
    pub name: String,
    /// Its key; empty for that of the request.
    pub key: Vec<u8>,
    /// When it fires; none if it is cancelled.
    pub when: Option<When>,
    /// The payload of its request.
    pub payload: Vec<u8>,
}

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Once, in nanoseconds since the Unix epoch.
    At(i64),
    /// By a cron expression, of which only the number of fields is checked here.
    Cron(String),
}

/// A request for [`Host::call`].
#[derive(Clone, Debug)]
pub struct Call {
    /// Its identity.
    pub id: RequestId,
    /// Its routing key.
    pub key: Vec<u8>,
    /// The channel that it came by; -1 = from a client, -2 = from a timer, -3 = a call, -4 = with an answer,
    /// -5 = with a publication.
    pub edge: i32,
    /// The name of the timer, if it came from one, or of the outbound request that it answers.
    pub timer: String,
    /// Outcome and status of the answer that it brings, see [`Asked::answered`].
    pub answer: Option<(outbound::Outcome, u32)>,
    /// The topic of the publication that it brings, see [`Published::delivered`].
    pub topic: Option<Topic>,
    /// Its time in nanoseconds since the Unix epoch.
    pub now: i64,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            id: RequestId {
                client: 1,
                sequence: 1,
            },
            key: vec![0],
            edge: -1,
            timer: String::new(),
            answer: None,
            topic: None,
            now: 1_700_000_000_000_000_000,
            payload: Vec::new(),
        }
    }
}
