//! One run of a handler: an [`Invocation`] goes in, a [`Completion`] comes out.
//!
//! The data plane decides when a message is handled and what becomes of its effects; an executor
//! (the engine on a node, plain functions in the simulator) runs the handler. These types are all
//! that the two say to each other.

mod call;
mod error;
pub mod limits;

pub use call::{Call, CallAnswer, CallError};
pub use error::HandlerError;

use crate::limits::{OUTPUT_OVERHEAD_LEN, TIMER_OVERHEAD_LEN};
use e3_collections::WriteBatch;
use e3_model::outbound::Answer;
use e3_model::timer::TimerChange;
use e3_model::topic::Topic;
use e3_model::{MessageId, Nanos, RequestId, Slot, Timestamp};
use std::fmt;

/// What a handler is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invocation {
    /// Names this run to its caller; the completion returns it.
    pub token: u64,
    /// The message. Every run of it has the same identity.
    pub id: MessageId,
    /// The handler's clock. Invariant: never goes back within a shard of a stateful service; at a
    /// stateless service every run of a message has the same.
    pub now: Timestamp,
    /// Bytes that the collections may hold with its writes. If they would hold more, and the writes
    /// take more memory than they free, the run fails with [`HandlerError::Full`].
    pub state_bytes_max: u64,
    /// Slot of the key.
    pub slot: Slot,
    /// Key that the message was routed by.
    pub key: Vec<u8>,
    /// Payload of the message.
    pub payload: Vec<u8>,
    /// Name of the timer whose request it is, if it is one.
    pub timer: Option<String>,
    /// The answer to the outbound request of that name, if it brings one; the payload is its content.
    pub answer: Option<Answer>,
    /// The topic of the publication that it brings, if it does.
    pub topic: Option<Box<Topic>>,
    /// Another handler calls and waits: the run may read and reply, nothing else.
    pub is_call: bool,
}

impl Invocation {
    /// A message of a client with this key and payload. Token, identity and clock are zero.
    pub fn new(key: Vec<u8>, payload: Vec<u8>) -> Invocation {
        Invocation {
            token: 0,
            id: MessageId::ingress(RequestId::default()),
            now: Timestamp::ZERO,
            state_bytes_max: u64::MAX,
            slot: Slot::of(&key),
            key,
            payload,
            timer: None,
            answer: None,
            topic: None,
            is_call: false,
        }
    }
}

/// A finished invocation. Completions of one shard come in the order of its invocations.
#[derive(Debug)]
pub struct Completion {
    /// Token of the invocation.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Processor time of the handler.
    pub busy: Nanos,
}

/// How an invocation ended.
#[derive(Debug)]
pub enum Outcome {
    /// The handler returned 0. Its writes are applied to the collections.
    Completed(Effects),
    /// The attempt failed and had no effect. Boxed, because failures are rare.
    Failed(Box<Failed>),
}

/// What a handler did. The effects of one invocation take place together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Effects {
    /// Changes of the collections.
    pub writes: WriteBatch,
    /// Messages to other services, in the order they were sent.
    pub outputs: Vec<Output>,
    /// Answer to the client, if the handler gave one.
    pub reply: Option<Reply>,
    /// Timers of the request's slot that it sets and cancels, in order.
    pub timers: Vec<TimerChange>,
}

impl Effects {
    /// Bytes that count towards [`limits::EFFECTS_LEN_MAX`].
    pub fn bytes(&self) -> usize {
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|o| o.key.len() + o.payload.len() + OUTPUT_OVERHEAD_LEN);
        let reply = self.reply.as_ref().map_or(0, |r| r.payload.len());
        let timers = self.timers.iter().map(|t| t.bytes() + TIMER_OVERHEAD_LEN);
        self.writes.as_bytes().len() + outputs.sum::<usize>() + reply + timers.sum::<usize>()
    }
}

/// A message that a handler sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Output {
    /// Index of the channel among those of the service, in the order of the manifest.
    pub channel: u16,
    /// Key to route by.
    pub key: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// What a handler answered the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// 0 = ok, 1.. = errors of the application.
    pub status: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

/// A failed attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failed {
    /// Why.
    pub error: HandlerError,
    /// The invocation, so that it can be retried.
    pub invocation: Invocation,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Failed {}

/// An attempt that failed before its handler ran.
impl From<Box<Failed>> for Completion {
    fn from(failed: Box<Failed>) -> Completion {
        Completion {
            token: failed.invocation.token,
            outcome: Outcome::Failed(failed),
            busy: Nanos::ZERO,
        }
    }
}
