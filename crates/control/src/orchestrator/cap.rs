//! Keeping power caps: when a server or rack draws more than its cap for several rounds, instances leave it,
//! those first that free most watts for each byte that moves. Where they go, the caps hold too.
//!
//! Nothing flaps. What leaves brings the power below the cap by a margin; a server or rack rests after each
//! decision, and longer each time that nothing could be done; an instance rests after each move.
//! Where instances may go says `cap_search`, when they return `cap_returns`.

use super::budget::Budget;
use super::cap_search::{Leaving, Search, Shed};
use super::following::Seen;
use super::moving::{Moving, by_node};
use super::power::{Drawn, MeterReading, Meters, Picture};
use super::round::Round;
use crate::limits::{POWER_CANDIDATES_MAX, POWER_LOOK_INTERVAL};
use crate::orchestration::{Act, CPU_PERMILLE, Decided, cooldown};
use crate::state::Control;
use e3_model::orchestrator::{Cause, OrchestratorMode, OrchestratorSettings};
use e3_model::{NodeId, NodeKind, PowerCaps, PowerDomain, Timestamp, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A server or rack with a cap.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) domain: PowerDomain,
    pub(super) cap_w: f64,
    /// The nodes of each of its servers.
    pub(super) servers: Vec<Vec<NodeId>>,
    /// Rounds in a row in which it drew more than its cap.
    pub(super) above: u32,
    /// No decision before that.
    rests_until: Timestamp,
    /// Cool-downs that ended without a move, in a row.
    repeats: u32,
}

impl Watched {
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.servers.iter().flatten().copied()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.nodes().any(|n| n == node)
    }

    /// Its cap less so many times the margin.
    pub(super) fn target_w(&self, s: &OrchestratorSettings, margins: u32) -> f64 {
        let percent = 100_u32.saturating_sub(s.power_margin_percent * margins);
        self.cap_w * f64::from(percent) / 100.0
    }

    fn rest(&mut self, now: Timestamp, has_moved: bool, s: &OrchestratorSettings) {
        self.repeats = if has_moved {
            0
        } else {
            self.repeats.saturating_add(1)
        };
        let repeats = self.repeats.saturating_sub(1);
        self.rests_until = now + cooldown(s.node_cooldown_s, repeats, s.cooldown_s_max);
        self.above = 0;
    }
}

/// Servers and racks with caps, and what is known of their power.
#[derive(Debug, Default)]
pub(super) struct Capping {
    pub(super) watched: Vec<Watched>,
    caps: PowerCaps,
    topology: Option<Arc<Topology>>,
    pub(super) meters: Meters,
    looked_at: Timestamp,
}

impl Capping {
    /// Takes a reading of a meter.
    pub(super) fn on_reading(
        &mut self,
        now: Timestamp,
        node: NodeId,
        reading: Option<MeterReading>,
    ) {
        self.meters.on_reading(now, node, reading);
    }

    /// Takes over what has changed in the state: caps and nodes.
    pub(super) fn sync(&mut self, control: &Control) {
        let is_same = |known: &Arc<Topology>| Arc::ptr_eq(known, &control.topology);
        let is_known = self.topology.as_ref().is_some_and(is_same);
        if is_known && self.caps == control.power_caps {
            return;
        }
        self.topology = Some(control.topology.clone());
        self.caps = control.power_caps.clone();
        let mut before: BTreeMap<PowerDomain, Watched> = self
            .watched
            .drain(..)
            .map(|w| (w.domain.clone(), w))
            .collect();
        for (domain, cap_w) in self.caps.iter() {
            let known = before.remove(&domain);
            // The counts of another cap say nothing about this one.
            let same = known.filter(|w| w.cap_w == f64::from(cap_w));
            self.watched.push(Watched {
                servers: servers_of(&control.topology, &domain),
                cap_w: cap_w.into(),
                above: same.as_ref().map_or(0, |w| w.above),
                rests_until: same.as_ref().map_or(Timestamp::ZERO, |w| w.rests_until),
                repeats: same.as_ref().map_or(0, |w| w.repeats),
                domain,
            });
        }
    }

    /// Whether there is something to look at.
    pub(super) fn is_due(&self, now: Timestamp, control: &Control) -> bool {
        let has_shed = control.orchestration.displaced.iter().any(|d| d.shed);
        (!self.watched.is_empty() || has_shed) && now.since(self.looked_at) >= POWER_LOOK_INTERVAL
    }

    /// The decisions that are due.
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        control: &Control,
        seen: &Seen<'_>,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Vec<Decided> {
        self.looked_at = now;
        let mut picture = Picture {
            now,
            control,
            seen,
            meters: &self.meters,
            moved: BTreeMap::new(),
            chosen: BTreeSet::new(),
        };
        let drawn: Vec<Option<Drawn>> = round.with(|cluster| {
            let of = |w: &Watched| picture.drawn(cluster, &w.servers);
            self.watched.iter().map(of).collect()
        });
        for (watched, drawn) in self.watched.iter_mut().zip(&drawn) {
            match drawn {
                Some(drawn) if drawn.watts > watched.cap_w => {
                    watched.above = watched.above.saturating_add(1);
                }
                Some(_) => watched.above = 0,
                // What is not known is no evidence.
                None => {}
            }
        }
        let mut due = Vec::new();
        for at in 0..self.watched.len() {
            let w = &self.watched[at];
            let (Some(drawn), true) = (drawn[at], w.above >= seen.settings.power_rounds) else {
                continue;
            };
            if now < w.rests_until || drawn.watts <= w.cap_w || is_relieved(control, w) {
                continue;
            }
            let mut shedding = Shedding {
                search: Search {
                    watched: &self.watched,
                    at,
                },
                drawn,
                budget,
                round,
                picture: &mut picture,
            };
            let Some(decided) = shedding.decide() else {
                continue;
            };
            let has_moved = decided.iter().any(|d| d.act == Act::Shed);
            self.watched[at].rest(now, has_moved, seen.settings);
            due.extend(decided);
        }
        due.extend(super::cap_returns::decide(
            &self.watched,
            &mut picture,
            budget,
            round,
        ));
        due
    }
}

/// Whether an instance is on its way out already.
fn is_relieved(control: &Control, w: &Watched) -> bool {
    let mut migrations = control.apps.values().flat_map(|app| &app.migrations);
    migrations.any(|m| w.has(m.from))
}

/// The nodes of each server of a domain.
fn servers_of(topology: &Topology, domain: &PowerDomain) -> Vec<Vec<NodeId>> {
    let mut servers: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    let is_in = |n: &e3_model::topology::NodeRef<'_>| match domain {
        PowerDomain::Server(name) => n.in_server.name == *name,
        PowerDomain::Rack(name) => n.rack_name == name,
    };
    for node in topology.nodes().filter(is_in) {
        servers.entry(node.server).or_default().push(node.id);
    }
    servers.into_values().collect()
}

/// What is decided about one server or rack.
struct Shedding<'s, 'a, 'r, 'c> {
    search: Search<'s>,
    drawn: Drawn,
    budget: &'s mut Budget,
    round: &'r mut Round<'c>,
    picture: &'s mut Picture<'a>,
}

impl Shedding<'_, '_, '_, '_> {
    /// Moves until the power is below the cap, or why there are none. None if migrations must end first.
    fn decide(&mut self) -> Option<Vec<Decided>> {
        let settings = self.picture.seen.settings;
        let target_w = self.search.domain().target_w(settings, 1);
        let mut decided = Vec::new();
        let mut why = Vec::new();
        let mut watts = self.drawn.watts;
        while watts > target_w && self.budget.left > 0 {
            let (best, rejected) = self.best();
            why = rejected;
            let Some(shed) = best else { break };
            let begun = self.begin(&shed, watts);
            let is_whole = begun.len() == shed.moves.len();
            let waits = begun.is_empty();
            decided.extend(begun);
            if !is_whole {
                // The rest waits until the budget allows it.
                return (!waits || !decided.is_empty()).then_some(decided);
            }
            watts -= shed.freed_w;
        }
        if decided.is_empty() && self.budget.left > 0 {
            decided.push(self.stuck(why));
        }
        (!decided.is_empty()).then_some(decided)
    }

    /// The instances whose moves free most watts for each byte, and why others cannot.
    fn best(&mut self) -> (Option<Shed>, Vec<String>) {
        let control = self.picture.control;
        let mut groups = self
            .round
            .with(|cluster| self.search.groups(self.picture, cluster));
        groups.truncate(POWER_CANDIDATES_MAX);
        let mut best: Option<Shed> = None;
        let mut why = Vec::new();
        for group in groups {
            let (search, picture) = (&self.search, &*self.picture);
            let found = self
                .round
                .with(|cluster| cluster.try_out(|cluster| search.shed(picture, cluster, &group)));
            match found {
                Ok(shed) if best.as_ref().is_none_or(|b| shed.ratio() > b.ratio()) => {
                    best = Some(shed);
                }
                Ok(_) => {}
                Err(rejected) => {
                    let nodes = by_node(control, &rejected.nodes, ", ");
                    let name = control.shard_name(rejected.key);
                    why.push(format!("{name}: {nodes}"));
                }
            }
        }
        (best, why)
    }

    /// The moves of a group that may begin now.
    fn begin(&mut self, shed: &Shed, watts: f64) -> Vec<Decided> {
        let mut begun = Vec::new();
        let seen = self.picture.seen;
        for (number, step) in (1_usize..).zip(&shed.moves) {
            let ends = [step.leaving.from, step.to];
            let servers = ends.map(|n| seen.nodes[n.index()].server).to_vec();
            if !self.budget.allows(&servers) {
                continue;
            }
            let Some(moving) = step.leaving.moving(self.picture.control) else {
                continue;
            };
            self.budget.take(servers);
            self.round.move_primary(&moving, step.leaving.from, step.to);
            let (leaves, comes) = step.cores(&moving, seen);
            self.picture.note(step.leaving.from, leaves, step.to, comes);
            self.picture.chosen.insert(step.leaving.key);
            begun.push(self.decided(shed, (number, &step.leaving, step.to), watts));
        }
        begun
    }

    fn decided(
        &self,
        shed: &Shed,
        (number, leaving, to): (usize, &Leaving, NodeId),
        watts: f64,
    ) -> Decided {
        let control = self.picture.control;
        let (freed_w, added_w, bytes) = (shed.freed_w, shed.added_w, shed.bytes);
        let of = match shed.moves.len() {
            1 => format!("moving {}", control.shard_name(leaving.key)),
            count => format!(
                "emptying {} (instance {number} of {count})",
                control.node_name(leaving.from)
            ),
        };
        let kib = bytes.div_ceil(1 << 10);
        let after_w = watts - freed_w;
        let fault = self.fault(watts);
        let why = format!(
            "{fault}; {of} frees {freed_w:.1} W there and adds {added_w:.1} W elsewhere (modelled), for {kib} KiB: it draws {after_w:.1} W then"
        );
        let act = match self.picture.seen.settings.mode {
            OrchestratorMode::DryRun => Act::DryRun,
            _ => Act::Shed,
        };
        let mut decided = self.about(leaving.from, act, why, watts);
        decided.key = Some(leaving.key);
        decided.to = Some(to);
        decided.note(CPU_PERMILLE, leaving.cpu_permille);
        decided.note("freedMilliwatts", milliwatts(freed_w));
        decided.note("addedMilliwatts", milliwatts(added_w));
        decided.note("movedBytes", bytes);
        decided
    }

    fn stuck(&self, why: Vec<String>) -> Decided {
        let w = self.search.domain();
        let lacks = if why.is_empty() {
            "no instance there frees power by moving now".into()
        } else {
            format!("nothing can move ({})", why.join("; "))
        };
        let watts = self.drawn.watts;
        let why = format!("{}; {lacks}", self.fault(watts));
        let from = w.nodes().next().unwrap_or_default();
        self.about(from, Act::Stuck, why, watts)
    }

    fn fault(&self, watts: f64) -> String {
        let w = self.search.domain();
        let (domain, cap_w, above) = (&w.domain, w.cap_w, watts - w.cap_w);
        let (source, rounds) = (self.drawn.source(), w.above);
        format!(
            "power cap: {domain} draws {watts:.1} W ({source}), {above:.1} W above its cap of {cap_w:.0} W, for {rounds} rounds"
        )
    }

    fn about(&self, from: NodeId, act: Act, why: String, watts: f64) -> Decided {
        let w = self.search.domain();
        let mut decided = Decided {
            at: self.picture.now,
            cause: Cause::PowerCap,
            act,
            key: None,
            from,
            to: None,
            shards: None,
            why,
            figures: BTreeMap::new(),
        };
        decided.note("powerMilliwatts", milliwatts(watts));
        decided.note("capMilliwatts", milliwatts(w.cap_w));
        decided.note("rounds", w.above.into());
        decided.note("serversMeasured", self.drawn.servers_measured.into());
        decided
    }
}

pub(super) fn milliwatts(watts: f64) -> u64 {
    (watts * 1e3).round().max(0.0) as u64
}

impl Leaving {
    /// The instance as it is to move; none if it cannot now.
    pub(super) fn moving<'a>(&self, control: &'a Control) -> Option<Moving<'a>> {
        Moving::new(control, self.key, self.from, self.cpu_permille)
    }
}

/// The kind of a node.
pub(super) fn kind(seen: &Seen<'_>, node: NodeId) -> NodeKind {
    seen.nodes[node.index()].kind()
}
