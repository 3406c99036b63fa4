//! Outbound requests over HTTP: the driver is asked once by each primary, and each answer is handled
//! once.

use crate::common::outbound::*;
use crate::common::{Cluster, shard};
use e3_dataplane::Attempts;
use e3_model::outbound::{Answer, Destination};
use e3_model::pending::PendingAsked;
use e3_wire::entry::Outcome;

/// Each request asks under the same name, and the first has been made.
fn asked() -> (Cluster, Answers) {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = handle(&mut c, move |_| {
        vec![ask("h", Destination::Http(http()), deadline, b"")]
    });
    request(&mut c, 1);
    c.pass(50);
    (c, answers)
}

#[test]
fn a_request_over_http_is_made_once_by_each_primary_with_the_same_idempotency_key() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = handle(&mut c, move |_| {
        let to = Destination::Http(http());
        vec![
            ask("h", to.clone(), deadline, b"one"),
            ask("i", to, deadline, b"two"),
        ]
    });
    request(&mut c, 1);
    c.pass(5_000);
    let first: Vec<_> = c.http.drain(..).map(|(_, ask)| ask).collect();
    let bodies: Vec<_> = first.iter().map(|ask| ask.body.as_slice()).collect();
    assert_eq!(bodies, [b"one", b"two"]);
    assert_eq!((&first[0].request, first[0].deadline), (&http(), deadline));
    assert_eq!(first[0].idempotency_key.len(), 32);
    assert_ne!(first[0].idempotency_key, first[1].idempotency_key);
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    let again: Vec<_> = c.http.iter().map(|(_, ask)| &ask.idempotency_key).collect();
    let keys: Vec<_> = first.iter().map(|ask| &ask.idempotency_key).collect();
    assert_eq!(again, keys);
    answer_http(&mut c, 201, b"charged");
    c.pass(100);
    let created = Answer {
        outcome: Outcome::Done,
        status: 201,
    };
    assert_eq!(answers.borrow()[0], one("h", created, b"charged")[0]);
    assert_eq!((answers.borrow().len(), open(&c, 1)), (2, 0));
    c.pass(40_000);
    assert_eq!((answers.borrow().len(), c.http.len()), (2, 0));
}

#[test]
fn what_is_pending_has_the_attempts_that_the_driver_knows() {
    let (c, _) = asked();
    let ticket = c.http[0].1.ticket;
    let known = Attempts {
        count: 3,
        next: Some(after(&c, 1_000)),
        last_error: Some("connection refused".into()),
    };
    let asked = PendingAsked {
        number: 1,
        shards: vec![shard(0, 0)],
    };
    let of = |t| (t == ticket).then(|| known.clone());
    let shards = c.nodes[&0].worker.pending(&asked, of).shards;
    let pending = &shards[0].first[0];
    let next_ms = known.next.unwrap().0 / 1_000_000;
    assert_eq!((pending.name.as_str(), pending.attempts), ("h", 3));
    assert_eq!(pending.next_attempt_unix_ms, Some(next_ms));
    assert_eq!(pending.last_error, known.last_error);
}

#[test]
fn an_http_answer_that_is_too_long_is_a_failure() {
    let (mut c, answers) = asked();
    answer_http(&mut c, 200, &vec![1; 100_000]);
    c.pass(50);
    let (_, answer, reason) = answers.borrow()[0].clone();
    assert_eq!(answer, nobody(Outcome::Failed));
    let reason = String::from_utf8(reason).unwrap();
    assert!(reason.starts_with("answer of 100000 bytes"), "{reason}");
}

#[test]
fn more_requests_than_may_be_in_progress_take_turns() {
    let mut c = cluster();
    let deadline = after(&c, 50_000);
    let answers = handle(&mut c, move |seq| {
        let asks = (0..60).map(|n| {
            let name = format!("q{seq} {n}");
            ask(&name, Destination::Http(http()), deadline, name.as_bytes())
        });
        asks.collect()
    });
    for seq in 1..=10 {
        request(&mut c, seq);
    }
    c.pass(100);
    assert_eq!((c.http.len(), open(&c, 0)), (256, 600));
    let mut made: Vec<_> = c.http.iter().map(|(_, ask)| ask.body.clone()).collect();
    answer_http(&mut c, 200, b"");
    c.pass(1_000);
    assert_eq!((answers.borrow().len(), c.http.len()), (256, 256));
    made.extend(c.http.iter().map(|(_, ask)| ask.body.clone()));
    answer_http(&mut c, 200, b"");
    c.pass(1_000);
    made.extend(c.http.iter().map(|(_, ask)| ask.body.clone()));
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 600, "each was made once");
}

#[test]
fn a_driver_without_room_is_asked_again() {
    let (mut c, answers) = asked();
    let (node, first) = c.http.pop().unwrap();
    let now = c.clock(node);
    let worker = &mut c.nodes.get_mut(&node).unwrap().worker;
    worker.on_http_answer(now, first.ticket, nobody(Outcome::Overloaded), Vec::new());
    // It may not ask when it is time to.
    c.shard(shard(0, 0)).frozen = true;
    c.publish();
    c.pass(1_000);
    assert!(c.http.is_empty());
    c.shard(shard(0, 0)).frozen = false;
    c.publish();
    c.pass(5_000);
    assert_eq!((answers.borrow().len(), c.http.len()), (0, 1));
    assert_eq!(c.http[0].1.idempotency_key, first.idempotency_key);
    answer_http(&mut c, 200, b"at last");
    c.pass(50);
    assert_eq!(answers.borrow()[0].2, b"at last");
}

#[test]
fn the_driver_hears_that_nobody_waits_for_a_request_any_more() {
    let (mut c, _) = asked();
    let first = c.http[0].1.ticket;
    assert!(!c.http[0].1.may_be_sent);
    // One of the same name takes its place.
    request(&mut c, 2);
    c.pass(50);
    assert_eq!(c.cancelled, [(0, first)]);
    assert_eq!(c.http.len(), 1);
    let second = c.http[0].1.ticket;
    // Another node asks from here on.
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    assert_eq!(c.cancelled, [(0, first), (0, second)]);
    let asked = &c.http[0];
    assert!(asked.0 == 1 && asked.1.may_be_sent, "{asked:?}");
    // What is answered needs no more.
    answer_http(&mut c, 200, b"");
    c.pass(100);
    assert_eq!(c.cancelled.len(), 2);
}

#[test]
fn the_driver_hears_of_all_requests_of_a_shard_that_another_node_serves_now() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    handle(&mut c, move |_| {
        let names = ["a", "b", "c"];
        names
            .map(|name| ask(name, Destination::Http(http()), deadline, b""))
            .to_vec()
    });
    request(&mut c, 1);
    c.pass(50);
    let asked: Vec<_> = c
        .http
        .iter()
        .map(|(node, ask)| (*node, ask.ticket))
        .collect();
    assert_eq!(asked.len(), 3);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(50);
    c.cancelled.sort();
    assert_eq!(c.cancelled, asked);
}

/// A handler cancels what another one has asked for in the same turn, without a backup to wait for.
#[test]
fn the_driver_is_not_given_a_request_that_is_cancelled_before() {
    let alone = FLOW.replacen("replicas: 2", "replicas: 1", 1);
    let mut c = Cluster::new(&alone, 5, |key| vec![u32::from(key.service.0) * 2]);
    let deadline = after(&c, 30_000);
    let answers = handle(&mut c, move |seq| match seq {
        1 => {
            let names = ["a", "b", "c"];
            let asks = names.map(|name| {
                let to = Destination::Http(http());
                ask(name, to, deadline, name.as_bytes())
            });
            let other = ask("q", to("back"), deadline, b"ping");
            asks.into_iter().chain([other]).collect()
        }
        _ => vec![cancel("b")],
    });
    request(&mut c, 1);
    request(&mut c, 2);
    c.pass(50);
    let made: Vec<_> = c.http.iter().map(|(_, ask)| ask.body.as_slice()).collect();
    assert_eq!(made, [b"a", b"c"]);
    assert_eq!(c.cancelled, []);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re ping"));
    assert_eq!(open(&c, 0), 2);
}
