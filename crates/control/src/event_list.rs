//! The list of the last events, bounded and in the order of the log.

use crate::limits::EVENTS_MAX;
use e3_model::Timestamp;
use e3_model::event::Event;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;

/// The last events, the oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Events {
    /// Events so far.
    count: u64,
    /// At most [`EVENTS_MAX`]. Shared, since the state is copied for each command.
    list: VecDeque<Arc<Event>>,
}

impl Events {
    /// Number of the last event; 0 if there was none.
    pub fn last(&self) -> u64 {
        self.count
    }

    /// Those that are kept and have greater numbers.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &Event> {
        let first = self.list.partition_point(|e| e.number <= number);
        self.list.range(first..).map(Arc::as_ref)
    }

    pub(crate) fn push(&mut self, at: Timestamp, event: Event) {
        self.count += 1;
        self.list.push_back(Arc::new(Event {
            number: self.count,
            at_unix_ms: at.since(Timestamp::ZERO).as_millis(),
            ..event
        }));
        if self.list.len() > EVENTS_MAX {
            self.list.pop_front();
        }
    }
}
