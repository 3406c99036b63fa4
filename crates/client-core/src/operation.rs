//! What a client asks of the platform.

use e3_model::{AppId, MessageId, RequestId, ShardKey, Slot, Timestamp, TraceContext};
use e3_wire::client::{ClientFrame, DeadLetters, Replay, Request};

/// A request to an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The caller's own tag; returned with the outcome.
    pub tag: u64,
    /// Routing key.
    pub key: Vec<u8>,
    /// Content.
    pub payload: Vec<u8>,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Handle a request.
    Call { key: Vec<u8>, payload: Vec<u8> },
    /// Handle a dead letter again.
    Replay {
        shard: ShardKey,
        letter: MessageId,
        slot: Slot,
    },
    /// List the dead letters of a shard, but for the first `skip`.
    ReadDeadLetters { shard: ShardKey, skip: u32 },
}

/// One attempt of an operation.
pub(crate) struct Attempt {
    pub(crate) app: AppId,
    pub(crate) id: RequestId,
    pub(crate) number: u16,
    pub(crate) deadline: Timestamp,
    /// When the first attempt was sent.
    pub(crate) sent: Timestamp,
    /// See [`Request::oldest_seq`].
    pub(crate) oldest_seq: u64,
}

impl Operation {
    /// The frame that asks it.
    pub(crate) fn frame(&self, attempt: &Attempt) -> ClientFrame {
        let id = attempt.id;
        match self {
            Operation::Call { key, payload } => ClientFrame::Request(Request {
                app: attempt.app,
                id,
                attempt: attempt.number,
                deadline: attempt.deadline,
                sent: attempt.sent,
                oldest_seq: attempt.oldest_seq,
                trace: TraceContext {
                    trace: u128::from(id.client) << 64 | u128::from(id.seq),
                    span: id.seq,
                    flags: 0,
                },
                key: key.clone(),
                payload: payload.clone(),
            }),
            Operation::Replay {
                shard,
                letter,
                slot,
            } => ClientFrame::Replay(Replay {
                shard: *shard,
                letter: *letter,
                slot: *slot,
                id,
                attempt: attempt.number,
                deadline: attempt.deadline,
            }),
            Operation::ReadDeadLetters { shard, skip } => ClientFrame::ReadDeadLetters {
                shard: *shard,
                skip: *skip,
            },
        }
    }

    /// Whether these are the dead letters that it asks for.
    pub(crate) fn asks_for(&self, page: &DeadLetters) -> bool {
        matches!(self, Operation::ReadDeadLetters { shard, skip }
            if (*shard, *skip) == (page.shard, page.skipped))
    }
}
