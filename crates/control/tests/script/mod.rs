//! A controller with its log, and the steps of scripts.

mod follow;

use e3_control::{Applied, Choice, Command, CommandError, Control, MoveOutcome, Placed, Plans};
use e3_model::document::{parse_application, parse_topology};
use e3_model::plan::{NodeEvent, NodeHello, NodePlan, ShardPlan};
use e3_model::{
    Address, AppId, Format, Formats, Nanos, NodeId, ServiceId, ShardId, ShardKey, Timestamp,
};
use follow::Followers;
use std::collections::{BTreeMap, BTreeSet};

pub const APP: &str = include_str!("../../../model/tests/two-services.yaml");
pub const CLUSTER: u64 = 9;
pub const TOPOLOGY: &str = include_str!("../../../../topologies/3x-type1.yaml");

/// The nodes of the topology.
pub fn all_nodes() -> Vec<NodeId> {
    (0..6).map(NodeId).collect()
}

/// A controller with its log, so that every test also checks replay.
pub struct Script {
    pub control: Control,
    founded: Control,
    /// The same, which looks at all shards after each command.
    thorough: Control,
    plans: Plans,
    /// What a node has that is sent what changes, now and then.
    followed: NodePlan,
    followers: Followers,
    pub log: Vec<String>,
    /// The same with the nodes that each command chose, whatever the format.
    pub chosen: Vec<String>,
    /// Seconds that have passed.
    pub seconds: u64,
}

/// Deploys an application of two services, with its instances where that was decided.
pub fn deployment(text: &str, placed: Vec<Placed>) -> Command {
    Command::Deploy {
        app: Box::new(parse_application("a.yaml", text).unwrap()),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: false,
        restored: None,
        placed,
    }
}

/// An address that no other process has.
fn address(process: u64) -> Address {
    Address {
        port: process as u16,
        ..Address::default()
    }
}

impl Script {
    pub fn new() -> Script {
        Script::founded(Format::default())
    }

    /// A cluster whose log has this format, without members.
    pub fn founded(format: Format) -> Script {
        Script::of(TOPOLOGY, format)
    }

    /// A cluster of this topology, without members.
    pub fn of(topology: &str, format: Format) -> Script {
        let topology = parse_topology("t.yaml", topology).unwrap();
        let mut control = Control::new(CLUSTER, topology);
        control.format = format;
        let mut thorough = control.clone();
        thorough.look_at_all();
        Script {
            founded: control.clone(),
            control,
            thorough,
            plans: Plans::default(),
            followed: NodePlan::default(),
            followers: Followers::default(),
            log: Vec::new(),
            chosen: Vec::new(),
            seconds: 0,
        }
    }

    pub fn apply(&mut self, command: Command) -> Result<Applied, CommandError> {
        let before = self.control.clone();
        let applied = match &command {
            Command::With { choices, .. } => {
                let applied = self.control.apply(&command);
                applied.map(|applied| (applied, choices.clone()))
            }
            _ => self.control.apply_choosing(&command),
        };
        let (applied, choices) = applied.map_or_else(|e| (Err(e), Vec::new()), |(a, c)| (Ok(a), c));
        let thorough = self.thorough.apply(&command);
        assert_eq!((&thorough, &self.thorough), (&applied, &self.control));
        match &applied {
            Ok(_) => self.note(&command, choices),
            Err(_) => assert_eq!(self.control, before, "a refused command changes nothing"),
        }
        if applied == Ok(Applied::Nothing) {
            assert_eq!(self.control, before, "{command:?} changes nothing");
        }
        self.control.validate();
        check_views(&before, &self.control);
        self.follow_plan();
        applied
    }

    fn note(&mut self, command: &Command, choices: Vec<Choice>) {
        let text = |command: &Command| {
            let text = serde_json::to_string(command).unwrap();
            assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), *command);
            text
        };
        self.log.push(text(command));
        self.chosen.push(match command {
            Command::With { .. } => text(command),
            _ => text(&Control::logged(Format::CHOICES, command.clone(), choices)),
        });
    }

    /// After some of the commands, what changed since the last of them leads to the whole plan.
    fn follow_plan(&mut self) {
        self.plans.note(&self.control);
        let (plans, step) = (&mut self.plans, self.log.len());
        self.followers.follow(plans, &self.control, step);
        if self.log.len() % 3 == 1 {
            return;
        }
        let whole = self.control.plan_for(NodeId(0));
        if let Some(change) = self.plans.change(&self.control, self.followed.version) {
            let text = serde_json::to_string(&change).unwrap();
            let change = serde_json::from_str(&text).unwrap();
            assert_eq!(self.followed.changed(change), Some(whole.clone()));
        }
        self.followed = whole;
    }

    pub fn ok(&mut self, command: Command) -> Applied {
        self.apply(command).unwrap()
    }

    pub fn join(&mut self, name: &str, process: u64) {
        let hello = NodeHello {
            name: name.into(),
            address: address(process),
            relay: Some(address(10_000 + process)),
            process,
            on_disk: None,
            formats: Formats::PROGRAM,
            ..NodeHello::default()
        };
        self.ok(Command::Join { hello, at: AT });
    }

    pub fn up(nodes: &[&str]) -> Script {
        let mut s = Script::new();
        s.join_all(nodes);
        s
    }

    pub fn join_all(&mut self, nodes: &[&str]) {
        for (i, node) in nodes.iter().enumerate() {
            self.join(node, 100 + i as u64);
        }
    }

    pub fn all() -> Script {
        Script::up(&[
            "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
        ])
    }

    /// All nodes, and the sample deployed with state in every shard.
    pub fn filled() -> Script {
        Script::filled_in(Format::default())
    }

    /// The same with a log of this format.
    pub fn filled_in(format: Format) -> Script {
        let mut s = Script::founded(format);
        s.join_all(&NODES);
        s.deploy().unwrap();
        s.fill();
        s
    }

    /// The same with the first server in a rack of its own.
    pub fn filled_in_two_racks() -> Script {
        let rack = "    - name: rack1\n      servers:\n";
        let second = "        - name: s2\n";
        let topology = TOPOLOGY.replace(second, &[rack, second].concat());
        let mut s = Script::of(&topology, Format::default());
        s.join_all(&NODES);
        s.deploy().unwrap();
        s.fill();
        s
    }

    pub fn deploy(&mut self) -> Result<Applied, CommandError> {
        self.deploy_manifest(APP)
    }

    /// Deploys an application of two services.
    pub fn deploy_manifest(&mut self, text: &str) -> Result<Applied, CommandError> {
        self.apply(deployment(text, Vec::new()))
    }

    /// Every shard that has a primary commits something.
    pub fn fill(&mut self) {
        let app = &self.control.apps[&AppId(1)];
        let shards = app.plan.shards.iter().filter(|s| !app.is_orphan(s));
        let filled = |s: &e3_model::plan::ShardPlan| NodeEvent::Filled {
            key: app.plan.key(s),
            incarnation: s.incarnation,
        };
        for event in shards.map(filled).collect::<Vec<_>>() {
            self.ok(Command::Event(event));
        }
    }

    /// The same for all applications.
    pub fn fill_all(&mut self) {
        let mut events = Vec::new();
        for app in self.control.apps.values() {
            let shards = app.plan.shards.iter().filter(|s| !app.is_orphan(s));
            events.extend(shards.map(|s| NodeEvent::Filled {
                key: app.plan.key(s),
                incarnation: s.incarnation,
            }));
        }
        for event in events {
            self.ok(Command::Event(event));
        }
    }

    pub fn state_lost(&self) -> u64 {
        let app = &self.control.apps[&AppId(1)];
        assert_eq!(app.losses.len() as u64, app.state_lost);
        app.state_lost
    }

    /// The outcome of a move.
    pub fn outcome(&self, id: u64) -> Option<MoveOutcome> {
        let moved = &self.control.apps[&AppId(1)].moved;
        moved.iter().find(|m| m.id == id).map(|m| m.outcome)
    }

    /// Begins a move; returns its number.
    pub fn migrate(&mut self, from: NodeId, to: NodeId) -> u64 {
        self.begin_move(from, to, false)
    }

    /// Begins a cold move; returns its number.
    pub fn migrate_cold(&mut self, from: NodeId, to: NodeId) -> u64 {
        self.begin_move(from, to, true)
    }

    fn begin_move(&mut self, from: NodeId, to: NodeId, cold: bool) -> u64 {
        let command = Command::Migrate {
            key: KEY,
            from,
            to,
            cold,
        };
        match self.ok(command) {
            Applied::Moving(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub fn shard(&self, key: ShardKey) -> ShardPlan {
        self.control.apps[&key.app].shard(key).unwrap().clone()
    }

    /// The plans of all shards.
    pub fn shards(&self) -> Vec<ShardPlan> {
        self.control.apps[&AppId(1)].plan.shards.clone()
    }

    /// A node reports all peers that it cannot reach.
    pub fn cut(&mut self, node: NodeId, unreachable: &BTreeSet<NodeId>) {
        let incarnation = self.control.members[&node].incarnation;
        self.ok(Command::Reach {
            node,
            incarnation,
            unreachable: unreachable.clone(),
            at: AT,
        });
    }

    /// These ways are cut, and no others; both ends report it.
    pub fn cut_ways(&mut self, ways: &[(NodeId, NodeId)]) {
        for node in (0..6).map(NodeId) {
            let there = ways.iter().filter(|w| w.0 == node).map(|w| w.1);
            let back = ways.iter().filter(|w| w.1 == node).map(|w| w.0);
            self.cut(node, &there.chain(back).collect());
        }
    }

    /// A node falls silent.
    pub fn lose(&mut self, node: NodeId) {
        self.lose_all(&[node]);
    }

    /// Nodes fall silent together.
    pub fn lose_all(&mut self, nodes: &[NodeId]) {
        let members = &self.control.members;
        let nodes = nodes.iter().map(|n| (*n, members[n].incarnation));
        let nodes = nodes.collect();
        self.ok(Command::Lose { nodes, at: AT });
    }

    /// A node's process has certainly ended.
    pub fn exit(&mut self, node: NodeId) -> Applied {
        let incarnation = self.control.members[&node].incarnation;
        self.ok(Command::Exit {
            node,
            incarnation,
            at: AT,
        })
    }

    /// A silent node is heard again.
    pub fn hear(&mut self, node: NodeId) {
        let incarnation = self.control.members[&node].incarnation;
        self.ok(Command::Hear {
            node,
            incarnation,
            at: AT,
        });
    }

    /// The time, a second later at each look.
    pub fn next_second(&mut self) -> Timestamp {
        self.seconds += 1;
        AT + Nanos::from_secs(self.seconds)
    }

    /// A node is heard, if it was silent.
    pub fn hear_if_silent(&mut self, node: NodeId) {
        if !self.control.is_up(node) {
            self.hear(node);
        }
    }

    /// A new process of a node joins, if the last one is silent or gone.
    pub fn restart_if_silent(&mut self, node: NodeId) {
        if !self.control.is_up(node) {
            self.restart(node);
        }
    }

    /// A new process of a node joins.
    pub fn restart(&mut self, node: NodeId) {
        let process = 1_000 + self.log.len() as u64;
        self.join(NODES[node.index()], process);
    }

    /// The nodes that a shard waits for.
    pub fn waits_for(&self, key: ShardKey) -> Vec<NodeId> {
        let app = &self.control.apps[&key.app];
        self.control.waits_for(app, app.shard(key).unwrap())
    }

    /// Primaries confirm that they are in views that copies leave; with `all` also those that are
    /// silent. False if none has anything to confirm.
    fn install(&mut self, all: bool) -> bool {
        let mut events = Vec::new();
        for app in self.control.apps.values() {
            let heard = |s: &&ShardPlan| all || self.control.is_up(s.primary);
            let shards = app.plan.shards.iter().filter(heard);
            let leaving = shards.filter(|s| !s.leaving.is_empty());
            events.extend(leaving.map(|s| (app.plan.key(s), s.view)));
        }
        for (key, view) in &events {
            let (key, view) = (*key, *view);
            self.ok(Command::Event(NodeEvent::Installed { key, view }));
        }
        !events.is_empty()
    }

    /// What leaves has left, as far as primaries are heard that confirm it.
    pub fn leave(&mut self) {
        while self.install(false) {}
    }

    /// A node falls silent, and has left.
    pub fn lose_and_leave(&mut self, node: NodeId) {
        self.lose(node);
        self.leave();
    }

    /// Joining backups that their primary can bring up to date have everything.
    pub fn settle_reachable(&mut self) {
        self.install(false);
        let mut events = Vec::new();
        for app in self.control.apps.values() {
            let shards = app.plan.shards.iter();
            for s in shards.filter(|s| self.control.is_up(s.primary)) {
                let (key, view) = (app.plan.key(s), s.view);
                let joining = s.joining.iter().map(|b| (key, view, *b));
                events.extend(joining);
            }
        }
        for (key, view, backup) in events {
            self.ok(Command::Event(NodeEvent::Synced { key, view, backup }));
        }
    }

    /// All joining backups report that they have everything, and primaries that they stopped.
    pub fn settle(&mut self) {
        self.settle_within(20);
    }

    /// The same, with at most so many rounds of reports.
    pub fn settle_within(&mut self, rounds: usize) {
        for _ in 0..rounds {
            let mut events = Vec::new();
            for app in self.control.apps.values() {
                for s in &app.plan.shards {
                    let (key, view) = (app.plan.key(s), s.view);
                    for backup in s.joining.iter().copied() {
                        events.push(NodeEvent::Synced { key, view, backup });
                    }
                    if s.frozen {
                        events.push(NodeEvent::Frozen { key, view });
                    }
                }
            }
            let is_quiet = events.is_empty();
            for event in events {
                self.ok(Command::Event(event));
            }
            if !self.install(true) && is_quiet {
                return;
            }
        }
        panic!("does not settle");
    }

    /// Replay from the log, and from a snapshot in the middle, gives the same state: with the nodes that were
    /// chosen, and without, as of logs that do not have them.
    pub fn check(&self) {
        self.check_log(&self.log);
        self.check_log(&self.chosen);
    }

    pub fn check_log(&self, log: &[String]) {
        let mut replayed = self.founded.clone();
        for (i, line) in log.iter().enumerate() {
            if i == log.len() / 2 {
                let text = serde_json::to_string(&replayed).unwrap();
                replayed = serde_json::from_str(&text).unwrap();
            }
            let command = serde_json::from_str(line).unwrap();
            // Later logs have what each command chose, and `log` has not.
            let applied = if self.control.format < Format::CHOICES {
                replayed.replay(&command)
            } else {
                replayed.apply(&command)
            };
            applied.unwrap();
        }
        assert_eq!(replayed, self.control);
    }
}

/// A node's part in a shard changes only with a new view.
fn check_views(before: &Control, after: &Control) {
    for (id, old_app) in &before.apps {
        let Some(new_app) = after.apps.get(id) else {
            continue;
        };
        for old in &old_app.plan.shards {
            let mut shards = new_app.plan.shards.iter();
            let Some(new) = shards.find(|new| new.id() == old.id()) else {
                continue;
            };
            let is_same = (old.primary, &old.backups, &old.joining, old.frozen)
                == (new.primary, &new.backups, &new.joining, new.frozen)
                && old_app.is_orphan(old) == new_app.is_orphan(new);
            assert!(new.view >= old.view, "{old:?} {new:?}");
            assert!(is_same || new.view > old.view, "{old:?} {new:?}");
        }
    }
}

pub const AT: Timestamp = Timestamp(5_000_000_000);

pub const NODES: [&str; 6] = [
    "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
];

pub const KEY: ShardKey = ShardKey {
    app: AppId(1),
    service: ServiceId(1),
    shard: ShardId(0),
};
