//! Applications that this node is asked for, and requests that wait for the routes of one.
//!
//! The plan has the applications that the node hosts. The routes of others are asked of the controller at
//! the first request. Until they come, requests wait here for a short time; then they are refused, so that
//! clients ask another node. What waits is not admitted, so nothing is lost with it.
//! Design: docs/design/027.

use super::Worker;
use crate::ingress::{Asker, Attempt, RequestEntry};
use crate::interest::Held;
use crate::limits::{HELD_FOR, INTEREST_KEPT};
use crate::refusal::refuse;
use e3_model::AppId;
use e3_wire::client::Request;
use e3_wire::entry::Outcome;
use std::collections::BTreeSet;

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
