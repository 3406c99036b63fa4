//! What an operator has replayed: which dead letters, of which requests.

use crate::asks;
use crate::layout::TAG_LEN;
use e3_model::{MessageId, ShardKey, Timestamp, Via};
use e3_wire::dead_letter::DeadLetter;
use std::collections::BTreeMap;

/// What the operator replays.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// By application: the client that does it, by its place.
    pub(super) clients: BTreeMap<usize, usize>,
    pub(super) next: Timestamp,
    pub(super) sent: Vec<Sent>,
    /// Those that were answered, and took effect.
    pub(super) done: u64,
}

/// A replay.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) app: usize,
    /// Its number at the client of its application.
    pub(super) number: u64,
    /// The shard with the dead letter.
    pub(super) shard: ShardKey,
    /// Of a request of a client: which, and the path on which it came to the shard.
    pub(super) request: Option<([u8; TAG_LEN], Vec<u8>)>,
    pub(super) deadline: Timestamp,
}

/// Which request of a client failed, if one did, and where.
pub(super) fn request_of(id: &MessageId, letter: &DeadLetter) -> Option<([u8; TAG_LEN], Vec<u8>)> {
    let payload = &letter.payload;
    let is_of_client = matches!(id.via, Via::Ingress | Via::Edge(_)) && !asks::is_asked(payload);
    let (tag, path) = payload.split_first_chunk().filter(|_| is_of_client)?;
    Some((*tag, path.to_vec()))
}
