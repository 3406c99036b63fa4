//! The log and a snapshot that controllers of each format wrote: this one reads both, and they give the
//! same plans. A log holds what was decided on, not the outcome, so a later release must decide the
//! same when it replays it.
//!
//! `E3_UPDATE=1 cargo test -p e3-control -- recorded` writes files that are missing.

#![allow(clippy::disallowed_methods, reason = "the recorded bytes are files")]

use crate::script::{APP, AT, CLUSTER, KEY, NODES, Script};
use e3_control::{ApiToken, Command, Control, Genesis};
use e3_model::plan::{NodeHello, NodePlan};
use e3_model::{AccessRole, AppId, Format, Formats, Nanos, NodeId, Sealed, ServiceId, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const OTHER: AppId = AppId(2);

/// A cluster in which much happens.
fn history() -> Script {
    let mut s = Script::filled();
    let app = AppId(1);
    let code_version = 1;
    s.ok(Command::Started { app, code_version });
    s.deploy_manifest(&APP.replace("two-services", "other"))
        .unwrap();
    s.deploy_manifest(&APP.replace("5ms", "6ms")).unwrap();
    let primary = s.shard(KEY).primary;
    let free = (0..6)
        .map(NodeId)
        .find(|n| !s.shard(KEY).keeps(*n))
        .unwrap();
    s.migrate(primary, free);
    s.settle();
    s.cut_ways(&[(NodeId(0), NodeId(2))]);
    s.cut_ways(&[]);
    s.settle();
    s.ok(Command::Drain { node: NodeId(1) });
    s.settle();
    s.ok(Command::Resume { node: NodeId(1) });
    s.settle();
    let (service, shards) = (ServiceId(1), 2 * shards_of(&s, ServiceId(1)));
    s.ok(Command::Reshard {
        app,
        service,
        shards,
    });
    s.settle();
    s.ok(Command::Scale {
        app,
        service,
        replicas: 3,
    });
    s.settle();
    s.ok(Command::Backup { app });
    s.settle();
    s.lose(NodeId(4));
    s.hear(NodeId(4));
    s.exit(NodeId(5));
    s.settle();
    s.restart(NodeId(5));
    s.settle();
    for (i, name) in NODES.iter().enumerate() {
        let hello = NodeHello {
            name: (*name).into(),
            process: 2_000 + i as u64,
            release: "0.1.0".into(),
            formats: Formats::new(Format(7), Format(8)).unwrap(),
            ..NodeHello::default()
        };
        s.ok(Command::Join { hello, at: AT });
        s.settle();
    }
    s.check();
    s
}

fn shards_of(s: &Script, service: ServiceId) -> u16 {
    s.control.apps[&AppId(1)].plan.app.service(service).shards
}

/// A recorded file; written first if it is missing and that is asked for.
pub fn recorded(format: Format, name: &str, written: impl FnOnce() -> String) -> String {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let dir = dir.join("tests/recorded").join(format.to_string());
    let path = dir.join(name);
    if std::env::var_os("E3_UPDATE").is_some() && !path.exists() {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(&path, written()).unwrap();
    }
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The same, and then what format 8 has: tokens and secrets.
fn history_with_access() -> Script {
    let mut s = history();
    let (to, release) = (Format(8), "0.1.0".into());
    s.ok(Command::RaiseFormat { to, release });
    let token = |role| ApiToken {
        role,
        hash: "5d".repeat(32),
        created: AT,
        expires: Some(AT + Nanos::from_secs(60)),
    };
    for (name, role) in [("ci", AccessRole::Deploy), ("eye", AccessRole::Read)] {
        let (name, token) = (name.into(), token(role));
        s.ok(Command::CreateToken { name, token });
    }
    s.ok(Command::RevokeToken { name: "eye".into() });
    for (app, name) in [("shop", "key"), ("shop", "key"), ("shop", "other")] {
        let (app, name) = (app.into(), name.into());
        let value = Sealed {
            key: "11".repeat(8),
            nonce: "22".repeat(12),
            bytes: "33".repeat(48),
        };
        s.ok(Command::SetSecret {
            app,
            name,
            value,
            at: AT,
        });
    }
    let named = |name: &str| ("shop".to_string(), name.to_string());
    let (app, name) = named("key");
    s.ok(Command::RetireSecret { app, name });
    let (app, name) = named("other");
    s.ok(Command::DeleteSecret { app, name });
    s.check();
    s
}

fn log_of(s: &Script) -> String {
    let genesis = Genesis::Init {
        cluster: CLUSTER,
        topology: Topology::clone(&s.control.topology),
        format: Format(7),
        release: String::new(),
    };
    let genesis = serde_json::to_string(&genesis).unwrap();
    [vec![genesis], s.log.clone()].concat().join("\n") + "\n"
}

fn plans(control: &Control) -> BTreeMap<NodeId, NodePlan> {
    let nodes = control.topology.nodes();
    nodes.map(|n| (n.id, control.plan_for(n.id))).collect()
}

#[test]
fn the_log_and_the_snapshot_of_format_7_give_the_same_plans() {
    check_format(Format(7), history, 14);
}

#[test]
fn the_log_and_the_snapshot_of_format_8_give_the_same_plans() {
    let control = check_format(Format(8), history_with_access, 20);
    assert_eq!(control.tokens.len(), 1);
    assert_eq!(control.secret("shop", "key").unwrap().version, 3);
}

fn check_format(format: Format, history: fn() -> Script, kinds_min: usize) -> Control {
    let log = recorded(format, "log.jsonl", || log_of(&history()));
    let snapshot = recorded(format, "snapshot.json", || {
        serde_json::to_string(&history().control).unwrap() + "\n"
    });
    let mut lines = log.lines();
    let genesis = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mut control = Control::founded(genesis);
    let mut kinds = BTreeSet::new();
    for line in lines {
        let command: Command = serde_json::from_str(line).unwrap();
        let printed = format!("{command:?}");
        let end = printed.find(|c: char| !c.is_alphanumeric());
        kinds.insert(printed[..end.unwrap_or(printed.len())].to_string());
        control.apply(&command).unwrap();
        control.validate();
    }
    assert!(kinds.len() >= kinds_min, "{kinds:?}");
    let read: Control = serde_json::from_str(&snapshot).unwrap();
    assert_eq!(plans(&control), plans(&read));
    assert_eq!(plans(&control)[&NodeId(0)].apps.len(), 2);
    assert!(control.apps.contains_key(&OTHER));
    assert_eq!(
        (&control.tokens, &control.secrets),
        (&read.tokens, &read.secrets)
    );
    control
}
