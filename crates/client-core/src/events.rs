//! Events of a client: outcomes, duplicate replies, dead letters.

use e3_model::Timestamp;
use e3_wire::client::DeadLetters;
use e3_wire::entry::Reply;

/// Events of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has its outcome.
    Completed(Completed),
    /// Another reply to a request that has its outcome.
    Duplicate(Duplicate),
    /// Dead letters that were asked for.
    DeadLetters(DeadLetterPage),
}

/// The outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Completed {
    /// Number of the request.
    pub seq: u64,
    /// From the call.
    pub tag: u64,
    /// When the request was due.
    pub due: Timestamp,
    /// When the outcome came.
    pub at: Timestamp,
    /// Attempts sent.
    pub attempts: u16,
    /// The reply; None if none came until [`ANSWER_GRACE`](crate::limits::ANSWER_GRACE) after the deadline.
    pub reply: Option<Reply>,
}

/// A reply after the outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duplicate {
    /// Number of the request.
    pub seq: u64,
    /// The reply.
    pub reply: Reply,
}

/// Some of the dead letters of a shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterPage {
    /// Number of the operation that asked for them.
    pub seq: u64,
    /// The dead letters, oldest first.
    pub letters: DeadLetters,
}
