//! How much waits to be sent for backups. While the controller is away it must not fill the node's memory.

use crate::limits::EXPORTS_LEN_MAX;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of all shards that the controller does not have yet.
#[derive(Default)]
pub(super) struct Waiting {
    len: AtomicU64,
    /// Backups of which this node sends no more. The controller ends them when nothing comes.
    given_up: Mutex<BTreeSet<u64>>,
}

impl Waiting {
    /// Counts bytes of a backup that are to be sent. False if they are to be dropped: too much waits, or the
    /// backup was given up before.
    pub(super) fn add(&self, number: u64, len: usize) -> bool {
        if self.is_given_up(number) {
            return false;
        }
        let waiting = self.len.fetch_add(len as u64, Ordering::Relaxed) + len as u64;
        if waiting <= EXPORTS_LEN_MAX {
            return true;
        }
        self.subtract(len);
        self.give_up(number);
        tracing::warn!(
            "{waiting} bytes for backups wait for the controller, and at most {EXPORTS_LEN_MAX} may: this node gives up backup {number}; take it again when the controller answers"
        );
        false
    }

    /// Bytes were sent or dropped.
    pub(super) fn subtract(&self, len: usize) {
        self.len.fetch_sub(len as u64, Ordering::Relaxed);
    }

    pub(super) fn give_up(&self, number: u64) {
        self.lock().insert(number);
    }

    pub(super) fn is_given_up(&self, number: u64) -> bool {
        self.lock().contains(&number)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_for_which_too_much_waits_is_given_up_and_others_go_on() {
        let waiting = Waiting::default();
        let len_max = EXPORTS_LEN_MAX as usize;
        assert!(waiting.add(1, len_max - 1));
        assert!(waiting.add(2, 1));
        assert!(!waiting.add(2, 1));
        assert!(waiting.is_given_up(2) && !waiting.is_given_up(1));
        // Both that are still queued are sent or dropped.
        waiting.subtract(len_max);
        assert_eq!(waiting.len(), 0);
        assert!(!waiting.add(2, 1));
        assert!(waiting.add(1, 1));
        assert_eq!(waiting.len(), 1);
    }
}
