//! The list of the last events, bounded and in the order of the log.

use crate::limits::EVENTS_MAX;
use e3_model::Timestamp;
use e3_model::event::Event;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::VecDeque;
use std::sync::Arc;

/// Events that a copy of the list shares as one.
const EVENTS_PER_CHUNK: usize = 64;

/// The last events, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    /// Events so far.
    count: u64,
    /// At most [`EVENTS_MAX`].
    list: List,
}

/// A list that is cheap to copy: the state is copied for each command.
#[derive(Clone, Debug, Default)]
struct List {
    /// All but the last are full. Invariant: no chunk is empty.
    chunks: VecDeque<Arc<Vec<Arc<Event>>>>,
    /// Events of the first chunk that are not in the list any more.
    gone: usize,
}

impl Events {
    /// Number of the last event; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.count
    }

    /// Those that are kept and have greater numbers.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &Event> {
        let newer = self
            .count
            .saturating_sub(number)
            .min(self.list.len() as u64);
        self.list.iter().skip(self.list.len() - newer as usize)
    }

    pub(crate) fn push(&mut self, at: Timestamp, event: Event) {
        self.count += 1;
        self.list.push(Event {
            number: self.count,
            at_unix_ms: at.since(Timestamp::ZERO).as_millis(),
            ..event
        });
        if self.list.len() > EVENTS_MAX {
            self.list.pop_front();
        }
    }
}

impl List {
    fn len(&self) -> usize {
        let last = self.chunks.back().map_or(0, |chunk| chunk.len());
        let full = self.chunks.len().saturating_sub(1) * EVENTS_PER_CHUNK;
        full + last - self.gone
    }

    fn iter(&self) -> impl Iterator<Item = &Event> {
        let all = self.chunks.iter().flat_map(|chunk| chunk.iter());
        all.skip(self.gone).map(Arc::as_ref)
    }

    fn push(&mut self, event: Event) {
        let event = Arc::new(event);
        match self.chunks.back_mut() {
            Some(chunk) if chunk.len() < EVENTS_PER_CHUNK => Arc::make_mut(chunk).push(event),
            _ => self.chunks.push_back(Arc::new(vec![event])),
        }
    }

    fn pop_front(&mut self) {
        self.gone += 1;
        if self
            .chunks
            .front()
            .is_some_and(|chunk| chunk.len() == self.gone)
        {
            self.chunks.pop_front();
            self.gone = 0;
        }
    }
}

impl PartialEq for List {
    fn eq(&self, other: &List) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for List {}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for List {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List, D::Error> {
        let mut list = List::default();
        for event in Vec::<Event>::deserialize(deserializer)? {
            list.push(event);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::event;
    use e3_model::event::EventKind;

    fn numbers(events: &Events, after: u64) -> Vec<u64> {
        events.since(after).map(|e| e.number).collect()
    }

    #[test]
    fn the_last_events_are_kept_in_their_order() {
        let mut events = Events::default();
        assert_eq!((numbers(&events, 0).len(), events.last()), (0, 0));
        for pushed in 1..=3 * EVENTS_MAX as u64 {
            events.push(Timestamp(pushed), event(EventKind::AppDeployed));
            let first = pushed.saturating_sub(EVENTS_MAX as u64) + 1;
            assert!(numbers(&events, 0).into_iter().eq(first..=pushed));
            assert_eq!(numbers(&events, pushed - 1), [pushed]);
            assert_eq!(numbers(&events, pushed), [0; 0]);
        }
        let json = serde_json::to_string(&events).unwrap();
        let read: Events = serde_json::from_str(&json).unwrap();
        assert_eq!(read, events);
        let earlier = events.clone();
        events.push(Timestamp(0), event(EventKind::AppDeployed));
        assert_eq!(earlier, read, "a copy does not change");
        assert_ne!(earlier, events);
    }
}
