//! No request waits for long while nothing disturbs the cluster, during the phase with faults and after it.

use super::Run;
use crate::scenario::Act;
use e3_model::{Nanos, Timestamp};

/// How long a request may wait for its outcome, beside the time that handlers take, while no fault acts: clients
/// retry within 3 s and channels within 2 s, and a fail-over may come first. It is less than the 10 s after which
/// a channel without progress begins again, so that a shard that depends on this is found.
const WAIT_MAX: Nanos = Nanos::from_secs(8);
/// Between two looks at all requests.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(100);

/// What the checks of waits remember.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Since when nothing has disturbed the cluster.
    calm_since: Timestamp,
    next_look: Timestamp,
    /// The longest time that a request waited meanwhile.
    pub(super) longest: Nanos,
}

impl Run<'_> {
    /// Checks how long requests have waited. Answers of those that ask others, or publish, may depend on places
    /// that other requests hold.
    pub(super) fn check_waits(&mut self) {
        let now = self.cluster.now;
        if self.is_disturbed() {
            self.waits.calm_since = now;
        }
        if now < self.waits.next_look || self.asks_or_publishes() {
            return;
        }
        self.waits.next_look = now + LOOK_INTERVAL;
        let calm_since = self.waits.calm_since;
        let mut longest: Option<(Nanos, u64, u64)> = None;
        for client in self.cluster.clients.iter().filter(|c| !c.has_vanished) {
            for (number, sent) in client.awaited() {
                let waited = sent.max(calm_since).until(now);
                if longest.is_none_or(|l| waited > l.0) {
                    longest = Some((waited, client.id, number));
                }
            }
        }
        let Some((waited, client, number)) = longest else {
            return;
        };
        self.waits.longest = self.waits.longest.max(waited);
        if waited > WAIT_MAX + self.scenario.work() + self.scenario.writing_time() {
            let calm_ms = self.begin.until(calm_since).as_millis();
            self.violation(format!(
                "client {client}: request {number} has waited {} ms without a fault, which ended at {calm_ms} ms",
                waited.as_millis()
            ));
        }
    }

    /// Whether a fault acts, or processes have not recovered from one.
    fn is_disturbed(&self) -> bool {
        let is_fault = |act: &Act| !act.fault.is_operation();
        let members = self.controller.control.topology.nodes();
        let is_away = |node: u32| !self.agents.is_member(node) || self.is_paused(node);
        self.active.iter().any(is_fault)
            || !self.kills.is_empty()
            || !self.revivals.is_empty()
            || !self.controller.can_decide(self.cluster.now)
            || !self.controller.refused_damaged().is_empty()
            || members.into_iter().any(|node| is_away(node.id.0))
    }
}
