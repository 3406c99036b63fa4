//! The cluster's format: who may join, and when it is raised.

use crate::script::{APP, AT, CLUSTER, NODES, Script};
use e3_control::{Applied, Command, CommandError, Genesis};
use e3_model::plan::NodeHello;
use e3_model::{Format, Formats, NodeId};

const OLDER: Format = Format(7);
const NEWER: Format = Format(8);
/// The last format in which only nodes that come back end the waits of shards.
pub(crate) const BEFORE_WAITS_END: Format = Format(Format::WAITS_END.0 - 1);

fn hello(name: &str, process: u64, oldest: Format, newest: Format) -> Command {
    let hello = NodeHello {
        name: name.into(),
        process,
        release: format!("0.{newest}"),
        formats: Formats::new(oldest, newest).unwrap(),
        ..NodeHello::default()
    };
    Command::Join { hello, at: AT }
}

fn raise(s: &mut Script) -> Result<Applied, CommandError> {
    let release = "0.8".into();
    s.apply(Command::RaiseFormat { to: NEWER, release })
}

#[test]
fn the_log_says_when_a_command_was_given_once() {
    let mut control = Script::new().control;
    let (hello, other) = (
        hello("s1-host", 1, OLDER, NEWER),
        Command::Drain { node: NodeId(1) },
    );
    control.format = Format::ORCHESTRATED;
    assert_eq!(control.at(AT, &hello), hello);
    let command = Box::new(other.clone());
    assert_eq!(control.at(AT, &other), Command::At { at: AT, command });
    // Older releases know no such record.
    control.format = OLDER;
    assert_eq!(control.at(AT, &other), other);
}

/// All nodes run a release that has both formats.
fn upgraded() -> Script {
    let mut s = Script::filled();
    for (i, name) in NODES.iter().enumerate() {
        s.ok(hello(name, 500 + i as u64, OLDER, NEWER));
        s.settle();
    }
    s
}

fn plan_format(s: &Script) -> Format {
    s.control.plan_for(NodeId(0)).format
}

#[test]
fn nodes_of_both_releases_join_until_the_format_is_raised() {
    let mut s = Script::filled();
    s.ok(hello(NODES[0], 500, OLDER, NEWER));
    let member = &s.control.members[&NodeId(0)];
    assert_eq!(
        (member.release.as_str(), member.formats.newest()),
        ("0.8", NEWER)
    );
    // It goes back.
    s.ok(hello(NODES[0], 501, OLDER, OLDER));
    assert_eq!(plan_format(&s), OLDER);
    s.check();
}

#[test]
fn the_format_is_raised_when_every_member_has_the_newer_one() {
    let mut s = upgraded();
    let before = s.control.version;
    assert_eq!(raise(&mut s), Ok(Applied::Changed));
    assert_eq!(plan_format(&s), NEWER);
    assert!(s.control.version > before, "nodes get a plan");
    assert_eq!(raise(&mut s), Ok(Applied::Nothing));
    let Applied::Joined(welcome) = s.ok(hello(NODES[1], 600, NEWER, Format(9))) else {
        panic!("it joins");
    };
    assert_eq!(welcome.format, NEWER);
    s.check();
}

#[test]
fn the_format_is_not_raised_while_a_member_is_older() {
    let mut s = upgraded();
    s.ok(hello(NODES[2], 600, OLDER, OLDER));
    let refused = raise(&mut s).unwrap_err().to_string();
    assert_eq!(
        refused,
        "format 8 cannot become the cluster's: node s2-host has formats 7 to 7 (release \"0.7\"); \
         upgrade it first (e3 upgrade --program PATH)"
    );
}

#[test]
fn the_format_is_not_raised_while_a_member_is_silent() {
    let mut s = upgraded();
    s.lose(NodeId(3));
    let refused = raise(&mut s).unwrap_err().to_string();
    assert_eq!(
        refused,
        "format 8 cannot become the cluster's: node s2-nic0 is silent; start it first"
    );
    s.hear(NodeId(3));
    assert_eq!(raise(&mut s), Ok(Applied::Changed));
}

#[test]
fn a_node_without_the_format_of_the_cluster_is_refused() {
    let mut s = upgraded();
    raise(&mut s).unwrap();
    let older = s.apply(hello(NODES[0], 700, OLDER, OLDER)).unwrap_err();
    assert_eq!(
        older.to_string(),
        "node s1-host cannot join: release \"0.7\" has formats 7 to 7, the cluster writes format 8; \
         start a newer release of the program on it"
    );
    let newer = s.apply(hello(NODES[0], 701, Format(9), Format(9)));
    assert_eq!(
        newer.unwrap_err().to_string(),
        "node s1-host cannot join: release \"0.9\" has formats 9 to 9, the cluster writes format 8; \
         raise the cluster's format first (e3 upgrade --finish)"
    );
    s.check();
}

#[test]
fn timers_in_a_manifest_need_the_format_whose_programs_know_them() {
    let text = APP.replacen(
        "      stateful: true",
        "      timers: [{name: sweep, every: 5m}]\n      stateful: true",
        1,
    );
    let mut s = Script::filled();
    let refused = s.deploy_manifest(&text).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "timers in manifests need format 8, the cluster writes format 7; raise it first (e3 upgrade --finish)"
    );
    let mut s = upgraded();
    raise(&mut s).unwrap();
    assert_eq!(s.deploy_manifest(&text), Ok(Applied::Changed));
    let app = &s.control.apps[&e3_model::AppId(1)];
    assert_eq!(app.manifest().spec.services[0].timers.len(), 1);
    s.check();
}

#[test]
fn a_log_and_a_hello_that_state_no_format_have_the_first_one() {
    let s = Script::new();
    let topology = serde_json::to_string(&s.control.topology).unwrap();
    let text = format!(r#"{{"init": {{"cluster": {CLUSTER}, "topology": {topology}}}}}"#);
    let genesis: Genesis = serde_json::from_str(&text).unwrap();
    let founded = e3_control::Control::founded(genesis);
    assert_eq!(founded, s.control);
    assert_eq!(founded.format, OLDER);
    let hello = format!(
        r#"{{"name": "s1-host", "address": {}, "process": 3}}"#,
        serde_json::to_string(&e3_model::Address::default()).unwrap()
    );
    let hello: NodeHello = serde_json::from_str(&hello).unwrap();
    assert_eq!(hello.formats, Formats::new(OLDER, OLDER).unwrap());
}
