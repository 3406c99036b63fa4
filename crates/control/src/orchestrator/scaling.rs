//! Scaling: the number of shards of a service follows its load, within the bounds of its manifest. Shards
//! are split while the busiest one uses much of a core, and merged when each would use little afterwards.
//!
//! Nothing flaps. A merge leaves the shards well below where they are split. Several checks in a row must show
//! the same, a service rests after each change, and merges wait longer each time that the load rises
//! again soon after one. What cannot be done is an event, and not repeated before a cool-down is over.
//! Shards that are busy on one node go apart first (`spreading`).

use super::Orchestrator;
use super::budget::Budget;
use super::following::is_whole;
use super::round::Round;
use super::spreading::Spreading;
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
    /// Looks in a row at which shards of one node were to go apart.
    crowded: u32,
    /// Looks in a row at which its shards were to be split.
    busy: u32,
    /// Looks in a row at which they were to be merged.
    idle: u32,
    /// What was recorded and not done: until when nothing else is recorded, and how often in a row.
    recorded: Option<(Timestamp, u32)>,
}

/// What a shard uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) key: ShardKey,
    /// The node of its primary.
    pub(super) node: NodeId,
    /// Thousandths of a core.
    pub(super) permille: u64,
}

/// What the shards of a service use.
struct Load {
    /// By shard.
    used: Vec<Used>,
    /// The busiest one.
    busiest: Used,
    /// What the busiest would use if the number of shards were halved.
    merged_permille: u64,
}

impl Load {
    fn mean_permille(&self) -> u64 {
        let sum: u64 = self.used.iter().map(|s| s.permille).sum();
        sum / (self.used.len() as u64).max(1)
    }
}

impl Scaling {
    /// Whether there is something to do.
    pub(super) fn is_due(&self, now: Timestamp, s: &OrchestratorSettings) -> bool {
        let interval = Nanos::from_secs(s.scale_interval_s.into());
        let is_over = |at: Timestamp| now.since(at) >= interval;
        s.scale_interval_s > 0 && self.looked_at.is_none_or(is_over)
    }

    /// The decisions that are due.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        control: &Control,
        known: &Orchestrator,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Vec<Decided> {
        self.looked_at = Some(now);
        let mut before = std::mem::take(&mut self.services);
        let mut decided = Vec::new();
        for (id, app) in &control.apps {
            // One service of an application changes at a time.
            let mut may_change = !known.following.moves(*id) && app.resharding.is_none();
            for (service, spec) in (0..).map(ServiceId).zip(&app.plan.app.spec.services) {
                if !spec.is_scaled() {
                    continue;
                }
                let mut watch = before.remove(&(*id, service)).unwrap_or_default();
                let load = load(now, control, app, service, known).filter(|_| may_change);
                let mut look = Look {
                    now,
                    control,
                    known,
                    budget,
                    round,
                };
                if let Some(next) = load.and_then(|l| look.decide(app, (service, l), &mut watch)) {
                    may_change = false;
                    decided.push(next);
                }
                self.services.insert((*id, service), watch);
            }
        }
        decided
    }
}

/// One look at the load.
struct Look<'a, 'r> {
    now: Timestamp,
    control: &'a Control,
    known: &'a Orchestrator,
    budget: &'a mut Budget,
    round: &'a mut Round<'r>,
}

impl Look<'_, '_> {
    /// What is done about the load of a service, or recorded.
    fn decide(
        &mut self,
        app: &AppState,
        (service, load): (ServiceId, Load),
        watch: &mut Watch,
    ) -> Option<Decided> {
        let s = &self.known.settings;
        let crowd = self.known.crowd(&load.used);
        watch.count(&load, crowd.is_some(), s);
        if watch.recorded.is_some_and(|(until, _)| self.now < until) {
            return None;
        }
        let crowd = crowd.filter(|_| watch.crowded >= s.split_rounds);
        let spreading = crowd.map(|crowd| {
            let (known, control) = (self.known, self.control);
            known.spread(self.now, control, &crowd, self.budget, self.round)
        });
        let stuck = match spreading {
            Some(Spreading::Moves(decided)) if decided.act == Act::DryRun => {
                watch.record(self.now, s);
                return Some(decided);
            }
            Some(Spreading::Moves(decided)) => {
                *watch = Watch::default();
                return Some(decided);
            }
            Some(Spreading::Waits) => return None,
            Some(Spreading::Nowhere(stuck)) => Some(stuck),
            Some(Spreading::Rests) | None => None,
        };
        let due = watch.due(self.now, self.control, app, (service, &load), s);
        if let Some(due) = due {
            return self.admit(due, &load, watch);
        }
        if stuck.is_some() {
            watch.record(self.now, s);
        }
        stuck
    }

    /// What becomes of a decision now: it is carried out, or recorded with what is missing, or waits.
    fn admit(&mut self, mut decided: Decided, load: &Load, watch: &mut Watch) -> Option<Decided> {
        let settings = &self.known.settings;
        let (key, shards) = (decided.key?, decided.shards?);
        let app = self.control.apps.get(&key.app)?;
        let shards_of = app.plan.shards.iter().filter(|s| s.service == key.service);
        let nodes = shards_of.flat_map(|s| s.backups.iter().chain([&s.primary]));
        let mut servers = self.known.servers(&nodes.copied().collect::<Vec<_>>());
        servers.sort_unstable();
        servers.dedup();
        let lack = match self.control.check_reshard(key.app, key.service, shards) {
            Err(CommandError::Resharding { .. } | CommandError::Busy { .. }) => return None,
            Err(why) => Some(why.to_string()),
            Ok(None) => return None,
            Ok(Some(_)) if decided.act == Act::Split => self.cannot_help(load),
            Ok(Some(_)) => None,
        };
        if let Some(lack) = lack {
            decided.act = Act::Stuck;
            decided.why = format!("{}, but it cannot be done: {lack}", decided.why);
            watch.record(decided.at, settings);
            return Some(decided);
        }
        if settings.mode == OrchestratorMode::DryRun {
            decided.act = Act::DryRun;
            watch.record(decided.at, settings);
            return Some(decided);
        }
        if !self.budget.allows(&servers) {
            return None;
        }
        self.budget.take(servers);
        *watch = Watch::default();
        Some(decided)
    }

    /// Why more shards would not help: the load is in few of them, or there is no core for one of those
    /// that the busiest becomes.
    fn cannot_help(&mut self, load: &Load) -> Option<String> {
        let (busiest, mean) = (load.busiest, load.mean_permille());
        if busiest.permille > mean.saturating_mul(SPLIT_SKEW_MAX) {
            return Some(format!(
                "its load is in few shards: the busiest uses more than {SPLIT_SKEW_MAX} times the mean"
            ));
        }
        let s = &self.known.settings;
        let node = self.known.nodes.get(busiest.node.index())?;
        let handling_permille = self
            .known
            .reports
            .get(busiest.node.index())?
            .busy_permille();
        let most_permille = 10 * u64::from(node.workers) * u64::from(s.split_percent);
        if node.has_free_core() && handling_permille < most_permille {
            return None;
        }
        if s.follow_interval_s > 0 {
            let busy = f64::from(node.load.busy_permille) / 1e3;
            return (!node.has_free_core()).then(|| {
                format!(
                    "the node of the busiest shard has no free cores: {busy:.2} of {} are busy",
                    node.cores
                )
            });
        }
        let (known, half) = (self.known, busiest.permille / 2);
        let found = known.destination_of_part(self.now, self.control, busiest, half, self.round)?;
        let why = found.err()?;
        Some(format!(
            "the node of the busiest shard is busy, and no other can take one of those that it becomes ({why})"
        ))
    }
}

impl Watch {
    /// Counts what the load says.
    fn count(&mut self, load: &Load, is_crowded: bool, s: &OrchestratorSettings) {
        let is_busy = load.busiest.permille >= 10 * u64::from(s.split_percent);
        let is_idle = load.merged_permille <= 10 * u64::from(s.merge_percent);
        let count = |is: bool, rounds: u32| if is { rounds.saturating_add(1) } else { 0 };
        self.crowded = count(is_crowded, self.crowded);
        (self.busy, self.idle) = (count(is_busy, self.busy), count(is_idle, self.idle));
        if !is_crowded && !is_busy && !is_idle {
            self.recorded = None;
        }
    }

    /// A change of the number of shards, if the load has called for it for long enough.
    fn due(
        &self,
        now: Timestamp,
        control: &Control,
        app: &AppState,
        (service, load): (ServiceId, &Load),
        s: &OrchestratorSettings,
    ) -> Option<Decided> {
        let spec = app.plan.app.service(service);
        let bounds = spec.shard_bounds?;
        let may_be = |shards: u16| bounds.allow(shards).then_some(shards);
        let fewer = (spec.shards / 2).max(1);
        let [splits_from, merges_from] = control.orchestration.scales_from(app.plan.id, service);
        let more = spec.shards.checked_mul(2).and_then(may_be);
        if self.busy >= s.split_rounds && now >= splits_from {
            let mut split = decided(now, Act::Split, load, (spec.shards, more?));
            split.why = why(&split, load, self.busy, s);
            put_rounds(&mut split, self.busy, s.split_percent);
            return Some(split);
        }
        if self.idle >= s.merge_rounds && now >= merges_from && spec.shards > 1 {
            let mut merge = decided(now, Act::Merge, load, (spec.shards, may_be(fewer)?));
            merge.why = why(&merge, load, self.idle, s);
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

/// What the shards of a service use, if it is known of all and nothing else is about to change them.
fn load(
    now: Timestamp,
    control: &Control,
    app: &AppState,
    service: ServiceId,
    known: &Orchestrator,
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
    let shards = app.plan.shards.iter().filter(|s| s.service == service);
    let used = shards.map(|shard| {
        let (key, node) = (app.plan.key(shard), shard.primary);
        let reports = known.reports.get(node.index())?;
        let reports = reports.is_known(now).then_some(reports)?;
        let permille = reports.of(key)?.cpu_permille;
        Some(Used {
            key,
            node,
            permille,
        })
    });
    let used = used.collect::<Option<Vec<Used>>>()?;
    let busiest = *used.iter().max_by_key(|s| s.permille)?;
    let pairs = used
        .chunks(2)
        .map(|pair| pair.iter().map(|s| s.permille).sum());
    Some(Load {
        merged_permille: pairs.max().unwrap_or(0),
        busiest,
        used,
    })
}

fn decided(now: Timestamp, act: Act, load: &Load, (before, after): (u16, u16)) -> Decided {
    let Used {
        key, node: from, ..
    } = load.busiest;
    let figures = [
        ("shardsBefore", u64::from(before)),
        ("shardsAfter", u64::from(after)),
        ("busiestPermille", load.busiest.permille),
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
    let (max, mean) = (
        percent(load.busiest.permille),
        percent(load.mean_permille()),
    );
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
        "load: the busiest of {before} shards uses {max:.1} % of a core, {mean:.1} % on average; {rule}, for {rounds} checks; {after} shards instead of {before}"
    )
}
