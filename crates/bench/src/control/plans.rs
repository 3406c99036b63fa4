//! The controller's state machine in a large cluster: how long a loss takes, and what a move sends.

use super::memory;
use super::scene::{self, parse, service};
use crate::{Better, Figure, median};
use e3_control::{Applied, Command, Control, Placed, Plans};
use e3_model::plan::{NodeEvent, NodeHello, ShardPlan};
use e3_model::{Address, AppId, Application, NodeId, ServiceId, ShardId, ShardKey, Timestamp};
use e3_placement::InstanceKey;
use e3_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;

const MOVE_AIM_BYTES: f64 = 64.0 * 1024.0;
const REPLAN_AIM_MS: f64 = 20.0;
const APPS: usize = 1_000;
const SERVICES: u64 = 10;
/// Servers whose loss is measured.
const LOSSES: usize = 9;
const MOVES: usize = 9;

/// A controller with its nodes.
pub(super) struct Large {
    pub(super) control: Control,
    plans: Plans,
    random: Random,
    servers: usize,
}

/// What nodes are sent.
#[derive(Default)]
struct Sent {
    /// In sum.
    bytes: usize,
    /// Those that are sent a change; one may be sent several.
    nodes: Vec<NodeId>,
}

/// By node: applications, in their order.
type Routes = Vec<(NodeId, Vec<AppId>)>;

/// What moving a shard, losing a server and holding what the controller knows cost.
pub(super) fn figures() -> Vec<Figure> {
    let mut large = Large::new(1_000, APPS, 5);
    let mut figures = vec![large.moves(), large.losses()];
    drop(large);
    figures.push(memory::figure(APPS));
    figures
}

impl Large {
    /// So many servers, with applications whose services have so many shards of two replicas each, all at
    /// random nodes.
    pub(super) fn new(servers: usize, apps: usize, shards: u64) -> Large {
        let mut large = Large {
            control: Control::new(1, scene::topology(servers)),
            plans: Plans::default(),
            random: Random::new(7),
            servers,
        };
        let topology = large.control.topology.clone();
        for (process, node) in (1..).zip(topology.nodes()) {
            let hello = NodeHello {
                name: node.node.name.clone(),
                address: Address::default(),
                process,
                ..NodeHello::default()
            };
            let at = Timestamp::ZERO;
            let join = Command::Join { hello, at };
            large.control.apply(&join).expect("a node of the topology");
        }
        for number in 0..apps {
            let app = application(number, shards);
            let placed = large.placed(&app);
            let deploy = Command::Deploy {
                modules: vec![String::new(); app.spec.services.len()],
                app: Box::new(app),
                assets: BTreeMap::new(),
                profiles: BTreeMap::new(),
                overcommit: true,
                restored: None,
                placed,
            };
            large.control.apply(&deploy).expect("there is room");
        }
        large.plans.note(&large.control);
        large
    }

    fn placed(&mut self, app: &Application) -> Vec<Placed> {
        let mut placed = Vec::new();
        for (service, spec) in (0..).map(ServiceId).zip(&app.spec.services) {
            for shard in (0..spec.shards).map(ShardId) {
                let first = self.random.index(self.servers);
                let other = first + 1 + self.random.index(self.servers - 1);
                for (replica, server) in [(0, first), (1, other % self.servers)] {
                    placed.push(Placed {
                        key: InstanceKey {
                            service,
                            shard,
                            replica,
                        },
                        node: self.node_of(server),
                        why: String::new(),
                    });
                }
            }
        }
        placed
    }

    /// A random node of a server.
    fn node_of(&mut self, server: usize) -> NodeId {
        let node = self.random.index(scene::NODES_PER_SERVER);
        NodeId::of_index(server * scene::NODES_PER_SERVER + node)
    }

    pub(super) fn instances(&self) -> usize {
        let apps = self.control.apps.values();
        let shards = apps.flat_map(|app| &app.plan.shards);
        shards.map(|s| 1 + s.backups.len()).sum()
    }

    /// Applies a command as the controller does; gives what nodes are sent, or none if it is refused.
    fn apply(&mut self, command: &Command) -> Option<Sent> {
        let has = self.routes();
        let base = self.control.version;
        self.carry_out(std::slice::from_ref(command))?;
        self.send(base, has)
    }

    /// Applies commands that arrive together, and makes the plan that follows; none if one is refused.
    fn carry_out(&mut self, commands: &[Command]) -> Option<()> {
        let mut next = self.control.fork();
        let applied = commands.iter().map(|c| next.apply(c).ok());
        let applied: Option<Vec<Applied>> = applied.collect();
        self.control = next;
        self.plans.note(&self.control);
        applied.map(|_| ())
    }

    /// What nodes are sent that had a version, and the routes of these applications.
    fn send(&mut self, base: u64, has: Routes) -> Option<Sent> {
        let mut sent = Sent::default();
        if self.control.version == base {
            return Some(sent);
        }
        for (node, has) in has {
            let (plans, control) = (&mut self.plans, &self.control);
            let change = plans.change_for(control, node, base, (&has, &BTreeSet::new()))?;
            if !change.is_empty() {
                let bytes = serde_json::to_vec(&change).expect("plans have text keys only");
                sent.bytes += bytes.len();
                sent.nodes.push(node);
            }
        }
        Some(sent)
    }

    /// By node: the applications that it has the routes of, which nobody asks for requests.
    fn routes(&self) -> Routes {
        let nodes = self.control.members.keys();
        nodes.map(|node| (*node, self.routed(*node))).collect()
    }

    /// The applications that a node has the routes of, which nobody asks for requests.
    fn routed(&self, node: NodeId) -> Vec<AppId> {
        let shards = self.control.shards_on(node).into_iter();
        let mut apps: Vec<AppId> = shards.map(|key| key.app).collect();
        apps.dedup();
        apps
    }

    /// Bytes that all nodes are sent for the move of a shard.
    fn moves(&mut self) -> Figure {
        let moves: Vec<_> = (0..MOVES).filter_map(|_| self.move_shard()).collect();
        let nodes = self.control.members.len();
        let versions = moves.iter().map(|(_, versions)| *versions).max();
        let told = moves.iter().map(|(sent, _)| {
            let nodes: BTreeSet<&NodeId> = sent.nodes.iter().collect();
            nodes.len() as f64
        });
        let note = format!(
            "{} instances on {} servers ({nodes} nodes), no requests at other nodes than the hosts; up to {} versions \
             of the plan, to {:.0} nodes; the others' empty answers (at most five a second for each node) have headers only",
            self.instances(),
            self.servers,
            versions.unwrap_or_default(),
            median(told.collect()),
        );
        let bytes = median(moves.iter().map(|(sent, _)| sent.bytes as f64).collect());
        let figure = Figure::new("control.move_bytes", bytes, "bytes", Better::Lower);
        figure.aim(MOVE_AIM_BYTES).note(note)
    }

    /// Moves a random shard to a random node; gives what nodes are sent and the versions of the plan.
    /// None if it does not fit there.
    fn move_shard(&mut self) -> Option<(Sent, u32)> {
        let apps: Vec<AppId> = self.control.apps.keys().copied().collect();
        let app = *self.random.pick(&apps);
        let plan = &self.control.apps[&app].plan;
        let shard = &plan.shards[self.random.index(plan.shards.len())];
        let (key, from) = (plan.key(shard), shard.primary);
        let server = self.random.index(self.servers);
        let to = self.node_of(server);
        let cold = false;
        let begin = Command::Migrate {
            key,
            from,
            to,
            cold,
        };
        let (mut sent, mut versions) = (self.apply(&begin)?, 1);
        while let Some(event) = next_event(&self.control, key) {
            let next = self.apply(&Command::Event(event))?;
            sent.bytes += next.bytes;
            sent.nodes.extend(next.nodes);
            versions += 1;
        }
        Some((sent, versions))
    }

    /// Time from the loss of a server until each shard has a primary and a new backup in the plan.
    fn losses(&mut self) -> Figure {
        let losses: Vec<Replan> = (0..LOSSES).map(|loss| self.lose(loss)).collect();
        let of = |part: fn(&Replan) -> f64| median(losses.iter().map(part).collect());
        let mut note = String::new();
        write!(
            note,
            "median of {LOSSES} servers with {:.0} instances (median) of {} on {} servers: the loss {:.1} ms, {:.0} \
             confirmations in {:.0} reports that copies leave, after each of which the new backup is chosen, {:.1} ms, \
             and what nodes are sent after both {:.1} ms; without the log",
            of(|r| r.instances),
            self.instances(),
            self.servers,
            of(|r| r.lose_ms),
            of(|r| r.confirmations),
            of(|r| r.reports),
            of(|r| r.confirm_ms),
            of(|r| r.send_ms),
        )
        .expect("into memory");
        let figure = Figure::new("control.replan_ms", of(Replan::ms), "ms", Better::Lower);
        figure.aim(REPLAN_AIM_MS).note(note)
    }

    /// Loses a server. What is not timed is the nodes' work.
    fn lose(&mut self, loss: usize) -> Replan {
        let first = loss * self.servers / LOSSES * scene::NODES_PER_SERVER;
        let nodes = (first..first + scene::NODES_PER_SERVER).map(NodeId::of_index);
        let affected: BTreeSet<ShardKey> = nodes
            .clone()
            .flat_map(|node| self.control.shards_on(node))
            .collect();
        let members = &self.control.members;
        let nodes = nodes.map(|node| (node, members[&node].incarnation));
        let lose = Command::Lose {
            nodes: nodes.collect(),
            at: Timestamp::ZERO,
        };
        let mut replan = Replan {
            instances: affected.len() as f64,
            ..Replan::default()
        };
        let (has, base) = (self.routes(), self.control.version);
        replan.lose_ms = timed_ms(|| self.carry_out(&[lose]).expect("a loss is never refused"));
        replan.send_ms = timed_ms(|| drop(self.send(base, has).expect("it is known")));
        // The primaries install the new views, and confirm that in their next reports.
        let mut reports: BTreeMap<NodeId, Vec<Command>> = BTreeMap::new();
        for key in affected.iter().copied() {
            let shard = self.control.apps[&key.app].shard(key);
            let shard = shard.expect("it has a plan");
            if !shard.leaving.is_empty() {
                let view = shard.view;
                let event = Command::Event(NodeEvent::Installed { key, view });
                reports.entry(shard.primary).or_default().push(event);
            }
        }
        let (has, base) = (self.routes(), self.control.version);
        replan.reports = reports.len() as f64;
        for events in reports.values() {
            replan.confirmations += events.len() as f64;
            replan.confirm_ms += timed_ms(|| self.carry_out(events).expect("never refused"));
        }
        replan.send_ms += timed_ms(|| drop(self.send(base, has).expect("it is known")));
        for key in &affected {
            let shard = self.control.apps[&key.app].shard(*key);
            let shard = shard.expect("it has a plan");
            assert_eq!(shard.joining.len(), 1, "{key} has no new backup: {shard:?}");
        }
        replan
    }
}

/// What the loss of a server takes.
#[derive(Default)]
struct Replan {
    /// On the server.
    instances: f64,
    /// The loss: primaries that are lost have successors.
    lose_ms: f64,
    /// Confirmations of primaries that a copy leaves.
    confirmations: f64,
    /// Reports that they come in.
    reports: f64,
    /// What they take: new backups are chosen.
    confirm_ms: f64,
    /// What all nodes are sent after the loss, and after the confirmations.
    send_ms: f64,
}

impl Replan {
    fn ms(&self) -> f64 {
        self.lose_ms + self.confirm_ms + self.send_ms
    }
}

fn timed_ms(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e3
}

/// What the nodes of a shard report next while it moves.
pub(super) fn next_event(control: &Control, key: ShardKey) -> Option<NodeEvent> {
    let shard: &ShardPlan = control.apps[&key.app].shard(key)?;
    let view = shard.view;
    if let Some(backup) = shard.joining.first().copied() {
        return Some(NodeEvent::Synced { key, view, backup });
    }
    if shard.frozen {
        return Some(NodeEvent::Frozen { key, view });
    }
    let leaves = !shard.leaving.is_empty();
    leaves.then_some(NodeEvent::Installed { key, view })
}

/// A chain of services.
fn application(number: usize, shards: u64) -> Application {
    let mut text = String::new();
    for s in 0..SERVICES {
        text += &service(&format!("s{s}"), 0.05, 16, shards, 2);
    }
    text += "  channels:\n";
    for to in 1..SERVICES {
        writeln!(text, "    - {{from: s{}, to: s{to}}}", to - 1).expect("into memory");
    }
    parse(&format!("app-{number}"), &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_move_and_servers_are_lost_in_a_small_cluster() {
        let mut large = Large::new(20, 20, 1);
        assert_eq!(large.instances(), 20 * 10 * 2);
        let moves = large.moves();
        assert!(moves.value.is_some_and(|bytes| bytes > 0.0), "{moves:?}");
        let losses = large.losses();
        assert!(losses.value.is_some_and(|ms| ms > 0.0), "{losses:?}");
        large.control.validate();
    }
}
