//! The product's resource controller in the loop of the performance simulator: the same state machine,
//! failure detection and orchestrator that the controller program runs. Heartbeats and reports of the
//! simulated nodes go in, at the product's intervals; what the plan says then is carried out in the
//! simulator. Design: docs/design/026.
//!
//! In the full fidelity the nodes run the product's data plane: they get plans and report events, as in
//! the product, by an [`Exchange`].

mod exchange;
mod follow;

use e3_control::{
    Applied, Command, CommandError, Control, InstanceLoad, Membership, NodeLoad, Orchestrator,
    Placed,
};
use e3_model::event::Event;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::plan::{NodeEvent, NodeHello};
use e3_model::timing::{HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT};
use e3_model::{
    Address, AppId, Application, Format, Formats, Nanos, NodeId, Profile, ShardKey, Timestamp,
    Topology,
};
use e3_perfsim::{Action, Controller, Heartbeat, InstanceCount, Outcome};
use e3_placement::Placement;
pub use exchange::{Exchange, SharedExchange};
use follow::Followed;
use serde::Serialize;
use std::collections::BTreeMap;

/// When a run begins, in the controller's time.
pub const START: Timestamp = Timestamp(10_000_000_000);
/// Number of the simulated cluster.
pub const CLUSTER: u64 = 1;
/// First byte of the addresses of nodes.
const NODE_NETWORK: u8 = 1;
/// Between two reports of a node.
pub const REPORT_INTERVAL: Nanos = Nanos::from_secs(1);
/// Events that are kept.
pub const EVENTS_MAX: usize = 10_000;

/// What is simulated.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The application.
    pub app: &'a Application,
    /// Profiles by name.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// The cluster.
    pub topology: &'a Topology,
    /// Where its instances are.
    pub placement: &'a Placement,
    /// Settings of the orchestrator.
    pub settings: OrchestratorSettings,
}

/// What the controller did in a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Mode of the orchestrator.
    pub orchestrator: OrchestratorMode,
    /// Shards that lost their last copy and began again without state.
    pub state_lost: u64,
    /// What happened, as `e3 events` shows it. `at_s` counts from the start of the run.
    pub events: Vec<SimEvent>,
}

/// Something that happened.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SimEvent {
    /// When, from the start of the run.
    pub at_s: f64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// The controller of one application on a simulated cluster.
pub struct ProductController {
    control: Control,
    membership: Membership,
    orchestrator: Orchestrator,
    app: AppId,
    followed: Followed,
    /// None if the simulator moves shards as its model says.
    exchange: Option<SharedExchange>,
    now: Timestamp,
    reported_at: Timestamp,
    events: Vec<Event>,
    events_seen: u64,
}

impl ProductController {
    /// A controller of a cluster whose nodes have joined and on which the application runs. An error is
    /// why the application cannot be deployed so.
    pub fn new(setup: &Setup<'_>) -> Result<ProductController, CommandError> {
        ProductController::build(setup, None)
    }

    /// The same for nodes that run the product's data plane.
    pub fn with_nodes(
        setup: &Setup<'_>,
    ) -> Result<(ProductController, SharedExchange), CommandError> {
        let exchange = SharedExchange::default();
        let controller = ProductController::build(setup, Some(exchange.clone()))?;
        Ok((controller, exchange))
    }

    fn build(
        setup: &Setup<'_>,
        exchange: Option<SharedExchange>,
    ) -> Result<ProductController, CommandError> {
        let mut control = Control::new(CLUSTER, setup.topology.clone());
        control.format = Format::NEWEST;
        control.apply(&Command::SetOrchestrator {
            // The simulated services keep their number of shards.
            settings: OrchestratorSettings {
                scale_interval_s: 0,
                ..setup.settings
            },
            at: START,
        })?;
        for node in setup.topology.nodes() {
            let hello = hello(&node.node.name, node.id, 0);
            control.apply(&Command::Join { hello, at: START })?;
        }
        let decisions = setup.placement.decisions.iter();
        let placed = decisions.map(|d| Placed {
            key: d.key,
            node: d.node,
            why: String::new(),
        });
        let applied = control.apply(&Command::Deploy {
            app: Box::new(setup.app.clone()),
            modules: vec!["simulated".into(); setup.app.spec.services.len()],
            assets: BTreeMap::new(),
            profiles: setup.profiles.clone(),
            overcommit: true,
            restored: None,
            placed: placed.collect(),
        })?;
        let Applied::Deployed(app) = applied else {
            unreachable!("a new application is deployed");
        };
        let mut membership = Membership::new(START, HEARTBEAT_TIMEOUT);
        for (node, member) in control.members.iter() {
            membership.on_heartbeat(START, *node, member.incarnation);
        }
        let mut controller = ProductController {
            followed: Followed::new(&control.apps[&app].plan),
            membership,
            orchestrator: Orchestrator::new(&control),
            app,
            exchange,
            now: START,
            reported_at: START,
            events: Vec::new(),
            events_seen: 0,
            control,
        };
        controller.settle();
        // What was before the run is not in its summary.
        controller.events.clear();
        controller.events_seen = controller.control.events.last();
        Ok(controller)
    }

    /// The application.
    pub fn app(&self) -> AppId {
        self.app
    }

    /// What it did.
    pub fn summary(&self) -> Summary {
        let start_ms = START.since(Timestamp::ZERO).as_millis();
        let events = self.events.iter().map(|event| SimEvent {
            at_s: event.at_unix_ms.saturating_sub(start_ms) as f64 / 1e3,
            event: event.clone(),
        });
        Summary {
            orchestrator: self.control.orchestration.settings.mode,
            state_lost: self.control.apps[&self.app].state_lost,
            events: events.collect(),
        }
    }

    /// The state machine.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Executes a command. One that does not hold any more changes nothing, as in the product.
    fn execute(&mut self, command: &Command) {
        if self.control.apply(command).is_err() {
            return;
        }
        let fresh = self.control.events.since(self.events_seen);
        let room = EVENTS_MAX.saturating_sub(self.events.len());
        self.events.extend(fresh.take(room).cloned());
        self.events_seen = self.control.events.last();
    }

    fn event(&mut self, event: NodeEvent) {
        let command = Box::new(Command::Event(event));
        self.execute(&Command::At {
            at: self.now,
            command,
        });
    }

    /// Confirms what nodes confirm without delay: that copies leave, and that a shard has state. Nodes of
    /// the product do so themselves.
    fn settle(&mut self) {
        while self.exchange.is_none() {
            let app = &self.control.apps[&self.app];
            let confirmed = app.plan.shards.iter().find_map(|shard| {
                let key = app.plan.key(shard);
                if !self.control.is_up(shard.primary) || app.is_orphan(shard) {
                    return None;
                }
                let is_stateful = app.plan.app.service(shard.service).stateful;
                let (view, incarnation) = (shard.view, shard.incarnation);
                if !shard.leaving.is_empty() {
                    return Some(NodeEvent::Installed { key, view });
                }
                let is_empty = is_stateful && !shard.filled;
                is_empty.then_some(NodeEvent::Filled { key, incarnation })
            });
            let version = self.control.version;
            let Some(event) = confirmed else {
                return;
            };
            self.event(event);
            if self.control.version == version {
                return;
            }
        }
    }

    /// What the plan says now and the simulator has not been told.
    fn actions(&mut self) -> Vec<Action> {
        if self.followed.version == self.control.version {
            return Vec::new();
        }
        self.settle();
        if let Some(exchange) = &self.exchange {
            exchange.borrow_mut().post_plans(&self.control);
        }
        let app = &self.control.apps[&self.app];
        self.followed.version = self.control.version;
        self.followed.actions(app, |node| self.control.is_up(node))
    }

    /// A node's process is heard: a new one joins, one that was silent is back.
    fn hear(&mut self, now: Timestamp, beat: &Heartbeat) -> Option<u32> {
        let node = beat.node;
        let member = self.control.members.get(&node);
        let known = member.map(|m| (m.process, m.up, m.incarnation));
        let wanted = process(node, beat.process);
        match known {
            Some((process, true, incarnation)) if process == wanted => return Some(incarnation),
            Some((process, false, incarnation)) if process == wanted => {
                self.execute(&Command::Hear {
                    node,
                    incarnation,
                    at: now,
                });
            }
            _ => {
                let name = self.control.node_name(node);
                let hello = hello(&name, node, beat.process);
                self.execute(&Command::Join { hello, at: now });
            }
        }
        self.control.members.get(&node).map(|m| m.incarnation)
    }

    /// What nodes of the product have reported since the last call.
    fn reported(&self) -> Vec<NodeEvent> {
        let exchange = self.exchange.as_ref();
        exchange.map_or_else(Vec::new, |e| e.borrow_mut().take_events())
    }

    fn report(&mut self, now: Timestamp, beats: &[(Heartbeat, u32)], counts: &[InstanceCount]) {
        let mut loads: BTreeMap<NodeId, Vec<InstanceLoad>> = BTreeMap::new();
        for count in counts {
            let key = ShardKey {
                app: self.app,
                service: count.service,
                shard: count.shard,
            };
            loads.entry(count.node).or_default().push(InstanceLoad {
                key,
                handled: count.handled,
                busy: count.busy,
                // That of the manifest counts.
                state_bytes: 0,
            });
        }
        for (beat, incarnation) in beats {
            let own = loads.remove(&beat.node).unwrap_or_default();
            let (node, traffic) = (beat.node, beat.port_busy_ns);
            self.orchestrator
                .on_report(now, node, *incarnation, traffic, own.into_iter());
        }
    }
}

impl Controller for ProductController {
    fn on_loads(&mut self, _: Nanos, _: &[e3_perfsim::NodeLoad]) {}

    fn heartbeat_interval(&self) -> Option<Nanos> {
        Some(HEARTBEAT_INTERVAL)
    }

    fn on_heartbeats(
        &mut self,
        now: Nanos,
        beats: &[Heartbeat],
        counts: &[InstanceCount],
    ) -> Vec<Action> {
        let now = START + now;
        self.now = now;
        for event in self.reported() {
            self.event(event);
        }
        let mut heard = Vec::new();
        for beat in beats {
            let Some(incarnation) = self.hear(now, beat) else {
                continue;
            };
            heard.push((*beat, incarnation));
            self.membership.on_heartbeat(now, beat.node, incarnation);
            let permille = |part: f64| (part * 1e3).round().min(f64::from(u16::MAX)) as u16;
            let load = NodeLoad {
                queue_len: beat.waiting,
                busy_permille: permille(beat.busy_cores),
                port_permille: permille(beat.port_utilisation),
            };
            self.orchestrator
                .on_heartbeat(now, beat.node, incarnation, load);
        }
        if now.since(self.reported_at) >= REPORT_INTERVAL {
            self.reported_at = now;
            self.report(now, &heard, counts);
        }
        let nodes = self.membership.lost(now, &self.control);
        if !nodes.is_empty() {
            self.execute(&Command::Lose { nodes, at: now });
        }
        for command in self.orchestrator.decide(now, &self.control) {
            self.execute(&command);
        }
        self.actions()
    }

    fn on_outcome(&mut self, now: Nanos, outcome: Outcome) -> Vec<Action> {
        self.now = START + now;
        let plan = &self.control.apps[&self.app].plan;
        let event = match outcome {
            Outcome::Copied { number } => self.followed.copied(plan, number),
            Outcome::Stopped { service, shard } => {
                let shard = plan.shards.iter().find(|s| s.id() == (service, shard));
                shard.filter(|s| s.frozen).map(|s| NodeEvent::Frozen {
                    key: plan.key(s),
                    view: s.view,
                })
            }
        };
        if let Some(event) = event {
            self.event(event);
        }
        self.actions()
    }
}

/// Address of a simulated node.
pub fn node_address(node: NodeId) -> Address {
    let mut ip = [0; 16];
    ip[0] = NODE_NETWORK;
    ip[12..].copy_from_slice(&node.0.to_be_bytes());
    Address { ip, port: 1 }
}

/// The node of an address; none if it is another one's.
pub fn node_of(address: Address) -> Option<NodeId> {
    let number = address.ip.last_chunk()?;
    (address.ip[0] == NODE_NETWORK).then(|| NodeId(u32::from_be_bytes(*number)))
}

/// What a node's process says when it joins. `failures` counts the processes before it.
fn hello(name: &str, node: NodeId, failures: u32) -> NodeHello {
    NodeHello {
        name: name.to_string(),
        address: node_address(node),
        process: process(node, failures),
        formats: Formats::PROGRAM,
        ..NodeHello::default()
    }
}

fn process(node: NodeId, failures: u32) -> u64 {
    e3_model::plan::process_number(node.0 + 1, failures + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_of_a_large_cluster_has_an_address_of_its_own() {
        for node in [0, 1, 65_535, 65_536, 100_000, u32::MAX] {
            assert_eq!(node_of(node_address(NodeId(node))), Some(NodeId(node)));
        }
        assert_eq!(node_of(Address::default()), None);
    }
}
