//! What a shard refuses because of an entry that may yet be lost: its client hears so when the entry is
//! committed, and not from a process that has a successor.

use crate::common::manifests::ONE;
use crate::common::{Cluster, address, count_and_forward, shard};
use crate::letters::replayed_twice;
use e3_dataplane::limits::QUEUE_MAX;
use e3_invocation::HandlerError;
use e3_model::plan::NodeEvent;
use e3_model::{Format, Nanos, RequestId, ShardKey, Slot};
use e3_wire::client::{ClientFrame, Replay, Request};
use e3_wire::entry::Outcome;
use std::cell::Cell;
use std::rc::Rc;

fn key() -> ShardKey {
    shard(0, 0)
}

/// A shard on node 0, with a backup on node 1.
fn pair() -> Cluster {
    Cluster::new(ONE, 2, |_| vec![0, 1])
}

/// The client sends replays to node 0, and waits for none of them.
fn send(c: &mut Cluster, replays: impl IntoIterator<Item = Replay>) {
    for replay in replays {
        let frame = ClientFrame::Replay(replay);
        c.send_raw(address(0), frame.to_datagram(Format::NEWEST));
    }
    c.pass(5);
}

fn numbered(replay: &Replay, seq: u64) -> Replay {
    Replay {
        id: RequestId { client: 2, seq },
        ..replay.clone()
    }
}

#[test]
fn a_bounded_number_of_refusals_wait_and_the_rest_come_with_the_next_attempt() {
    let mut c = pair();
    let replay = replayed_twice(&mut c);
    let last = 901 + QUEUE_MAX as u64 + 9;
    let more = (902..=last).map(|seq| numbered(&replay, seq));
    send(&mut c, more.collect::<Vec<_>>());
    c.cut.clear();
    c.pass(1_000);
    let refused = c.replies.iter();
    let refused = refused.filter(|(.., reply)| reply.outcome == Outcome::Rejected);
    assert_eq!(refused.count(), QUEUE_MAX);
    assert_eq!(c.outcomes(last), []);
    let again = Replay {
        attempt: 1,
        ..numbered(&replay, last)
    };
    c.send_replay(0, again);
    assert_eq!(c.outcomes(last), [Outcome::Rejected]);
}

#[test]
fn a_replay_that_is_repeated_while_its_refusal_waits_leaves_room_for_others() {
    let mut c = pair();
    let replay = replayed_twice(&mut c);
    let repeats = (1..=QUEUE_MAX as u16).map(|attempt| Replay {
        attempt,
        ..replay.clone()
    });
    send(&mut c, repeats.collect::<Vec<_>>());
    send(&mut c, [numbered(&replay, 902)]);
    c.cut.clear();
    c.pass(1_000);
    for seq in [901, 902] {
        assert_eq!(c.outcomes(seq), [Outcome::Rejected], "replay {seq}");
    }
}

/// Node 0 has handed the shard over, and does not know yet that node 1 serves it. It has leases still.
#[test]
fn a_primary_that_hands_over_refuses_no_replay_of_a_letter_that_its_successor_has() {
    let mut c = pair();
    let works = Rc::new(Cell::new(false));
    let is_well = works.clone();
    c.handler = Box::new(move |_, invocation, state| match is_well.get() {
        true => count_and_forward(0, invocation, state),
        false => Err(HandlerError::Code(1)),
    });
    let plan = c.shard(key());
    plan.view += 1;
    plan.frozen = true;
    c.publish();
    c.pass(50);
    let events = c.nodes[&0].worker.events();
    let is_frozen = |e: &NodeEvent| matches!(e, NodeEvent::Frozen { .. });
    assert!(events.iter().any(is_frozen), "{events:?}");
    c.promote(key(), 1);
    let plan = c.shard(key());
    (plan.frozen, plan.fenced) = (false, true);
    c.version += 1;
    c.publish_to(1);
    let deadline = c.now + Nanos::from_secs(20);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    works.set(true);
    let (letter, _) = c.read_letters(1, key()).letters[0];
    assert_eq!(c.read_letters(0, key()).total, 0, "it answers clients");
    let replay = Replay {
        shard: key(),
        letter,
        slot: Slot::of(b"k"),
        id: RequestId { client: 2, seq: 9 },
        attempt: 0,
        deadline,
    };
    c.send_replay(0, replay.clone());
    assert_eq!(c.outcomes(9), []);
    let again = Replay {
        attempt: 1,
        ..replay
    };
    c.send_replay(1, again);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.count(1, key(), 2, 9), 1);
}

/// A client repeats a request with an idempotency key, and has more time for it.
fn repeat(c: &mut Cluster, node: u32, attempt: u16) {
    let deadline = c.now + Nanos::from_secs(20);
    let request = Request {
        id: RequestId { client: 5, seq: 1 },
        oldest_seq: 0,
        ..c.request_of(1, attempt, b"k", deadline)
    };
    c.send_request(node, request);
    c.pass(20);
}

/// A request with an idempotency key that has expired; only the primary knows that its dead letter is
/// replayed, when the request comes once more.
fn replayed_before_a_repeat() -> Cluster {
    let mut c = pair();
    let late = Request {
        id: RequestId { client: 5, seq: 1 },
        oldest_seq: 0,
        ..c.request_of(1, 0, b"k", c.now - Nanos::from_millis(100))
    };
    c.send_request(0, late);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Expired]);
    c.cut.insert((0, 1));
    c.replay_first(0, key(), 9);
    assert_eq!(c.count(0, key(), 2, 9), 1);
    repeat(&mut c, 0, 1);
    assert_eq!(c.outcomes(9), []);
    assert_eq!(c.outcomes(1), [Outcome::Expired], "nothing is settled");
    c
}

#[test]
fn a_request_whose_letter_is_replayed_is_of_unknown_outcome_when_the_replay_is_committed() {
    let mut c = replayed_before_a_repeat();
    c.cut.clear();
    c.pass(1_000);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.outcomes(1), [Outcome::Expired, Outcome::Unknown]);
    // From then on what else is not committed has nothing to do with it.
    c.cut.insert((0, 1));
    let deadline = c.now + Nanos::from_secs(20);
    c.request(0, 2, 0, b"k", deadline);
    c.pass(5);
    assert_eq!(c.count(0, key(), 1, 2), 1);
    repeat(&mut c, 0, 2);
    assert_eq!(c.outcomes(2), []);
    assert_eq!(c.outcomes(1)[2..], [Outcome::Unknown]);
}

#[test]
fn a_request_whose_letter_only_a_lost_primary_had_replayed_is_handled() {
    let mut c = replayed_before_a_repeat();
    c.promote(key(), 1);
    c.kill(0);
    c.cut.clear();
    c.publish();
    c.pass(1_000);
    repeat(&mut c, 1, 2);
    assert_eq!(c.outcomes(1), [Outcome::Expired, Outcome::Done]);
    assert_eq!(c.count(1, key(), 5, 1), 1);
    assert_eq!(c.count(1, key(), 2, 9), 0, "the replay is lost");
}
