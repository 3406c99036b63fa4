//! Copies that no node has room for after a loss: what they wait for, that operators see it, and when they are
//! placed.

use crate::script::{self, Script};
use e3_control::{Command, CommandError, Stays, Waiting};
use e3_model::event::{Event, EventKind};
use e3_model::plan::Role;
use e3_model::{AppId, Format, NodeId, PowerDomain, ServiceId, ShardId, ShardKey};
use e3_placement::Misfit;

const NODES: [&str; 3] = ["h1", "h2", "h3"];
const H3: NodeId = NodeId(2);

/// The only shard of the first application.
const STATE: ShardKey = ShardKey {
    app: AppId(1),
    service: ServiceId(0),
    shard: ShardId(0),
};

/// Three hosts, each of which has so much.
fn topology(each: &str) -> String {
    let mut text = "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n  racks:\n    - name: r\n      servers:\n".to_string();
    for (i, name) in NODES.iter().enumerate() {
        text += &format!(
            "        - name: s{}\n          system: Type1-SmartNIC\n",
            i + 1
        );
        text += &format!("          nodes: [{{name: {name}, kind: host, {each}}}]\n");
    }
    text
}

/// An application of one service.
pub(crate) fn app(name: &str, service: &str) -> String {
    format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: {name}\n  services:\n    - {{name: {name}, module: m, {service}}}\n"
    )
}

/// What each of the hosts has.
pub(crate) const SPACE: &str = "cores: 4, memory: 256Mi, disk: 1Gi";
const REPLICATED: &str = "stateful: true, durability: memory, replicas: 2";

pub(crate) fn cluster(format: Format, each: &str) -> Script {
    let mut s = Script::of(&topology(each), format);
    s.join_all(&NODES);
    s
}

/// A shard with two copies that needs so much, and what takes some of the third host.
fn full(format: Format, each: &str, needs: &str, taken: &str) -> Script {
    let mut s = cluster(format, each);
    let text = app("state", &format!("{REPLICATED}, resources: {{{needs}}}"));
    s.deploy_manifest(&text).unwrap();
    s.fill();
    let copies = s.shard(STATE);
    assert_eq!(copies.primary, NodeId(0));
    assert_eq!(copies.backups, [NodeId(1)]);
    let text = app(
        "other",
        &format!("pin: {{node: h3}}, resources: {{{taken}}}"),
    );
    s.deploy_manifest(&text).unwrap();
    s
}

fn delete_other(s: &mut Script) {
    s.ok(Command::Delete {
        app: "other".into(),
    });
}

/// What happened to that shard.
fn events(s: &Script, kind: EventKind) -> Vec<Event> {
    let is_it = |e: &&Event| e.kind == kind && e.instance.as_deref() == Some("state/state/0");
    s.control.events.since(0).filter(is_it).cloned().collect()
}

fn waiting(s: &Script) -> Option<Waiting> {
    s.control.waiting_of(STATE).cloned()
}

#[test]
fn a_backup_waits_for_memory_and_is_placed_when_some_is_given_back() {
    let needs = "cpu: 0.5, memory: 200Mi";
    let mut s = full(Format::NEWEST, SPACE, needs, "cpu: 0.5, memory: 100Mi");
    s.lose_and_leave(NodeId(1));
    assert_eq!(s.shard(STATE).joining, []);
    let mib = 1 << 20;
    let misfit = Misfit::Memory {
        need_bytes: 200 * mib,
        left_bytes: 156 * mib,
    };
    let expected = Waiting {
        key: STATE,
        role: Role::Backup,
        closest: Some((H3, misfit)),
    };
    assert_eq!(waiting(&s), Some(expected.clone()));
    assert_eq!(s.control.waiting_for_room(), [expected]);
    let [event] = &events(&s, EventKind::InstanceWaits)[..] else {
        panic!("one event");
    };
    assert!(event.app.is_some() && event.instance.is_some());
    assert_eq!(
        event.why,
        "a backup waits: no node has room; h3 comes closest: needs 200Mi of memory, 156Mi free (44Mi of memory missing)"
    );
    // What changes nothing about it says nothing more.
    s.ok(Command::Drain { node: NodeId(1) });
    assert_eq!(events(&s, EventKind::InstanceWaits).len(), 1);
    assert_eq!(events(&s, EventKind::InstancePlaced), []);
    delete_other(&mut s);
    assert_eq!((s.shard(STATE).joining, waiting(&s)), (vec![H3], None));
    let [placed] = &events(&s, EventKind::InstancePlaced)[..] else {
        panic!("one event");
    };
    assert_eq!(placed.node.as_deref(), Some("h3"));
    s.settle();
    s.check();
}

#[test]
fn a_backup_takes_over_although_no_node_has_room_for_another() {
    let needs = "cpu: 0.5, memory: 200Mi";
    let mut s = full(Format::NEWEST, SPACE, needs, "cpu: 0.5, memory: 100Mi");
    s.lose_and_leave(NodeId(0));
    assert_eq!(s.shard(STATE).primary, NodeId(1));
    assert_eq!(waiting(&s).unwrap().role, Role::Backup);
    s.hear(NodeId(0));
    assert_eq!(s.shard(STATE).joining, [NodeId(0)]);
    s.settle();
    s.check();
}

/// Whichever application is the older one.
#[test]
fn a_shard_that_is_not_served_gets_room_before_one_that_lacks_a_copy() {
    let needs = "cpu: 0.5, memory: 200Mi";
    let mut s = full(Format::NEWEST, SPACE, needs, "cpu: 0.5, memory: 100Mi");
    s.lose_and_leave(NodeId(1));
    s.lose(H3);
    s.hear(H3);
    let other = ShardKey {
        app: AppId(2),
        ..STATE
    };
    assert_eq!(s.shard(other).primary, H3);
    assert_eq!(
        (s.shard(STATE).joining, s.control.waiting_of(other)),
        (vec![], None)
    );
    assert_eq!(waiting(&s).map(|w| w.role), Some(Role::Backup));
    s.check();
}

#[test]
fn a_primary_without_a_copy_waits_for_memory() {
    let mut s = cluster(Format::NEWEST, SPACE);
    let resources = "resources: {cpu: 0.5, memory: 200Mi}";
    s.deploy_manifest(&app("state", resources)).unwrap();
    for (name, node) in [("b", "h2"), ("other", "h3")] {
        let text = format!("pin: {{node: {node}}}, resources: {{cpu: 0.5, memory: 100Mi}}");
        s.deploy_manifest(&app(name, &text)).unwrap();
    }
    s.lose(NodeId(0));
    assert_eq!(waiting(&s).map(|w| w.role), Some(Role::Primary));
    let app = &s.control.apps[&STATE.app];
    assert!(app.is_orphan(app.shard(STATE).unwrap()));
    delete_other(&mut s);
    assert_eq!((s.shard(STATE).primary, waiting(&s)), (H3, None));
    s.check();
}

#[test]
fn a_copy_waits_for_disk() {
    let needs = "cpu: 0.5, memory: 10Mi, disk: 700Mi";
    let taken = "cpu: 0.5, memory: 10Mi, disk: 400Mi";
    let mut s = full(Format::NEWEST, SPACE, needs, taken);
    s.lose_and_leave(NodeId(1));
    let closest = waiting(&s).unwrap().closest;
    assert!(
        matches!(closest, Some((H3, Misfit::Disk { .. }))),
        "{closest:?}"
    );
    delete_other(&mut s);
    assert_eq!(s.shard(STATE).joining, [H3]);
    s.check();
}

#[test]
fn a_copy_is_placed_where_only_cores_lack() {
    let needs = "cpu: 3, memory: 10Mi";
    let mut s = full(Format::NEWEST, SPACE, needs, "cpu: 4, memory: 10Mi");
    s.lose_and_leave(NodeId(1));
    assert_eq!((s.shard(STATE).joining, waiting(&s)), (vec![H3], None));
    s.check();
}

#[test]
fn a_copy_waits_for_power_and_is_placed_when_the_cap_is_lifted() {
    let needs = "cpu: 2, memory: 10Mi";
    let mut s = cluster(Format::NEWEST, SPACE);
    let text = app("state", &format!("{REPLICATED}, resources: {{{needs}}}"));
    s.deploy_manifest(&text).unwrap();
    let domain = PowerDomain::Server("s3".into());
    let cap = |cap_w| Command::SetPowerCap {
        domain: domain.clone(),
        cap_w,
    };
    // Less than any use of its cores.
    s.ok(cap(Some(1)));
    s.lose_and_leave(NodeId(1));
    let closest = waiting(&s).unwrap().closest;
    assert!(
        matches!(closest, Some((H3, Misfit::Power { .. }))),
        "{closest:?}"
    );
    s.ok(cap(None));
    assert_eq!((s.shard(STATE).joining, waiting(&s)), (vec![H3], None));
    s.check();
}

#[test]
fn a_copy_waits_for_a_node_with_the_accelerators_that_it_requires() {
    let plain = "{name: h3, kind: host, cores: 4, memory: 256Mi}";
    let lacking = "{name: h3, kind: host, cores: 4, memory: 256Mi, accelerators: [aes-cbc]}";
    let topology = topology("cores: 4, memory: 256Mi");
    assert!(topology.contains(plain));
    let mut s = Script::of(&topology.replace(plain, lacking), Format::NEWEST);
    s.join_all(&NODES);
    let needs = "accelerators: [aes-cbc, match], acceleratorsRequired: [match], resources: {cpu: 1, memory: 10Mi}";
    s.deploy_manifest(&app("state", &format!("{REPLICATED}, {needs}")))
        .unwrap();
    s.fill();
    s.lose_and_leave(NodeId(1));
    assert_eq!(waiting(&s).map(|w| w.closest), Some(None));
    s.hear(NodeId(1));
    assert_eq!(
        (s.shard(STATE).joining, waiting(&s)),
        (vec![NodeId(1)], None)
    );
    s.check();
}

/// A log of it replays as it was decided.
#[test]
fn before_format_9_a_copy_goes_where_least_lacks() {
    let needs = "cpu: 0.5, memory: 200Mi";
    let mut s = full(
        Format(8),
        "cores: 4, memory: 256Mi",
        needs,
        "cpu: 0.5, memory: 100Mi",
    );
    s.lose_and_leave(NodeId(1));
    assert_eq!((s.shard(STATE).joining, waiting(&s)), (vec![H3], None));
    s.check();
}

/// A fourth host lacks some memory; the third has a power cap, which did not count then.
#[test]
fn before_format_9_power_did_not_count() {
    let each = "cores: 4, memory: 256Mi";
    let mut text = topology(each);
    text += "        - name: s4\n          system: Type1-SmartNIC\n";
    text += &format!("          nodes: [{{name: h4, kind: host, {each}}}]\n");
    let mut s = Script::of(&text, Format(8));
    s.join_all(&["h1", "h2", "h3", "h4"]);
    let needs = "cpu: 0.5, memory: 200Mi";
    let text = app("state", &format!("{REPLICATED}, resources: {{{needs}}}"));
    s.deploy_manifest(&text).unwrap();
    s.fill();
    assert!(!s.shard(STATE).keeps(H3) && !s.shard(STATE).keeps(NodeId(3)));
    let text = app(
        "other",
        "pin: {node: h4}, resources: {cpu: 0.5, memory: 100Mi}",
    );
    s.deploy_manifest(&text).unwrap();
    s.ok(Command::SetPowerCap {
        domain: PowerDomain::Server("s3".into()),
        cap_w: Some(1),
    });
    s.lose_and_leave(s.shard(STATE).backups[0]);
    assert_eq!(s.shard(STATE).joining, [H3]);
    s.check();
}

/// Cores and bandwidth may be exceeded; memory may not, and power not since format 9.
#[test]
fn a_drained_node_keeps_what_no_other_has_memory_or_power_for() {
    for (format, taken, cap_w, moves) in [
        (Format::NEWEST, "cpu: 0.5, memory: 100Mi", None, false),
        (Format::NEWEST, "cpu: 4, memory: 10Mi", None, true),
        (Format::NEWEST, "cpu: 0.5, memory: 10Mi", Some(1), false),
        (Format(8), "cpu: 0.5, memory: 10Mi", Some(1), true),
    ] {
        let each = "cores: 4, memory: 256Mi";
        let mut s = full(format, each, "cpu: 3, memory: 200Mi", taken);
        if cap_w.is_some() {
            let domain = PowerDomain::Server("s3".into());
            s.ok(Command::SetPowerCap { domain, cap_w });
        }
        s.ok(Command::Drain { node: NodeId(0) });
        assert_eq!(s.shard(STATE).joining == [H3], moves, "{taken}, {cap_w:?}");
        let left = s.control.undrained(NodeId(0));
        let has_no_room = matches!(&left[0].stays, Stays::NoRoom(_));
        assert_eq!(has_no_room, !moves, "{left:?}");
        s.check();
    }
}

#[test]
fn what_older_programs_do_not_know_needs_their_successors_format() {
    let needs_disk = app("state", "resources: {cpu: 1, memory: 10Mi, disk: 1Gi}");
    let plain = app("state", "resources: {cpu: 1, memory: 10Mi}");
    let load = |load: &str| {
        let ingress = "  ingress: state\n";
        assert!(plain.contains(ingress));
        plain.replace(ingress, &format!("{ingress}  load: {{{load}}}\n"))
    };
    let mut s = cluster(Format(8), "cores: 4, memory: 256Mi");
    for text in [
        needs_disk,
        load(&format!("rateRps: 100, day: [{}]", ["1"; 24].join(", "))),
    ] {
        let refused = s.deploy_manifest(&text).unwrap_err().to_string();
        assert!(
            refused.contains("need format 9, the cluster writes format 8"),
            "{refused}"
        );
    }
    s.deploy_manifest(&load("rateRps: 100")).unwrap();
}

#[test]
fn a_move_by_hand_does_not_exceed_a_power_cap() {
    let mut s = cluster(Format::NEWEST, SPACE);
    s.deploy_manifest(&app("state", "resources: {cpu: 2, memory: 10Mi}"))
        .unwrap();
    s.fill();
    let cap = |server: &str, cap_w| Command::SetPowerCap {
        domain: PowerDomain::Server(server.into()),
        cap_w,
    };
    s.ok(cap("s3", Some(1)));
    let moved = |to| Command::Migrate {
        key: STATE,
        from: NodeId(0),
        to,
        cold: false,
    };
    let refused = s.control.apply(&moved(H3)).unwrap_err();
    assert!(
        matches!(
            &refused,
            CommandError::Misfit {
                misfit: Misfit::Power { .. },
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(s.shard(STATE).primary, NodeId(0));
    // A log in which it was accepted replays.
    s.control.clone().replay(&moved(H3)).unwrap();
    s.ok(cap("s3", None));
    s.ok(moved(H3));
    s.check();
}

/// A server that draws more than its cap already. Elsewhere the same move would be refused.
#[test]
fn a_move_within_a_server_over_its_cap_may_not_add_to_what_it_draws() {
    let mut s = Script::founded(Format::NEWEST);
    s.join_all(&script::NODES);
    let needs = format!("{REPLICATED}, resources: {{cpu: 4, memory: 10Mi}}");
    s.deploy_manifest(&app("state", &needs)).unwrap();
    s.fill();
    let server = |node: NodeId| format!("s{}", node.0 / 2 + 1);
    let moved = |s: &Script, to| Command::Migrate {
        key: STATE,
        from: s.shard(STATE).primary,
        to,
        cold: false,
    };
    let host = NodeId(s.shard(STATE).primary.0 & !1);
    let nic = NodeId(host.0 + 1);
    if s.shard(STATE).primary != host {
        s.ok(moved(&s, host));
        s.settle();
    }
    let other = (0..6).map(NodeId).filter(|n| n.0 % 2 == 1);
    let mut other =
        other.filter(|n| !s.shard(STATE).keeps(*n) && !s.shard(STATE).keeps(NodeId(n.0 - 1)));
    let other = other.next().expect("three servers, two copies");
    for server in [server(host), server(other)] {
        s.ok(Command::SetPowerCap {
            domain: PowerDomain::Server(server),
            cap_w: Some(1),
        });
    }
    let is_refused = |s: &Script, to| {
        let applied = s.control.clone().apply(&moved(s, to));
        let power = |e: &CommandError| {
            matches!(
                e,
                CommandError::Misfit {
                    misfit: Misfit::Power { .. },
                    ..
                }
            )
        };
        applied.is_err_and(|e| power(&e))
    };
    assert!(
        is_refused(&s, other),
        "what it would draw there is over the cap of another server"
    );
    s.ok(moved(&s, nic));
    s.settle();
    assert_eq!(s.shard(STATE).primary, nic);
    assert!(is_refused(&s, host), "a host draws more");
    s.check();
}
