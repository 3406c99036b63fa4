//! Requests with an idempotency key, whose identity is not their number.

use crate::limits::KEYED_IDS_MAX;
use e3_model::RequestId;
use std::collections::BTreeMap;

/// Identities of requests with an idempotency key. Invariant: both maps hold the same pairs.
#[derive(Debug, Default)]
pub(crate) struct Keyed {
    pub(crate) seqs: BTreeMap<RequestId, u64>,
    ids: BTreeMap<u64, RequestId>,
}

impl Keyed {
    /// Remembers the latest number of an identity, and forgets the oldest ones beyond
    /// [`KEYED_IDS_MAX`].
    pub(crate) fn insert(&mut self, id: RequestId, seq: u64) {
        if let Some(before) = self.seqs.insert(id, seq) {
            self.ids.remove(&before);
        }
        self.ids.insert(seq, id);
        while self.ids.len() > KEYED_IDS_MAX
            && let Some((_, oldest)) = self.ids.pop_first()
        {
            self.seqs.remove(&oldest);
        }
    }
}
