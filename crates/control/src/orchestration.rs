//! What the log keeps of the orchestrator: its settings, its decisions, and the instances that they moved
//! away or with the load. Design: docs/design/022.

use e3_model::event::EventKind;
use e3_model::orchestrator::{Cause, OrchestratorSettings};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Doublings of a cool-down at most.
const DOUBLINGS_MAX: u32 = 16;

/// Settings and past moves of the orchestrator.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Orchestration {
    /// The settings.
    pub settings: OrchestratorSettings,
    /// Instances that it moved away from their SmartNIC or because of a power cap, and those that it has brought back lately.
    /// Invariant: ordered by key.
    pub(crate) displaced: Vec<Displaced>,
    /// Shards of scaled services that it moved to another node since those on theirs were busy.
    /// Invariant: ordered by key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) spread: Vec<Displaced>,
    /// By application that was moved because its load had changed: the last move.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) followed: BTreeMap<AppId, Followed>,
    /// By application: by service whose number of shards it has changed, the last change.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) scaled: BTreeMap<AppId, BTreeMap<ServiceId, Scaled>>,
}

/// The last time that the orchestrator changed the number of shards of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scaled {
    /// When.
    pub at: Timestamp,
    /// Shards were merged; otherwise they were split.
    pub merged: bool,
    /// How often the load rose again soon after a merge.
    pub repeats: u32,
}

/// The last move of an application that follows its load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// When.
    pub at: Timestamp,
    /// Why: to save energy, or to carry the load.
    pub cause: Cause,
    /// How often its load rose again soon after it was moved to save energy.
    pub repeats: u32,
}

/// An instance that the orchestrator moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Displaced {
    /// The instance.
    pub key: ShardKey,
    /// The node that it came from.
    pub home: NodeId,
    /// When it moved last, away or back.
    pub at: Timestamp,
    /// How busy it was there, in thousandths of a core.
    pub cpu_permille: u64,
    /// How often it was moved away again soon after it had returned.
    pub repeats: u32,
    /// It left because of a power cap.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shed: bool,
}

/// What a decision does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// Move the instance away from its SmartNIC.
    Away,
    /// Move it back there.
    Back,
    /// Move it because the load of its application has changed.
    Follow,
    /// Move it because a server or rack draws more than its power cap.
    Shed,
    /// Move it to another node, since the shards of its service on this one are busy together.
    Spread,
    /// Split the shards of its service.
    Split,
    /// Merge shards of its service.
    Merge,
    /// Nothing: it is only recorded what would be done.
    DryRun,
    /// Nothing can be done.
    Stuck,
}

/// A decision of the orchestrator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decided {
    /// When.
    pub at: Timestamp,
    /// Why.
    pub cause: Cause,
    /// What is done.
    pub act: Act,
    /// The instance; none if the node has none that could move.
    pub key: Option<ShardKey>,
    /// Its node.
    pub from: NodeId,
    /// Where it goes.
    pub to: Option<NodeId>,
    /// The number of shards that its service gets, if that is what is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// The reason, in one line.
    pub why: String,
    /// The numbers behind it, each with its unit at the end of its name.
    pub figures: BTreeMap<String, u64>,
}

impl Decided {
    /// What it is among the events.
    pub fn kind(&self) -> EventKind {
        match self.act {
            Act::Away => EventKind::OrchestratorMove,
            Act::Back => EventKind::OrchestratorReturn,
            Act::Follow => EventKind::OrchestratorFollow,
            Act::Shed => EventKind::OrchestratorPower,
            Act::Spread => EventKind::OrchestratorSpread,
            Act::Split => EventKind::OrchestratorSplit,
            Act::Merge => EventKind::OrchestratorMerge,
            Act::DryRun => EventKind::OrchestratorDryRun,
            Act::Stuck => EventKind::OrchestratorStuck,
        }
    }

    pub(crate) fn note(&mut self, name: &str, value: u64) {
        self.figures.insert(name.to_string(), value);
    }

    /// How busy the instance was, in thousandths of a core.
    pub(crate) fn cpu_permille(&self) -> u64 {
        self.figures.get(CPU_PERMILLE).copied().unwrap_or(0)
    }
}

/// The figure that a later return is measured against.
pub(crate) const CPU_PERMILLE: &str = "cpuPermille";

/// A cool-down after so many repetitions.
pub(crate) fn cooldown(base_s: u32, repeats: u32, max_s: u32) -> Nanos {
    let doubled = u64::from(base_s) << repeats.min(DOUBLINGS_MAX);
    Nanos::from_secs(doubled.min(max_s.into()))
}

impl Orchestration {
    /// The move of an instance that is remembered.
    pub fn of(&self, key: ShardKey) -> Option<&Displaced> {
        find(&self.displaced, key)
    }

    /// The last time that a shard was moved away from others of its service.
    pub(crate) fn spread_of(&self, key: ShardKey) -> Option<&Displaced> {
        find(&self.spread, key)
    }

    /// All moves that are remembered, by instance.
    pub fn displaced(&self) -> &[Displaced] {
        &self.displaced
    }

    /// Until when an instance stays where it is.
    pub fn rests_until(&self, moved: &Displaced) -> Timestamp {
        let s = &self.settings;
        moved.at + cooldown(s.instance_cooldown_s, moved.repeats, s.cooldown_s_max)
    }

    /// Forgets a home that is no more: nothing can return there.
    pub(crate) fn forget_home(&mut self, node: NodeId) {
        self.displaced.retain(|d| d.home != node);
        self.spread.retain(|d| d.home != node);
    }

    /// Forgets the moves of instances that are no longer the same.
    pub(crate) fn forget(&mut self, app: AppId, service: Option<ServiceId>) {
        let is_it = |key: ShardKey| key.app == app && service.is_none_or(|s| s == key.service);
        self.displaced.retain(|d| !is_it(d.key));
        self.spread.retain(|d| !is_it(d.key));
        if service.is_none() {
            self.followed.remove(&app);
            self.scaled.remove(&app);
        }
    }

    /// Until when the number of shards of a service stays: until they may be split, and until they may be
    /// merged.
    pub fn scales_from(&self, app: AppId, service: ServiceId) -> [Timestamp; 2] {
        let s = &self.settings;
        let last = self.scaled.get(&app).and_then(|of| of.get(&service));
        let from = |last: &Scaled, repeats| {
            last.at + cooldown(s.scale_cooldown_s, repeats, s.cooldown_s_max)
        };
        last.map_or([Timestamp::ZERO; 2], |last| {
            [from(last, 0), from(last, last.repeats)]
        })
    }

    /// The number of shards of a service was changed. That its load rises soon after a merge makes the
    /// next merges wait longer.
    pub(crate) fn on_scale(&mut self, app: AppId, service: ServiceId, merged: bool, at: Timestamp) {
        // Twice, since the longest cool-down itself keeps two merges so far apart.
        let long_ago = Nanos::from_secs(self.settings.cooldown_s_max.into()) * 2;
        let of_app = self.scaled.entry(app).or_default();
        let last = of_app.get(&service).copied();
        let repeats = match last.filter(|last| at.since(last.at) <= long_ago) {
            None => 0,
            Some(last) if last.merged && !merged => last.repeats.saturating_add(1),
            Some(last) => last.repeats,
        };
        let scaled = Scaled {
            at,
            merged,
            repeats,
        };
        of_app.insert(service, scaled);
    }

    /// Until when an application is not moved to save energy.
    pub fn follows_from(&self, app: AppId) -> Timestamp {
        let s = &self.settings;
        let from = |f: &Followed| f.at + cooldown(s.follow_cooldown_s, f.repeats, s.cooldown_s_max);
        self.followed.get(&app).map_or(Timestamp::ZERO, from)
    }

    /// An application was moved. That its load rises soon after a move to save energy makes the next of
    /// these moves wait longer.
    pub(crate) fn on_follow(&mut self, app: AppId, cause: Cause, at: Timestamp) {
        // Twice, since the longest cool-down itself keeps two moves so far apart.
        let long_ago = Nanos::from_secs(self.settings.cooldown_s_max.into()) * 2;
        let last = self.followed.get(&app);
        let repeats = match last.filter(|last| at.since(last.at) <= long_ago) {
            None => 0,
            Some(last) if last.cause == Cause::Energy && cause == Cause::Capacity => {
                last.repeats.saturating_add(1)
            }
            Some(last) => last.repeats,
        };
        self.followed.insert(app, Followed { at, cause, repeats });
    }

    pub(crate) fn on_away(&mut self, moved: Displaced) {
        let long_ago = Nanos::from_secs(self.settings.cooldown_s_max.into());
        note(&mut self.displaced, moved, long_ago);
    }

    pub(crate) fn on_spread(&mut self, moved: Displaced) {
        let long_ago = Nanos::from_secs(self.settings.cooldown_s_max.into());
        self.spread.retain(|d| moved.at.since(d.at) <= long_ago);
        note(&mut self.spread, moved, long_ago);
    }

    pub(crate) fn on_back(&mut self, key: ShardKey, now: Timestamp) {
        if let Ok(at) = place(&self.displaced, key) {
            self.displaced[at].at = now;
        }
    }
}

fn place(all: &[Displaced], key: ShardKey) -> Result<usize, usize> {
    all.binary_search_by_key(&key, |d| d.key)
}

fn find(all: &[Displaced], key: ShardKey) -> Option<&Displaced> {
    place(all, key).ok().map(|at| &all[at])
}

/// Notes a move. The instance rests longer if it was moved before, unless that is long ago.
fn note(all: &mut Vec<Displaced>, moved: Displaced, long_ago: Nanos) {
    match place(all, moved.key) {
        Ok(at) => {
            let before = all[at];
            let repeats = if moved.at.since(before.at) > long_ago {
                0
            } else {
                before.repeats + 1
            };
            all[at] = Displaced { repeats, ..moved };
        }
        Err(at) => all.insert(at, moved),
    }
}
