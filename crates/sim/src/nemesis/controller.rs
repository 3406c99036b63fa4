//! The controller as a process: it hears from the nodes, decides by the product's state machine, stores
//! each decision before it acts on it, pauses, dies, and restarts from its log.

use super::agents::{Agents, Answer};
use crate::cluster::{CLUSTER, Cluster};
use e3_control::limits::{HEARTBEAT_TIMEOUT, PROGRESS_TIMEOUT};
use e3_control::{Applied, Command, Control, Membership};
use e3_model::plan::{NodeEvent, NodeHello};
use e3_model::{Application, Nanos, NodeId, ShardKey, Timestamp, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// `SILENCE_CHECK_INTERVAL` of the controller.
const LOOK_INTERVAL: Nanos = Nanos::from_millis(100);
/// `PLAN_WAIT` of the node.
const PLAN_WAIT: Nanos = Nanos::from_secs(10);
/// Heartbeats that wait for a paused controller; the system drops any more.
const MAIL_MAX: usize = 4_000;

/// A request or datagram to the controller.
#[derive(Clone, Debug)]
pub(super) enum Mail {
    /// A process joins.
    Hello(u16, NodeHello),
    /// The supervisor's report that a process has ended: node, process.
    Exited(u16, u64),
    /// A heartbeat of a node's process.
    Heartbeat(NodeId, u32),
    /// A report.
    Report(NodeId, u32, Report),
    /// A request for a newer plan: node, process, incarnation, version.
    Poll(u16, u64, u32, u64),
}

/// The part of a node's report that the controller acts on.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Report {
    pub(super) events: Vec<NodeEvent>,
    pub(super) unreachable: BTreeSet<NodeId>,
}

/// The condition of the controller's disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disk {
    /// It accepts writes.
    Works,
    /// It is full.
    Full,
    /// Each write takes this long.
    Slow(Nanos),
}

/// The controller's process.
pub(super) struct ControllerProcess {
    /// Its state; kept while it is down, since its log leads to the same.
    pub(super) control: Control,
    topology: Topology,
    membership: Membership,
    /// The log on its disk.
    log: Vec<Command>,
    is_up: bool,
    pauses: u32,
    pub(super) disk: Disk,
    /// When the write to the disk that keeps it busy ends.
    busy_until: Timestamp,
    mail: BTreeMap<(Timestamp, u64), Mail>,
    next_mail: u64,
    polls: BTreeMap<u16, (u64, u32, u64, Timestamp)>,
    next_look: Timestamp,
    /// The frozen shards: since when, in which view.
    frozen: BTreeMap<ShardKey, (u32, Timestamp)>,
}

impl ControllerProcess {
    pub(super) fn new(now: Timestamp, topology: Topology) -> ControllerProcess {
        ControllerProcess {
            control: Control::new(CLUSTER, topology.clone()),
            topology,
            membership: Membership::new(now, HEARTBEAT_TIMEOUT),
            log: Vec::new(),
            is_up: true,
            pauses: 0,
            disk: Disk::Works,
            busy_until: Timestamp::ZERO,
            mail: BTreeMap::new(),
            next_mail: 0,
            polls: BTreeMap::new(),
            next_look: now,
            frozen: BTreeMap::new(),
        }
    }

    /// The name of a node.
    pub(super) fn name(&self, node: u16) -> String {
        self.control.node_name(NodeId(node))
    }

    /// Sends something to the controller with this additional delay.
    pub(super) fn post(&mut self, cluster: &mut Cluster, late: Nanos, mail: Mail) {
        if self.mail.len() < MAIL_MAX {
            let delay = Nanos(100_000 + cluster.random.below(2_000_000));
            self.next_mail += 1;
            let at = cluster.now + delay + late;
            self.mail.insert((at, self.next_mail), mail);
        }
    }

    /// Deploys an application.
    pub(super) fn deploy(&mut self, now: Timestamp, app: Application) {
        let modules = vec![String::new(); app.spec.services.len()];
        let command = Command::Deploy {
            app: Box::new(app),
            modules,
            assets: BTreeMap::new(),
            profiles: BTreeMap::new(),
            overcommit: true,
        };
        self.execute(now, &command);
    }

    /// Stores and applies a command; None if it is refused or cannot be stored.
    pub(super) fn execute(&mut self, now: Timestamp, command: &Command) -> Option<Applied> {
        if self.disk == Disk::Full || !self.is_up {
            return None;
        }
        let applied = self.control.apply(command).ok()?;
        if applied != Applied::Nothing {
            self.control.validate();
            self.log.push(command.clone());
            if let Disk::Slow(span) = self.disk {
                self.busy_until = self.busy_until.max(now) + span;
            }
        }
        Some(applied)
    }

    /// Kills it.
    pub(super) fn kill(&mut self, cluster: &Cluster, agents: &mut Agents) {
        if self.is_up {
            self.is_up = false;
            self.mail.clear();
            self.polls.clear();
            agents.disconnect(cluster.now);
        }
    }

    /// Restarts it from its log, if it is down.
    pub(super) fn restart(&mut self, cluster: &mut Cluster) {
        if self.is_up {
            return;
        }
        let mut control = Control::new(CLUSTER, self.topology.clone());
        for command in &self.log {
            if let Err(e) = control.apply(command) {
                let what = format!("the controller's log cannot be replayed: {e}");
                cluster.ledger.violation(what);
            }
        }
        if control != self.control {
            let what = "the controller's log leads to another state";
            cluster.ledger.violation(what.into());
        }
        self.control = control;
        self.membership = Membership::new(cluster.now, HEARTBEAT_TIMEOUT);
        self.frozen.clear();
        self.busy_until = cluster.now;
        self.is_up = true;
    }

    /// Pauses or resumes it.
    pub(super) fn pause(&mut self, is_paused: bool) {
        if is_paused {
            self.pauses += 1;
        } else {
            self.pauses = self.pauses.saturating_sub(1);
        }
    }

    /// Takes what has arrived, checks which nodes are silent, and answers.
    pub(super) fn step(&mut self, cluster: &mut Cluster, agents: &mut Agents) {
        let now = cluster.now;
        if !self.is_up || self.pauses > 0 {
            return;
        }
        while now >= self.busy_until
            && let Some(entry) = self.mail.first_entry()
            && entry.key().0 <= now
        {
            let mail = entry.remove();
            self.hear(cluster, agents, mail);
        }
        if now >= self.busy_until && now >= self.next_look {
            self.next_look = now + LOOK_INTERVAL;
            self.look(now);
        }
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
            Mail::Hello(node, hello) => {
                let process = hello.process;
                let joined = self.execute(now, &Command::Join { hello, at: now });
                if let Some(Applied::Joined(welcome)) = joined {
                    let (id, incarnation) = (welcome.node, welcome.incarnation);
                    self.membership.on_heartbeat(now, id, incarnation);
                    agents.answer(cluster, node, process, Answer::Welcome(welcome));
                }
            }
            Mail::Exited(node, process) => {
                let (node, at) = (NodeId(node), now);
                let member = self.control.members.get(&node);
                let member = member.filter(|m| m.process == process);
                if let Some(incarnation) = member.map(|m| m.incarnation) {
                    let exit = Command::Exit {
                        node,
                        incarnation,
                        at,
                    };
                    self.execute(now, &exit);
                }
            }
            Mail::Heartbeat(node, incarnation) => {
                let member = self.control.members.get(&node);
                if let Some(member) = member.filter(|m| m.incarnation == incarnation) {
                    let was_lost = !member.up;
                    self.membership.on_heartbeat(now, node, incarnation);
                    if was_lost {
                        let at = now;
                        let hear = Command::Hear {
                            node,
                            incarnation,
                            at,
                        };
                        self.execute(now, &hear);
                    }
                }
            }
            Mail::Report(node, incarnation, report) => {
                if self.is_member(node, incarnation) {
                    let reach = Command::Reach {
                        node,
                        incarnation,
                        unreachable: report.unreachable,
                        at: now,
                    };
                    self.execute(now, &reach);
                    for event in report.events {
                        self.execute(now, &Command::Event(event));
                    }
                }
            }
            Mail::Poll(node, process, incarnation, after) => {
                self.polls.insert(node, (process, incarnation, after, now));
            }
        }
    }

    fn look(&mut self, now: Timestamp) {
        let nodes = self.membership.lost(now, &self.control);
        if !nodes.is_empty() {
            self.execute(now, &Command::Lose { nodes, at: now });
        }
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
        let late = |since: Timestamp| now > since + PROGRESS_TIMEOUT;
        let stuck = self.frozen.iter().filter(|(_, (_, since))| late(*since));
        let stuck: Vec<ShardKey> = stuck.map(|(key, _)| *key).collect();
        for key in stuck {
            self.execute(now, &Command::Cancel { key });
        }
    }

    fn answer_polls(&mut self, cluster: &mut Cluster, agents: &mut Agents) {
        let now = cluster.now;
        let version = self.control.version;
        let is_over = |(_, incarnation, after, since): &(u64, u32, u64, Timestamp), node| {
            version > *after || now > *since + PLAN_WAIT || !self.is_member(node, *incarnation)
        };
        let due = self.polls.iter();
        let due: Vec<u16> = due
            .filter(|(node, poll)| is_over(poll, NodeId(**node)))
            .map(|(node, _)| *node)
            .collect();
        for node in due {
            let Some((process, incarnation, after, _)) = self.polls.remove(&node) else {
                continue;
            };
            let answer = if !self.is_member(NodeId(node), incarnation) {
                Answer::Expelled
            } else if version > after {
                Answer::Plan(self.control.plan_for(NodeId(node)).into())
            } else {
                Answer::Nothing
            };
            agents.answer(cluster, node, process, answer);
        }
    }
}
