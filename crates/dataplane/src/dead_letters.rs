//! Dead letters: messages that failed for good, kept by their shard to be read and replayed.
//!
//! They are a function of the log like all else of a shard, so its backups have them too. A replay
//! is a message under a new identity, at the place in the graph where the first one failed;
//! its entry names the letter, which is gone with it. So a replay takes effect once, however often
//! the client asks and wherever the primary moves.

use crate::limits::DEAD_LETTERS_MAX;
use e3_model::MessageId;
use e3_wire::entry::DeadLetter;
use std::collections::BTreeMap;

/// Dead letters of a shard.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    /// By the order in which they came.
    kept: BTreeMap<u64, (MessageId, DeadLetter)>,
    /// Place of each letter in `kept`.
    places: BTreeMap<MessageId, u64>,
    next: u64,
    /// Letters that made room for newer ones.
    dropped: u64,
}

impl DeadLetters {
    pub(crate) fn keep(&mut self, id: MessageId, letter: DeadLetter) {
        self.remove(&id);
        self.kept.insert(self.next, (id, letter));
        self.places.insert(id, self.next);
        self.next += 1;
        if self.kept.len() > DEAD_LETTERS_MAX
            && let Some((_, (oldest, _))) = self.kept.pop_first()
        {
            self.places.remove(&oldest);
            self.dropped += 1;
        }
    }

    fn remove(&mut self, id: &MessageId) -> bool {
        let place = self.places.remove(id);
        place.is_some_and(|place| self.kept.remove(&place).is_some())
    }

    /// A letter was replayed. It may have made room for newer ones before.
    pub(crate) fn on_replayed(&mut self, id: &MessageId) {
        if !self.remove(id) {
            self.dropped = self.dropped.saturating_sub(1);
        }
    }

    pub(crate) fn get(&self, id: &MessageId) -> Option<&DeadLetter> {
        self.kept
            .get(self.places.get(id)?)
            .map(|(_, letter)| letter)
    }

    pub(crate) fn has(&self, id: &MessageId) -> bool {
        self.places.contains_key(id)
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(MessageId, DeadLetter)> {
        self.kept.values()
    }

    /// Place of the next letter.
    pub(crate) fn end(&self) -> u64 {
        self.next
    }

    /// Letters from this place on, with their places.
    pub(crate) fn from(&self, place: u64) -> impl Iterator<Item = (u64, &(MessageId, DeadLetter))> {
        self.kept.range(place..).map(|(place, kept)| (*place, kept))
    }

    /// Adds newer letters.
    pub(crate) fn append(&mut self, newer: DeadLetters) {
        for (_, (id, letter)) in newer.kept {
            self.keep(id, letter);
        }
    }

    /// Letters that can be read.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Dead letters that have not been replayed since.
    pub(crate) fn count(&self) -> u64 {
        self.kept.len() as u64 + self.dropped
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        assert_eq!(self.kept.len(), self.places.len(), "a dead letter is lost");
        assert!(self.kept.len() <= DEAD_LETTERS_MAX);
    }
}
