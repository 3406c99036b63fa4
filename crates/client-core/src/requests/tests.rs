//! Requests: identity, retries, deadlines and outcomes.

use super::*;
use e3_model::AppId;
use e3_model::{Format, Formats};
use e3_wire::client::Request;

const SECOND: u64 = 1_000_000_000;

fn address(port: u16) -> Address {
    Address {
        port,
        ..Address::default()
    }
}

fn requests() -> Requests {
    let nodes = vec![address(1), address(2), address(3)];
    Requests::new(
        7,
        Routes {
            app: AppId(1),
            shards: vec![Some(address(2))],
            nodes,
            ..Routes::default()
        },
    )
}

fn submit(r: &mut Requests) -> u64 {
    let call = Call {
        tag: 9,
        key: b"k".to_vec(),
        payload: b"p".to_vec(),
    };
    r.submit(Timestamp(0), Timestamp(0), Timestamp(5 * SECOND), call)
}

fn sent(r: &mut Requests) -> Vec<(u16, Request)> {
    let mut out = Vec::new();
    while let Some((to, bytes)) = r.poll_transmit() {
        let (_, mut reader) = open(Formats::PROGRAM, &bytes).unwrap();
        while !reader.is_empty() {
            let ClientFrame::Request(q) = ClientFrame::decode(&mut reader).unwrap() else {
                panic!("a client sends requests");
            };
            out.push((to.port, q));
        }
    }
    out
}

fn answer(r: &mut Requests, now: u64, seq: u64, outcome: Outcome) {
    // The latest attempt.
    let attempt = r.pending.get(&seq).map_or(0, |p| p.attempts - 1);
    let reply = Reply {
        outcome,
        status: 0,
        payload: vec![],
    };
    let id = RequestId { client: 7, seq };
    let frame = ClientFrame::Reply { id, attempt, reply };
    r.on_datagram(Timestamp(now), &frame.to_datagram(Format::NEWEST));
}

fn outcome(r: &mut Requests) -> Option<Option<Outcome>> {
    match r.poll_event()? {
        Event::Completed(completed) => Some(completed.reply.map(|r| r.outcome)),
        other => panic!("{other:?} is not an outcome"),
    }
}

#[test]
fn requests_of_one_moment_share_a_datagram_and_tell_the_oldest() {
    let mut r = requests();
    for _ in 0..3 {
        submit(&mut r);
    }
    let (to, bytes) = r.poll_transmit().unwrap();
    assert_eq!(to, address(2));
    assert!(r.poll_transmit().is_none());
    r.outbox.full.push_back((to, bytes));
    let frames = sent(&mut r);
    assert_eq!(frames.len(), 3);
    assert!(
        frames
            .iter()
            .all(|(_, q)| q.oldest_seq == 1 && q.attempt == 0)
    );
    answer(&mut r, 1, 1, Outcome::Done);
    submit(&mut r);
    assert_eq!(sent(&mut r)[0].1.oldest_seq, 2);
}

#[test]
fn an_unanswered_request_is_repeated_elsewhere_until_its_deadline() {
    let mut r = requests();
    submit(&mut r);
    let first = sent(&mut r).remove(0).1;
    let mut attempts = vec![];
    while let Some(at) = r.next_deadline() {
        r.on_timer(at);
        for (to, q) in sent(&mut r) {
            assert_eq!(
                (q.id, &q.payload, q.deadline),
                (first.id, &first.payload, first.deadline)
            );
            attempts.push((at.0 / 1_000_000, to, q.attempt));
        }
    }
    assert_eq!(attempts[0], (500, 3, 1));
    let (at, to, attempt) = attempts[1];
    assert!((875..=1250).contains(&at), "{attempts:?}");
    assert_eq!((to, attempt), (2, 2));
    let before = attempts.iter().filter(|(at, ..)| *at < 5000).count();
    assert!((4..=6).contains(&before), "{attempts:?}");
    // What became of it may be learnt for a second more.
    let last = attempts.last().unwrap().0;
    assert!(
        attempts.len() == before + 10 && last == 5900,
        "{attempts:?}"
    );
    assert_eq!(outcome(&mut r), Some(None), "unknown");
    answer(&mut r, 7 * SECOND, 1, Outcome::Done);
    assert!(matches!(r.poll_event(), Some(Event::Duplicate(_))));
}

#[test]
fn overloaded_is_an_outcome_only_if_every_attempt_was_refused() {
    let mut r = requests();
    submit(&mut r);
    answer(&mut r, 1, 1, Outcome::Overloaded);
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Overloaded)));

    let seq = submit(&mut r);
    r.on_timer(Timestamp(SECOND / 2));
    for _ in 0..2 {
        // The second time it is the same datagram once more.
        answer(&mut r, SECOND, seq, Outcome::Overloaded);
        assert_eq!(outcome(&mut r), None, "the first attempt may be in flight");
    }
    answer(&mut r, SECOND, seq, Outcome::Done);
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Done)));
}

#[test]
fn a_rejected_request_is_tried_elsewhere_and_rejected_in_the_end() {
    let mut r = requests();
    submit(&mut r);
    for _ in 0..1000 {
        let now = r.next_deadline().unwrap();
        answer(&mut r, now.0.min(5 * SECOND) - 1, 1, Outcome::Rejected);
        let Some(at) = r.next_deadline() else { break };
        r.on_timer(at);
        if r.in_flight() == 0 {
            break;
        }
    }
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Rejected)));
}

#[test]
fn new_routes_are_tried_at_once() {
    let mut r = requests();
    submit(&mut r);
    assert!(!r.wants_routes());
    r.on_timer(Timestamp(SECOND / 2));
    assert!(r.wants_routes());
    sent(&mut r);
    let nodes = vec![address(1), address(3)];
    let routes = Routes {
        app: AppId(1),
        shards: vec![Some(address(1))],
        nodes,
        ..Routes::default()
    };
    r.set_routes(Timestamp(SECOND), routes);
    assert_eq!(sent(&mut r)[0].0, 1);
}

#[test]
fn an_answer_to_a_retry_leaves_the_routes_in_doubt_until_they_are_confirmed() {
    let mut r = requests();
    submit(&mut r);
    r.on_timer(Timestamp(SECOND / 2));
    answer(&mut r, SECOND / 2 + 1, 1, Outcome::Done);
    assert_eq!(r.in_flight(), 0);
    assert!(r.wants_routes());
    let same = r.routes.clone();
    let other = Routes {
        app: AppId(2),
        ..same.clone()
    };
    r.set_routes(Timestamp(SECOND), other);
    assert!(r.wants_routes(), "routes of another application");
    r.set_routes(Timestamp(SECOND), same);
    assert!(!r.wants_routes());
}

#[test]
fn any_bytes_are_counted_and_dropped() {
    let mut r = requests();
    submit(&mut r);
    let mut random = e3_random::Random::new(3);
    for len in 0..200 {
        let bytes = random.bytes(len);
        r.on_datagram(Timestamp(1), &bytes);
    }
    assert_eq!(r.take_stray(), 200);
    assert_eq!(r.in_flight(), 1);
}

#[test]
fn a_damaged_answer_is_none() {
    let mut r = requests();
    submit(&mut r);
    let reply = Reply {
        outcome: Outcome::Done,
        status: 0,
        payload: b"answer".to_vec(),
    };
    let id = RequestId { client: 7, seq: 1 };
    let frame = ClientFrame::Reply {
        id,
        attempt: 0,
        reply,
    };
    let whole = frame.to_datagram(Format::NEWEST);
    for at in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        r.on_datagram(Timestamp(1), &damaged);
    }
    assert_eq!((r.take_stray(), r.in_flight()), (whole.len() as u64 * 8, 1));
    r.on_datagram(Timestamp(1), &whole);
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Done)));
}

fn shard() -> ShardKey {
    ShardKey {
        app: AppId(1),
        service: e3_model::ServiceId(0),
        shard: e3_model::ShardId(2),
    }
}

fn frames(r: &mut Requests) -> Vec<(u16, ClientFrame)> {
    let (to, bytes) = r.poll_transmit().unwrap();
    let (_, mut reader) = open(Formats::PROGRAM, &bytes).unwrap();
    let mut out = Vec::new();
    while !reader.is_empty() {
        out.push((to.port, ClientFrame::decode(&mut reader).unwrap()));
    }
    out
}

#[test]
fn dead_letters_are_read_at_the_primary_as_soon_as_it_is_known() {
    let mut r = Requests::new(7, Routes::default());
    let seq = r.read_dead_letters(Timestamp(0), Timestamp(5 * SECOND), shard(), 3);
    assert!(r.poll_transmit().is_none() && r.wants_routes());
    let routes = Routes {
        primaries: [(shard(), address(4))].into(),
        nodes: vec![address(4)],
        ..Routes::default()
    };
    r.set_routes(Timestamp(1), routes);
    let asked = ClientFrame::ReadDeadLetters {
        shard: shard(),
        skip: 3,
    };
    assert_eq!(frames(&mut r), [(4, asked)]);
    let page = |skipped| DeadLetters {
        shard: shard(),
        skipped,
        total: 3,
        letters: vec![],
    };
    for skipped in [0, 3] {
        let frame = ClientFrame::DeadLetters(page(skipped));
        r.on_datagram(Timestamp(2), &frame.to_datagram(Format::NEWEST));
    }
    let letters = page(3);
    let found = Event::DeadLetters(DeadLetterPage { seq, letters });
    assert_eq!((r.poll_event(), r.poll_event()), (Some(found), None));
    assert_eq!((r.take_stray(), r.in_flight()), (1, 0));
}

#[test]
fn a_replay_goes_to_the_primary_and_any_reply_is_its_outcome() {
    let mut r = requests();
    let routes = Routes {
        primaries: [(shard(), address(3))].into(),
        ..r.routes.clone()
    };
    r.set_routes(Timestamp(0), routes);
    let id = MessageId::ingress(RequestId { client: 1, seq: 1 });
    let content = DeadLetter {
        at: Timestamp(0),
        outcome: Outcome::Failed,
        key: b"k".to_vec(),
        payload: vec![],
        timer: String::new(),
        answer: None,
        topic: None,
        reason: String::new(),
    };
    let seq = r.replay(Timestamp(0), Timestamp(5 * SECOND), shard(), &(id, content));
    let sent = frames(&mut r);
    assert!(matches!(&sent[..], [(3, ClientFrame::Replay(q))] if q.letter == id));
    answer(&mut r, 1, seq, Outcome::Rejected);
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Rejected)));
}

#[test]
fn a_keyed_request_keeps_its_identity_and_gets_more_time() {
    let mut r = requests();
    let id = RequestId { client: 99, seq: 5 };
    let call = |tag| Call {
        tag,
        key: b"k".to_vec(),
        payload: b"p".to_vec(),
    };
    let reply = |outcome| ClientFrame::Reply {
        id,
        attempt: 0,
        reply: Reply {
            outcome,
            status: 0,
            payload: vec![],
        },
    };
    let first = r.submit_keyed(Timestamp(0), Timestamp(SECOND), call(1), id);
    r.extend_deadline(first, Timestamp(3 * SECOND));
    let attempt = sent(&mut r).remove(0).1;
    assert_eq!((attempt.id, attempt.oldest_seq), (id, 0));
    assert_eq!(attempt.deadline, Timestamp(SECOND));
    r.on_timer(Timestamp(SECOND / 2));
    assert_eq!(sent(&mut r).remove(0).1.deadline, Timestamp(3 * SECOND));
    r.on_datagram(
        Timestamp(SECOND),
        &reply(Outcome::Expired).to_datagram(Format::NEWEST),
    );
    assert_eq!(outcome(&mut r), Some(Some(Outcome::Expired)));
    // sent again with the same key: a late reply belongs to it
    let second = r.submit_keyed(Timestamp(SECOND), Timestamp(3 * SECOND), call(2), id);
    r.on_datagram(
        Timestamp(SECOND),
        &reply(Outcome::Done).to_datagram(Format::NEWEST),
    );
    let done = r.poll_event();
    assert!(matches!(done, Some(Event::Completed(c)) if (c.seq, c.tag) == (second, 2)));
    r.on_datagram(
        Timestamp(SECOND),
        &reply(Outcome::Done).to_datagram(Format::NEWEST),
    );
    assert!(matches!(r.poll_event(), Some(Event::Duplicate(d)) if d.seq == second));
}

/// The shard's node and the one after it have ended, and nobody tells the client.
#[test]
fn every_node_is_tried() {
    let mut r = requests();
    submit(&mut r);
    let mut tried = Vec::new();
    while let Some(now) = r.next_deadline() {
        tried.extend(sent(&mut r).into_iter().map(|(to, _)| to));
        r.on_timer(now);
    }
    assert_eq!(tried[..6], [2, 3, 2, 1, 2, 3], "{tried:?}");
}

/// 2,000 senders and a node that handles 1,000 attempts a second, so that each waits for two seconds.
#[test]
fn requests_that_queue_for_longer_than_a_retry_waits_are_not_all_sent_again() {
    let mut r = requests();
    let mut queue = VecDeque::new();
    let (mut handled, mut attempts) = (0, 0);
    for now in (0..60_000).map(|ms| Timestamp(ms * 1_000_000)) {
        r.on_timer(now);
        for _ in r.in_flight()..2_000 {
            let call = Call {
                tag: 0,
                key: b"k".to_vec(),
                payload: vec![],
            };
            r.submit(now, now, now + Nanos::from_secs(60), call);
        }
        queue.extend(sent(&mut r).into_iter().map(|(_, q)| (q.id.seq, q.attempt)));
        let Some((seq, attempt)) = queue.pop_front() else {
            continue;
        };
        let reply = Reply {
            outcome: Outcome::Done,
            status: 0,
            payload: vec![],
        };
        let id = RequestId { client: 7, seq };
        let frame = ClientFrame::Reply { id, attempt, reply };
        r.on_datagram(now, &frame.to_datagram(Format::NEWEST));
        attempts += 1;
        match r.poll_event() {
            Some(Event::Completed(_)) => handled += 1,
            other => assert!(matches!(other, Some(Event::Duplicate(_)) | None)),
        }
    }
    assert!(handled * 100 > attempts * 99, "{handled} of {attempts}");
    assert!(handled > 50_000, "{handled}");
}

#[test]
fn a_retry_waits_for_slow_replies_up_to_half_of_the_time_to_the_deadline() {
    let mut r = requests();
    submit(&mut r);
    sent(&mut r);
    let mut times = Vec::new();
    while let Some(now) = r.next_deadline().filter(|now| now.0 < 4 * SECOND) {
        r.reply_time.record(now, Nanos::from_secs(9));
        r.on_timer(now);
        times.extend(sent(&mut r).iter().map(|_| now.0));
        // Perhaps the shard has moved.
        assert!(r.wants_routes());
    }
    assert_eq!(times, [SECOND * 5 / 2, SECOND * 15 / 4]);
}

#[test]
fn a_request_that_was_lost_is_sent_again_soon_after_replies_have_become_fast() {
    let mut r = requests();
    let nine = Nanos::from_secs(9);
    (0..100).for_each(|_| r.reply_time.record(Timestamp(0), nine));
    submit(&mut r);
    sent(&mut r);
    r.on_timer(Timestamp(SECOND / 2));
    assert!(sent(&mut r).is_empty());
    let (later, fast) = (Timestamp(SECOND * 9 / 2), Nanos::from_millis(1));
    (0..100).for_each(|_| r.reply_time.record(later, fast));
    r.on_timer(later);
    assert_eq!(sent(&mut r).len(), 1);
}
