//! Dead letters: what is kept of messages that failed for good, wherever the primary moves.

use crate::admission::LINE;
use crate::common::manifests::{ONE, PAIR};
use crate::common::{Cluster, count_and_forward, shard};
use crate::reshard::{SERVICE, switch};
use e3_invocation::{Effects, HandlerError, Reply};
use e3_model::{Format, Nanos, NodeId, RequestId};
use e3_wire::client::{Replay, Request};
use e3_wire::entry::Outcome;
use std::cell::Cell;
use std::rc::Rc;

/// Requests that are done come first, then so many that fail.
fn failed(c: &mut Cluster, done: u64, letters: u64) {
    let deadline = c.now + Nanos::from_secs(50);
    for seq in 1..=done + letters {
        c.request(0, seq, 0, b"k", deadline);
    }
    c.handler = Box::new(move |_, invocation, state| {
        if invocation.id.request.seq > done {
            return Err(HandlerError::Code(1));
        }
        count_and_forward(0, invocation, state)
    });
    c.pass(100);
    assert_eq!(c.outcomes(done), [Outcome::Done]);
    assert_eq!(c.outcomes(done + letters), [Outcome::Failed]);
}

#[test]
fn who_joins_and_takes_over_has_the_dead_letters_and_what_was_handled() {
    let mut c = Cluster::new(ONE, 3, |_| vec![0]);
    let key = shard(0, 0);
    failed(&mut c, 300, 3);
    assert_eq!(c.report(0, key).dead_letters, 3);
    let plan = c.shard(key);
    plan.view += 1;
    plan.joining = vec![NodeId(1)];
    c.publish();
    c.pass(1_000);
    assert_eq!(c.report(1, key).dead_letters, 3);
    c.promote(key, 1);
    c.shard(key).joining.clear();
    c.kill(0);
    c.publish();
    c.pass(1_000);
    c.handler = Box::new(|_, invocation, state| count_and_forward(0, invocation, state));
    // Every request comes once more: nothing is done twice, or for a letter.
    let deadline = c.now + Nanos::from_secs(45);
    for seq in 1..=303 {
        c.request(2, seq, 1, b"k", deadline);
    }
    c.pass(1_000);
    for seq in 1..=300 {
        assert_eq!(c.count(1, key, 1, seq), 1, "request {seq}");
        assert_eq!(c.outcomes(seq), [Outcome::Done; 2]);
    }
    assert_eq!(c.outcomes(303), [Outcome::Failed; 2]);
    let letters = c.read_letters(1, key);
    let seqs: Vec<u64> = letters.letters.iter().map(|l| l.0.request.seq).collect();
    assert_eq!((letters.total, seqs), (3, vec![301, 302, 303]));
    c.replay_first(1, key, 9_000);
    assert_eq!(c.outcomes(9_000), [Outcome::Done]);
    assert_eq!(c.count(1, key, 2, 9_000), 1);
    assert_eq!(c.report(1, key).dead_letters, 2);
}

/// In that format a snapshot has the letters that are still there when it comes to them.
#[test]
fn who_joins_in_an_older_format_has_the_dead_letters_too() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0]);
    let key = shard(0, 0);
    c.format = Format(Format::LETTERS_OF_BEGINNING.0 - 1);
    c.publish();
    failed(&mut c, 1, 3);
    let plan = c.shard(key);
    plan.view += 1;
    plan.joining = vec![NodeId(1)];
    c.publish();
    c.pass(1_000);
    c.promote(key, 1);
    c.shard(key).joining.clear();
    c.kill(0);
    c.publish();
    c.pass(1_000);
    let letters = c.read_letters(1, key);
    let seqs: Vec<u64> = letters.letters.iter().map(|l| l.0.request.seq).collect();
    assert_eq!((letters.total, seqs), (3, vec![2, 3, 4]));
}

/// The client of its request has no answer yet either.
#[test]
fn a_dead_letter_that_a_successor_may_lack_is_not_shown() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let key = shard(0, 0);
    c.handler = Box::new(|_, _, _| Err(HandlerError::Code(1)));
    let deadline = c.now + Nanos::from_secs(20);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    c.cut.insert((0, 1));
    c.request(0, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2), []);
    let shown = |c: &mut Cluster| {
        let letters = c.read_letters(0, key);
        let ids = letters.letters.iter().map(|(id, _)| id.request.seq);
        (letters.total, ids.collect::<Vec<_>>())
    };
    assert_eq!(shown(&mut c), (1, vec![1]));
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(2), [Outcome::Failed]);
    assert_eq!(shown(&mut c), (2, vec![1, 2]));
}

/// The answer of the next service reaches the client's node, that of the one with the dead letter does not.
#[test]
fn only_the_service_that_kept_a_dead_letter_answers_its_replay() {
    let mut c = Cluster::new(PAIR, 3, |key| match key.service.0 {
        0 => vec![0, 1],
        _ => vec![2],
    });
    let (front, back) = (shard(0, 0), shard(1, 0));
    let works = Rc::new(Cell::new(false));
    let is_well = works.clone();
    c.handler = Box::new(move |service, invocation, state| match service.0 {
        0 if is_well.get() => count_and_forward(1, invocation, state),
        _ => Err(HandlerError::Code(1)),
    });
    let deadline = c.now + Nanos::from_secs(20);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    works.set(true);
    c.cut.insert((1, 0));
    let replay = c.replay_first(0, front, 9);
    assert_eq!(c.outcomes(9), []);
    // Node 1 has the entry of the replay, and sends on what follows from it.
    c.promote(front, 1);
    c.publish();
    c.pass(1_000);
    assert_eq!(c.read_letters(2, back).total, 1);
    assert_eq!(c.outcomes(9), [], "the next service answers");
    c.cut.clear();
    let again = Replay {
        attempt: 1,
        ..replay
    };
    c.send_replay(1, again);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
}

/// A dead letter of the middle service, which works again: every service on its own node. Nobody answers
/// but the first service.
fn failed_in_the_middle() -> Cluster {
    let mut c = Cluster::new(LINE, 3, |key| vec![key.service.0.into()]);
    let works = Rc::new(Cell::new(false));
    let is_well = works.clone();
    c.handler = Box::new(move |service, invocation, state| {
        let mut effects = match service.0 {
            1 if !is_well.get() => return Err(HandlerError::Code(1)),
            1 => e3_invocation::Effects {
                outputs: vec![e3_invocation::Output {
                    channel: 0,
                    key: invocation.key.clone(),
                    payload: Vec::new(),
                }],
                ..Default::default()
            },
            0 => count_and_forward(1, invocation, state)?,
            _ => count_and_forward(0, invocation, state)?,
        };
        effects.reply = (service.0 == 0).then(|| e3_invocation::Reply {
            status: 0,
            payload: Vec::new(),
        });
        Ok(effects)
    });
    let deadline = c.now + Nanos::from_secs(15);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    assert_eq!(c.outcomes(1), [Outcome::Done]);
    assert_eq!(c.report(1, shard(1, 0)).dead_letters, 1);
    works.set(true);
    // Another process could handle the message, were this one deposed.
    c.replay_first(1, shard(1, 0), 8);
    assert_eq!(c.outcomes(8), [Outcome::Rejected]);
    let (.., refused) = c.replies.last().unwrap();
    let why = String::from_utf8_lossy(&refused.payload);
    assert!(
        why.ends_with("handle the request: replay it in 20 s"),
        "{why}"
    );
    assert_eq!(c.report(1, shard(1, 0)).dead_letters, 1);
    c.pass_coarsely(21);
    c
}

/// Its client sends another request that says so.
#[test]
fn a_replay_at_a_stateless_service_waits_also_when_the_client_has_done_with_the_request() {
    let app = ONE.replace("      stateful: true\n      replicas: 2\n", "");
    let app = app.replace("      collections: [{name: count, kind: counter}]\n", "");
    let mut c = Cluster::new(&app, 1, |_| vec![0]);
    c.handler = Box::new(|_, invocation, _| match invocation.id.request {
        RequestId { client: 1, seq: 1 } => Err(HandlerError::Code(1)),
        _ => Ok(Effects {
            reply: Some(Reply {
                status: 0,
                payload: Vec::new(),
            }),
            ..Effects::default()
        }),
    });
    let key = shard(0, 0);
    let deadline = c.now + Nanos::from_secs(15);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(100);
    let next = Request {
        oldest_seq: 2,
        ..c.request_of(2, 0, b"k", deadline)
    };
    c.send_request(0, next);
    c.pass(100);
    assert_eq!(
        (c.outcomes(1), c.outcomes(2)),
        (vec![Outcome::Failed], vec![Outcome::Done])
    );
    c.replay_first(0, key, 8);
    assert_eq!(c.outcomes(8), [Outcome::Rejected]);
    c.pass_coarsely(21);
    c.replay_first(0, key, 9);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
}

#[test]
fn a_replay_where_nobody_answers_the_request_is_answered() {
    let mut c = failed_in_the_middle();
    c.replay_first(1, shard(1, 0), 9);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.count(2, shard(2, 0), 2, 9), 1);
    assert_eq!(c.report(1, shard(1, 0)).dead_letters, 0);
}

#[test]
fn a_replay_at_a_stateless_service_is_answered_when_what_follows_is_durable() {
    let mut c = failed_in_the_middle();
    c.cut.extend([(1, 2)]);
    c.replay_first(1, shard(1, 0), 9);
    c.pass(500);
    assert_eq!(c.outcomes(9), []);
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.count(2, shard(2, 0), 2, 9), 1);
}

#[test]
fn a_replay_whose_outputs_a_split_drops_stays_a_dead_letter() {
    let mut c = failed_in_the_middle();
    c.cut.extend([(1, 2)]);
    let replay = c.replay_first(1, shard(1, 0), 9);
    assert_eq!(SERVICE.0, 1);
    switch(&mut c, 2);
    c.plan.shards.sort_by_key(|s| (s.service, s.shard));
    c.publish();
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(9), []);
    assert_eq!(c.count(2, shard(2, 0), 2, 9), 0);
    let of_shard = e3_model::Slot::of(b"k").shard(2);
    let key = shard(1, of_shard.0);
    // Part of it may have arrived, so no replay may follow.
    c.replay_first(1, key, 10);
    assert_eq!(c.outcomes(10), [Outcome::Rejected]);
    let shard = key;
    c.send_replay(
        1,
        Replay {
            shard,
            attempt: 1,
            ..replay
        },
    );
    assert_eq!(c.outcomes(9), [Outcome::Unknown]);
    assert_eq!(c.report(1, key).dead_letters, 1);
}

/// A dead letter whose replay only its primary has, and a second replay that finds none.
pub(crate) fn replayed_twice(c: &mut Cluster) -> Replay {
    let key = shard(0, 0);
    failed(c, 1, 1);
    c.handler = Box::new(|_, invocation, state| count_and_forward(0, invocation, state));
    c.cut.insert((0, 1));
    let first = c.replay_first(0, key, 900);
    let second = Replay {
        id: RequestId {
            client: 2,
            seq: 901,
        },
        ..first
    };
    c.send_replay(0, second.clone());
    assert_eq!((c.outcomes(900), c.outcomes(901)), (vec![], vec![]));
    second
}

#[test]
fn a_replay_is_refused_only_when_it_is_durable_that_the_letter_is_gone() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    replayed_twice(&mut c);
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(900), [Outcome::Done]);
    assert_eq!(c.outcomes(901), [Outcome::Rejected]);
}

#[test]
fn a_replay_has_one_answer_when_the_primary_that_lacks_the_letter_is_replaced() {
    let mut c = Cluster::new(ONE, 2, |_| vec![0, 1]);
    let key = shard(0, 0);
    let second = replayed_twice(&mut c);
    c.promote(key, 1);
    c.kill(0);
    c.cut.clear();
    c.publish();
    c.pass(1_000);
    c.send_replay(
        1,
        Replay {
            attempt: 1,
            ..second
        },
    );
    c.pass(1_000);
    assert_eq!(c.outcomes(901), [Outcome::Done]);
    assert_eq!(c.count(1, key, 2, 901), 1);
}
