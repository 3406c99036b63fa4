//! Scaling: the number of shards of a service follows its load, within the bounds of its manifest. Shards
//! are split while the busiest one uses much of a core, and merged when each would use little afterwards.
//!
//! Nothing flaps. A merge leaves the shards well below where they are split. Several looks in a row must show
//! the same, a service rests after each change, and merges wait longer each time that the load rises
//! again soon after one. What cannot be done is an event, and not repeated before a cool-down is over.

use super::budget::Budget;
use super::following::{Seen, is_whole};
use crate::command::CommandError;
use crate::limits::SPLIT_SKEW_MAX;
use crate::orchestration::{Act, Decided, Displaced, cooldown};
use crate::state::{AppState, Control};
use e3_model::orchestrator::{Cause, OrchestratorMode, OrchestratorSettings};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// What is known of the load of the services that are scaled.
#[derive(Debug, Default)]
pub(super) struct Scaling {
    looked_at: Option<Timestamp>,
    services: BTreeMap<(AppId, ServiceId), Watch>,
}

/// A service that is scaled.
#[derive(Debug, Default)]
struct Watch {
    /// Looks in a row at which its shards were to be split.
    busy: u32,
    /// Looks in a row at which they were to be merged.
    idle: u32,
    /// What was recorded and not done: until when nothing else is recorded, and how often in a row.
    recorded: Option<(Timestamp, u32)>,
}

/// What the shards of a service use, in thousandths of a core.
struct Load {
    /// By shard.
    used: Vec<u64>,
    /// The busiest one.
    busiest: (ShardKey, NodeId),
    /// What the busiest would use if the number of shards were halved.
    merged_permille: u64,
}

impl Load {
    fn max_permille(&self) -> u64 {
        self.used.iter().copied().max().unwrap_or(0)
    }

    fn mean_permille(&self) -> u64 {
        self.used.iter().sum::<u64>() / (self.used.len() as u64).max(1)
    }
}

impl Scaling {
    /// Whether there is something to do.
    pub(super) fn is_due(&self, now: Timestamp, s: &OrchestratorSettings) -> bool {
        let interval = Nanos::from_secs(s.scale_interval_s.into());
        let is_over = |at: Timestamp| now.since(at) >= interval;
        s.scale_interval_s > 0 && self.looked_at.is_none_or(is_over)
    }

    /// The decisions that are due. `is_moving` says whether an application is about to be moved.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        control: &Control,
        seen: &Seen<'_>,
        budget: &mut Budget,
        is_moving: impl Fn(AppId) -> bool,
    ) -> Vec<Decided> {
        self.looked_at = Some(now);
        let mut before = std::mem::take(&mut self.services);
        let mut decided = Vec::new();
        for (id, app) in &control.apps {
            // One service of an application changes at a time.
            let mut may_change = !is_moving(*id) && app.resharding.is_none();
            for (service, spec) in (0..).map(ServiceId).zip(&app.plan.app.spec.services) {
                if !spec.is_scaled() {
                    continue;
                }
                let mut watch = before.remove(&(*id, service)).unwrap_or_default();
                let load = load(now, control, app, service, seen).filter(|_| may_change);
                let due = load.and_then(|l| watch.look(now, control, app, (service, l), seen));
                if let Some(next) = due.and_then(|d| admit(d, control, seen, budget, &mut watch)) {
                    may_change = false;
                    decided.push(next);
                }
                self.services.insert((*id, service), watch);
            }
        }
        decided
    }
}

impl Watch {
    /// Counts what the load says; a decision if it says so for long enough.
    fn look(
        &mut self,
        now: Timestamp,
        control: &Control,
        app: &AppState,
        (service, load): (ServiceId, Load),
        seen: &Seen<'_>,
    ) -> Option<Decided> {
        let s = seen.settings;
        let spec = app.plan.app.service(service);
        let bounds = spec.shard_bounds?;
        let may_be = |shards: u16| bounds.allow(shards).then_some(shards);
        let fewer = (spec.shards / 2).max(1);
        let is_busy = load.max_permille() >= 10 * u64::from(s.split_percent);
        let is_idle = load.merged_permille <= 10 * u64::from(s.merge_percent);
        let count = |is: bool, rounds: u32| if is { rounds.saturating_add(1) } else { 0 };
        (self.busy, self.idle) = (count(is_busy, self.busy), count(is_idle, self.idle));
        if !is_busy && !is_idle {
            self.recorded = None;
        }
        if self.recorded.is_some_and(|(until, _)| now < until) {
            return None;
        }
        let [splits_from, merges_from] = control.orchestration.scales_from(app.plan.id, service);
        let more = spec.shards.checked_mul(2).and_then(may_be);
        if self.busy >= s.split_rounds && now >= splits_from {
            let mut split = decided(now, Act::Split, &load, (spec.shards, more?));
            split.why = why(&split, &load, self.busy, s);
            put_rounds(&mut split, self.busy, s.split_percent);
            return Some(split);
        }
        if self.idle >= s.merge_rounds && now >= merges_from && spec.shards > 1 {
            let mut merge = decided(now, Act::Merge, &load, (spec.shards, may_be(fewer)?));
            merge.why = why(&merge, &load, self.idle, s);
            put_rounds(&mut merge, self.idle, s.merge_percent);
            return Some(merge);
        }
        None
    }

    /// What was decided is only recorded, and not again for a while.
    fn record(&mut self, now: Timestamp, s: &OrchestratorSettings) {
        let times = self.recorded.map_or(0, |(_, times)| times + 1);
        let rest = cooldown(s.scale_cooldown_s, times, s.cooldown_s_max);
        self.recorded = Some((now + rest, times));
    }
}

/// What becomes of a decision now: it is carried out, or recorded with what is missing, or waits.
fn admit(
    mut decided: Decided,
    control: &Control,
    seen: &Seen<'_>,
    budget: &mut Budget,
    watch: &mut Watch,
) -> Option<Decided> {
    let (key, shards) = (decided.key?, decided.shards?);
    let app = control.apps.get(&key.app)?;
    let shards_of = app.plan.shards.iter().filter(|s| s.service == key.service);
    let nodes = shards_of.flat_map(|s| s.backups.iter().chain([&s.primary]));
    let mut servers = seen.servers_of(nodes.copied());
    servers.sort_unstable();
    servers.dedup();
    let lack = match control.check_reshard(key.app, key.service, shards) {
        Err(CommandError::Resharding { .. } | CommandError::Busy { .. }) => return None,
        Err(why) => Some(why.to_string()),
        Ok(None) => return None,
        Ok(Some(_)) if decided.act == Act::Split => cannot_help(&decided, seen),
        Ok(Some(_)) => None,
    };
    if let Some(lack) = lack {
        decided.act = Act::Stuck;
        decided.why = format!("{}, but it cannot be done: {lack}", decided.why);
        watch.record(decided.at, seen.settings);
        return Some(decided);
    }
    if seen.settings.mode == OrchestratorMode::DryRun {
        decided.act = Act::DryRun;
        watch.record(decided.at, seen.settings);
        return Some(decided);
    }
    if !budget.allows(&servers) {
        return None;
    }
    budget.take(servers);
    *watch = Watch::default();
    Some(decided)
}

/// Why more shards would not help: no core is free where the busiest one is, or it alone is busy.
fn cannot_help(decided: &Decided, seen: &Seen<'_>) -> Option<String> {
    let of = |name: &str| decided.figures.get(name).copied().unwrap_or(0);
    let (busiest, mean) = (of("busiestPermille"), of("meanPermille"));
    if busiest > mean.saturating_mul(SPLIT_SKEW_MAX) {
        return Some(format!(
            "its load is in few shards: the busiest uses more than {SPLIT_SKEW_MAX} times the mean"
        ));
    }
    let node = seen.nodes.get(decided.from.index())?;
    let busy = f64::from(node.load.busy_permille) / 1e3;
    (!node.has_free_core()).then(|| {
        format!(
            "the node of the busiest shard has no free cores: {busy:.2} of {} are busy",
            node.cores
        )
    })
}

/// What the shards of a service use, if it is known of all and nothing else is about to change them.
fn load(
    now: Timestamp,
    control: &Control,
    app: &AppState,
    service: ServiceId,
    seen: &Seen<'_>,
) -> Option<Load> {
    let orchestration = &control.orchestration;
    let is_it = |key: ShardKey| key.app == app.plan.id && key.service == service;
    let is_away = |d: &Displaced| {
        let shard = app.shard(d.key);
        shard.is_some_and(|s| s.primary != d.home) || now < orchestration.rests_until(d)
    };
    let mut displaced = orchestration.displaced().iter().filter(|d| is_it(d.key));
    if !is_whole(control, app) || displaced.any(is_away) {
        return None;
    }
    let shards: Vec<_> = app.plan.shards.iter().collect();
    let shards = || shards.iter().filter(|s| s.service == service);
    let used = shards().map(|shard| {
        let reports = seen.reports.get(shard.primary.index())?;
        let reports = reports.is_known(now).then_some(reports)?;
        Some(reports.of(app.plan.key(shard))?.cpu_permille)
    });
    let used = used.collect::<Option<Vec<u64>>>()?;
    let busiest = shards().zip(&used).max_by_key(|(_, used)| **used)?.0;
    let pairs = used.chunks(2).map(|pair| pair.iter().sum::<u64>());
    Some(Load {
        merged_permille: pairs.max().unwrap_or(0),
        busiest: (app.plan.key(busiest), busiest.primary),
        used,
    })
}

fn decided(now: Timestamp, act: Act, load: &Load, (before, after): (u16, u16)) -> Decided {
    let (key, from) = load.busiest;
    let figures = [
        ("shardsBefore", u64::from(before)),
        ("shardsAfter", u64::from(after)),
        ("busiestPermille", load.max_permille()),
        ("meanPermille", load.mean_permille()),
        ("mergedPermille", load.merged_permille),
    ];
    Decided {
        at: now,
        cause: match act {
            Act::Merge => Cause::ShardsIdle,
            _ => Cause::ShardsBusy,
        },
        act,
        key: Some(key),
        from,
        to: None,
        shards: Some(after),
        why: String::new(),
        figures: figures.map(|(n, v)| (n.to_string(), v)).into(),
    }
}

fn put_rounds(decided: &mut Decided, rounds: u32, percent: u32) {
    decided.note("rounds", rounds.into());
    decided.note("thresholdPercent", percent.into());
}

/// The reason, in one line.
fn why(decided: &Decided, load: &Load, rounds: u32, s: &OrchestratorSettings) -> String {
    let percent = |permille: u64| permille as f64 / 10.0;
    let (max, mean) = (percent(load.max_permille()), percent(load.mean_permille()));
    let before = load.used.len();
    let after = decided.shards.unwrap_or_default();
    let rule = match decided.act {
        Act::Merge => {
            let merged = percent(load.merged_permille);
            let most = s.merge_percent;
            format!("after a merge it would use {merged:.1} %, at most {most} %")
        }
        _ => format!("at least {} %", s.split_percent),
    };
    format!(
        "load: the busiest of {before} shards uses {max:.1} % of a core, {mean:.1} % on average; {rule}, for {rounds} looks; {after} shards instead of {before}"
    )
}
