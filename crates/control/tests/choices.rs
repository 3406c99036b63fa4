//! The log holds what was decided: where new applications go, what the orchestrator does, and the nodes that
//! commands chose in fail-over, draining and scaling. So a replay leads to the same state whatever placers and
//! searches become. The recorded log has decisions of a placer, and choices of a search, that this release does
//! not have.

#![allow(clippy::disallowed_methods, reason = "the recorded bytes are files")]

use crate::recorded::recorded;
use crate::script::{APP, AT, CLUSTER, KEY, NODES, Script, deployment};
use e3_control::{
    Act, Applied, Choice, Command, CommandError, Control, Decided, Genesis, NodeLoad, Placed,
    Purpose,
};
use e3_model::document::{parse_application, parse_topology};
use e3_model::orchestrator::{Cause, OrchestratorMode, OrchestratorSettings};
use e3_model::plan::NodeEvent;
use e3_model::{AppId, Application, Format, NodeId, PowerDomain, ServiceId, Topology};
use e3_placement::{InstanceKey, PLACERS, Request, admit, by_name};
use std::collections::{BTreeMap, BTreeSet};

/// Where the placer of another release puts the sample: the front on the second server, the rest around it.
const OTHERWISE: [(u16, u16, u16, u32); 6] = [
    (0, 0, 0, 3),
    (1, 0, 0, 4),
    (1, 1, 0, 1),
    (0, 0, 1, 5),
    (1, 0, 1, 3),
    (1, 1, 1, 4),
];

/// A server with one host in a rack that exists.
const MORE: &str = "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: more}\nspec:\n  racks:\n    - name: rack0\n      servers:\n        - name: s4\n          system: Type1-SmartNIC\n          nodes:\n            - {name: s4-host, kind: host, cores: 12, memory: 64Gi, bandwidthGbps: 10}\n";

fn named(name: &str) -> String {
    APP.replace("two-services", name)
}

fn application(name: &str) -> Application {
    parse_application("a.yaml", &named(name)).unwrap()
}

fn deploy(name: &str, placed: Vec<Placed>) -> Command {
    deployment(&named(name), placed)
}

fn decided_otherwise() -> Vec<Placed> {
    let placed = |(service, shard, replica, node)| Placed {
        key: InstanceKey {
            service: ServiceId(service),
            shard: e3_model::ShardId(shard),
            replica,
        },
        node: NodeId(node),
        why: "by a placer of another release".into(),
    };
    OTHERWISE.map(placed).into()
}

/// What a placer of this release decides for an application.
fn decided(control: &Control, app: &Application, placer: &str) -> BTreeMap<InstanceKey, NodeId> {
    let request = Request::new(app, &BTreeMap::new());
    let placer = by_name(placer).unwrap();
    let placed = control.try_resources(|c| admit(&*placer, &request, c, false));
    let decisions = placed.unwrap().decisions;
    decisions.into_iter().map(|d| (d.key, d.node)).collect()
}

/// What a command would choose now.
fn choices_of(control: &Control, command: &Command) -> Vec<Choice> {
    control.clone().apply_choosing(command).unwrap().1
}

/// Applies a command as a release would that searches otherwise: its first choice goes to another node.
fn apply_otherwise(s: &mut Script, command: Command) -> Choice {
    let found = choices_of(&s.control, &command);
    for node in (0..7).map(NodeId).filter(|n| s.control.is_up(*n)) {
        let mut choices = found.clone();
        let first = &mut choices[0];
        let shard = s.shard(first.key);
        // Two nodes of these servers have neighbouring ids.
        let copies = [shard.primary]
            .into_iter()
            .chain(shard.backups.iter().copied());
        let mut copies = copies.chain(shard.joining.iter().copied());
        let is_apart = copies.all(|copy| copy.0 / 2 != node.0 / 2);
        let is_free = is_apart && !s.control.drained.contains(&node);
        if node == first.to || !is_free {
            continue;
        }
        first.to = node;
        let choice = first.clone();
        let command = Box::new(command.clone());
        let logged = Command::With { choices, command };
        if s.control.clone().apply(&logged).is_ok() {
            s.ok(logged);
            return choice;
        }
    }
    panic!("no other choice than {found:?}");
}

/// A cluster in which what was decided is not what this release would decide.
fn history() -> Script {
    let mut s = Script::founded(Format::CHOICES);
    s.join_all(&NODES);
    s.ok(deploy("two-services", decided_otherwise()));
    s.fill();
    for (name, placer) in [("second", "annealing"), ("third", "joules")] {
        let placed = decided(&s.control, &application(name), placer);
        let why = format!("by {placer}");
        let placed = placed.into_iter().map(|(key, node)| {
            let why = why.clone();
            Placed { key, node, why }
        });
        s.ok(deploy(name, placed.collect()));
    }
    let racks = parse_topology("more.yaml", MORE).unwrap().spec.racks;
    assert_eq!(
        s.ok(Command::AddNodes { racks }),
        Applied::Added(vec![NodeId(6)])
    );
    s.join("s4-host", 900);
    // Some replicas stand better there.
    s.settle();
    let domain = PowerDomain::Server("s1".into());
    let cap_w = Some(400);
    s.ok(Command::SetPowerCap { domain, cap_w });
    let settings = OrchestratorSettings {
        mode: OrchestratorMode::On,
        ..OrchestratorSettings::default()
    };
    s.ok(Command::SetOrchestrator { settings, at: AT });
    let shard = s.shard(KEY);
    let mut free = (0..6).map(NodeId).filter(|n| !shard.keeps(*n));
    let (from, to) = (shard.primary, free.next());
    s.ok(Command::Orchestrate(Box::new(Decided {
        at: AT,
        cause: Cause::Overload,
        act: Act::Away,
        key: Some(KEY),
        from,
        to,
        shards: None,
        why: "by a release that looks elsewhere".into(),
        figures: BTreeMap::from([("cpuPermille".into(), 900)]),
    })));
    s.settle();
    let (app, service, replicas) = (AppId(2), ServiceId(1), 3);
    let scale = Command::Scale {
        app,
        service,
        replicas,
    };
    assert_eq!(apply_otherwise(&mut s, scale).purpose, Purpose::Copy);
    s.settle();
    let drained = s.shard(KEY).primary;
    let drain = Command::Drain { node: drained };
    assert_eq!(apply_otherwise(&mut s, drain).purpose, Purpose::Drain);
    s.settle();
    let lost = s.shard(KEY).backups[0];
    let nodes = BTreeMap::from([(lost, s.control.members[&lost].incarnation)]);
    s.ok(Command::Lose { nodes, at: AT });
    let view = s.shard(KEY).view;
    let left = Command::Event(NodeEvent::Installed { key: KEY, view });
    assert_eq!(apply_otherwise(&mut s, left).purpose, Purpose::Copy);
    s.settle();
    s.hear(lost);
    s.ok(Command::Resume { node: drained });
    s.settle();
    s.check_log(&s.chosen);
    s
}

fn replayed(log: &str, each: &mut dyn FnMut(&Control, &Command)) -> Control {
    let mut lines = log.lines();
    let genesis = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut control = Control::founded(genesis);
    for line in lines {
        let command: Command = serde_json::from_str(line).unwrap();
        each(&control, &command);
        let applied = control.replay(&command);
        applied.unwrap_or_else(|e| panic!("{e}: {line}"));
        control.validate();
    }
    control
}

#[test]
fn a_recorded_log_of_decisions_leads_to_the_recorded_state_though_this_release_decides_otherwise() {
    let log = recorded(Format::CHOICES, "decisions.jsonl", || {
        let s = history();
        let founded = Script::founded(Format::CHOICES).control;
        let genesis = Genesis::Init {
            cluster: CLUSTER,
            topology: Topology::clone(&founded.topology),
            format: Format::CHOICES,
            release: String::new(),
        };
        let genesis = serde_json::to_string(&genesis).unwrap();
        [vec![genesis], s.chosen].concat().join("\n") + "\n"
    });
    let snapshot = recorded(Format::CHOICES, "decisions-snapshot.json", || {
        serde_json::to_string(&history().control).unwrap() + "\n"
    });
    let (mut kinds, mut otherwise) = (BTreeSet::new(), BTreeSet::new());
    let mut look = |control: &Control, command: &Command| match command {
        Command::Deploy { app, placed, .. } => {
            kinds.insert("deploy");
            let logged: BTreeMap<_, _> = placed.iter().map(|p| (p.key, p.node)).collect();
            assert_eq!(logged.len(), app.instances() as usize);
            if PLACERS.iter().all(|p| decided(control, app, p) != logged) {
                otherwise.insert("deploy");
            }
        }
        Command::With { choices, command } => {
            let found = choices_of(control, command);
            for choice in choices.iter().filter(|c| !found.contains(c)) {
                otherwise.insert(match choice.purpose {
                    Purpose::Restart => "restart",
                    Purpose::Copy => "copy",
                    Purpose::Drain => "drain",
                    Purpose::Return => "return",
                });
            }
        }
        Command::Orchestrate(_) => drop(kinds.insert("orchestrate")),
        Command::SetPowerCap { .. } => drop(kinds.insert("cap")),
        Command::AddNodes { .. } => drop(kinds.insert("add")),
        _ => {}
    };
    let control = replayed(&log, &mut look);
    assert_eq!(kinds, ["add", "cap", "deploy", "orchestrate"].into());
    assert_eq!(otherwise, ["copy", "deploy", "drain"].into());
    let read: Control = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(control, read);
}

#[test]
fn choices_that_nothing_asks_for_are_refused_and_change_nothing() {
    let mut s = Script::filled();
    let drain = Command::Drain { node: NodeId(1) };
    let mut choices = choices_of(&s.control, &drain);
    choices.push(Choice {
        purpose: Purpose::Return,
        key: KEY,
        from: Some(NodeId(0)),
        to: NodeId(2),
        nth: 7,
    });
    let of = choices.len();
    let command = Box::new(drain);
    let refused = s.apply(Command::With { choices, command });
    assert_eq!(refused, Err(CommandError::Choices { left: 1, of }));
    s.check();
}

#[test]
fn every_kind_of_choice_is_logged() {
    let mut s = Script::founded(Format::CHOICES);
    s.join_all(&NODES);
    // The second service stands on the SmartNIC beside the first, and moves back there.
    let pinned = APP
        .replacen("replicas: 2\n", "replicas: 2\n      pin: {kind: host}\n", 1)
        .replacen("shards: 2\n", "shards: 2\n      pin: {kind: smartnic}\n", 1);
    s.deploy_manifest(&pinned).unwrap();
    s.fill();
    let node = s.shard(KEY).primary;
    s.ok(Command::Drain { node });
    s.settle();
    s.ok(Command::Resume { node });
    s.settle();
    let backup = s.shard(KEY).backups[0];
    s.lose(backup);
    s.settle();
    s.hear(backup);
    s.settle();
    // All copies of a shard end, so it begins empty on another node.
    let shard = s.shard(KEY);
    for node in shard.backups.iter().copied().chain([shard.primary]) {
        s.exit(node);
    }
    let mut purposes = BTreeSet::new();
    for line in &s.chosen {
        if let Command::With { choices, .. } = serde_json::from_str(line).unwrap() {
            purposes.extend(choices.iter().map(|c| c.purpose));
        }
    }
    let all = [
        Purpose::Restart,
        Purpose::Copy,
        Purpose::Drain,
        Purpose::Return,
    ];
    assert_eq!(purposes, all.into());
    s.check();
}

/// The first service gets three copies of each shard.
fn three_replicas() -> Command {
    Command::Scale {
        app: AppId(1),
        service: ServiceId(0),
        replicas: 3,
    }
}

/// The queue of a node that is overloaded, whatever its cores.
const LONG: u32 = 100_000;

#[test]
fn nothing_new_goes_where_requests_wait_if_it_can_go_elsewhere() {
    let mut s = Script::founded(Format::NEWEST);
    s.join_all(&NODES);
    s.deploy().unwrap();
    s.fill();
    let more = three_replicas();
    let app = application("another");
    let asked = |waiting: &[NodeId]| {
        let mut control = s.control.clone();
        control.set_waiting_requests(&waiting.iter().map(|n| (*n, LONG)).collect());
        let request = Request::new(&app, &BTreeMap::new());
        let placer = by_name("hcm-kind").unwrap();
        let placed = control.try_resources(|c| admit(&*placer, &request, c, false));
        (control.apply_choosing(&more).unwrap().1[0].to, placed)
    };
    let (copy, placed) = asked(&[]);
    let used: BTreeSet<NodeId> = placed.unwrap().decisions.iter().map(|d| d.node).collect();
    let (elsewhere, _) = asked(&[copy]);
    assert_ne!(elsewhere, copy);
    for node in &used {
        let (_, placed) = asked(&[*node]);
        assert!(placed.unwrap().decisions.iter().all(|d| d.node != *node));
    }
    // A copy is better on a slow node than nowhere; a new application can wait.
    let all: Vec<NodeId> = (0..6).map(NodeId).collect();
    let (_, refused) = asked(&all);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("requests wait there"), "{refused}");
    // The queues are gone, and a log in which another node was chosen replays.
    let (_, choices) = s.control.clone().apply_choosing(&more).unwrap();
    assert_eq!(choices[0].to, copy);
    let older = Control::logged(Format(Format::CHOICES.0 - 1), more.clone(), choices);
    assert_eq!(older, more, "older releases know no choices");
    assert_eq!(Control::logged(Format::CHOICES, more.clone(), vec![]), more);
    let mut control = s.control.clone();
    control.set_waiting_requests(&[(copy, LONG)].into());
    let (_, choices) = control.apply_choosing(&more).unwrap();
    let mut replayed = s.control.clone();
    replayed
        .replay(&Control::logged(Format::NEWEST, more.clone(), choices))
        .unwrap();
    assert_eq!(replayed, control);
    control.set_waiting_requests(&BTreeMap::new());
    control.validate();
}

/// A log of before searches again, and does not know where requests waited.
#[test]
fn where_requests_wait_counts_from_the_format_whose_logs_have_choices() {
    for (format, counts) in [(Format(8), false), (Format::CHOICES, true)] {
        let mut s = Script::founded(format);
        s.join_all(&NODES);
        s.deploy().unwrap();
        s.fill();
        let more = three_replicas();
        let copy = choices_of(&s.control, &more)[0].to;
        // A node that is not there has nothing to count.
        let waiting = [(copy, LONG), (NodeId(77), LONG)];
        s.control.set_waiting_requests(&waiting.into());
        let copied = s.control.apply_choosing(&more).unwrap().1[0].to;
        assert_eq!(copied != copy, counts, "{format}");
    }
}

#[test]
fn heartbeats_say_where_many_requests_wait() {
    let mut s = Script::founded(Format::NEWEST);
    s.join_all(&NODES);
    let mut orchestrator = e3_control::Orchestrator::new(&s.control);
    let node = NodeId(2);
    let incarnation = s.control.members[&node].incarnation;
    let mut beat = |queue_len| {
        let load = NodeLoad {
            queue_len,
            ..NodeLoad::default()
        };
        orchestrator.on_heartbeat(AT, node, incarnation, load);
        orchestrator.waiting().clone()
    };
    assert_eq!(beat(64), [].into());
    assert_eq!(beat(65), [(node, 65)].into());
    assert_eq!(beat(900), [(node, 900)].into());
    assert_eq!(beat(3), [].into());
}

/// A command that chooses two copies of one shard asks for the second of them by its number.
#[test]
fn the_same_question_is_numbered() {
    let mut s = Script::founded(Format::CHOICES);
    s.join_all(&NODES);
    s.deploy_manifest(&APP.replacen("replicas: 2", "replicas: 1", 1))
        .unwrap();
    s.fill();
    let scale = three_replicas();
    let copies = choices_of(&s.control, &scale);
    let numbers: Vec<u32> = copies.iter().map(|c| c.nth).collect();
    assert_eq!(numbers, [0, 1]);
    s.ok(scale);
    s.check();
}
