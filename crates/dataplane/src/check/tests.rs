//! Every field of a frame is checked: each change of one field alone is refused.

use super::*;
use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::topic::Topic;
use e3_model::{
    AppId, EdgeId, Formats, MessageId, NodeId, NodeKind, RequestId, ServiceId, ShardId,
    TraceContext,
};
use e3_wire::datagram::Kind;
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Outcome, Output};
use e3_wire::timer::TimerName;
use std::collections::BTreeMap;

const CHAIN: &str = include_str!("../../../sim/tests/chain.yaml");
pub(crate) const NOW: Timestamp = Timestamp(1 << 60);
const HOUR_NS: u64 = 3_600_000_000_000;

/// Its name, and what it does.
type Change<T> = (&'static str, fn(&mut T));

pub(crate) const CONFIG: Config = Config {
    node: NodeId(9),
    incarnation: 7,
    cluster: 1,
    formats: Formats::PROGRAM,
    kind: NodeKind::Host,
    journal_len_min: u64::MAX,
    slowed: false,
    emulated: None,
};

/// Two services, of two shards and of three, all on node 0.
pub(crate) fn app() -> App {
    let app = parse_application("chain.yaml", CHAIN).unwrap();
    let services = app.spec.services.iter().enumerate();
    let shards = services.flat_map(|(s, service)| {
        (0..service.shards).map(move |shard| ShardPlan {
            service: ServiceId(s as u16),
            shard: ShardId(shard),
            view: 1,
            incarnation: 1,
            primary: NodeId(0),
            backups: Vec::new(),
            joining: Vec::new(),
            leaving: Vec::new(),
            predecessor: None,
            fenced: false,
            frozen: false,
            quiet: false,
            era: 1,
            filled: false,
        })
    });
    let plan = AppPlan {
        id: AppId(1),
        code_version: 1,
        shards: shards.collect(),
        app: app.into(),
        modules: Vec::new(),
        assets: BTreeMap::new(),
        proven: None,
        resharded: Vec::new(),
        backup: None,
        secrets: BTreeMap::new(),
        restored: None,
        slowdown: Vec::new(),
    };
    App::new(plan).unwrap()
}

/// A key of the service's last shard, and that shard.
pub(crate) fn place(app: &App, service: u16) -> (ShardKey, Vec<u8>) {
    let shards = app.plan.app.spec.services[usize::from(service)].shards;
    let last = |key: &Vec<u8>| Slot::of(key).shard(shards).0 == shards - 1;
    let found = (0..99u8).map(|n| vec![n]).find(last).unwrap();
    let key = ShardKey {
        app: AppId(1),
        service: ServiceId(service),
        shard: ShardId(shards - 1),
    };
    (key, found)
}

fn id(via: Via) -> MessageId {
    let request = RequestId { client: 1, seq: 5 };
    MessageId {
        request,
        via,
        index: 0,
    }
}

pub(crate) fn message(key: Vec<u8>, via: Via) -> Message {
    Message {
        id: id(via),
        attempt: 0,
        slot: Slot::of(&key),
        reply_to: NodeId(3),
        reply_to_incarnation: 2,
        is_branch: false,
        deadline: NOW,
        sent: NOW,
        oldest_seq: 5,
        trace: TraceContext::default(),
        code_version: 0,
        topic: None,
        key,
        payload: Vec::new(),
    }
}

#[test]
fn every_field_of_a_message_is_checked() {
    let app = app();
    let ingress = |shard| Ends::Ingress {
        node: NodeId(3),
        service: ServiceId(0),
        shard,
    };
    let asked = |shard| Ends::Ingress {
        node: NodeId(3),
        service: ServiceId(1),
        shard,
    };
    let edge = |to| Ends::Edge {
        edge: EdgeId(0),
        from: ShardId(0),
        to,
    };
    let cases = [
        (0, Via::Ingress, ingress as fn(ShardId) -> Ends),
        (1, Via::Ingress, asked),
        (1, Via::Edge(EdgeId(0)), edge),
    ];
    for (service, via, ends) in cases {
        let (key, bytes) = place(&app, service);
        let link = Link {
            app: key.app,
            ends: ends(key.shard),
            from_incarnation: 2,
            to_incarnation: 1,
        };
        let passes = |m: &Message| check_message(&app, key, &link, m);
        let good = message(bytes, via);
        assert!(passes(&good));
        let mut published = good.clone();
        published.topic = Some(Box::new(Topic {
            application: "shop".into(),
            name: "orders".into(),
        }));
        assert_eq!(passes(&published), via == Via::Ingress);
        let wrong: [Change<Message>; 7] = [
            ("via", |m| m.id.via = Via::Edge(EdgeId(7))),
            ("other via", |m| {
                m.id.via = match m.id.via {
                    Via::Ingress => Via::Edge(EdgeId(0)),
                    Via::Edge(_) | Via::Timer => Via::Ingress,
                }
            }),
            ("index", |m| m.id.index = 1),
            ("slot", |m| m.slot.0 ^= 1),
            ("no slot", |m| m.slot.0 = u16::MAX),
            ("key", |m| m.key.push(0)),
            ("oldest request", |m| m.oldest_seq = 6),
        ];
        for (what, change) in wrong {
            let mut m = good.clone();
            change(&mut m);
            assert!(!passes(&m), "{what} of {via:?}");
        }
        let mut m = good.clone();
        m.reply_to.0 = 4;
        assert_eq!(passes(&m), via != Via::Ingress);
    }
}

#[test]
fn every_field_of_an_entry_is_checked() {
    let app = app();
    let (key, bytes) = place(&app, 0);
    let output = Output {
        edge: EdgeId(0),
        index: 0,
        key: bytes.clone(),
        payload: Vec::new(),
    };
    let good = Entry {
        op: 1,
        id: id(Via::Ingress),
        attempt: 0,
        slot: Slot::of(&bytes),
        code_version: 1,
        now: NOW,
        sent: NOW,
        deadline: NOW,
        oldest_seq: 5,
        reply_to: NodeId(3),
        reply_to_incarnation: 2,
        is_branch: false,
        is_expiry: false,
        trace: TraceContext::default(),
        batch: Vec::new(),
        outputs: vec![output],
        reply: None,
        dead: None,
        replays: None,
        fired: None,
        timers: Vec::new(),
        confirmed: Vec::new(),
    };
    assert_eq!(check_entry(&app, NOW, key, &good), Ok(()));
    let wrong: [Change<Entry>; 17] = [
        ("publication that a message removes", |e| {
            e.confirmed.push(PublicationName {
                key: e.outputs[0].key.clone(),
                seq: 66,
            });
        }),
        ("publication of another shard", |e| {
            e.is_expiry = true;
            e.outputs.clear();
            let names = (0..64).map(|n| PublicationName {
                key: vec![n],
                seq: 66,
            });
            e.confirmed.extend(names);
        }),
        ("partial confirmation of another slot", |e| {
            e.is_expiry = true;
            e.outputs.clear();
            e.timers.push(TimerChange {
                name: String::new(),
                key: Vec::new(),
                set: None,
            });
        }),
        ("via", |e| e.id.via = Via::Edge(EdgeId(0))),
        ("index", |e| e.id.index = 1),
        ("slot", |e| e.slot.0 = 0),
        ("no slot", |e| e.slot.0 = u16::MAX),
        ("now", |e| e.now.0 += HOUR_NS),
        ("no now", |e| e.now.0 = u64::MAX),
        ("deadline", |e| e.deadline.0 = u64::MAX),
        ("oldest request", |e| e.oldest_seq = 6),
        ("edge", |e| e.outputs[0].edge.0 = 1),
        ("output's index", |e| e.outputs[0].index = 1 << 20),
        ("timer that did not fire", |e| {
            e.fired = Some(TimerName {
                key: e.outputs[0].key.clone(),
                name: "t".into(),
            });
        }),
        ("timer of another slot", |e| {
            e.id.via = Via::Timer;
            e.fired = Some(TimerName {
                key: Vec::new(),
                name: "t".into(),
            });
        }),
        ("timer set in another slot", |e| {
            e.timers.push(TimerChange {
                name: "t".into(),
                key: Vec::new(),
                set: None,
            });
        }),
        ("dead letter", |e| {
            e.dead = Some(DeadLetter {
                at: NOW,
                outcome: Outcome::Failed,
                reason: String::new(),
                key: Vec::new(),
                payload: Vec::new(),
                timer: String::new(),
                answer: None,
                topic: None,
            });
        }),
    ];
    for (what, change) in wrong {
        let mut e = good.clone();
        change(&mut e);
        assert!(check_entry(&app, NOW, key, &e).is_err(), "{what}");
    }
    let (other, _) = place(&app, 1);
    assert!(check_entry(&app, NOW, other, &good).is_err());
    assert!(check_batch(good.slot, vec![1, 2, 3]).is_err());
}

#[test]
fn a_frame_is_taken_on_the_channels_of_the_plan_only() {
    let app = app();
    let header = Header {
        kind: Kind::Peer,
        from: NodeId(0),
        cluster: 1,
        incarnation: 4,
        to_incarnation: CONFIG.incarnation,
    };
    let check = LinkCheck {
        app: &app,
        config: &CONFIG,
        header: &header,
    };
    let asked = |node, service, shard| Ends::Ingress {
        node: NodeId(node),
        service: ServiceId(service),
        shard: ShardId(shard),
    };
    let ingress = |node, shard| asked(node, 0, shard);
    let edge = |edge, from, to| Ends::Edge {
        edge: EdgeId(edge),
        from: ShardId(from),
        to: ShardId(to),
    };
    let replication = |service, shard, backup| Ends::Replication {
        service: ServiceId(service),
        shard: ShardId(shard),
        backup: NodeId(backup),
    };
    let of = |ends, (from_incarnation, to_incarnation), role: Option<Role>| {
        let link = Link {
            app: AppId(1),
            ends,
            from_incarnation,
            to_incarnation,
        };
        let checked = check.check(&link, |_| role.map(|role| (role, 5)));
        checked.map(|key| (key.service.0, key.shard.0))
    };
    // The shard here has incarnation 5, this process 7.
    let (primary, backup) = (Some(Role::Primary), Some(Role::Backup));
    let cases = [
        (ingress(0, 1), (4, 5), primary, backup, (0, 1)),
        (asked(0, 1, 2), (4, 5), primary, backup, (1, 2)),
        (edge(0, 1, 2), (1, 5), primary, backup, (1, 2)),
        (replication(0, 1, 9), (1, 7), backup, primary, (0, 1)),
    ];
    for (ends, (from, to), role, other_role, key) in cases {
        assert_eq!(of(ends, (from, to), role), Ok(key), "{ends:?}");
        for (incarnations, role) in [
            ((from + 1, to), role),
            ((from, to + 1), role),
            ((from, 12 - to), role),
            ((from, to), other_role),
            ((from, 12 - to), other_role),
            ((from, to), None),
        ] {
            let found = of(ends, incarnations, role);
            assert_eq!(found, Err(DropReason::View), "{ends:?} {incarnations:?}");
        }
    }
    for ends in [
        ingress(0, 2),
        ingress(1, 1),
        asked(0, 1, 3),
        asked(0, 2, 0),
        edge(1, 1, 2),
        edge(0, 2, 2),
        edge(0, 1, 3),
        replication(0, 2, 9),
        replication(2, 0, 9),
        replication(0, 1, 8),
    ] {
        for (to, role) in [(5, primary), (7, backup)] {
            for from in [1, 4] {
                let found = of(ends, (from, to), role);
                assert_eq!(found, Err(DropReason::Link), "{ends:?}");
            }
        }
    }
}

#[test]
fn a_request_without_a_key_is_refused() {
    let app = app();
    let shard = Slot::of(&[]).shard(2);
    let key = ShardKey {
        app: AppId(1),
        service: ServiceId(0),
        shard,
    };
    let link = Link {
        app: key.app,
        ends: Ends::Ingress {
            node: NodeId(3),
            service: ServiceId(0),
            shard,
        },
        from_incarnation: 2,
        to_incarnation: 1,
    };
    let m = message(Vec::new(), Via::Ingress);
    assert!(!check_message(&app, key, &link, &m));
}

#[test]
fn the_time_of_a_log_may_be_a_minute_ahead_and_a_deadline_an_hour_more() {
    let minute = HOUR_NS / 60;
    let (ahead, deadline) = (NOW.0 + minute, NOW.0 + HOUR_NS + minute);
    assert!(check_time(NOW, Timestamp(ahead)).is_ok());
    assert!(check_time(NOW, Timestamp(ahead + 1)).is_err());
    assert_eq!(latest_deadline(NOW), Timestamp(deadline));
}
