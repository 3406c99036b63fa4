//! Applications that this node is asked for, and requests that wait for the routes of one.
//!
//! The plan has the applications that the node hosts. The routes of others are asked of the controller at
//! the first request. Until they come, requests wait here for a short time; then they are refused, so that
//! clients ask another node. What waits is not admitted, so nothing is lost with it.
//! Design: docs/design/027.

use super::Worker;
use super::clients::RequestEntry;
use crate::ingress::{Asker, Attempt};
use crate::limits::{HELD_BYTES_MAX, HELD_FOR, HELD_MAX, INTEREST_KEPT, INTEREST_NOTED};
use crate::refusal::refuse;
use e3_model::{AppId, Timestamp};
use e3_wire::client::Request;
use e3_wire::entry::Outcome;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What this node is asked for.
#[derive(Debug, Default)]
pub(super) struct Interest {
    /// When a request for each application came, about.
    used: BTreeMap<AppId, Timestamp>,
    /// Requests for applications whose routes are not here, in the order in which they came.
    held: VecDeque<Held>,
    held_bytes: usize,
    has_changed: bool,
}

#[derive(Debug)]
struct Held {
    until: Timestamp,
    from: Asker,
    to: RequestEntry,
    request: Request,
}

impl Held {
    fn len(&self) -> usize {
        self.request.key.len() + self.request.payload.len()
    }
}

impl Interest {
    /// Notes a request for an application.
    pub(super) fn note(&mut self, now: Timestamp, app: AppId) {
        match self.used.get_mut(&app) {
            Some(at) if now < *at + INTEREST_NOTED => {}
            Some(at) => *at = now,
            None => {
                self.used.insert(app, now);
                self.has_changed = true;
            }
        }
    }

    pub(super) fn has(&self, app: AppId) -> bool {
        self.used.contains_key(&app)
    }

    /// False if there is no room.
    fn hold(&mut self, held: Held) -> bool {
        let is_full = self.held.len() >= HELD_MAX || self.held_bytes + held.len() > HELD_BYTES_MAX;
        if !is_full {
            self.held_bytes += held.len();
            self.held.push_back(held);
        }
        !is_full
    }

    fn take(&mut self, is_due: impl Fn(&Held) -> bool) -> Vec<Held> {
        let held = std::mem::take(&mut self.held).into_iter();
        let (due, rest): (Vec<Held>, Vec<Held>) = held.partition(is_due);
        self.held_bytes = rest.iter().map(Held::len).sum();
        self.held = rest.into();
        due
    }
}

impl Worker {
    /// The applications that this node is asked for, if they have changed since the last call.
    pub fn take_interest(&mut self) -> Option<BTreeSet<AppId>> {
        let has_changed = std::mem::take(&mut self.interest.has_changed);
        has_changed.then(|| self.interest())
    }

    /// The applications that this node is asked for. Its plan must have their routes.
    pub fn interest(&self) -> BTreeSet<AppId> {
        self.interest.used.keys().copied().collect()
    }

    /// Whether the application runs in the cluster, although its routes are not here.
    pub(super) fn is_elsewhere(&self, app: AppId) -> bool {
        !self.world.apps.contains_key(&app) && self.world.plan.directory.contains_key(&app)
    }

    /// Has a request wait for the routes of its application.
    pub(super) fn await_routes(
        &mut self,
        from: Asker,
        to: RequestEntry,
        attempt: &Attempt,
        q: Request,
    ) {
        let now = self.world.now;
        self.interest.note(now, q.app);
        let has_room = self.interest.hold(Held {
            until: now + HELD_FOR,
            from,
            to,
            request: q.clone(),
        });
        if !has_room {
            self.refuse_unknown(attempt, &q);
        }
    }

    fn refuse_unknown(&mut self, attempt: &Attempt, q: &Request) {
        let reason = "this node does not have the application's routes yet; ask another node";
        self.turn_away(q, attempt, refuse(Outcome::Overloaded, reason));
    }

    /// Handles requests whose routes have come, or whose application is gone.
    pub(super) fn take_held(&mut self) {
        let world = &self.world;
        let is_due = |held: &Held| {
            let app = held.request.app;
            world.apps.contains_key(&app) || !world.plan.directory.contains_key(&app)
        };
        for held in self.interest.take(is_due) {
            self.on_request(held.from, held.to, held.request);
        }
    }

    /// Refuses requests that have waited for long enough.
    pub(super) fn refuse_held(&mut self) {
        let now = self.world.now;
        if self
            .interest
            .held
            .front()
            .is_none_or(|held| now < held.until)
        {
            return;
        }
        for held in self.interest.take(|held| held.until <= now) {
            let attempt = Attempt::of(held.from, &held.request);
            self.refuse_unknown(&attempt, &held.request);
        }
    }

    /// Forgets applications that nobody has asked for here for a while.
    pub(super) fn lose_interest(&mut self) {
        let now = self.world.now;
        let old = self.interest.used.iter();
        let old = old.filter(|(_, at)| **at + INTEREST_KEPT < now);
        let old: Vec<AppId> = old.map(|(app, _)| *app).collect();
        for app in old {
            if self.ingress.knows_any(app) || self.links.has_open(app) {
                self.interest.used.insert(app, now);
                continue;
            }
            self.interest.used.remove(&app);
            self.interest.has_changed = true;
            if self.world.plan.routed().all(|routed| routed != app) {
                self.delete_app(app);
            }
        }
    }
}
