//! Idempotency keys of answered requests. A request with a used key and another routing key goes to
//! another shard, which cannot know that the key was used; the ingress that answered it can.

use crate::limits::KEYS_MAX;
use e3_model::{AppId, RequestId};
use std::collections::{BTreeMap, VecDeque};

/// The keys that one ingress knows.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    known: BTreeMap<(AppId, u64), u64>,
    order: VecDeque<(AppId, u64)>,
}

impl Keys {
    /// Whether this request's key was used for another one.
    pub(crate) fn has_other(&self, app: AppId, id: RequestId) -> bool {
        let known = self.known.get(&(app, id.client));
        known.is_some_and(|seq| *seq != id.seq)
    }

    /// Remembers a request that was answered; the oldest are dropped.
    pub(crate) fn insert(&mut self, app: AppId, id: RequestId) {
        if self.known.insert((app, id.client), id.seq).is_none() {
            self.order.push_back((app, id.client));
        }
        if self.order.len() > KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room() {
        let mut keys = Keys::default();
        let id = |client, seq| RequestId { client, seq };
        for client in 0..=KEYS_MAX as u64 {
            keys.insert(AppId(1), id(client, 5));
        }
        assert_eq!(keys.known.len(), KEYS_MAX);
        assert!(!keys.has_other(AppId(1), id(0, 6)), "forgotten");
        assert!(keys.has_other(AppId(1), id(1, 6)));
        assert!(!keys.has_other(AppId(1), id(1, 5)), "the same request");
        assert!(!keys.has_other(AppId(2), id(1, 6)));
    }
}
