//! What each fault does when it begins and when it ends.

use super::Run;
use super::disks::End;
use crate::network::Party;
use crate::scenario::known::may_lose_log_and_memory;
use crate::scenario::{Act, Fault, Wire, app_id};
use e3_control::Command;
use e3_model::{AppId, Application, Nanos, NodeId, ServiceId, ShardKey};

/// How long after the start of a move a node is killed.
const MOVE_MS_MAX: u64 = 120;
/// How long a process that restarts is away.
const AWAY_MS_MAX: u64 = 50;
/// Most shards that the number of a service's shards is changed to.
const SHARDS_MAX: u16 = 12;
/// How long after a way was cut the node is killed: while it may commit, or has just lost its leases.
const CUT_MS_MAX: u64 = 300;

impl Run<'_> {
    /// Begins a fault.
    pub(super) fn begin_act(&mut self, act: &Act) {
        match &act.fault {
            Fault::Loss(_)
            | Fault::Repetition(_)
            | Fault::Reordering(_)
            | Fault::Damage(_)
            | Fault::Drain(_)
            | Fault::Cordon(_)
            | Fault::Add(..)
            | Fault::Backup(_)
            | Fault::Restore(_)
            | Fault::Replay(_)
            | Fault::Upgrade(_)
            | Fault::Downgrade(_)
            | Fault::Forget(_) => {}
            Fault::Remove(node) => self.members.begin_removal(*node),
            Fault::Starve(node) => self.agents.starve(*node, true),
            Fault::Pause(node) => self.pause(*node, true),
            Fault::PauseAll => {
                for node in 0..self.scenario.nodes_max() {
                    self.pause(node, true);
                }
            }
            Fault::Slow(node, factor) => self.cluster.slow(*node, *factor),
            Fault::Kill(node) | Fault::Restart(node) | Fault::RemoveDead(node) => {
                self.kill_one(*node);
            }
            Fault::PowerCut(server) => {
                drop(self.kill(&self.scenario.nodes_of(*server), End::PowerCut));
            }
            Fault::RackPowerCut(rack) => {
                drop(self.kill(&self.scenario.nodes_of_rack(*rack), End::PowerCut));
            }
            Fault::Blackout(_) if may_lose_log_and_memory(self.scenario) => {}
            Fault::Blackout(_) => self.begin_blackout(),
            Fault::NodeDiskSlow(node, ms) => {
                self.cluster.slow_disk(*node, Some(Nanos::from_millis(*ms)));
            }
            Fault::NodeDiskFull(node) => self.cluster.fill_disk(*node, true),
            Fault::NodeTornWrite(node) => self.tears.push(*node),
            Fault::NodeSyncFails(node) => self.sync_failures.push(*node),
            Fault::NodeBitRot(node) => {
                self.end_process(*node, End::Rot);
            }
            Fault::NodeLostWrites(node) => self.cluster.let_disk_lie(*node, true),
            Fault::ClockStep(node, offset_ms) => {
                self.agents.set_wall_offset_ms(*node, *offset_ms);
                self.kill_one(*node);
            }
            Fault::WrongClock(node, offset_ms) => self.restart_with(*node, *offset_ms),
            Fault::Drift(node, fast_ppm) => self.cluster.drift(*node, *fast_ppm),
            Fault::KillController => self.controller.kill(&self.cluster, &mut self.agents),
            Fault::BitRot => {
                self.controller.kill(&self.cluster, &mut self.agents);
                self.controller.rots = true;
            }
            Fault::TornWrite => self.controller.tears_next_write = true,
            Fault::LostWrites => self.controller.disk().lies = true,
            Fault::PauseController => self.controller.pause(true),
            Fault::DiskFull => self.controller.disk().is_full = true,
            Fault::DiskSlow(ms) => self.controller.write_time = Nanos::from_millis(*ms),
            Fault::ReportsLost => self.agents.reports_are_lost = true,
            Fault::ReportsLate => self.agents.reports_are_late = true,
            Fault::Move(choice) => {
                self.migrate(*choice);
            }
            Fault::MoveAndKill(choice) => {
                if let Some(nodes) = self.migrate(*choice) {
                    let victim = *self.random.pick(&nodes);
                    self.kill_within(MOVE_MS_MAX, victim);
                }
            }
            Fault::Update(app) => self.update(*app),
            Fault::BadVersion(app, starts) => self.deploy_bad(*app, *starts),
            Fault::Scale(choice) => self.scale(*choice),
            Fault::Rollback(app) => self.rollback(*app),
            Fault::Reshard(choice) => self.reshard(*choice),
            fault => self.begin_partition(fault),
        }
        self.active.push(act.clone());
        self.set_network();
    }

    /// Ends the faults that are over.
    pub(super) fn end_acts(&mut self) {
        let passed_ms = self.begin.until(self.cluster.now).as_millis();
        let (over, active) = std::mem::take(&mut self.active)
            .into_iter()
            .partition::<Vec<Act>, _>(|act| act.end_ms() <= passed_ms);
        self.active = active;
        for act in &over {
            self.end_act(act);
        }
        if !over.is_empty() {
            self.set_network();
        }
    }

    fn end_act(&mut self, act: &Act) {
        match &act.fault {
            Fault::Pause(node) => self.pause(*node, false),
            Fault::PauseAll => {
                for node in 0..self.scenario.nodes_max() {
                    self.pause(node, false);
                }
            }
            Fault::Slow(node, _) => self.cluster.slow(*node, 1),
            Fault::PauseController => self.controller.pause(false),
            Fault::KillController | Fault::BitRot => self.restart_controller(),
            Fault::Blackout(return_ms_max) => self.end_blackout(*return_ms_max),
            Fault::NodeDiskSlow(node, _) => self.cluster.slow_disk(*node, None),
            Fault::NodeDiskFull(node) => self.cluster.fill_disk(*node, false),
            Fault::NodeTornWrite(node) => self.end_torn_write(*node),
            Fault::NodeSyncFails(node) => self.end_failed_sync(*node),
            Fault::NodeBitRot(node) => self.revive(*node),
            Fault::NodeLostWrites(node) => self.lose_writes(*node),
            Fault::TornWrite | Fault::LostWrites => self.cut_power_of_controller(),
            Fault::DiskFull => self.controller.disk().is_full = false,
            Fault::DiskSlow(_) => self.controller.write_time = Nanos::ZERO,
            Fault::ReportsLost => self.agents.reports_are_lost = false,
            Fault::ReportsLate => self.agents.reports_are_late = false,
            Fault::Kill(node)
            | Fault::Restart(node)
            | Fault::RemoveDead(node)
            | Fault::ClockStep(node, _) => {
                self.revive(*node);
            }
            Fault::WrongClock(node, _) => self.set_clock_right(*node),
            Fault::PowerCut(server) => {
                for node in self.scenario.nodes_of(*server) {
                    self.revive(node);
                }
            }
            Fault::RackPowerCut(rack) => {
                for node in self.scenario.nodes_of_rack(*rack) {
                    self.revive(node);
                }
            }
            Fault::MoveAndKill(_) => {
                for node in 0..self.scenario.nodes_max() {
                    self.revive(node);
                }
            }
            Fault::Loss(_)
            | Fault::Repetition(_)
            | Fault::Reordering(_)
            | Fault::Damage(_)
            | Fault::Drift(..)
            | Fault::Move(_)
            | Fault::Reshard(_)
            | Fault::Update(_)
            | Fault::BadVersion(..)
            | Fault::Drain(_)
            | Fault::Cordon(_)
            | Fault::Add(..)
            | Fault::Remove(_)
            | Fault::Scale(_)
            | Fault::Rollback(_)
            | Fault::Backup(_)
            | Fault::Restore(_)
            | Fault::Replay(_)
            | Fault::Upgrade(_)
            | Fault::Downgrade(_)
            | Fault::Forget(_) => {}
            Fault::Starve(node) => self.agents.starve(*node, false),
            fault => self.end_partition(fault),
        }
    }

    /// All nodes and the controller lose their power at once.
    fn begin_blackout(&mut self) {
        let nodes: Vec<u32> = (0..self.scenario.nodes_max()).collect();
        self.kill(&nodes, End::PowerCut);
        self.controller.kill(&self.cluster, &mut self.agents);
    }

    /// The power is back; each node starts some time later.
    fn end_blackout(&mut self, return_ms_max: u64) {
        self.restart_controller();
        for node in 0..self.scenario.nodes_max() {
            let after = Nanos::from_millis(self.random.below(return_ms_max));
            self.revivals.push((self.cluster.now + after, node));
        }
    }

    fn end_torn_write(&mut self, node: u32) {
        if self.tears.contains(&node) {
            self.tears.retain(|n| *n != node);
            self.end_process(node, End::PowerCut);
        }
        self.revive(node);
    }

    fn end_failed_sync(&mut self, node: u32) {
        self.sync_failures.retain(|n| *n != node);
        self.end_process(node, End::PowerCut);
        self.revive(node);
    }

    fn cut_power_of_controller(&mut self) {
        let (cluster, agents) = (&self.cluster, &mut self.agents);
        self.controller.cut_power(cluster, agents, &mut self.random);
        self.controller.disk().lies = false;
        self.restart_controller();
    }

    /// Cuts ways, and ends the process that the fault names beside.
    fn begin_partition(&mut self, fault: &Fault) {
        for (from, to) in self.cuts_of(fault) {
            self.cluster.cuts.cut(from, to);
        }
        match fault {
            Fault::CutAndKill(node, _) => drop(self.kill_within(CUT_MS_MAX, *node)),
            Fault::CutAndRestart(_, node) => {
                let killed = self.kill_within(CUT_MS_MAX, *node);
                let away = Nanos::from_millis(1 + self.random.below(AWAY_MS_MAX));
                self.revivals.push((killed + away, *node));
            }
            _ => {}
        }
    }

    fn end_partition(&mut self, fault: &Fault) {
        for (from, to) in self.cuts_of(fault) {
            self.cluster.cuts.heal(from, to);
        }
        if let Fault::CutAndKill(node, _) = fault {
            self.revive(*node);
        }
    }

    /// Ends all faults: the network works, every process runs.
    pub(super) fn heal(&mut self) {
        for act in std::mem::take(&mut self.active) {
            self.end_act(&act);
        }
        self.kills.clear();
        self.revivals.clear();
        self.cluster.cuts.heal_all();
        self.cluster.faults = Wire::GOOD.faults();
        self.restart_controller();
        for node in 0..self.scenario.nodes_max() {
            self.revive(node);
        }
        self.healed_at = self.cluster.now;
    }

    pub(super) fn restart_controller(&mut self) {
        self.controller.restart(&mut self.cluster, &mut self.random);
    }

    fn set_network(&mut self) {
        let wires = self.active.iter().filter_map(|act| match act.fault {
            Fault::Loss(wire)
            | Fault::Repetition(wire)
            | Fault::Reordering(wire)
            | Fault::Damage(wire) => Some(wire),
            _ => None,
        });
        self.cluster.faults = wires.fold(self.scenario.network, Wire::and).faults();
    }

    /// The pairs that a partition cuts.
    fn cuts_of(&self, fault: &Fault) -> Vec<(Party, Party)> {
        let nodes = || (0..self.scenario.nodes_max()).map(Party::Node);
        let clients = || (0..self.scenario.clients.len() as u16).map(Party::Client);
        let both = |a: Party, b: Party| [(a, b), (b, a)];
        match fault {
            Fault::Isolate(node) => {
                let all = nodes().chain(clients()).chain([Party::Controller]);
                let others = all.filter(|p| *p != Party::Node(*node));
                others.flat_map(|p| both(p, Party::Node(*node))).collect()
            }
            Fault::CutPeers(node) => {
                let others = nodes().filter(|p| *p != Party::Node(*node));
                others.flat_map(|p| both(p, Party::Node(*node))).collect()
            }
            Fault::CutController(node) | Fault::CutAndRestart(node, _) => {
                both(Party::Controller, Party::Node(*node)).to_vec()
            }
            Fault::OneWay(from, to) | Fault::CutAndKill(from, to) if from != to => {
                vec![(Party::Node(*from), Party::Node(*to))]
            }
            Fault::Unheard(node) => vec![(Party::Node(*node), Party::Controller)],
            Fault::Deaf(node) => vec![(Party::Controller, Party::Node(*node))],
            Fault::Split(side) => {
                let is_inside = |p: &Party| matches!(p, Party::Node(n) if side.contains(n));
                let inside = nodes().filter(|p| is_inside(p));
                let outside = || nodes().filter(|p| !is_inside(p)).chain([Party::Controller]);
                inside
                    .flat_map(|a| outside().flat_map(move |b| both(a, b)))
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Pauses a node, or resumes it if no other fault pauses it.
    fn pause(&mut self, node: u32, is_paused: bool) {
        let count = self.pauses.entry(node).or_default();
        *count = if is_paused {
            *count + 1
        } else {
            count.saturating_sub(1)
        };
        let stands = *count > 0;
        self.agents.pause(node, stands);
        self.cluster.pause(node, stands);
    }

    pub(super) fn is_paused(&self, node: u32) -> bool {
        self.pauses.get(&node).is_some_and(|count| *count > 0)
    }

    /// Moves a replica; returns the nodes that take part.
    fn migrate(&mut self, choice: u64) -> Option<Vec<u32>> {
        let mut random = e3_random::Random::new(choice);
        let apps = &self.controller.control.apps;
        let all: Vec<(ShardKey, Vec<NodeId>)> = apps
            .values()
            .flat_map(|app| app.plan.shards.iter().map(|s| (app.plan.key(s), s)))
            .map(|(key, s)| {
                let copies = [s.primary].into_iter().chain(s.backups.iter().copied());
                (key, copies.collect())
            })
            .collect();
        if all.is_empty() {
            return None;
        }
        for _ in 0..8 {
            let (key, copies) = random.pick(&all);
            let from = *random.pick(copies);
            let to = NodeId(random.below(u64::from(self.scenario.nodes_max())) as u32);
            let (key, now) = (*key, self.cluster.now);
            let cold = choice.is_multiple_of(4) && copies.first() == Some(&from);
            let command = Command::Migrate {
                key,
                from,
                to,
                cold,
            };
            if self.controller.execute(now, &command).is_some() {
                let nodes = copies.iter().map(|n| n.0).chain([to.0]);
                return Some(nodes.collect());
            }
        }
        None
    }

    /// Changes the number of shards of a service.
    fn reshard(&mut self, choice: u64) {
        let mut random = e3_random::Random::new(choice);
        let now = self.cluster.now;
        for _ in 0..8 {
            let apps: Vec<AppId> = self.controller.control.apps.keys().copied().collect();
            let Some(app) = (!apps.is_empty()).then(|| *random.pick(&apps)) else {
                return;
            };
            let services = &self.controller.control.apps[&app].plan.app.spec.services;
            let service = random.index(services.len());
            let before = services[service].shards;
            let times = 2 + random.below(2) as u16;
            let shards = if random.one_in(2) {
                before * times
            } else {
                before / times
            };
            let command = Command::Reshard {
                app,
                service: ServiceId(service as u16),
                shards,
            };
            if shards <= SHARDS_MAX && self.controller.execute(now, &command).is_some() {
                return;
            }
        }
    }

    /// Deploys another version of an application.
    pub(super) fn update(&mut self, app: usize) {
        if let Some(manifest) = self.next_manifest(app) {
            self.controller.deploy(self.cluster.now, manifest);
        }
    }

    /// The manifest of another version of an application.
    pub(super) fn next_manifest(&self, app: usize) -> Option<Application> {
        let latency_ms = 51 + self.cluster.now.0 / 1_000_000 % 10_000;
        self.scenario.apps.get(app)?;
        let mut manifest = self.scenario.application(app, latency_ms);
        let running = self.controller.control.apps.get(&app_id(app));
        let running = running.iter().flat_map(|a| &a.plan.app.spec.services);
        for (service, running) in manifest.spec.services.iter_mut().zip(running) {
            service.shards = running.shards;
        }
        Some(manifest)
    }
}
