//! A value of every kind that is written, with every field used.

#![allow(dead_code, reason = "each test uses a part of it")]

use e3_model::application::{Collection, CollectionKind};
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::reshard::Split;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::{Publication, Topic};
use e3_model::*;
use e3_wire::call::{Call, CallAnswer, CallResult};
use e3_wire::client::{ClientFrame, DeadLetters, Replay, Request};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Entry, Outcome, Output, Reply};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::journal::{Origin, Record, Step};
use e3_wire::limits::REIGNS_MAX;
use e3_wire::message::Message;
use e3_wire::replicated::{Reign, Replicated};
use e3_wire::timer::{PublicationName, Timer, TimerName};

pub fn id() -> MessageId {
    MessageId {
        request: RequestId { client: 7, seq: 9 },
        via: Via::Edge(EdgeId(3)),
        index: 2,
    }
}

pub fn message() -> Message {
    Message {
        id: id(),
        attempt: 1,
        slot: Slot(77),
        reply_to: NodeId(4),
        reply_to_incarnation: 2,
        deadline: Timestamp(5),
        sent: Timestamp(6),
        oldest_seq: 3,
        trace: TraceContext {
            trace: 1 << 100,
            span: 2,
            flags: 1,
        },
        code_version: 6,
        is_branch: true,
        topic: Some(topic()),
        key: b"key".to_vec(),
        payload: vec![9; 300],
    }
}

pub fn entry() -> Entry {
    let output = Output {
        edge: EdgeId(1),
        index: 4,
        key: vec![1],
        payload: vec![2; 10],
    };
    Entry {
        op: 11,
        id: id(),
        attempt: 0,
        slot: Slot(77),
        code_version: 6,
        now: Timestamp(1),
        sent: Timestamp(1),
        deadline: Timestamp(2),
        oldest_seq: 3,
        reply_to: NodeId(2),
        reply_to_incarnation: 1,
        is_branch: true,
        is_expiry: false,
        trace: TraceContext::default(),
        batch: vec![5; 40],
        outputs: vec![output],
        reply: Some(Reply {
            outcome: Outcome::Done,
            status: 2,
            payload: vec![3; 5],
        }),
        replays: Some(id()),
        fired: Some(timer_name()),
        timers: vec![
            change(None),
            change(Some(When::At(Timestamp(8)))),
            change(Some(When::Cron("*/5 * * * *".parse().unwrap()))),
            change(Some(outbound(Destination::Service {
                service: "stock".into(),
                key: vec![1],
            }))),
            change(Some(outbound(Destination::Application {
                application: "shop".into(),
                key: vec![2],
            }))),
            change(Some(outbound(Destination::Http(HttpRequest {
                method: HttpMethod::Post,
                url: "https://pay.example/charge".into(),
                headers: vec![("accept".into(), "application/json".into())],
            })))),
            change(Some(When::Published(Box::new(Publication {
                topic: "orders".into(),
                key: vec![3],
            })))),
        ],
        confirmed: vec![PublicationName {
            key: vec![4],
            seq: 130,
        }],
        dead: Some(DeadLetter {
            at: Timestamp(9),
            outcome: Outcome::Failed,
            reason: "why".into(),
            key: vec![1],
            payload: vec![2],
            timer: "again".into(),
            answer: Some(Answer {
                outcome: Outcome::Unknown,
                status: 503,
            }),
            topic: Some(topic()),
        }),
    }
}

pub fn outbound(to: Destination) -> When {
    let deadline = Timestamp(9);
    When::Answered(Box::new(Outbound { to, deadline }))
}

pub fn timer_name() -> TimerName {
    TimerName {
        key: b"key".to_vec(),
        name: "again".into(),
    }
}

pub fn change(when: Option<When>) -> TimerChange {
    TimerChange {
        name: "again".into(),
        key: b"key".to_vec(),
        set: when.map(|when| TimerSet {
            when,
            payload: vec![4; 20],
        }),
    }
}

pub fn frames(body: &[u8]) -> Vec<Frame<'_>> {
    let ends = [
        Ends::Ingress {
            node: NodeId(1),
            service: ServiceId(4),
            shard: ShardId(2),
        },
        Ends::Edge {
            edge: EdgeId(1),
            from: ShardId(2),
            to: ShardId(3),
        },
        Ends::Replication {
            service: ServiceId(1),
            shard: ShardId(2),
            backup: NodeId(3),
        },
    ];
    let link = |ends| Link {
        app: AppId(5),
        ends,
        from_incarnation: 6,
        to_incarnation: 7,
    };
    let ack = Ack {
        epoch: 1 << 31,
        received: 4,
        selective: [5, 0, 0, 1 << 63],
        durable: 3,
        limit: 260,
    };
    let reply = Reply {
        outcome: Outcome::Expired,
        status: 0,
        payload: vec![],
    };
    let mut frames: Vec<_> = ends
        .iter()
        .map(|e| Frame::Data {
            link: link(*e),
            epoch: u32::MAX,
            seq: 8,
            behind: 7,
            body,
        })
        .collect();
    frames.push(Frame::Ack {
        link: link(ends[1]),
        ack,
    });
    frames.push(Frame::LeaseRequest {
        sent: Timestamp(1),
        plan_version: 2,
    });
    frames.push(Frame::LeaseGrant { sent: Timestamp(1) });
    frames.push(Frame::Probe { sent: Timestamp(2) });
    frames.push(Frame::ProbeAnswer {
        sent: Timestamp(3),
        now: Timestamp(4),
    });
    frames.push(Frame::Reply {
        app: AppId(1),
        request: id().request,
        attempt: 3,
        is_branch: true,
        reply,
    });
    frames.push(Frame::Call(Call {
        token: u64::MAX - 1,
        app: AppId(1),
        service: ServiceId(2),
        request: id().request,
        sent: Timestamp(5),
        deadline: Timestamp(6),
        key: b"key",
        payload: body,
    }));
    let results = [
        CallResult::Replied {
            status: 7,
            payload: body,
        },
        CallResult::Failed("handler returned 1, must be 0"),
    ];
    frames.extend(results.map(|result| Frame::CallAnswer(CallAnswer { token: 8, result })));
    frames
}

pub fn letter(payload_len: usize) -> DeadLetter {
    DeadLetter {
        at: Timestamp(5),
        outcome: Outcome::Failed,
        reason: "x".into(),
        key: vec![1],
        payload: vec![2; payload_len],
        timer: "again".into(),
        answer: None,
        topic: None,
    }
}

/// The first items of streams that name their views.
pub fn beginnings() -> Vec<Replicated> {
    let mut items = replicated();
    items.retain_mut(|item| match item {
        Replicated::SnapshotBegin { view, .. } | Replicated::Resume { view, .. } => {
            *view = Some(1 << 31 | 7);
            true
        }
        _ => false,
    });
    items
}

pub fn replicated() -> Vec<Replicated> {
    vec![
        Replicated::SnapshotBegin {
            view: None,
            op: 5,
            now: Timestamp(3),
            since: Timestamp(2),
            released: 4,
            reigns: vec![],
        },
        Replicated::Resume {
            view: None,
            first_op: 8,
            reigns: vec![
                Reign {
                    view: 1,
                    first_op: 1
                };
                REIGNS_MAX
            ],
        },
        Replicated::SnapshotOutgoing(entry()),
        Replicated::SnapshotSeen(entry()),
        Replicated::SnapshotDead(id(), letter(0)),
        Replicated::SnapshotTimer(Timer {
            name: timer_name(),
            next: Timestamp(9),
            set_at: Timestamp(3),
            seq: 65,
            when: When::At(Timestamp(9)),
            payload: vec![6; 30],
        }),
        Replicated::SnapshotState {
            op: 6,
            piece: vec![1; 9],
        },
        Replicated::SnapshotEnd { op: 7 },
        Replicated::Entry(entry()),
        Replicated::Released(5),
    ]
}

pub fn client_frames() -> Vec<ClientFrame> {
    let request = Request {
        app: AppId(1),
        id: id().request,
        attempt: 2,
        deadline: Timestamp(3),
        sent: Timestamp(2),
        oldest_seq: 4,
        trace: TraceContext::default(),
        key: vec![5],
        payload: vec![6; 700],
    };
    let shard = ShardKey {
        app: AppId(1),
        service: ServiceId(2),
        shard: ShardId(3),
    };
    let letters = [(id(), letter(3)), (id(), letter(0))];
    let replay = Replay {
        shard,
        letter: id(),
        slot: Slot(9),
        id: id().request,
        attempt: 1,
        deadline: Timestamp(4),
    };
    vec![
        ClientFrame::Request(request),
        ClientFrame::Reply {
            id: id().request,
            attempt: 2,
            reply: Reply {
                outcome: Outcome::Done,
                status: 3,
                payload: vec![7; 30],
            },
        },
        ClientFrame::ReadDeadLetters { shard, skip: 7 },
        ClientFrame::DeadLetters(DeadLetters::of(
            shard,
            1,
            3,
            letters.iter().map(|(id, letter)| (*id, letter)),
        )),
        ClientFrame::Replay(replay),
    ]
}

pub const KEY: ShardKey = ShardKey {
    app: AppId(3),
    service: ServiceId(2),
    shard: ShardId(1),
};

pub fn records() -> Vec<Record> {
    let collection = |name: &str, kind| Collection {
        name: name.into(),
        kind,
        ttl: (name > "b").then(|| Nanos::from_secs(1)),
    };
    let origin = Origin {
        cluster: 7,
        era: 4,
        since: Timestamp(9),
        collections: vec![
            collection("a", CollectionKind::HashMap),
            collection("b", CollectionKind::OrderedMap),
            collection("c", CollectionKind::Array),
            collection("d", CollectionKind::Counter),
        ],
    };
    let steps = [
        Step::Begin(origin.clone()),
        Step::Checkpoint(origin),
        Step::Piece(vec![1; 300]),
        Step::Item(vec![2; 300]),
        Step::Reign(5),
        Step::Drop,
        Step::Reshard(Split::new(3, 12).unwrap(), 9),
    ];
    steps.map(|step| Record { key: KEY, step }).into()
}

fn topic() -> Box<Topic> {
    Box::new(Topic {
        application: "shop".into(),
        name: "orders".into(),
    })
}
