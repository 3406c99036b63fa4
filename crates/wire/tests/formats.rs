//! What is written is read back; what is random or cut short is an error.

use e3_model::limits::PAYLOAD_LEN_MAX;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::{Publication, Topic};
use e3_model::*;
use e3_testkit::Random;
use e3_wire::WireError;
use e3_wire::call::{Call, CallAnswer, CallResult};
use e3_wire::client::{ClientFrame, DeadLetters, Replay, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::{HEADER_LEN, Header, Kind, open, seal};
use e3_wire::entry::{DeadLetter, Entry, Outcome, Output, Reign, Replicated, Reply};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::heartbeat::{self, Heartbeat, PAYLOAD_LEN};
use e3_wire::limits::{DATAGRAM_LEN_MAX, REIGNS_MAX};
use e3_wire::message::Message;
use e3_wire::timer::{PublicationName, Timer, TimerName};

fn id() -> MessageId {
    MessageId {
        request: RequestId { client: 7, seq: 9 },
        via: Via::Edge(EdgeId(3)),
        index: 2,
    }
}

fn message() -> Message {
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

fn entry() -> Entry {
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

fn outbound(to: Destination) -> When {
    let deadline = Timestamp(9);
    When::Answered(Box::new(Outbound { to, deadline }))
}

fn timer_name() -> TimerName {
    TimerName {
        key: b"key".to_vec(),
        name: "again".into(),
    }
}

fn change(when: Option<When>) -> TimerChange {
    TimerChange {
        name: "again".into(),
        key: b"key".to_vec(),
        set: when.map(|when| TimerSet {
            when,
            payload: vec![4; 20],
        }),
    }
}

fn frames(body: &[u8]) -> Vec<Frame<'_>> {
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

#[test]
fn frames_share_a_datagram() {
    let body = message().encode();
    let all = frames(&body);
    let mut bytes = Vec::new();
    for frame in &all {
        let before = bytes.len();
        frame.encode(&mut bytes);
        assert_eq!(bytes.len() - before, frame.encoded_len(), "{frame:?}");
    }
    let mut r = Reader(&bytes);
    let back: Vec<_> =
        std::iter::from_fn(|| (!r.is_empty()).then(|| Frame::decode(&mut r).unwrap())).collect();
    assert_eq!(back, all);
    assert_eq!(Message::decode(&body).unwrap(), message());
}

#[test]
fn entries_and_client_frames_round_trip() {
    for item in [
        Replicated::SnapshotBegin {
            op: 5,
            now: Timestamp(3),
            since: Timestamp(2),
            released: 4,
            reigns: vec![],
        },
        Replicated::Resume {
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
    ] {
        assert_eq!(Replicated::decode(&item.encode()).unwrap(), item);
    }
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
    for frame in [
        ClientFrame::Request(request),
        ClientFrame::ReadDeadLetters { shard, skip: 7 },
        ClientFrame::DeadLetters(DeadLetters::of(shard, 1, 3, letters.iter())),
        ClientFrame::Replay(replay),
    ] {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(ClientFrame::decode(&mut Reader(&bytes)).unwrap(), frame);
    }
}

#[test]
fn dead_letters_fill_a_datagram_and_no_more() {
    let shard = ShardKey {
        app: AppId(1),
        service: ServiceId(2),
        shard: ShardId(3),
    };
    for (payload_len, fit) in [(PAYLOAD_LEN_MAX, 1), (5_000, 11), (0, 1_000)] {
        let all = vec![(id(), letter(payload_len)); 1_000];
        let letters = DeadLetters::of(shard, 0, 1_000, all.iter());
        assert_eq!(letters.letters.len(), fit, "{payload_len}");
        let bytes = ClientFrame::DeadLetters(letters).to_datagram();
        assert!(bytes.len() <= DATAGRAM_LEN_MAX, "{}", bytes.len());
    }
}

fn letter(payload_len: usize) -> DeadLetter {
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

fn topic() -> Box<Topic> {
    Box::new(Topic {
        application: "shop".into(),
        name: "orders".into(),
    })
}

#[test]
fn a_heartbeat_has_sixteen_bytes_of_payload() {
    let h = Heartbeat {
        queue_len: 1,
        service_time_ns: 2,
        busy_permille: 3,
        flags: 0,
        plan_version_low: 4,
    };
    let bytes = heartbeat::encode(9, NodeId(3), 2, &h);
    assert_eq!((bytes.len(), HEADER_LEN), (HEADER_LEN + 16, 28));
    assert_eq!(PAYLOAD_LEN, 16);
    let (header, back) = heartbeat::decode(&bytes).unwrap();
    assert_eq!(
        (header.kind, header.from, header.cluster, back),
        (Kind::Heartbeat, NodeId(3), 9, h)
    );
}

#[test]
fn garbage_and_cut_bytes_are_errors_not_panics() {
    let body = message().encode();
    let mut good: Vec<Vec<u8>> = vec![body.clone(), Replicated::Entry(entry()).encode()];
    for frame in frames(&body) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        good.push(bytes);
    }
    let decode_all = |bytes: &[u8]| {
        let _ = Message::decode(bytes);
        let _ = Replicated::decode(bytes);
        let _ = Frame::decode(&mut Reader(bytes));
        let _ = ClientFrame::decode(&mut Reader(bytes));
        let _ = Header::decode(&mut Reader(bytes));
        let _ = heartbeat::decode(bytes);
    };
    let mut random = Random::new(1);
    for bytes in &good {
        for cut in 0..bytes.len() {
            decode_all(&bytes[..cut]);
        }
        assert!(Message::decode(&body[..body.len() - 1]).is_err());
        for _ in 0..2_000 {
            let mut bad = bytes.clone();
            for _ in 0..3 {
                let at = random.index(bad.len());
                bad[at] = random.byte();
            }
            decode_all(&bad);
        }
    }
}

fn datagram(body_len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header {
        kind: Kind::Peer,
        from: NodeId(3),
        cluster: 9,
        incarnation: 4,
        to_incarnation: 5,
    };
    header.encode(&mut out);
    out.extend((0..body_len).map(|i| (i * 7) as u8));
    seal(&mut out);
    let (back, rest) = open(&out).unwrap();
    assert_eq!((back, rest.0.len()), (header, body_len));
    out
}

#[test]
fn a_datagram_with_flipped_bits_is_none() {
    let mut random = Random::new(7);
    for body_len in [0, 1, 100, 1_400, DATAGRAM_LEN_MAX - HEADER_LEN] {
        let whole = datagram(body_len);
        let bits = whole.len() * 8;
        let flip = |bytes: &mut [u8], at: usize| bytes[at / 8] ^= 1 << (at % 8);
        // One, two and three bits anywhere, and bursts of up to 32 bits.
        for at in (0..bits).step_by(1 + bits / 20_000) {
            let mut bad = whole.clone();
            flip(&mut bad, at);
            assert!(open(&bad).is_err(), "bit {at}");
        }
        for n in 0..2_000 {
            let mut bad = whole.clone();
            if n % 2 == 0 {
                for _ in 0..2 + n / 2 % 2 {
                    flip(&mut bad, random.index(bits));
                }
            } else {
                let (at, burst) = (random.index(bits - 31), 1 + random.index(u32::MAX as usize));
                (0..32)
                    .filter(|i| burst >> i & 1 == 1)
                    .for_each(|i| flip(&mut bad, at + i));
            }
            assert!(bad == whole || open(&bad).is_err());
        }
    }
}

#[test]
fn a_datagram_that_is_cut_or_joined_is_none() {
    let whole = datagram(300);
    for len in 0..whole.len() {
        assert!(open(&whole[..len]).is_err());
    }
    let joined = [whole.clone(), whole.clone()].concat();
    assert!(matches!(open(&joined), Err(WireError::Length { .. })));
    let mut padded = whole;
    padded.push(0);
    assert!(matches!(open(&padded), Err(WireError::Length { .. })));
}

#[test]
fn nothing_follows_what_fills_its_bytes() {
    let mut body = message().encode();
    body.push(0);
    assert_eq!(Message::decode(&body), Err(WireError::Trailing(1)));
    let mut item = Replicated::Entry(entry()).encode();
    item.push(0);
    assert_eq!(Replicated::decode(&item), Err(WireError::Trailing(1)));
    let mut beat = heartbeat::encode(9, NodeId(3), 2, &Heartbeat::default());
    beat.push(0);
    seal(&mut beat);
    assert_eq!(heartbeat::decode(&beat), Err(WireError::Trailing(1)));
}

/// Each bit of a heartbeat names a node, a process, a cluster or what it does: with any one flipped
/// it speaks for nobody.
#[test]
fn a_heartbeat_with_a_flipped_bit_is_none() {
    let whole = heartbeat::encode(9, NodeId(3), 2, &Heartbeat::default());
    for at in 0..whole.len() * 8 {
        let mut bad = whole.clone();
        bad[at / 8] ^= 1 << (at % 8);
        assert!(heartbeat::decode(&bad).is_err(), "bit {at}");
    }
}
