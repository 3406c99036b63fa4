//! Calls: a handler asks another service and waits for the answer.

use crate::Reply;

/// A call that a running handler makes. The run goes on when the answer is handed to its executor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Token of the invocation that makes it.
    pub token: u64,
    /// Number of the call in this run, from 0: an answer to an earlier one is not taken for it.
    pub index: u32,
    /// Name of the service that is called.
    pub service: String,
    /// Key to route by.
    pub key: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// What a call brings: what the called handler replied, or why there is no reply.
pub type CallAnswer = Result<Reply, CallError>;

/// Why a call brings no reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallError {
    /// No node that runs serves the shard.
    #[error("no node serves the shard of the key")]
    Unavailable,
    /// Nothing came back in time.
    #[error("no answer in time")]
    TimedOut,
    /// The called handler failed. The text says why.
    #[error("{0}")]
    Failed(String),
}
