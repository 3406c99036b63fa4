//! What must be true after healing.

mod effects;

use super::asks::ADMITTED_FEW;
use super::waits::{LOSSY_PERMILLE, WAIT_MAX};
use super::{PROBE, PROBES, PROBES_LATE, Run, TICKS_FIRED_AFTER, TIMERS_FIRED_AFTER};
use crate::scenario::{Act, ServiceShape};
use crate::ticks::{self, Ticks};
use e3_client_core::limits::RETRY_AFTER_MAX;
use e3_collections::State;
use e3_dataplane::limits::EXPIRY_LAG_MAX;
use e3_dataplane::{Beside, Kept};
use e3_model::application::WhenAlone;
use e3_model::plan::ShardPlan;
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::entry::{Outcome, Reply};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A request whose client waits at least this long after healing, beside the time that handlers take,
/// must have an outcome.
const ANSWERED_AFTER: Nanos = Nanos::from_secs(15);
/// How long after healing the controller decides again: nodes are silent for 3 s, one shows that decisions are
/// missing, and after half a second of the operator's the same begins again.
const DECIDES_AFTER: Nanos = Nanos::from_secs(8);
/// How long after a decision all nodes that it concerns have its plan.
const PLANS_KNOWN_AFTER: Nanos = Nanos::from_secs(2);
/// A request may expire so long before its deadline: what nodes tolerate of each other's clocks, and
/// what the clocks of clients and nodes are off.
const EARLY_MAX: Nanos = Nanos::from_millis(800);

/// If at least this share of the requests of an application must be done, not all probes may fail: of
/// [`PROBES`] that happens once in 10^10 times.
const DONE_SHARE_MIN: f64 = 0.7;

/// When the memory of a key that has expired is free at the latest: the primary removes it by itself, by
/// the clock of its shard, which may be ahead of that of its node.
const FREED_WITHIN: Nanos = Nanos(EARLY_MAX.0 + 2 * EXPIRY_LAG_MAX.0);

impl Run<'_> {
    pub(super) fn violation(&mut self, what: String) {
        self.cluster.ledger.violation(what);
    }

    /// Whether every shard has as many copies as it wants and as the fault domains allow, and no node
    /// is drained or cordoned any more.
    pub(super) fn copies_are_complete(&self) -> bool {
        let control = &self.controller.control;
        let in_service = control.drained.is_empty() && control.cordoned.is_empty();
        in_service && self.incomplete().is_none()
    }

    fn incomplete(&self) -> Option<(ShardKey, ShardPlan)> {
        let nodes = self.controller.control.topology.nodes();
        let servers = nodes.map(|n| n.server).collect::<BTreeSet<_>>().len();
        for app in self.controller.control.apps.values() {
            for shard in &app.plan.shards {
                let is_resharding = app.resharding.as_ref();
                let is_resharding = is_resharding.is_some_and(|r| r.service == shard.service);
                let service = app.plan.app.service(shard.service);
                let wanted = usize::from(service.replicas).min(servers);
                let is_settled = shard.joining.is_empty() && shard.leaving.is_empty();
                let is_whole = is_settled && !shard.frozen && !app.is_orphan(shard);
                if is_resharding
                    || service.stateful && (1 + shard.backups.len() < wanted || !is_whole)
                {
                    return Some((app.plan.key(shard), shard.clone()));
                }
            }
        }
        None
    }

    /// Checks that no request waits for long while nothing disturbs the cluster. The answers of those that ask
    /// others, or publish, may depend on places that other requests hold.
    pub(super) fn check_waits(&mut self) {
        let (now, is_disturbed) = (self.cluster.now, self.is_disturbed());
        let longest = self.waits.look(now, is_disturbed, &self.cluster.clients);
        let most = || {
            // Several attempts in a row may be lost.
            let is_lossy = self.scenario.network.loss_permille >= LOSSY_PERMILLE;
            let retries = if is_lossy {
                RETRY_AFTER_MAX
            } else {
                Nanos::ZERO
            };
            WAIT_MAX + retries + self.scenario.work() + self.scenario.writing_time()
        };
        if let Some(awaited) = longest
            && !self.asks_or_publishes()
            && awaited.waited > most()
        {
            let calm_ms = self.begin.until(self.waits.calm_since).as_millis();
            self.violation(format!(
                "client {}: request {} has waited {} ms since the last fault, which ended at {calm_ms} ms",
                awaited.client,
                awaited.number,
                awaited.waited.as_millis()
            ));
        }
    }

    /// Whether a fault acts, processes have not recovered from one, or operators, or ways that count as cut, keep new
    /// instances off all nodes that could take a shard without copies, or a backup without which the shard refuses
    /// requests. That such a copy is placed later is checked after healing.
    fn is_disturbed(&self) -> bool {
        let is_fault =
            |act: &Act| !act.fault.is_operation() && !self.is_finished_upgrade(&act.fault);
        let control = &self.controller.control;
        let mut members = control.topology.nodes();
        let is_out_of_service = !control.drained.is_empty() || !control.cordoned.is_empty();
        let is_cut = || control.members.values().any(|m| !m.unreachable.is_empty());
        let mut lacks_a_copy = control.apps.values().flat_map(|app| {
            app.plan.shards.iter().map(|shard| {
                let refuses = app.plan.app.service(shard.service).when_alone == WhenAlone::Refuse;
                app.is_orphan(shard) || refuses && shard.backups.is_empty()
            })
        });
        let is_away = |node: u32| !self.agents.is_member(node) || self.is_paused(node);
        self.active.iter().any(is_fault)
            || !self.kills.is_empty()
            || !self.revivals.is_empty()
            || !self.controller.can_decide(self.cluster.now)
            || self.controller.is_writing(self.cluster.now)
            || !self.controller.refused_damaged().is_empty()
            || members.any(|node| is_away(node.id.0))
            || (is_out_of_service || is_cut()) && lacks_a_copy.any(|lacks| lacks)
    }

    /// Waits until the controller decides, and checks that it does so in time.
    pub(super) fn wait_for_decisions(&mut self) {
        let by = self.healed_at + DECIDES_AFTER;
        while self.is_sound() && !self.controller.can_decide(self.cluster.now) {
            if self.cluster.now > by {
                let after_s = DECIDES_AFTER.as_secs();
                let what = format!("the controller decides nothing {after_s} s after healing");
                return self.violation(what);
            }
            self.step();
        }
    }

    /// Checks that everything recovered in time.
    pub(super) fn check_settled(&mut self) {
        let after_s = self.healed_at.until(self.cluster.now).as_secs();
        if let Some((key, plan)) = self.incomplete() {
            let error = self.cluster.worker(plan.primary.0).and_then(|worker| {
                let shards = worker.report().instances;
                shards.into_iter().find(|s| s.key == key)?.error
            });
            let error = error.unwrap_or_default();
            self.violation(format!(
                "{key} lacks copies {after_s} s after healing: {plan:?} {error}"
            ));
        }
        if self.is_backing_up() {
            self.violation(format!("a backup is not over {after_s} s after healing"));
        }
        self.check_idle(&format!("{after_s} s after healing"));
        self.check_nodes();
        let answered_by = self.healed_at + ANSWERED_AFTER + self.scenario.work();
        let mut missing = Vec::new();
        let admitted = self.cluster.admitted();
        if admitted > 0 {
            missing.push(format!(
                "{admitted} requests hold a place of admittedMax {after_s} s after healing"
            ));
        }
        for client in self.cluster.clients.iter().filter(|c| !c.has_vanished) {
            let open = client.open();
            let left = client.load.map_or(0, |l| l.left);
            if open > 0 || left > 0 {
                missing.push(format!(
                    "client {}: {open} requests have no outcome {after_s} s after healing, {left} are not sent",
                    client.id
                ));
            }
            let waited = |at: Timestamp| at >= answered_by;
            for (number, request) in (1..).zip(&client.history) {
                let outcome = client.outcomes.get(&number).map(|r| r.outcome);
                if outcome == Some(Outcome::Expired)
                    && !client.is_keyed()
                    && let Some(done) = request.done
                    && done + EARLY_MAX < request.deadline
                {
                    missing.push(format!(
                        "client {}: request {number} expired {} ms before its deadline",
                        client.id,
                        done.until(request.deadline).as_millis()
                    ));
                }
                if outcome.is_none() && request.done.is_some_and(waited) {
                    missing.push(format!(
                        "client {}: request {number} has no outcome, though its client waited until {} ms after healing",
                        client.id,
                        self.healed_at.until(request.done.unwrap_or_default()).as_millis()
                    ));
                }
            }
        }
        for what in missing {
            self.violation(what);
        }
    }

    /// Checks that all requests of the clients from `first` on were handled.
    pub(super) fn check_probes(&mut self, first: usize) {
        let mut missing = Vec::new();
        let asks = self.asks_or_publishes();
        for client in &self.cluster.clients[first..] {
            let app = &self.scenario.apps[usize::from(client.app().0) - 1];
            let can_fail = app.services.iter().any(|s| s.fails_permille > 0);
            let may_be_full = asks && app.admitted_max <= ADMITTED_FEW;
            let is_done = |r: &Reply| r.outcome == Outcome::Done;
            if !may_be_full
                && app.done_share() >= DONE_SHARE_MIN
                && !client.outcomes.values().any(is_done)
            {
                let count = client.history.len();
                missing.push(format!(
                    "none of {count} probes of {} is done",
                    client.app()
                ));
            }
            for (number, request) in (1..).zip(&client.history) {
                let outcome = client.outcomes.get(&number).map(|r| r.outcome);
                let is_handled = outcome == Some(Outcome::Done)
                    || (may_be_full && outcome == Some(Outcome::Overloaded))
                    || (can_fail && matches!(outcome, Some(Outcome::Failed | Outcome::Unknown)));
                if !is_handled {
                    missing.push(format!(
                        "probe {number} of {} with key {:?}: {outcome:?} within {} s, long after healing",
                        client.app(),
                        request.key,
                        PROBE.as_secs()
                    ));
                }
            }
        }
        for what in missing {
            self.violation(what);
        }
    }

    /// Checks that nothing is in progress on any node.
    pub(super) fn check_idle(&mut self, when: &str) {
        for (node, kept) in self.kept() {
            if kept.open > 0 {
                self.violation(format!(
                    "node {node} keeps {} messages open {when}",
                    kept.open
                ));
            }
            if kept.publishing > 0 {
                self.violation(format!(
                    "node {node} has publications of {} keys left {when}",
                    kept.publishing
                ));
            }
        }
    }

    /// Checks that nodes have forgotten all requests but the probes.
    pub(super) fn check_forgotten(&mut self) {
        let places = self.scenario.apps.iter().map(|app| app.places().len());
        let probes = (PROBES + PROBES_LATE) as usize * places.sum::<usize>();
        for (node, kept) in self.kept() {
            if kept.remembered.max(kept.sessions) > probes {
                self.violation(format!(
                    "node {node}: {kept:?} long after the deadlines of all but {probes} messages"
                ));
            }
        }
    }

    pub(super) fn kept(&self) -> Vec<(u32, Kept)> {
        let nodes = 0..self.scenario.nodes_max();
        let kept = |node| Some((node, self.cluster.worker(node)?.kept()));
        nodes.filter_map(kept).collect()
    }

    /// By stateful shard: the state of its primary.
    pub(super) fn states(&self) -> BTreeMap<ShardKey, Rc<RefCell<State>>> {
        let mut states = BTreeMap::new();
        for app in self.controller.control.apps.values() {
            for shard in &app.plan.shards {
                let key = app.plan.key(shard);
                if app.plan.app.service(shard.service).stateful
                    && let Some(state) = self.cluster.state(shard.primary.0, key)
                {
                    states.insert(key, state);
                }
            }
        }
        states
    }

    /// Waits until all that expires has expired, and checks that its memory is free.
    pub(super) fn outlive(&mut self) {
        let services = self.scenario.apps.iter().flat_map(|app| &app.services);
        let ttl_ms = services.map(|s| s.ttl_ms).max().unwrap_or(0);
        if ttl_ms == 0 {
            return;
        }
        self.wait(Nanos::from_millis(ttl_ms) + FREED_WITHIN);
        for (key, state) in self.states() {
            let expiring = state.borrow().expiring();
            if expiring > 0 {
                self.violation(format!("{key}: {expiring} keys that expired hold memory"));
            }
        }
    }

    /// How long after a minute began its timers have fired: the handlers of one service of a node may
    /// run one after another.
    pub(super) fn ticks_fire_within(&self) -> Nanos {
        let mut work = Nanos::ZERO;
        for (key, state) in &self.states() {
            if let Some((shape, timers)) = self.ticks_of(*key, &state.borrow()) {
                let attempts = self.scenario.attempts(usize::from(key.app.0) - 1, shape);
                work += Nanos::from_micros(shape.service_us) * (timers.len() as u64 * attempts);
            }
        }
        TICKS_FIRED_AFTER.max(TIMERS_FIRED_AFTER + work)
    }

    /// Checks that timers that repeat fired at each of their times, or as soon as their shard was served
    /// again.
    pub(super) fn check_ticks(&mut self) {
        let (now, whole) = (self.cluster.now, self.whole_at);
        let within = self.ticks_fire_within();
        let mut wrong = Vec::new();
        for (key, state) in &self.states() {
            let Some((shape, timers)) = self.ticks_of(*key, &state.borrow()) else {
                continue;
            };
            // A timer whose every attempt fails is a dead letter.
            if self.scenario.fails(usize::from(key.app.0) - 1, shape) {
                continue;
            }
            for (of, ticks) in timers {
                if let Some(due) = ticks::missed(&ticks, whole, within, now) {
                    wrong.push(format!(
                        "{key}: the repeating timer of key {of:?} did not fire in minute {due}: {ticks:?}"
                    ));
                }
            }
        }
        for what in wrong {
            self.violation(what);
        }
    }

    /// The timers of a shard that repeat, if its service has such.
    fn ticks_of(&self, key: ShardKey, state: &State) -> Option<(&ServiceShape, ticks::ByKey)> {
        let shape = self.shape_of(key).filter(|s| s.ticks)?;
        let collection = ticks::collection(shape.ttl_ms > 0);
        Some((shape, Ticks::all(state, collection)))
    }

    /// The shape of a shard's service.
    fn shape_of(&self, key: ShardKey) -> Option<&ServiceShape> {
        let app = self.scenario.apps.get(usize::from(key.app.0) - 1)?;
        app.services.get(usize::from(key.service.0))
    }

    /// Checks that all copies of a shard are equal, and that there are no others.
    pub(super) fn check_copies(&mut self) {
        let by = self.cluster.now + PLANS_KNOWN_AFTER;
        while self.cluster.now < by && !self.leftovers().is_empty() {
            self.step();
        }
        let mut wrong = Vec::new();
        for app in self.controller.control.apps.values() {
            for shard in &app.plan.shards {
                let key = app.plan.key(shard);
                if !app.plan.app.service(shard.service).stateful {
                    continue;
                }
                let digest = |node: u32| {
                    let state = self.cluster.state(node, key);
                    state.map(|s| s.borrow().digest())
                };
                let first = digest(shard.primary.0);
                if first.is_none() {
                    wrong.push(format!("{key}: its primary {} has no copy", shard.primary));
                }
                let beside = |node: u32| self.cluster.worker(node)?.beside(key);
                let first_beside = beside(shard.primary.0);
                for backup in &shard.backups {
                    if digest(backup.0) != first {
                        wrong.push(format!(
                            "{key}: the copy on {backup} differs from the primary's"
                        ));
                    }
                    let what = difference(first_beside.as_ref(), beside(backup.0).as_ref());
                    wrong.extend(what.map(|what| {
                        format!("{key}: the copy on {backup} and the primary differ in {what}")
                    }));
                }
            }
        }
        wrong.extend(self.leftovers());
        for what in wrong {
            self.violation(what);
        }
    }

    /// What nodes have of shards that they have no part in.
    fn leftovers(&self) -> Vec<String> {
        let control = &self.controller.control;
        let has_part = |node: NodeId, key: ShardKey| {
            let app = control.apps.get(&key.app);
            app.and_then(|app| app.shard(key))
                .is_some_and(|s| s.keeps(node))
        };
        let mut left = Vec::new();
        for node in self.nodes() {
            let instances = self.cluster.worker(node).map(|w| w.report().instances);
            for instance in instances.into_iter().flatten() {
                if !has_part(NodeId(node), instance.key) {
                    left.push(format!(
                        "node {node} has a copy of {}, in which it has no part",
                        instance.key
                    ));
                }
            }
        }
        left
    }
}

/// What two copies differ in beside their collections.
fn difference(one: Option<&Beside>, other: Option<&Beside>) -> Option<String> {
    let (one, other) = one.zip(other)?;
    if one.op != other.op {
        return Some(format!("their last entry: {} and {}", one.op, other.op));
    }
    let parts = [
        ("handled messages", one.handled == other.handled),
        ("dead letters", one.letters == other.letters),
        ("timers", one.timers == other.timers),
    ];
    let differs = parts.iter().find(|(_, is_equal)| !is_equal);
    differs.map(|(what, _)| what.to_string())
}
