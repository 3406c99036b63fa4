//! Following the load: an application is moved to where its present rate needs less energy, or to where
//! it is carried at all. Which moves these are [`e3_placement::follow`] says; here it is decided when
//! it is asked, and when each move begins.
//!
//! Nothing flaps. The highest rate of the last intervals counts. Moves to save energy must pay back
//! within the horizon, leave a margin, and wait for the application's cool-down; moves for a load that the placement
//! does not carry do not wait. The moves of a plan are made as the budget allows, and the plan stands
//! until they are, unless the load outgrows it.

use super::budget::Budget;
use super::rates::{Rate, Rates};
use super::watch::{NodeWatch, Reports};
use crate::command::CommandError;
use crate::orchestration::{Act, Decided, cooldown};
use crate::state::{AppState, Control};
use e3_model::orchestrator::{Cause, OrchestratorMode, OrchestratorSettings};
use e3_model::plan::ShardPlan;
use e3_model::{AppId, Nanos, NodeId, ShardKey, Timestamp};
use e3_placement::{Following as Found, InstanceKey, Move, Offered, Request, carried, follow};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A placement that saves energy must carry this many times the rate with its reserve, so that the
/// next small rise of the load does not move everything back.
const SAVING_MARGIN: f64 = 1.2;
/// Part of its power that a plan must save.
const SAVING_MIN: f64 = 0.02;

/// What is known of the nodes.
pub(super) struct Seen<'a> {
    pub(super) nodes: &'a [NodeWatch],
    pub(super) reports: &'a [Reports],
    pub(super) settings: &'a OrchestratorSettings,
}

/// Applications that follow their load.
#[derive(Debug, Default)]
pub(super) struct Following {
    pub(super) rates: Rates,
    /// Applications that are to be looked at, one in each turn.
    due: VecDeque<AppId>,
    plans: BTreeMap<AppId, Plan>,
    /// By application for which a dry run recorded a plan: until when it records no other, and how many
    /// it recorded.
    recorded: BTreeMap<AppId, (Timestamp, u32)>,
}

/// Moves that are being made.
#[derive(Debug)]
struct Plan {
    cause: Cause,
    moves: VecDeque<Move>,
    /// The rate that it carries after them.
    knee_rps: f64,
    why: String,
    figures: BTreeMap<String, u64>,
}

/// What becomes of a move.
enum Step {
    Begins,
    Waits,
    /// The plan does not hold any more.
    Obsolete,
}

impl Following {
    /// Whether there is something to do.
    pub(super) fn is_due(&self, now: Timestamp, settings: &OrchestratorSettings) -> bool {
        let interval = Nanos::from_secs(settings.follow_interval_s.into());
        let is_on = interval > Nanos(0);
        let is_busy = !self.due.is_empty() || !self.plans.is_empty();
        is_busy || is_on && self.rates.is_over(now, interval)
    }

    /// Whether an application is being moved.
    pub(super) fn moves(&self, app: AppId) -> bool {
        self.plans.contains_key(&app)
    }

    /// The decisions that are due.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        control: &Control,
        seen: &Seen<'_>,
        budget: &mut Budget,
    ) -> Vec<Decided> {
        let interval = Nanos::from_secs(seen.settings.follow_interval_s.into());
        if interval == Nanos(0) {
            *self = Following::default();
            return Vec::new();
        }
        if self.rates.is_over(now, interval) {
            let reports = seen.reports;
            let is_known =
                |node: NodeId| reports.get(node.index()).is_some_and(|r| r.is_known(now));
            self.rates.close(now, control, is_known);
            self.due = control.apps.keys().copied().collect();
            self.plans.retain(|id, _| control.apps.contains_key(id));
            self.recorded.retain(|id, _| control.apps.contains_key(id));
        }
        let mut decided = Vec::new();
        if let Some(app) = self.due.pop_front()
            && let Some(plan) = self.look(now, control, app, seen)
        {
            match seen.settings.mode {
                OrchestratorMode::DryRun => decided.extend(self.record(now, app, &plan, seen)),
                _ => drop(self.plans.insert(app, plan)),
            }
        }
        decided.extend(self.begin_moves(now, control, seen, budget));
        decided
    }

    /// A new plan for an application, if it should move.
    fn look(
        &mut self,
        now: Timestamp,
        control: &Control,
        id: AppId,
        seen: &Seen<'_>,
    ) -> Option<Plan> {
        let s = seen.settings;
        let rate = self.rates.of(id)?;
        let offered = Offered {
            rate_rps: rate.rps,
            reserve: f64::from(s.follow_reserve_percent) / 100.0,
            horizon: Nanos::from_secs(s.follow_horizon_s.into()),
            move_joules: s.follow_move_joules.into(),
        };
        let needed_rps = offered.rate_rps * offered.reserve;
        if self
            .plans
            .get(&id)
            .is_some_and(|p| p.knee_rps >= needed_rps)
        {
            return None;
        }
        self.plans.remove(&id);
        let rests = self
            .recorded
            .get(&id)
            .is_some_and(|(until, _)| now < *until);
        let app = control.apps.get(&id)?;
        if rests || !is_calm(now, control, app) {
            return None;
        }
        let cause = match knee_rps(control, app, rate.rps)? {
            knee_rps if knee_rps < needed_rps => Cause::Capacity,
            knee_rps if knee_rps < needed_rps * SAVING_MARGIN => return None,
            _ if !rate.is_settled || now < control.orchestration.follows_from(id) => return None,
            _ => Cause::Energy,
        };
        let reserve = match cause {
            Cause::Energy => offered.reserve * SAVING_MARGIN,
            _ => offered.reserve,
        };
        let request = Request::new(&app.plan.app, &app.profiles);
        let node_of = |key| node_of(app, key);
        let found = control.try_without(id, |cluster| {
            follow(&request, cluster, node_of, Offered { reserve, ..offered })
        });
        let is_worth = |f: &Found| f.watts_after <= f.watts_before * (1.0 - SAVING_MIN);
        let Some(found) = found.filter(|f| cause == Cause::Capacity || is_worth(f)) else {
            self.recorded.remove(&id);
            return None;
        };
        Some(Plan::new(found, cause, rate, &offered))
    }

    /// What a dry run records of a plan: its first move, with the number of all.
    fn record(
        &mut self,
        now: Timestamp,
        app: AppId,
        plan: &Plan,
        seen: &Seen<'_>,
    ) -> Option<Decided> {
        let s = seen.settings;
        let (until, times) = self.recorded.entry(app).or_default();
        *until = now + cooldown(s.follow_cooldown_s, *times, s.cooldown_s_max);
        *times = times.saturating_add(1);
        let first = plan.moves.front()?;
        Some(plan.decided(now, Act::DryRun, app, first))
    }

    /// The moves that may begin now.
    fn begin_moves(
        &mut self,
        now: Timestamp,
        control: &Control,
        seen: &Seen<'_>,
        budget: &mut Budget,
    ) -> Vec<Decided> {
        let mut begun = Vec::new();
        self.plans.retain(|app, plan| {
            if seen.settings.mode != OrchestratorMode::On {
                return false;
            }
            let mut waiting = VecDeque::new();
            // The moves of a shard keep their order: it keeps the replicas apart.
            let mut shards = BTreeSet::new();
            for next in std::mem::take(&mut plan.moves) {
                let key = shard_key(*app, next.key);
                let step = if budget.left > 0 && !shards.contains(&key) {
                    step(control, seen, key, &next, budget)
                } else {
                    Step::Waits
                };
                shards.insert(key);
                match step {
                    Step::Obsolete => return false,
                    Step::Waits => waiting.push_back(next),
                    Step::Begins => {
                        budget.take(seen.servers(&next));
                        begun.push(plan.decided(now, Act::Follow, *app, &next));
                    }
                }
            }
            plan.moves = waiting;
            !plan.moves.is_empty()
        });
        begun
    }
}

impl Seen<'_> {
    fn servers(&self, next: &Move) -> Vec<u32> {
        self.servers_of([next.from, next.to].into_iter())
    }

    pub(super) fn servers_of(&self, nodes: impl Iterator<Item = NodeId>) -> Vec<u32> {
        let of = |n: NodeId| self.nodes.get(n.index()).map(|w| w.server);
        nodes.filter_map(of).collect()
    }
}

/// What becomes of a move now.
fn step(control: &Control, seen: &Seen<'_>, key: ShardKey, next: &Move, budget: &Budget) -> Step {
    let Move { from, to, .. } = *next;
    let misses = |a: NodeId, b: NodeId| {
        let member = control.members.get(&a);
        member.is_some_and(|m| m.unreachable.contains(&b))
    };
    let is_faulty = |n: &NodeWatch| n.is_queued || n.starved > 0;
    let target = seen.nodes.get(to.index());
    if control.stalled.contains(&key) || target.is_none() {
        return Step::Obsolete;
    }
    if !budget.allows(&seen.servers(next)) || target.is_some_and(is_faulty) {
        return Step::Waits;
    }
    match control.check_move(key, from, to, false) {
        Ok(_) if misses(from, to) || misses(to, from) => Step::Waits,
        Ok(_) => Step::Begins,
        Err(CommandError::Moving { .. } | CommandError::Waits { .. }) => Step::Waits,
        Err(_) => Step::Obsolete,
    }
}

impl Plan {
    fn new(found: Found, cause: Cause, rate: Rate, offered: &Offered) -> Plan {
        let needed_rps = offered.rate_rps * offered.reserve;
        let cost = found.moves.len() as f64 * offered.move_joules;
        let saved = found.watts_before - found.watts_after;
        let payback_s = (saved > 0.0).then(|| cost / saved);
        let mut figures = BTreeMap::new();
        let mut put = |name: &str, value: f64| {
            figures.insert(name.to_string(), value.round().max(0.0) as u64);
        };
        put("rateRps", rate.rps);
        put("moves", found.moves.len() as f64);
        put("moveCostJoules", cost);
        put("powerBeforeMilliwatts", found.watts_before * 1e3);
        put("powerAfterMilliwatts", found.watts_after * 1e3);
        put("kneeBeforeRps", found.knee_before_rps);
        put("kneeAfterRps", found.knee_after_rps);
        if let Some(seconds) = payback_s {
            put("paybackMs", seconds * 1e3);
        }
        Plan {
            why: why(&found, cause, rate, needed_rps, payback_s),
            cause,
            knee_rps: found.knee_after_rps,
            moves: found.moves.into(),
            figures,
        }
    }

    fn decided(&self, now: Timestamp, act: Act, app: AppId, next: &Move) -> Decided {
        Decided {
            at: now,
            cause: self.cause,
            act,
            key: Some(shard_key(app, next.key)),
            from: next.from,
            to: Some(next.to),
            shards: None,
            why: self.why.clone(),
            figures: self.figures.clone(),
        }
    }
}

/// The reason of a plan, in one line.
fn why(found: &Found, cause: Cause, rate: Rate, needed_rps: f64, payback_s: Option<f64>) -> String {
    let (rps, moves) = (rate.rps, found.moves.len());
    let (before, after) = (found.watts_before, found.watts_after);
    if cause == Cause::Energy {
        let payback = payback_s.unwrap_or_default();
        return format!(
            "load: {rps:.0} requests/s; power {before:.1} W before, {after:.1} W after (modelled); moves {moves}, which pay back in {payback:.1} s"
        );
    }
    let (carried, carries) = (found.knee_before_rps, found.knee_after_rps);
    format!(
        "load: {rps:.0} requests/s, {needed_rps:.0} with the reserve; the placement carries {carried:.0} before, {carries:.0} after; power {before:.1} W before, {after:.1} W after (modelled); moves {moves}"
    )
}

fn shard_key(app: AppId, key: InstanceKey) -> ShardKey {
    ShardKey {
        app,
        service: key.service,
        shard: key.shard,
    }
}

/// Where an instance is.
fn node_of(app: &AppState, key: InstanceKey) -> Option<NodeId> {
    let shard = app.shard(shard_key(app.plan.id, key))?;
    match usize::from(key.replica) {
        0 => Some(shard.primary),
        replica => shard.backups.get(replica - 1).copied(),
    }
}

/// The rate that an application carries where it is, in requests per second.
fn knee_rps(control: &Control, app: &AppState, rate_rps: f64) -> Option<f64> {
    let request = Request::new(&app.plan.app, &app.profiles);
    let carried = control.try_without(app.plan.id, |cluster| {
        carried(&request, cluster, |key| node_of(app, key), rate_rps)
    });
    Some(carried?.knee_rps)
}

/// Whether all instances of an application are in place and nothing else is about to move them.
fn is_calm(now: Timestamp, control: &Control, app: &AppState) -> bool {
    let is_away = |key: ShardKey, home: NodeId| app.shard(key).is_some_and(|s| s.primary != home);
    let orchestration = &control.orchestration;
    let displaced = orchestration.displaced().iter();
    let mut displaced = displaced.filter(|d| d.key.app == app.plan.id);
    is_whole(control, app)
        && !displaced.any(|d| is_away(d.key, d.home) || now < orchestration.rests_until(d))
}

/// Whether all copies of all shards of an application are in place and stay there, as far as operators
/// and the controller are concerned.
pub(super) fn is_whole(control: &Control, app: &AppState) -> bool {
    let is_whole = |s: &ShardPlan| {
        let replicas = app.plan.app.service(s.service).replicas;
        let nodes = || s.backups.iter().chain([&s.primary]);
        nodes().count() == usize::from(replicas)
            && s.joining.is_empty()
            && s.leaving.is_empty()
            && !s.frozen
            && !app.is_orphan(s)
            && nodes().all(|n| control.is_up(*n) && !control.drained.contains(n))
    };
    let restored = app.plan.restored.as_ref();
    app.has_started
        && app.migrations.is_empty()
        && app.resharding.is_none()
        && restored.is_none_or(|r| r.parts.is_empty())
        && !control.stalled.iter().any(|key| key.app == app.plan.id)
        && app.plan.shards.iter().all(is_whole)
}
