//! The controller as a process: it hears from the nodes, decides by the product's state machine,
//! stores each decision in the product's log before it acts on it, pauses, dies, and restarts from
//! its log.

mod ends;
mod lifecycle;
mod lost;
mod polls;
mod receipts;

use self::ends::Ends;
use self::lost::Lost;
pub(super) use self::polls::Poll;
use self::polls::Waiting;
use super::agents::{Agents, Answer};
use super::placed::Placed;
use super::probation::{Figures, Versions};
use super::releases::FORMAT;
use crate::cluster::{CLUSTER, Cluster};
use crate::disk::SimDisk;
use e3_control::limits::{PROGRESS_TIMEOUT, RESHARD_TIMEOUT};
use e3_control::{
    Applied, Command, CommandError, Control, Genesis, InstanceLoad, Membership, NodeLoad,
    Orchestrator, Plans, Receipts,
};
use e3_model::plan::{NodeEvent, NodeHello};
use e3_model::timing::{HEARTBEAT_TIMEOUT, SILENCE_CHECK_INTERVAL};
use e3_model::{Application, Nanos, NodeId, ShardKey, Timestamp, Topology};
use e3_random::Random;
use e3_store::Store;
use std::collections::{BTreeMap, BTreeSet};

/// Heartbeats that wait for a paused controller; the system drops any more.
const MAIL_MAX: usize = 4_000;
/// Bytes of log after which there is a snapshot; the product waits for more.
const LOG_LEN_MAX: u64 = 64 << 10;
/// How long an operator takes to restore the newest copy of a log that is too old.
const OPERATOR_DELAY: Nanos = Nanos::from_millis(500);

/// A request or datagram to the controller.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    /// A process asks to join: node, hello, when it was sent.
    Hello(u32, NodeHello, Timestamp),
    /// A heartbeat of a node's process, with the version of the plan that it has applied, and its load.
    Heartbeat(NodeId, u32, u64, NodeLoad),
    /// A report.
    Report(NodeId, u32, Report),
    /// A request for a newer plan.
    Poll(u32, Poll),
}

/// The part of a node's report that the controller acts on.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Report {
    pub(super) events: Vec<NodeEvent>,
    pub(super) unreachable: BTreeSet<NodeId>,
    /// In scenarios that need them.
    pub(super) figures: Option<Figures>,
    /// The same of how busy instances are.
    pub(super) loads: Vec<InstanceLoad>,
    /// The views of the shards that it has.
    pub(super) views: BTreeMap<ShardKey, u32>,
}

/// The controller's process.
pub(super) struct ControllerProcess {
    /// Its state; kept while it is down, to be compared with what its log leads to.
    pub(super) control: Control,
    genesis: Genesis,
    membership: Membership,
    store: Store<SimDisk>,
    is_up: bool,
    /// Number of the process.
    pub(super) process: u64,
    pauses: u32,
    /// How long a write to the disk takes.
    pub(super) write_time: Nanos,
    /// The power fails at the next write.
    pub(super) tears_next_write: bool,
    /// The power fails during a write: the state that it leads to, if it reached the disk.
    torn: Option<Control>,
    /// A bit in one of the files is flipped at the next start.
    pub(super) rots: bool,
    /// What the disk should have held when it lost writes, of which an operator has a copy.
    copy: Option<(SimDisk, Control)>,
    /// What was decided and is lost, if it has decided since.
    lost: Option<Lost>,
    /// It has decided without decisions that are lost, as nobody told it of them.
    goes_on: bool,
    /// The same, although processes live that know of them: they are hidden from it. What follows is beyond
    /// what is promised. docs/design/009.
    pub(super) is_beyond: bool,
    /// How often that copy was restored.
    pub(super) restored_logs: u64,
    /// Since when it has known that the log lacks plans that nodes have applied.
    older_since: Option<Timestamp>,
    /// When the write to the disk that keeps it busy ends.
    busy_until: Timestamp,
    mail: BTreeMap<(Timestamp, u64), Mail>,
    next_mail: u64,
    ended: Ends,
    polls: BTreeMap<u32, Waiting>,
    plans: Plans,
    receipts: Receipts,
    /// By node: the views of its shards, by its last report.
    taken: BTreeMap<NodeId, BTreeMap<ShardKey, u32>>,
    watched_at: Timestamp,
    /// Processes that counted as silent since they received no plans.
    pub(super) withheld: u64,
    next_look: Timestamp,
    pub(super) versions: Versions,
    pub(super) orchestrator: Orchestrator,
    /// Moves that it decided on.
    pub(super) orchestrated: u64,
    /// Nodes that were refused for their damaged journals.
    refused_damaged: BTreeSet<u32>,
    /// What decisions did to nodes that are out of service.
    pub(super) misplaced: Vec<String>,
    /// The frozen shards: since when, in which view.
    frozen: BTreeMap<ShardKey, (u32, Timestamp)>,
}

impl ControllerProcess {
    pub(super) fn new(now: Timestamp, topology: Topology) -> ControllerProcess {
        let genesis = Genesis::Init {
            cluster: CLUSTER,
            topology,
            format: FORMAT,
            release: String::new(),
        };
        ControllerProcess {
            control: Control::founded(genesis.clone()),
            genesis,
            membership: Membership::new(now, HEARTBEAT_TIMEOUT).of_new_cluster(),
            store: Store::recover(SimDisk::default()).expect("a new disk").0,
            is_up: true,
            process: 0,
            pauses: 0,
            write_time: Nanos::ZERO,
            tears_next_write: false,
            torn: None,
            rots: false,
            copy: None,
            lost: None,
            goes_on: false,
            is_beyond: false,
            restored_logs: 0,
            older_since: None,
            busy_until: Timestamp::ZERO,
            mail: BTreeMap::new(),
            next_mail: 0,
            ended: Ends::default(),
            polls: BTreeMap::new(),
            plans: Plans::default(),
            receipts: Receipts::default(),
            taken: BTreeMap::new(),
            watched_at: now,
            withheld: 0,
            next_look: now,
            versions: Versions::default(),
            orchestrator: Orchestrator::default(),
            orchestrated: 0,
            refused_damaged: BTreeSet::new(),
            misplaced: Vec::new(),
            frozen: BTreeMap::new(),
        }
    }

    /// The nodes that were refused for their damaged journals when they last asked.
    pub(super) fn refused_damaged(&self) -> Vec<u32> {
        self.refused_damaged.iter().copied().collect()
    }

    /// The name of a node.
    pub(super) fn name(&self, node: u32) -> String {
        self.control.node_name(NodeId(node))
    }

    /// Sends something to the controller with this additional delay. If its process does not run, nobody
    /// takes it.
    pub(super) fn post(&mut self, cluster: &mut Cluster, late: Nanos, mail: Mail) {
        let has_room = self.mail.len() < MAIL_MAX || !matches!(mail, Mail::Heartbeat(..));
        if self.is_up && has_room {
            let delay = Nanos(100_000 + cluster.random.below(2_000_000));
            self.next_mail += 1;
            let at = cluster.now + delay + late;
            self.mail.insert((at, self.next_mail), mail);
        }
    }

    /// Deploys an application.
    pub(super) fn deploy(&mut self, now: Timestamp, app: Application) {
        let modules = vec![""; app.spec.services.len()];
        self.deploy_modules(now, app, &modules);
    }

    /// Deploys an application with these modules.
    pub(super) fn deploy_modules(&mut self, now: Timestamp, app: Application, modules: &[&str]) {
        let modules = modules.iter().map(ToString::to_string).collect();
        let command = Command::Deploy {
            app: Box::new(app),
            modules,
            assets: BTreeMap::new(),
            profiles: BTreeMap::new(),
            overcommit: true,
            restored: None,
            placed: Vec::new(),
        };
        self.execute(now, &command);
    }

    /// Everything that was decided, also if the log lacks some of it.
    pub(super) fn decided(&self) -> &Control {
        self.copy
            .as_ref()
            .map_or(&self.control, |(_, control)| control)
    }

    /// The disk.
    pub(super) fn disk(&mut self) -> &mut SimDisk {
        self.store.files_mut()
    }

    pub(super) fn can_decide(&self, now: Timestamp) -> bool {
        let is_older = self.older_since.is_some();
        let is_settled = self.membership.is_settled(now, &self.control);
        self.hears() && self.torn.is_none() && !is_older && is_settled
    }

    /// Whether its disk still writes; nothing is decided meanwhile.
    pub(super) fn is_writing(&self, now: Timestamp) -> bool {
        now < self.busy_until
    }

    /// Stores and applies a command; None if it is refused or cannot be stored.
    pub(super) fn execute(&mut self, now: Timestamp, command: &Command) -> Option<Applied> {
        if !self.can_decide(now) {
            return None;
        }
        let can_fail = self.tears_next_write || self.disk().is_full;
        let before = (can_fail || self.copy.is_some()).then(|| self.control.clone());
        let command = &self.control.at(now, command);
        let placed = Placed::of(&self.control);
        let (format, version) = (self.control.format, self.control.version);
        let (applied, choices) = self.control.apply_choosing(command).ok()?;
        if applied == Applied::Nothing {
            return Some(applied);
        }
        self.control.validate();
        let wrong = placed.wrong(&self.control, command);
        self.misplaced.extend(wrong);
        let logged = Control::logged(format, command.clone(), choices);
        let bytes = serde_json::to_vec(&logged).expect("commands have text keys only");
        let stored = self.store.append(&bytes);
        let lost = before.as_ref().zip(self.copy.as_ref());
        let lost = lost.map(|(before, (_, all))| Lost::new(version, before, all));
        if let Some(before) = before.filter(|_| can_fail) {
            let after = std::mem::replace(&mut self.control, before);
            if stored.is_err() {
                return None;
            }
            if self.tears_next_write {
                self.torn = Some(after);
                return None;
            }
            self.control = after;
        }
        if lost.is_some() {
            (self.copy, self.lost) = (None, lost);
        }
        self.store.sync().expect("the simulated disk never says no");
        if self.store.log_len() > LOG_LEN_MAX {
            let bytes = serde_json::to_vec(&self.control).expect("state has text keys only");
            // The log goes on growing if there is no room.
            let _ = self.store.snapshot(&bytes);
        }
        self.busy_until = self.busy_until.max(now) + self.write_time;
        Some(applied)
    }

    /// Takes what has arrived, checks which nodes are silent, and answers.
    pub(super) fn step(&mut self, cluster: &mut Cluster, agents: &mut Agents, random: &mut Random) {
        let now = cluster.now;
        if self.is_up && self.torn.is_some() {
            self.cut_power(cluster, agents, random);
        }
        if self.older_since.is_some_and(|at| now > at + OPERATOR_DELAY) {
            self.restore(cluster, agents, random);
        }
        if !self.is_up || self.pauses > 0 {
            return;
        }
        if now >= self.busy_until {
            self.take_ended(cluster);
        }
        while now >= self.busy_until
            && let Some(entry) = self.mail.first_entry()
            && entry.key().0 <= now
        {
            let mail = entry.remove();
            self.hear(cluster, agents, mail);
        }
        if now >= self.busy_until && now >= self.next_look {
            self.next_look = now + SILENCE_CHECK_INTERVAL;
            self.look(now);
        }
        self.give_views_again(cluster, agents);
        if now >= self.busy_until {
            self.answer_polls(cluster, agents);
        }
    }

    fn is_member(&self, node: NodeId, incarnation: u32) -> bool {
        // A silent process stays a member until another one takes its place.
        let member = self.control.members.get(&node);
        member.is_some_and(|m| m.incarnation == incarnation)
    }

    fn hear(&mut self, cluster: &mut Cluster, agents: &mut Agents, mail: Mail) {
        let now = cluster.now;
        match mail {
            Mail::Hello(node, hello, asked) => self.on_hello(cluster, agents, node, hello, asked),
            Mail::Heartbeat(node, incarnation, applied, load) => {
                if self.control.missing_version(applied as u32).is_some() {
                    self.older_since.get_or_insert(now);
                }
                self.on_heartbeat(now, node, incarnation, applied as u32, load);
            }
            Mail::Report(node, incarnation, report) => {
                if self.is_member(node, incarnation) {
                    self.on_report(now, node, incarnation, report);
                }
            }
            Mail::Poll(node, poll) => {
                let (id, incarnation) = (NodeId(node), poll.incarnation);
                // First: a process whose join the log lacks must not be expelled.
                if self.control.missing_version(poll.after as u32).is_some() {
                    self.older_since.get_or_insert(now);
                }
                self.membership
                    .on_plan_request(id, incarnation, &self.control);
                self.polls.insert(node, Waiting::new(now, poll));
            }
        }
    }

    fn on_hello(
        &mut self,
        cluster: &mut Cluster,
        agents: &mut Agents,
        node: u32,
        hello: NodeHello,
        asked: Timestamp,
    ) {
        let now = cluster.now;
        let process = hello.process;
        let is_damaged = hello.damaged.is_some();
        let is_removed = self.is_removed(&hello.name);
        self.membership.on_hello(&hello, &self.control);
        if self.control.later_copy(&hello).is_some() {
            self.older_since.get_or_insert(now);
        }
        let lacks_last = self.control.check_disk(&hello);
        if let Some(end) = self.control.end_before_refusal(&hello, now) {
            self.execute(now, &end);
        }
        let hello = self.control.without_doubtful_copies(hello);
        let join = Command::Join { hello, at: now };
        // No script takes the last copy from a disk without damage.
        if let Err(refused) = lacks_last
            && self.can_decide(now)
        {
            cluster.ledger.violation(refused.to_string());
        }
        let joined = self.execute(now, &join);
        self.refused_damaged.remove(&node);
        if is_damaged && joined.is_none() {
            let refused = self.control.clone().apply(&join);
            if matches!(refused, Err(CommandError::Damaged { .. })) {
                self.refused_damaged.insert(node);
            }
        }
        if is_removed && joined.is_none() && self.can_decide(now) {
            agents.answer(cluster, node, process, Answer::Removed);
        }
        if let Some(Applied::Joined(welcome)) = joined {
            let (id, incarnation) = (welcome.node, welcome.incarnation);
            self.forget(id);
            self.membership.on_joined(now, id, incarnation);
            self.versions.on_join(id, incarnation);
            agents.answer(cluster, node, process, Answer::Welcome(welcome, asked));
        }
    }

    fn on_heartbeat(
        &mut self,
        at: Timestamp,
        node: NodeId,
        incarnation: u32,
        applied_low: u32,
        load: NodeLoad,
    ) {
        let member = self.control.members.get(&node);
        let Some(member) = member.filter(|m| m.incarnation == incarnation) else {
            return self
                .membership
                .on_stranger(node, incarnation, &self.control);
        };
        let was_lost = !member.up;
        self.membership.on_heartbeat(at, node, incarnation);
        self.membership.on_applied(node, applied_low);
        self.orchestrator.on_heartbeat(at, node, incarnation, load);
        if was_lost && !self.receipts.withholds(node, incarnation, applied_low) {
            let hear = Command::Hear {
                node,
                incarnation,
                at,
            };
            self.execute(at, &hear);
        }
    }

    /// What a member reports.
    fn on_report(&mut self, now: Timestamp, node: NodeId, incarnation: u32, report: Report) {
        let reach = Command::Reach {
            node,
            incarnation,
            unreachable: report.unreachable,
            at: now,
        };
        self.execute(now, &reach);
        self.on_loads(now, node, incarnation, report.loads);
        self.taken.insert(node, report.views);
        for event in report.events {
            self.execute(now, &Command::Event(event));
        }
        if let Some(figures) = report.figures {
            self.versions.on_report(node, incarnation, figures);
            for command in self.versions.look(now, &self.control) {
                self.execute(now, &command);
            }
        }
    }

    fn look(&mut self, now: Timestamp) {
        self.receipts.on_turn(now);
        let nodes = self.membership.lost(now, &self.control);
        for node in nodes.keys() {
            self.forget(*node);
        }
        if !nodes.is_empty() {
            self.execute(now, &Command::Lose { nodes, at: now });
        }
        self.watch_receipts(now);
        let mut frozen = BTreeMap::new();
        for app in self.control.apps.values() {
            for shard in app.plan.shards.iter().filter(|s| s.frozen) {
                let key = app.plan.key(shard);
                let since = match self.frozen.get(&key) {
                    Some((view, since)) if *view == shard.view => *since,
                    _ => now,
                };
                frozen.insert(key, (shard.view, since));
            }
        }
        self.frozen = frozen;
        let stops = |key: &ShardKey| self.control.apps[&key.app].is_resharding(*key);
        let timeout = |key: &ShardKey| {
            if stops(key) {
                RESHARD_TIMEOUT
            } else {
                PROGRESS_TIMEOUT
            }
        };
        let stuck = self.frozen.iter();
        let stuck = stuck.filter(|(key, (_, since))| now > *since + timeout(key));
        let stuck: Vec<ShardKey> = stuck.map(|(key, _)| *key).collect();
        for key in stuck {
            self.execute(now, &Command::Cancel { key });
        }
        self.orchestrate(now);
    }
}
