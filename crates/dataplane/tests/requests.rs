//! What clients ask of a node, by datagram or through its driver, and what they are answered.

use crate::common::{Cluster, address, count_and_forward, shard};
use e3_dataplane::limits::DATAGRAM_LEN_GOAL;
use e3_invocation::HandlerError;
use e3_model::{Format, Formats, Nanos, Slot, Timestamp};
use e3_wire::client::{ClientFrame, Replay, Request};
use e3_wire::datagram::open;
use e3_wire::entry::Outcome;

const ONE: &str = "
apiVersion: e3.dev/v1alpha1
kind: Application
metadata: {name: one}
spec:
  objective: {latency: 50ms}
  deadline: 30s
  admittedMax: 1000
  ingress: only
  services:
    - name: only
      module: s.wasm
      stateful: true
      resources: {cpu: 0.1, memory: 64Mi}
      collections: [{name: count, kind: counter}]
";

/// A shard on node 0.
fn one() -> Cluster {
    Cluster::new(ONE, 3, |_| vec![0])
}

fn soon(c: &Cluster) -> Timestamp {
    c.now + Nanos::from_secs(20)
}

fn hold(c: &mut Cluster, node: u32, held: bool) {
    c.nodes.get_mut(&node).unwrap().held = held;
}

/// What the driver was answered to a request.
fn answered(c: &Cluster, seq: u64) -> Vec<Outcome> {
    let answers = c.answers.iter().filter(|(id, _)| id.seq == seq);
    answers.map(|(_, reply)| reply.outcome).collect()
}

#[test]
fn the_driver_is_answered_once_for_each_attempt() {
    let mut c = one();
    let deadline = soon(&c);
    let request = c.request_of(1, 0, b"k", deadline);
    c.ask(1, request.clone());
    assert_eq!(answered(&c, 1), []);
    c.pass(20);
    assert_eq!(answered(&c, 1), [Outcome::Done]);
    c.ask(1, request);
    assert_eq!(answered(&c, 1), [Outcome::Done; 2]);
    assert_eq!(c.count(0, shard(0, 0), 1, 1), 1);
    assert_eq!(c.outcomes(1), [], "nothing by datagram");
    // What is refused may be asked again, since no copy of it is on its way.
    let mut late = c.request_of(2, 0, b"k", deadline);
    late.deadline = c.now - Nanos::from_secs(10);
    c.ask(1, late);
    assert_eq!(answered(&c, 2), [Outcome::Rejected]);
    let request = c.request_of(2, 0, b"k", deadline);
    c.ask(1, request);
    c.pass(20);
    assert_eq!(answered(&c, 2), [Outcome::Rejected, Outcome::Done]);
}

#[test]
fn a_node_that_does_not_know_the_time_yet_takes_nothing_from_its_driver() {
    let mut c = one();
    c.start(1, 2);
    c.publish();
    let deadline = soon(&c);
    let request = c.request_of(1, 0, b"k", deadline);
    c.ask(1, request.clone());
    assert_eq!(answered(&c, 1), [Outcome::Overloaded]);
    c.pass(500);
    c.ask(1, request);
    c.pass(20);
    assert_eq!(answered(&c, 1), [Outcome::Overloaded, Outcome::Done]);
}

#[test]
fn a_node_without_memory_takes_no_new_requests() {
    let mut c = one();
    let deadline = soon(&c);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(20);
    let worker = &mut c.nodes.get_mut(&1).unwrap().worker;
    worker.set_memory_full(Some("the process has 1 GiB".into()));
    c.request(1, 1, 1, b"k", deadline);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Done; 2], "its answer is known");
    assert_eq!(c.outcomes(2), [Outcome::Overloaded]);
    let worker = &mut c.nodes.get_mut(&1).unwrap().worker;
    worker.set_memory_full(None);
    c.request(1, 2, 1, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2)[1..], [Outcome::Done]);
}

#[test]
fn a_handler_may_not_take_more_memory_on_a_node_that_has_none() {
    let mut c = one();
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.set_memory_full(Some("the process has 1 GiB".into()));
    let deadline = soon(&c);
    c.request(1, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    assert_eq!(c.replies[0].2.payload, b"the process has 1 GiB");
}

#[test]
fn the_outcome_of_a_request_is_told_for_all_of_its_attempts() {
    let manifest = ONE.replace("admittedMax: 1000", "admittedMax: 1");
    let mut c = Cluster::new(&manifest, 3, |_| vec![0]);
    let deadline = soon(&c);
    hold(&mut c, 0, true);
    c.request(1, 1, 0, b"k", deadline);
    c.request(1, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Overloaded]);
    hold(&mut c, 0, false);
    c.pass(20);
    c.request(1, 2, 1, b"k", deadline);
    c.pass(20);
    // A copy of the attempt that was refused comes late.
    c.request(1, 2, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(2)[1..], [Outcome::Done; 2]);
}

#[test]
fn what_a_client_was_refused_binds_no_driver() {
    let manifest = ONE.replace("admittedMax: 1000", "admittedMax: 1");
    let mut c = Cluster::new(&manifest, 3, |_| vec![0]);
    let deadline = soon(&c);
    // Both have the same idempotency key, so they are the same request.
    let keyed = Request {
        oldest_seq: 0,
        ..c.request_of(2, 0, b"k", deadline)
    };
    hold(&mut c, 0, true);
    c.request(1, 1, 0, b"k", deadline);
    c.send_request(1, keyed.clone());
    c.pass(20);
    assert_eq!(c.outcomes(2), [Outcome::Overloaded]);
    hold(&mut c, 0, false);
    c.pass(20);
    c.ask(1, keyed);
    c.pass(20);
    assert_eq!(answered(&c, 2), [Outcome::Done]);
}

#[test]
fn answers_of_one_turn_share_datagrams_of_a_good_length() {
    let mut c = one();
    let answer_len = 1_000;
    c.handler = Box::new(move |_, invocation, state| {
        let mut effects = count_and_forward(0, invocation, state)?;
        let reply = effects.reply.as_mut().expect("the last service replies");
        reply.payload = vec![7; answer_len];
        Ok(effects)
    });
    let deadline = soon(&c);
    for seq in 1..=200 {
        c.request(1, seq, 0, b"k", deadline);
    }
    c.pass(20);
    // All of them are asked for again, and answered in one turn.
    c.unread = Some(Vec::new());
    for seq in 1..=200 {
        c.request(1, seq, 1, b"k", deadline);
    }
    c.pass(20);
    let mut datagrams = c.unread.take().unwrap();
    let last = datagrams.pop().unwrap();
    let enough = DATAGRAM_LEN_GOAL / 2;
    for bytes in &datagrams {
        let full = enough..enough + 2 * answer_len;
        assert!(full.contains(&bytes.len()), "{} bytes", bytes.len());
    }
    datagrams.push(last);
    let answers: usize = datagrams.iter().map(|bytes| answers_in(bytes)).sum();
    assert_eq!(answers, 200);
}

fn answers_in(bytes: &[u8]) -> usize {
    let (_, mut reader) = open(Formats::PROGRAM, bytes).unwrap();
    let mut answers = 0;
    while !reader.is_empty() {
        let frame = ClientFrame::decode(&mut reader).unwrap();
        assert!(matches!(frame, ClientFrame::Reply { .. }));
        answers += 1;
    }
    answers
}

/// A shard with one dead letter, whose handler works again, and a replay of it.
fn dead_letter() -> (Cluster, Replay) {
    let mut c = one();
    c.handler = Box::new(|_, _, _| Err(HandlerError::Code(1)));
    let deadline = soon(&c);
    c.request(0, 1, 0, b"k", deadline);
    c.pass(20);
    assert_eq!(c.outcomes(1), [Outcome::Failed]);
    c.handler = Box::new(|_, invocation, state| count_and_forward(0, invocation, state));
    let letters = c.read_letters(0, shard(0, 0)).letters;
    let replay = Replay {
        shard: shard(0, 0),
        letter: letters[0].0,
        slot: Slot::of(b"k"),
        id: e3_model::RequestId { client: 2, seq: 9 },
        attempt: 0,
        deadline,
    };
    (c, replay)
}

fn replay(c: &mut Cluster, replay: &Replay) {
    let bytes = ClientFrame::Replay(replay.clone()).to_datagram(Format::NEWEST);
    c.send_raw(address(0), bytes);
    c.pass(20);
}

#[test]
fn a_replay_is_a_request_with_a_number_and_a_deadline_that_can_be() {
    let (mut c, right) = dead_letter();
    let changes: [fn(&mut Replay, Timestamp); 3] = [
        |r, _| r.id.seq = 0,
        |r, now| r.deadline = now + Nanos::from_secs(1_000),
        |r, now| r.deadline = now - Nanos::from_secs(5),
    ];
    for change in changes {
        let mut wrong = right.clone();
        change(&mut wrong, c.now);
        replay(&mut c, &wrong);
        assert_eq!(c.outcomes(wrong.id.seq), [], "{wrong:?}");
        assert_eq!(c.read_letters(0, shard(0, 0)).total, 1);
    }
    replay(&mut c, &right);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    assert_eq!(c.read_letters(0, shard(0, 0)).total, 0);
}

#[test]
fn a_replay_that_was_done_is_answered_again_also_after_its_deadline() {
    let (mut c, mut again) = dead_letter();
    again.deadline = c.now + Nanos::from_secs(1);
    replay(&mut c, &again);
    assert_eq!(c.outcomes(9), [Outcome::Done]);
    c.pass(5_000);
    again.attempt = 1;
    replay(&mut c, &again);
    assert_eq!(c.outcomes(9), [Outcome::Done; 2]);
    assert_eq!(c.count(0, shard(0, 0), 2, 9), 1);
}
