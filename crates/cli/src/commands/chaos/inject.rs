//! Injects the faults of the schedule into the cluster, while the load runs on another thread.

use super::fault::{Fault, Subject};
use super::network::Network;
use super::processes::{CONTROLLER, Processes};
use super::schedule::{PRIMARY_OF, Planned};
use super::update::Updates;
use crate::cluster::client::Client;
use crate::cluster::process::Process;
use crate::limits::{
    CHAOS_AIM_TIMEOUT, CHAOS_API_TIMEOUT, CHAOS_NOTICED, CHAOS_WHOLE_MAX, DOWN_GRACE, POLL_INTERVAL,
};
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_model::api::{MigrateRequest, NodeView};
use e3_model::plan::Role;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// By how much the clock of a node is set off.
#[cfg(feature = "clock-offset")]
const CLOCK_OFFSET_MS: i64 = 3_600_000;

/// The outcome of a planned fault.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Injected {
    /// The planned fault.
    #[serde(flatten)]
    pub planned: Planned,
    /// The node that it hit.
    pub node: Option<String>,
    /// The incarnation that a fault which ends a node found; the node must return with a higher one.
    #[serde(skip)]
    pub incarnation: Option<u32>,
    /// When it began, since the start of the load; None if it was not injected.
    pub began_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// When every shard had all its copies again.
    pub whole_ms: Option<u64>,
    /// Why it was not injected.
    pub refused: Option<String>,
}

/// Everything that injecting faults needs.
pub struct Injector {
    /// The application.
    pub app: String,
    /// The controller.
    pub client: Client,
    /// The processes.
    pub processes: Processes,
    /// The network, if the cluster has its own.
    pub network: Option<Network>,
    /// Further versions of the code.
    pub updates: Option<Updates>,
    /// When it becomes true, no further fault is injected.
    pub stop: Arc<AtomicBool>,
}

impl Injector {
    /// Runs the schedule of a load that begins now and lasts this long. The faults of a round run
    /// concurrently; the next round begins when the application has recovered. The error says from what
    /// the application did not recover.
    pub fn run(&self, plan: &[Planned], length: Duration) -> (Vec<Injected>, Option<String>) {
        let begin = Instant::now();
        let mut all: Vec<Injected> = plan.iter().cloned().map(Injected::new).collect();
        let mut stuck = None;
        for round in all.chunk_by_mut(|a, b| a.planned.round == b.planned.round) {
            let over = begin.elapsed() >= length;
            if over || stuck.is_some() || self.stop.load(Ordering::Relaxed) {
                for fault in round {
                    let why = if over { "no time left" } else { "stopped" };
                    fault.refused = Some(why.into());
                }
                continue;
            }
            // While all of the cluster answers.
            for fault in round.iter_mut() {
                let _ = self.aim(fault, CHAOS_API_TIMEOUT);
            }
            self.round(begin, round);
            self.processes.heal();
            match self.wait_until_whole(round) {
                Ok(()) => {
                    let now = ms(begin.elapsed());
                    round.iter_mut().for_each(|f| f.whole_ms = Some(now));
                }
                Err(why) => {
                    let names: Vec<String> = round.iter().map(|f| f.planned.to_string()).collect();
                    stuck = Some(format!("after {}: {why}", names.join(" and ")));
                }
            }
        }
        (all, stuck)
    }

    /// Injects the faults of a round, each on its own thread.
    fn round(&self, begin: Instant, round: &mut [Injected]) {
        // A round that is late keeps the distance between its faults.
        let first = round.first().map_or(Duration::ZERO, |f| f.planned.at);
        let start = begin.elapsed().max(first);
        std::thread::scope(|scope| {
            for fault in round {
                scope.spawn(move || {
                    self.sleep_until(begin + start + (fault.planned.at - first));
                    // Primaries may have moved. The controller may not answer during another fault.
                    let _ = self.aim(fault, CHAOS_AIM_TIMEOUT);
                    if self.stop.load(Ordering::Relaxed) {
                        fault.refused = Some("stopped".into());
                        return;
                    }
                    output::say(&format!(
                        "{:7.2} s  {}",
                        begin.elapsed().as_secs_f64(),
                        fault.planned
                    ));
                    let node = fault.node.as_deref().unwrap_or_default();
                    let mut began = None;
                    let done = self.inject(&fault.planned, node, &mut || {
                        began = Some(ms(begin.elapsed()));
                    });
                    match done {
                        Ok(()) => {
                            fault.began_ms = began;
                            fault.ended_ms = Some(ms(begin.elapsed()));
                        }
                        Err(why) => fault.refused = Some(why.message),
                    }
                });
            }
        });
    }

    /// Injects a fault and ends it; calls `begun` when it has begun.
    pub(super) fn inject(
        &self,
        fault: &Planned,
        node: &str,
        begun: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        match fault.fault {
            Fault::Kill => self.signal(node, Process::kill, begun),
            Fault::Restart => self.signal(node, Process::terminate, begun),
            Fault::KillController => self.signal(CONTROLLER, Process::kill, begun),
            Fault::RestartController => self.signal(CONTROLLER, Process::terminate, begun),
            Fault::Pause => {
                let one = self.processes.named(node);
                self.pause(&[one?], fault.length, begun)
            }
            Fault::PauseController => {
                let one = self.processes.named(CONTROLLER);
                self.pause(&[one?], fault.length, begun)
            }
            Fault::PauseSupervisor => {
                let one = self.processes.supervisor();
                self.pause(&[one?], fault.length, begun)
            }
            Fault::PauseNodes => self.pause(&self.processes.all_nodes(), fault.length, begun),
            Fault::PauseAll => self.pause(&self.processes.all(), fault.length, begun),
            #[cfg(feature = "clock-offset")]
            Fault::ClockAhead => self.set_clock(fault, node, CLOCK_OFFSET_MS, begun),
            #[cfg(feature = "clock-offset")]
            Fault::ClockBehind => self.set_clock(fault, node, -CLOCK_OFFSET_MS, begun),
            Fault::KillSupervisor => {
                begun();
                self.kill_supervisor()
            }
            Fault::Move => {
                begun();
                self.migrate(&fault.target)
            }
            Fault::Update => {
                begun();
                self.update()
            }
            Fault::Cut
            | Fault::CutPeers
            | Fault::CutController
            | Fault::OneWay
            | Fault::Drop
            | Fault::Delay => self.cut(fault, node, begun),
        }
    }

    fn signal(
        &self,
        name: &str,
        signal: impl Fn(&Process),
        begun: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        let process = self.processes.named(name)?;
        signal(&process);
        begun();
        Ok(())
    }

    fn pause(
        &self,
        processes: &[Process],
        length: Duration,
        begun: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        if processes.is_empty() {
            return Err(Failure::new(Exit::NotFound, "no node runs"));
        }
        processes.iter().for_each(Process::pause);
        begun();
        self.sleep_until(Instant::now() + length);
        processes.iter().for_each(Process::resume);
        Ok(())
    }

    fn cut(&self, fault: &Planned, node: &str, begun: &mut dyn FnMut()) -> Result<(), Failure> {
        let network = self.network.as_ref().ok_or_else(|| {
            let message = format!("{} needs a network namespace", fault.fault);
            Failure::new(Exit::Input, message)
        })?;
        let nodes = self.client.with_timeout(CHAOS_API_TIMEOUT).nodes()?;
        let cut = network.cut(fault.fault, node, &nodes)?;
        begun();
        self.sleep_until(Instant::now() + fault.length);
        if cut.datagrams()? == 0 && !self.stop.load(Ordering::Relaxed) {
            let message = "there was no datagram to lose or delay";
            return Err(Failure::new(Exit::Unexpected, message));
        }
        Ok(())
    }

    #[cfg(feature = "clock-offset")]
    fn set_clock(
        &self,
        fault: &Planned,
        node: &str,
        offset_ms: i64,
        begun: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        let file = self.processes.state().clock_offset_file(node);
        let written = std::fs::write(&file, offset_ms.to_string());
        written.map_err(|e| Failure::file("write", &file, &e))?;
        let ended = self.signal(node, Process::terminate, begun);
        self.sleep_until(Instant::now() + fault.length);
        std::fs::remove_file(&file).map_err(|e| Failure::file("remove", &file, &e))?;
        ended?;
        self.signal(node, Process::terminate, &mut || {})
    }

    fn kill_supervisor(&self) -> Result<(), Failure> {
        let supervisor = self.processes.supervisor()?;
        supervisor.kill();
        supervisor.wait(DOWN_GRACE);
        self.processes.start_again()
    }

    fn migrate(&self, target: &str) -> Result<(), Failure> {
        let Some((shard, to)) = target.split_once(" to ") else {
            return Err(Failure::new(Exit::Unexpected, format!("no move: {target}")));
        };
        let request = MigrateRequest {
            instance: shard.into(),
            to: to.into(),
            cold: false,
        };
        let client = self.client.with_timeout(CHAOS_API_TIMEOUT);
        client.migrate(&request).map(drop)
    }

    fn update(&self) -> Result<(), Failure> {
        let Some(updates) = &self.updates else {
            let message = format!("no manifest of {} is known", self.app);
            return Err(Failure::new(Exit::NotFound, message));
        };
        let client = self.client.with_timeout(CHAOS_API_TIMEOUT);
        client.deploy(&updates.next()).map(drop)
    }

    /// Finds the node of a fault, if it has one.
    pub(super) fn aim(&self, fault: &mut Injected, timeout: Duration) -> Result<(), Failure> {
        let planned = &fault.planned;
        if planned.fault.subject() != Subject::Node {
            return Ok(());
        }
        let client = self.client.with_timeout(timeout);
        let node = match planned.target.strip_prefix(PRIMARY_OF) {
            None => Some(planned.target.clone()),
            Some(shard) => {
                let instances = client.instances()?.into_iter();
                let mut of_shard = instances.filter(|i| i.instance == shard);
                let primary = of_shard.find(|i| i.role == Role::Primary);
                primary.map(|i| i.node)
            }
        };
        if planned.fault.ends_a_node()
            && let Some(name) = &node
        {
            fault.incarnation = Some(client.node(name)?.incarnation);
        }
        fault.node = node;
        Ok(())
    }

    /// Waits until every node is up, those that faults ended again, and every shard has all its copies.
    pub(super) fn wait_until_whole(&self, round: &[Injected]) -> Result<(), String> {
        let ended = round
            .iter()
            .filter_map(|f| Some((f.node.clone()?, f.incarnation?)));
        let mut before = BTreeMap::new();
        for (node, incarnation) in ended {
            let latest = before.entry(node).or_insert(incarnation);
            *latest = incarnation.max(*latest);
        }
        let begin = Instant::now();
        let client = self.client.with_timeout(CHAOS_API_TIMEOUT);
        // Until then the controller may not have noticed.
        self.sleep_until(begin + CHAOS_NOTICED);
        loop {
            let why = match whole(&client, &self.app, &before) {
                Ok(None) => return Ok(()),
                Ok(Some(why)) => why,
                Err(failure) => failure.message,
            };
            if begin.elapsed() > CHAOS_WHOLE_MAX {
                let seconds = CHAOS_WHOLE_MAX.as_secs();
                return Err(format!(
                    "{} has not recovered after {seconds} s: {why}",
                    self.app
                ));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn sleep_until(&self, at: Instant) {
        while !self.stop.load(Ordering::Relaxed) {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(POLL_INTERVAL));
        }
    }
}

impl Injected {
    /// Not done yet.
    pub(super) fn new(planned: Planned) -> Injected {
        Injected {
            planned,
            node: None,
            incarnation: None,
            began_ms: None,
            ended_ms: None,
            whole_ms: None,
            refused: None,
        }
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.planned)?;
        match &self.node {
            Some(node) if *node != self.planned.target => write!(f, ", {node}"),
            _ => Ok(()),
        }
    }
}

/// What an application still lacks.
fn whole(
    client: &Client,
    app: &str,
    before: &BTreeMap<String, u32>,
) -> Result<Option<String>, Failure> {
    let back = |n: &NodeView| n.up && before.get(&n.name).is_none_or(|old| n.incarnation > *old);
    if let Some(node) = client.nodes()?.into_iter().find(|n| !back(n)) {
        return Ok(Some(format!("node {} is not up", node.name)));
    }
    let view = client.app(app)?;
    if view.ready && view.migrations.is_empty() {
        return Ok(None);
    }
    let problem = view.problems.into_iter().next();
    Ok(Some(problem.unwrap_or_else(|| {
        "instances are starting or moving".into()
    })))
}

/// A time in milliseconds.
pub fn ms(time: Duration) -> u64 {
    time.as_millis() as u64
}
