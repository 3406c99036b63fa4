//! The agents of the nodes: they join, send heartbeats and reports, and ask for plans, as the real
//! node does over UDP and HTTP.

use super::controller::{ControllerProcess, Mail, Poll, Report};
use super::loads;
use super::probation::Figures;
use crate::clock::SimClock;
use crate::cluster::Cluster;
use crate::network::{Party, node_address};
use e3_control::Interest;
use e3_model::plan::{NodeHello, NodePlan, NodeWelcome};
use e3_model::plan_change::PlanChange;
use e3_model::timing::HEARTBEAT_INTERVAL;
use e3_model::{AppId, Formats, Nanos, NodeId, ShardKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// As `RETRY_INTERVAL` of the node.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(200);
/// As `EVENT_INTERVAL` and `REPORT_INTERVAL` of the node.
const EVENT_INTERVAL: Nanos = Nanos::from_millis(200);
const REPORT_INTERVAL: Nanos = Nanos::from_secs(1);
/// As `API_TIMEOUT` of the node.
const API_TIMEOUT: Nanos = Nanos::from_secs(15);

/// An answer of the controller.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// To the hello that was sent at this time.
    Welcome(NodeWelcome, Timestamp),
    /// To a request for a plan, with the process of the controller.
    Plan(Arc<NodePlan>, u64),
    /// To a request of a node that has a plan of that process: what has changed since.
    Change(Box<PlanChange>),
    /// To a request of a node whose plan is also that of this version.
    Unchanged(u64),
    /// There is no newer plan, or the controller is down.
    Nothing,
    /// The process is no member any more.
    Expelled,
    /// To a hello: the node was removed.
    Removed,
}

/// An answer on its way.
#[derive(Debug)]
struct Letter {
    node: u32,
    process: u64,
    sent: Timestamp,
    answer: Answer,
}

#[derive(Debug)]
struct Agent {
    name: String,
    process: u64,
    clock: SimClock,
    /// Those of its program.
    formats: Formats,
    is_paused: bool,
    incarnation: Option<u32>,
    next_hello: Timestamp,
    next_beat: Timestamp,
    next_report: Timestamp,
    /// The contents of the last report.
    report: Report,
    plan_version: u64,
    /// Plans that it took.
    plans: u64,
    /// The plan that came last, and the process of the controller that sent it.
    plan: Option<(Arc<NodePlan>, u64)>,
    /// When it asked for a plan, if the answer has not come.
    asked: Option<Timestamp>,
    /// The applications whose routes it asked for last.
    wanted: BTreeSet<AppId>,
    next_ask: Timestamp,
}

/// All agents whose processes run.
#[derive(Debug, Default)]
pub(super) struct Agents {
    agents: BTreeMap<u32, Agent>,
    letters: BTreeMap<(Timestamp, u64), Letter>,
    wall_offsets_ms: BTreeMap<u32, i64>,
    next: u64,
    /// Reports say which versions run, and how well.
    pub(super) reports_figures: bool,
    /// Reports say how busy instances are.
    pub(super) reports_loads: bool,
    /// Nodes whose heartbeats say that they are starved.
    starved: BTreeSet<u32>,
    /// Reports do not arrive.
    pub(super) reports_are_lost: bool,
    /// Reports arrive late and out of order.
    pub(super) reports_are_late: bool,
}

impl Agent {
    /// The hello that is due, with what is on the disk; none if the disk cannot be read now.
    fn hello(&mut self, cluster: &mut Cluster, node: u32) -> Option<NodeHello> {
        let now = cluster.now;
        if now < self.next_hello {
            return None;
        }
        self.next_hello = now + RETRY_INTERVAL;
        let found = cluster.read_disk(node, self.formats)?;
        Some(NodeHello {
            name: self.name.clone(),
            address: node_address(node),
            process: self.process,
            on_disk: found.on_disk,
            damaged: found.damaged,
            formats: self.formats,
            ..NodeHello::default()
        })
    }

    /// Looks for news of its node, which it reports at once.
    fn look(&mut self, cluster: &Cluster, node: u32) {
        let unreachable = cluster.worker(node).map(|w| w.unreachable());
        let report = Report {
            events: cluster.events(node),
            unreachable: unreachable.into_iter().flatten().collect(),
            figures: None,
            loads: Vec::new(),
            views: BTreeMap::new(),
        };
        if report != self.report {
            self.report = report;
            self.next_report = cluster.now;
        }
    }

    /// The request for a plan that is due, if it can be sent. If the controller does not run, it is refused at
    /// once.
    fn poll(
        &mut self,
        cluster: &Cluster,
        node: u32,
        incarnation: u32,
        (is_connected, is_refused): (bool, bool),
    ) -> Option<Poll> {
        let now = cluster.now;
        if self.asked.is_some_and(|at| now > at + API_TIMEOUT) {
            self.asked = None;
        }
        let wants = cluster.worker(node).map(|worker| worker.interest());
        let wants = wants.unwrap_or_default();
        let is_due = match self.asked {
            None => now >= self.next_ask,
            // As the node's second thread.
            Some(_) => !wants.is_subset(&self.wanted),
        };
        if !is_due || !is_connected {
            return None;
        }
        if is_refused {
            self.next_ask = now + RETRY_INTERVAL;
            return None;
        }
        self.asked = Some(now);
        self.wanted = wants.clone();
        let plan = self.plan.iter();
        let has = plan.flat_map(|(plan, _)| plan.routed()).collect();
        Some(Poll {
            process: self.process,
            incarnation,
            after: self.plan.as_ref().map_or(0, |(plan, _)| plan.version),
            source: self.plan.as_ref().map(|(_, source)| *source),
            interest: Interest { has, wants },
        })
    }
}

impl Agents {
    /// Starts a node's process.
    pub(super) fn start(
        &mut self,
        now: Timestamp,
        node: u32,
        name: String,
        clock: SimClock,
        formats: Formats,
    ) {
        self.next += 1;
        let agent = Agent {
            name,
            process: self.next,
            clock,
            formats,
            is_paused: false,
            incarnation: None,
            next_hello: now,
            next_beat: now,
            next_report: now,
            report: Report::default(),
            plan_version: 0,
            plans: 0,
            plan: None,
            asked: None,
            wanted: BTreeSet::new(),
            next_ask: now,
        };
        self.agents.insert(node, agent);
    }

    pub(super) fn is_up(&self, node: u32) -> bool {
        self.agents.contains_key(&node)
    }

    /// The nodes whose processes run.
    pub(super) fn nodes(&self) -> Vec<u32> {
        self.agents.keys().copied().collect()
    }

    /// Whether the process of a node has joined.
    pub(super) fn is_member(&self, node: u32) -> bool {
        let agent = self.agents.get(&node);
        agent.is_some_and(|a| a.incarnation.is_some())
    }

    /// Ends a node's process; gives its process number.
    pub(super) fn kill(&mut self, node: u32) -> Option<u64> {
        Some(self.agents.remove(&node)?.process)
    }

    pub(super) fn pause(&mut self, node: u32, is_paused: bool) {
        if let Some(agent) = self.agents.get_mut(&node) {
            agent.is_paused = is_paused;
        }
    }

    /// Has the heartbeats of a node say that it is starved, or not.
    pub(super) fn starve(&mut self, node: u32, is_starved: bool) {
        if is_starved {
            self.starved.insert(node);
        } else {
            self.starved.remove(&node);
        }
    }

    /// Processes that are members.
    pub(super) fn joined(&self) -> usize {
        let agents = self.agents.values();
        agents.filter(|a| a.incarnation.is_some()).count()
    }

    /// The nodes whose processes have applied a later plan.
    pub(super) fn with_plan_after(&self, version: u64) -> Vec<u32> {
        let agents = self.agents.iter();
        let later = agents.filter(|(_, a)| a.plan_version > version);
        later.map(|(node, _)| *node).collect()
    }

    /// Whether a process cannot tell the controller anything now.
    pub(super) fn is_hidden(&self, cluster: &Cluster, node: u32) -> bool {
        let is_cut = cluster.cuts.is_cut(Party::Node(node), Party::Controller);
        is_cut || self.agents.get(&node).is_some_and(|a| a.is_paused)
    }

    /// Sets the wall clock of a node off by this much, for processes that start from now on.
    pub(super) fn set_wall_offset_ms(&mut self, node: u32, offset_ms: i64) {
        self.wall_offsets_ms.insert(node, offset_ms);
    }

    pub(super) fn wall_offset_ms(&self, node: u32) -> Option<i64> {
        self.wall_offsets_ms.get(&node).copied()
    }

    /// Sends what is due to the controller.
    pub(super) fn step(&mut self, cluster: &mut Cluster, controller: &mut ControllerProcess) {
        let nodes: Vec<u32> = self.nodes();
        for node in nodes {
            self.step_node(cluster, controller, node);
        }
    }

    fn step_node(&mut self, cluster: &mut Cluster, controller: &mut ControllerProcess, node: u32) {
        let agent = self.agents.get_mut(&node);
        let Some(agent) = agent.filter(|agent| !agent.is_paused) else {
            return;
        };
        let (me, it) = (Party::Node(node), Party::Controller);
        let is_heard = !cluster.cuts.is_cut(me, it);
        let is_connected = is_heard && !cluster.cuts.is_cut(it, me);
        let is_refused = !controller.is_up();
        let Some(incarnation) = agent.incarnation else {
            if is_connected && let Some(hello) = agent.hello(cluster, node) {
                let mail = Mail::Hello(node, hello, cluster.now);
                controller.post(cluster, Nanos::ZERO, mail);
            }
            return;
        };
        if cluster.now >= agent.next_beat {
            agent.next_beat = cluster.now + HEARTBEAT_INTERVAL;
            // Their key comes with the first plan.
            let can_send = is_heard && agent.plan.is_some();
            if can_send && !cluster.random.chance(cluster.faults.loss_permille) {
                let load = loads::load(self.starved.contains(&node));
                let version = agent.plan_version;
                let mail = Mail::Heartbeat(NodeId(node), incarnation, version, load);
                controller.post(cluster, Nanos::ZERO, mail);
            }
            agent.look(cluster, node);
        }
        if is_connected && cluster.now >= agent.next_report {
            self.report(cluster, controller, node, incarnation);
        }
        if let Some(agent) = self.agents.get_mut(&node)
            && let Some(poll) = agent.poll(cluster, node, incarnation, (is_connected, is_refused))
        {
            controller.post(cluster, Nanos::ZERO, Mail::Poll(node, poll));
        }
    }

    /// Sends a report that is due.
    fn report(
        &mut self,
        cluster: &mut Cluster,
        controller: &mut ControllerProcess,
        node: u32,
        incarnation: u32,
    ) {
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        let is_quiet = agent.report.events.is_empty();
        let interval = if is_quiet {
            REPORT_INTERVAL
        } else {
            EVENT_INTERVAL
        };
        agent.next_report = cluster.now + interval;
        let late = if self.reports_are_late {
            Nanos(cluster.random.below(3_000_000_000))
        } else {
            Nanos::ZERO
        };
        if self.reports_are_lost {
            return;
        }
        let report = Report {
            figures: self
                .reports_figures
                .then(|| Figures::of(cluster, node))
                .flatten(),
            loads: if self.reports_loads {
                loads::instance_loads(cluster, node)
            } else {
                Vec::new()
            },
            views: views(cluster, node),
            ..agent.report.clone()
        };
        let mail = Mail::Report(NodeId(node), incarnation, report);
        controller.post(cluster, late, mail);
    }

    /// Queues the controller's answer to a process.
    pub(super) fn answer(
        &mut self,
        cluster: &mut Cluster,
        node: u32,
        process: u64,
        answer: Answer,
    ) {
        self.next += 1;
        let sent = cluster.now;
        let at = sent + Nanos(500_000 + cluster.random.below(12_000_000));
        let letter = Letter {
            node,
            process,
            sent,
            answer,
        };
        self.letters.insert((at, self.next), letter);
    }

    /// Drops all connections, because the controller is down. What has reached a node that is paused, it takes
    /// when it goes on.
    pub(super) fn disconnect(&mut self, cluster: &Cluster) {
        let (now, it) = (cluster.now, Party::Controller);
        let agents = &mut self.agents;
        self.letters.retain(|(at, _), letter| {
            let is_paused = agents.get(&letter.node).is_some_and(|a| a.is_paused);
            *at <= now && is_paused && !cluster.cuts.is_cut(it, Party::Node(letter.node))
        });
        for (node, agent) in agents {
            if !self.letters.values().any(|letter| letter.node == *node) {
                agent.asked = None;
                agent.next_ask = now + RETRY_INTERVAL;
            }
        }
    }

    /// Takes the answers that have arrived. TCP retransmits an answer that meets a cut until it
    /// arrives or nobody waits for it.
    pub(super) fn take_answers(&mut self, cluster: &mut Cluster) {
        let now = cluster.now;
        let due = self.letters.range(..=(now, u64::MAX));
        let due: Vec<(Timestamp, u64)> = due.map(|(key, _)| *key).collect();
        for key in due {
            let Some(letter) = self.letters.remove(&key) else {
                continue;
            };
            let (node, it) = (letter.node, Party::Controller);
            let Some(agent) = self.agents.get_mut(&node) else {
                continue;
            };
            if agent.process != letter.process || now > letter.sent + API_TIMEOUT {
                continue;
            }
            if agent.is_paused || cluster.cuts.is_cut(it, Party::Node(node)) {
                self.letters.insert(key, letter);
                continue;
            }
            if matches!(letter.answer, Answer::Removed) {
                self.agents.remove(&node);
                cluster.kill(node);
                continue;
            }
            agent.take(cluster, node, letter.answer);
            if agent.process == 0 {
                self.next += 1;
                agent.process = self.next;
            }
        }
    }
}

/// The views of the shards of a node.
fn views(cluster: &Cluster, node: u32) -> BTreeMap<ShardKey, u32> {
    let report = cluster.worker(node).map(|worker| worker.report());
    let instances = report.into_iter().flat_map(|report| report.instances);
    instances.map(|i| (i.key, i.view)).collect()
}

impl Agent {
    fn take_plan(&mut self, cluster: &mut Cluster, mut plan: Arc<NodePlan>, source: u64) {
        self.plans += 1;
        Arc::make_mut(&mut plan).revision = self.plans;
        self.asked = None;
        self.plan_version = self.plan_version.max(plan.version);
        self.plan = Some((plan.clone(), source));
        // What it confirms goes out at once.
        self.next_beat = cluster.now;
        cluster.plan_now(plan);
    }

    fn take(&mut self, cluster: &mut Cluster, node: u32, answer: Answer) {
        let now = cluster.now;
        match answer {
            Answer::Welcome(welcome, asked) if self.incarnation.is_none() => {
                self.incarnation = Some(welcome.incarnation);
                (self.plan_version, self.plan) = (0, None);
                self.asked = None;
                self.report = Report::default();
                cluster.start_with(node, welcome.incarnation, self.clock, self.formats);
                cluster.take_controller_time(node, asked, welcome.now);
            }
            Answer::Welcome(..) | Answer::Removed => {}
            Answer::Plan(plan, source) => self.take_plan(cluster, plan, source),
            Answer::Change(change) => {
                self.asked = None;
                let plan = self.plan.take();
                let changed = plan.and_then(|(plan, by)| Some((plan.changed(*change)?, by)));
                if let Some((plan, source)) = changed {
                    self.take_plan(cluster, plan.into(), source);
                }
            }
            Answer::Unchanged(version) => {
                self.asked = None;
                if let Some((plan, source)) = self.plan.take() {
                    let version = version.max(plan.version);
                    let plan = NodePlan::clone(&plan);
                    self.take_plan(cluster, NodePlan { version, ..plan }.into(), source);
                }
            }
            Answer::Nothing => {
                self.asked = None;
                self.next_ask = now + Nanos::from_millis(5);
            }
            Answer::Expelled => {
                // Its state may be old: the process starts again without any.
                cluster.kill(node);
                (self.incarnation, self.asked) = (None, None);
                (self.next_hello, self.process) = (now, 0);
            }
        }
    }
}
