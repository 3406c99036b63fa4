//! The applications that a node is asked for, and the requests that wait for the routes of one.
//! Design: docs/design/027.

use crate::ingress::{Asker, RequestEntry};
use crate::limits::{HELD_BYTES_MAX, HELD_MAX, INTEREST_NOTED};
use e3_model::{AppId, Timestamp};
use e3_wire::client::Request;
use std::collections::{BTreeMap, VecDeque};

/// What this node is asked for.
#[derive(Debug, Default)]
pub(crate) struct Interest {
    /// When a request for each application came, about.
    pub(crate) used: BTreeMap<AppId, Timestamp>,
    /// Requests for applications whose routes are not here, in the order in which they came.
    pub(crate) held: VecDeque<Held>,
    held_bytes: usize,
    pub(crate) has_changed: bool,
}

/// A request that waits for routes.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) until: Timestamp,
    pub(crate) from: Asker,
    pub(crate) to: RequestEntry,
    pub(crate) request: Request,
}

impl Held {
    fn len(&self) -> usize {
        self.request.key.len() + self.request.payload.len()
    }
}

impl Interest {
    /// Notes a request for an application.
    pub(crate) fn note(&mut self, now: Timestamp, app: AppId) {
        match self.used.get_mut(&app) {
            Some(at) if now < *at + INTEREST_NOTED => {}
            Some(at) => *at = now,
            None => {
                self.used.insert(app, now);
                self.has_changed = true;
            }
        }
    }

    pub(crate) fn has(&self, app: AppId) -> bool {
        self.used.contains_key(&app)
    }

    /// False if there is no room.
    pub(crate) fn hold(&mut self, held: Held) -> bool {
        let is_full = self.held.len() >= HELD_MAX || self.held_bytes + held.len() > HELD_BYTES_MAX;
        if !is_full {
            self.held_bytes += held.len();
            self.held.push_back(held);
        }
        !is_full
    }

    pub(crate) fn take(&mut self, is_due: impl Fn(&Held) -> bool) -> Vec<Held> {
        let held = std::mem::take(&mut self.held).into_iter();
        let (due, rest): (Vec<Held>, Vec<Held>) = held.partition(is_due);
        self.held_bytes = rest.iter().map(Held::len).sum();
        self.held = rest.into();
        due
    }
}
