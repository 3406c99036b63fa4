//! Dead letters: messages that failed for good, kept by their shard to be read and replayed.
//!
//! They are a function of the log like all else of a shard, so its backups have them too. A replay
//! is a message under a new identity, at the place in the graph where the first one failed;
//! its entry names the letter, which is gone with it. So a replay takes effect once, however often
//! the client asks and wherever the primary moves.

use crate::dedup::remembered_until;
use crate::limits::DEAD_LETTERS_MAX;
use e3_model::{MessageId, Slot, Timestamp};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Entry, Outcome};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Dead letters of a shard.
#[derive(Debug, Default)]
pub(crate) struct DeadLetters {
    /// By the order in which they came.
    kept: BTreeMap<u64, (MessageId, Rc<DeadLetter>)>,
    places: BTreeMap<MessageId, Place>,
    next: u64,
    /// Letters that made room for newer ones.
    dropped: u64,
}

/// Where a letter is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its number in [`DeadLetters::kept`].
    number: u64,
    /// See [`DeadLetters::copies_until`].
    copies_until: Timestamp,
}

/// A letter with its number, by the order in which letters came.
pub(crate) type Numbered = (u64, (MessageId, Rc<DeadLetter>));

impl DeadLetters {
    /// Takes what an entry does to letters; gives the one that was replayed, unless it had made room for newer
    /// ones before.
    pub(crate) fn record(&mut self, entry: &Entry) -> Option<Rc<DeadLetter>> {
        let replayed = entry.replays.as_ref().map(|id| self.on_replayed(id));
        if let Some(letter) = &entry.dead {
            let copies_until = remembered_until(entry.deadline, entry.is_keyed());
            self.keep(entry.id, letter.clone().into(), copies_until);
        }
        replayed.flatten()
    }

    /// Keeps a dead letter; copies of its message may come until `copies_until`. One that is there already stays
    /// if the message has come once more and nobody knew any more whether it was handled: the first one proves
    /// that it was not.
    pub(crate) fn keep(&mut self, id: MessageId, letter: Rc<DeadLetter>, copies_until: Timestamp) {
        if letter.outcome == Outcome::Unknown
            && let Some(place) = self.places.get_mut(&id)
        {
            place.copies_until = place.copies_until.max(copies_until);
            return;
        }
        self.remove(&id);
        let number = self.next;
        self.kept.insert(number, (id, letter));
        let place = Place {
            number,
            copies_until,
        };
        self.places.insert(id, place);
        self.next += 1;
        if self.kept.len() > DEAD_LETTERS_MAX
            && let Some((_, (oldest, _))) = self.kept.pop_first()
        {
            self.places.remove(&oldest);
            self.dropped += 1;
        }
    }

    fn remove(&mut self, id: &MessageId) -> Option<Rc<DeadLetter>> {
        let place = self.places.remove(id)?;
        let (_, letter) = self.kept.remove(&place.number)?;
        Some(letter)
    }

    /// A letter was replayed. None if it had made room for newer ones before.
    fn on_replayed(&mut self, id: &MessageId) -> Option<Rc<DeadLetter>> {
        let letter = self.remove(id);
        if letter.is_none() {
            self.dropped = self.dropped.saturating_sub(1);
        }
        letter
    }

    pub(crate) fn get(&self, id: &MessageId) -> Option<&DeadLetter> {
        let (_, letter) = self.kept.get(&self.places.get(id)?.number)?;
        Some(letter)
    }

    /// Until when copies of a letter's message may come, also after its client has done with it. Only the
    /// process that made the letter knows.
    pub(crate) fn copies_until(&self, id: &MessageId) -> Option<Timestamp> {
        self.places.get(id).map(|place| place.copies_until)
    }

    /// Oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (MessageId, &DeadLetter)> {
        self.kept.values().map(|(id, letter)| (*id, &**letter))
    }

    /// The same with their numbers.
    pub(crate) fn numbered(&self) -> VecDeque<Numbered> {
        let all = self.kept.iter();
        all.map(|(number, kept)| (*number, kept.clone())).collect()
    }

    /// Whether the letter of this number is still there.
    pub(crate) fn has(&self, number: u64) -> bool {
        self.kept.contains_key(&number)
    }

    /// Divides the letters of some shards among `count` others; `place` says which of them has a slot.
    /// Those that were dropped are counted in the first.
    pub(crate) fn reshard(
        from: Vec<DeadLetters>,
        count: usize,
        place: impl Fn(Slot) -> usize,
    ) -> Vec<DeadLetters> {
        let mut to: Vec<DeadLetters> = (0..count).map(|_| DeadLetters::default()).collect();
        for letters in from {
            to[0].dropped += letters.dropped;
            for (_, (id, letter)) in letters.kept {
                let copies_until = letters.places[&id].copies_until;
                to[place(Slot::of(&letter.key))].keep(id, letter, copies_until);
            }
        }
        to
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

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::RequestId;

    const MAX: u64 = DEAD_LETTERS_MAX as u64;

    fn id(seq: u64) -> MessageId {
        MessageId::ingress(RequestId { client: 1, seq })
    }

    fn keep(letters: &mut DeadLetters, seq: u64) {
        letters.keep(id(seq), letter(seq, Outcome::Failed).into(), Timestamp(seq));
    }

    fn letter(seq: u64, outcome: Outcome) -> DeadLetter {
        DeadLetter {
            at: Timestamp(seq),
            outcome,
            reason: String::new(),
            key: Vec::new(),
            payload: Vec::new(),
            timer: String::new(),
            answer: None,
            topic: None,
        }
    }

    /// Requests whose letters can be read, in their order.
    fn seqs(letters: &DeadLetters) -> Vec<u64> {
        letters.iter().map(|(id, _)| id.request.seq).collect()
    }

    #[test]
    fn the_oldest_letters_make_room_and_are_still_counted() {
        let mut letters = DeadLetters::default();
        for seq in 0..MAX {
            keep(&mut letters, seq);
            assert_eq!(
                (letters.kept.len() as u64, letters.count()),
                (seq + 1, seq + 1)
            );
        }
        assert!(letters.get(&id(0)).is_some());
        for seq in [MAX, MAX + 1] {
            keep(&mut letters, seq);
            assert_eq!((letters.kept.len() as u64, letters.count()), (MAX, seq + 1));
        }
        assert_eq!(seqs(&letters), Vec::from_iter(2..MAX + 2));
        assert!(letters.get(&id(1)).is_none());
        assert!(letters.get(&id(2)).is_some());
    }

    #[test]
    fn a_letter_that_was_replayed_is_gone_and_not_counted() {
        let mut letters = DeadLetters::default();
        for seq in 0..MAX + 2 {
            keep(&mut letters, seq);
        }
        letters.on_replayed(&id(0));
        assert_eq!((letters.kept.len() as u64, letters.count()), (MAX, MAX + 1));
        letters.on_replayed(&id(2));
        assert_eq!((letters.kept.len() as u64, letters.count()), (MAX - 1, MAX));
        assert!(letters.get(&id(2)).is_none());
    }

    #[test]
    fn a_copy_of_which_nothing_is_known_replaces_no_letter() {
        let mut letters = DeadLetters::default();
        for (outcome, until, kept, latest) in [
            (Outcome::Unknown, 3, Outcome::Unknown, 3),
            (Outcome::Expired, 2, Outcome::Expired, 2),
            (Outcome::Unknown, 5, Outcome::Expired, 5),
            (Outcome::Unknown, 4, Outcome::Expired, 5),
        ] {
            letters.keep(id(1), letter(1, outcome).into(), Timestamp(until));
            assert_eq!(letters.get(&id(1)).unwrap().outcome, kept);
            assert_eq!(letters.copies_until(&id(1)), Some(Timestamp(latest)));
        }
    }
}
