//! Admission and answers of the ingress.

use super::*;

const APP: AppId = AppId(1);
const SECOND: u64 = 1_000_000_000;

fn id(seq: u64) -> (AppId, RequestId) {
    (APP, RequestId { client: 1, seq })
}

fn at(second: u64) -> Timestamp {
    Timestamp(second * SECOND)
}

fn reply(outcome: Outcome) -> Reply {
    Reply {
        outcome,
        status: 0,
        payload: vec![7],
    }
}

fn replied(ingress: &mut Ingress, id: RequestId, reply: &Reply) -> Option<Asker> {
    let answered = ingress.on_reply((APP, id), 0, false, reply).unwrap();
    answered.map(|(asker, ..)| asker)
}

/// Attempt 0 of the driver, with an idempotency key.
fn keyed(ingress: &mut Ingress, seq: u64, deadline: Timestamp) -> Admission {
    ingress.admit(id(seq), &attempt(Asker::Driver, deadline, true), 10)
}

fn attempt(from: Asker, deadline: Timestamp, keyed: bool) -> Attempt {
    Attempt {
        from,
        number: 0,
        deadline,
        fingerprint: 5,
        keyed,
        is_replay: false,
    }
}

#[test]
fn a_repeat_that_may_come_again_much_later_is_noted_by_its_shard() {
    let mut ingress = Ingress::default();
    assert_eq!(keyed(&mut ingress, 1, at(2)), Admission::Forward);
    let done = reply(Outcome::Done);
    assert!(replied(&mut ingress, id(1).1, &done).is_some());
    let last = at(2) + REPEAT_NOTED_AFTER;
    assert_eq!(
        keyed(&mut ingress, 1, last),
        Admission::Repeat(done.clone())
    );
    assert_eq!(keyed(&mut ingress, 1, last + Nanos(1)), Admission::Forward);
    assert_eq!(ingress.in_flight(), 1);
    assert!(replied(&mut ingress, id(1).1, &done).is_some());
    assert_eq!(
        keyed(&mut ingress, 1, last + Nanos(1)),
        Admission::Repeat(done)
    );
    assert_eq!(ingress.in_flight(), 0);
}

#[test]
fn an_expired_request_is_forwarded_again_with_a_later_deadline_only() {
    let mut ingress = Ingress::default();
    assert_eq!(keyed(&mut ingress, 1, at(2)), Admission::Forward);
    let expired = reply(Outcome::Expired);
    let asker = replied(&mut ingress, id(1).1, &expired);
    assert_eq!(asker, Some(Asker::Driver));
    assert_eq!(ingress.in_flight(), 0);
    let same = keyed(&mut ingress, 1, at(2));
    assert_eq!(same, Admission::Repeat(expired.clone()));
    assert_eq!(keyed(&mut ingress, 1, at(9)), Admission::Forward);
    assert_eq!(ingress.in_flight(), 1);
    let done = reply(Outcome::Done);
    assert!(replied(&mut ingress, id(1).1, &done).is_some());
    assert!(replied(&mut ingress, id(1).1, &expired).is_none());
    assert_eq!(keyed(&mut ingress, 1, at(20)), Admission::Repeat(done));
    assert_eq!(ingress.in_flight(), 0);
}

#[test]
fn an_expired_request_has_one_copy_on_its_way_at_a_time() {
    let mut ingress = Ingress::default();
    let expired = reply(Outcome::Expired);
    assert_eq!(keyed(&mut ingress, 1, at(2)), Admission::Forward);
    ingress.on_forwarded(id(1));
    // Several messages that follow from it expire, and the client repeats it after each.
    for deadline in 3..9 {
        replied(&mut ingress, id(1).1, &expired);
        assert_eq!(keyed(&mut ingress, 1, at(deadline)), Admission::Wait);
    }
    ingress.on_durable(at(1), id(1));
    replied(&mut ingress, id(1).1, &expired);
    assert_eq!(keyed(&mut ingress, 1, at(9)), Admission::Forward);
}

#[test]
fn an_answer_that_overtakes_the_expiry_counts() {
    let mut ingress = Ingress::default();
    keyed(&mut ingress, 1, at(2));
    replied(&mut ingress, id(1).1, &reply(Outcome::Expired));
    let done = reply(Outcome::Done);
    assert!(replied(&mut ingress, id(1).1, &done).is_some());
    assert_eq!(ingress.in_flight(), 0);
    assert_eq!(keyed(&mut ingress, 1, at(2)), Admission::Repeat(done));
}

#[test]
fn a_long_deadline_does_not_hold_up_forgetting() {
    let mut ingress = Ingress::default();
    let client = Asker::Client(Address::default());
    ingress.admit(id(1), &attempt(client, at(3000), false), 1000);
    for seq in 2..100 {
        ingress.admit(id(seq), &attempt(client, at(1), false), 1000);
    }
    assert_eq!(ingress.in_flight(), 99);
    ingress.forget(at(10));
    assert_eq!(ingress.sessions.len(), 1);
    assert_eq!(ingress.in_flight(), 1);
}

#[test]
fn keyed_requests_are_bounded_for_as_long_as_shards_remember_them() {
    let mut ingress = Ingress::default();
    for seq in 0..KEYED_MAX as u64 {
        let session = (APP, RequestId { client: seq, seq });
        let admitted = ingress.admit(session, &attempt(Asker::Driver, at(1), true), u32::MAX);
        assert_eq!(admitted, Admission::Forward);
        replied(&mut ingress, session.1, &reply(Outcome::Done));
    }
    ingress.forget(at(60));
    assert!(ingress.sessions.is_empty());
    assert_eq!(keyed(&mut ingress, 1, at(70)), Admission::Overloaded);
    let unkeyed = ingress.admit(id(2), &attempt(Asker::Driver, at(70), false), 10);
    assert_eq!(unkeyed, Admission::Forward);
    ingress.forget(at(1) + KEYED_GRACE);
    assert_eq!(keyed(&mut ingress, 1, at(400)), Admission::Forward);
}

/// What a client asks: its number, its attempt.
fn asked(number: u16, second: u64) -> Attempt {
    Attempt {
        number,
        ..attempt(Asker::Client(Address::default()), at(second), false)
    }
}

#[test]
fn copies_of_a_refused_attempt_are_refused_until_its_client_retries() {
    let mut refused = Refused::default();
    let overloaded = reply(Outcome::Overloaded);
    assert!(refused.insert(at(1), id(5), &asked(1, 60), 5, &overloaded));
    let mut find = |seq, number| refused.find(at(2), id(seq), &asked(number, 60), 5);
    assert_eq!(find(5, 0), Some(overloaded.clone()));
    assert_eq!(find(5, 1), Some(overloaded));
    assert_eq!(find(5, 2), None, "a retry");
    assert_eq!(find(6, 0), None, "another request");
    assert!(find(4, 9).is_some(), "its client has done with it");
}

#[test]
fn refusals_are_remembered_until_the_deadline_or_until_the_client_has_them() {
    let mut refused = Refused::default();
    let overloaded = reply(Outcome::Overloaded);
    for seq in 1..=100 {
        assert!(refused.insert(at(1), id(seq), &asked(0, 60), seq, &overloaded));
    }
    assert_eq!(refused.len(), 2, "the client, and its last request");
    assert!(refused.find(at(2), id(7), &asked(0, 60), 7).is_some());
    refused.forget(at(62));
    assert_eq!(refused.len(), 2);
    refused.forget(at(63));
    assert_eq!(refused.len(), 0);
}

#[test]
fn a_refusal_that_cannot_be_remembered_is_not_told() {
    let mut refused = Refused::default();
    let overloaded = reply(Outcome::Overloaded);
    // One client that has done with nothing fills it; the oldest of its requests make room.
    for seq in 1..=2 * REFUSED_MAX as u64 {
        assert!(refused.insert(at(1), id(seq), &asked(0, 60), 1, &overloaded));
    }
    assert_eq!(refused.len(), REFUSED_MAX);
    assert!(refused.find(at(2), id(1), &asked(9, 60), 1).is_some());
    let other = RequestId { client: 2, seq: 1 };
    assert!(!refused.insert(at(1), (APP, other), &asked(0, 60), 1, &overloaded));
    refused.delete(APP);
    assert!(refused.insert(at(1), (APP, other), &asked(0, 60), 1, &overloaded));
}

#[test]
fn a_request_without_an_answer_gives_back_its_place() {
    let mut ingress = Ingress::default();
    assert_eq!(
        ingress.admit(id(1), &asked(0, 3_000), 1),
        Admission::Forward
    );
    ingress.on_forwarded(id(1));
    ingress.forget(at(100));
    assert_eq!(ingress.in_flight(), 1, "it has not reached its shard");
    ingress.on_durable(at(100), id(1));
    ingress.forget(at(104));
    assert_eq!(ingress.in_flight(), 1);
    ingress.forget(at(105));
    assert_eq!(ingress.in_flight(), 0);
    // It takes its place again with a retry, and gives it back with the answer.
    assert_eq!(
        ingress.admit(id(1), &asked(1, 3_000), 1),
        Admission::Forward
    );
    assert_eq!(ingress.in_flight(), 1);
    assert!(replied(&mut ingress, id(1).1, &reply(Outcome::Done)).is_some());
    assert_eq!(ingress.in_flight(), 0);
}

#[test]
fn the_answer_of_a_branch_waits_until_the_request_is_durable() {
    let mut ingress = Ingress::default();
    let done = reply(Outcome::Done);
    assert_eq!(
        ingress.admit(id(1), &asked(0, 3_000), 1),
        Admission::Forward
    );
    ingress.on_forwarded(id(1));
    assert_eq!(ingress.on_reply(id(1), 0, true, &done), Ok(None));
    assert_eq!(ingress.in_flight(), 1);
    // Neither a retry nor a second answer brings it forward.
    assert_eq!(ingress.admit(id(1), &asked(1, 3_000), 1), Admission::Wait);
    assert_eq!(ingress.on_reply(id(1), 0, true, &done), Ok(None));
    let answer = ingress.on_durable(at(1), id(1)).unwrap();
    assert_eq!((answer.1, &answer.2), (1, &done));
    assert_eq!(ingress.in_flight(), 0);
    assert_eq!(
        ingress.admit(id(1), &asked(2, 3_000), 1),
        Admission::Repeat(done.clone())
    );

    // What is durable already, and what has failed, is answered at once.
    for (number, is_durable, outcome) in [(2, true, Outcome::Done), (3, false, Outcome::Failed)] {
        let key = id(number);
        assert_eq!(ingress.admit(key, &asked(0, 3_000), 1), Admission::Forward);
        ingress.on_forwarded(key);
        if is_durable {
            assert_eq!(ingress.on_durable(at(1), key), None);
        }
        let to = ingress.on_reply(key, 0, true, &reply(outcome)).unwrap();
        assert!(to.is_some());
    }
}

#[test]
fn what_a_branch_answered_is_unknown_when_the_request_is_given_up() {
    let mut ingress = Ingress::default();
    assert_eq!(ingress.admit(id(1), &asked(0, 3), 1), Admission::Forward);
    ingress.on_forwarded(id(1));
    let done = reply(Outcome::Done);
    assert_eq!(ingress.on_reply(id(1), 0, true, &done), Ok(None));
    let given_up = ingress.on_reply(id(1), 0, false, &reply(Outcome::Expired));
    let (.., told) = given_up.unwrap().unwrap();
    assert_eq!(told.outcome, Outcome::Unknown);
    assert_eq!(ingress.in_flight(), 0);
    assert_eq!(ingress.on_durable(at(1), id(1)), None);
    let repeated = ingress.admit(id(1), &asked(1, 3), 1);
    assert_eq!(repeated, Admission::Repeat(told));
}

#[test]
fn what_has_a_key_and_expired_before_its_branches_may_be_repeated() {
    let (done, expired) = (reply(Outcome::Done), reply(Outcome::Expired));
    for is_first in [true, false] {
        let mut ingress = Ingress::default();
        assert_eq!(keyed(&mut ingress, 1, at(2)), Admission::Forward);
        ingress.on_forwarded(id(1));
        let both = [(true, &done), (false, &expired)];
        for (is_branch, reply) in if is_first {
            [both[0], both[1]]
        } else {
            [both[1], both[0]]
        } {
            let told = ingress.on_reply(id(1), 0, is_branch, reply).unwrap();
            let outcome = told.map(|(.., reply)| reply.outcome);
            assert_eq!(outcome, (!is_branch).then_some(Outcome::Expired));
        }
        assert_eq!(ingress.on_durable(at(1), id(1)), None);
        assert_eq!(keyed(&mut ingress, 1, at(9)), Admission::Forward);
    }
}

#[test]
fn the_answer_of_a_branch_waits_for_the_copy_that_is_on_its_way() {
    let mut ingress = Ingress::default();
    keyed(&mut ingress, 1, at(2));
    ingress.on_forwarded(id(1));
    replied(&mut ingress, id(1).1, &reply(Outcome::Expired));
    assert_eq!(keyed(&mut ingress, 1, at(9)), Admission::Wait);
    let done = reply(Outcome::Done);
    assert_eq!(ingress.on_reply(id(1), 0, true, &done), Ok(None));
    assert!(ingress.on_durable(at(3), id(1)).is_some());
}

#[test]
fn an_answer_is_given_once() {
    let mut ingress = Ingress::default();
    assert_eq!(ingress.admit(id(1), &asked(0, 60), 9), Admission::Forward);
    for (outcome, is_first) in [
        (Outcome::Done, true),
        (Outcome::Done, false),
        (Outcome::Failed, false),
        (Outcome::Expired, false),
    ] {
        let to = replied(&mut ingress, id(1).1, &reply(outcome));
        assert_eq!(to.is_some(), is_first, "{outcome:?}");
    }
    let repeated = ingress.admit(id(1), &asked(1, 60), 9);
    assert_eq!(repeated, Admission::Repeat(reply(Outcome::Done)));
}

#[test]
fn each_request_of_the_driver_is_one_more_attempt() {
    let mut ingress = Ingress::default();
    for expected in 0..3 {
        let number = ingress.next_attempt(id(1));
        assert_eq!(number, expected);
        assert_eq!(ingress.next_attempt(id(2)), 0, "another request");
        ingress.admit(id(1), &asked(number, 60), 9);
    }
}

#[test]
fn a_request_that_is_on_its_way_again_keeps_its_place() {
    let mut ingress = Ingress::default();
    ingress.admit(id(1), &asked(0, 3_000), 9);
    ingress.on_forwarded(id(1));
    ingress.on_durable(at(100), id(1));
    assert_eq!(
        ingress.admit(id(1), &asked(1, 3_000), 9),
        Admission::Forward
    );
    ingress.on_forwarded(id(1));
    ingress.forget(at(200));
    assert_eq!(ingress.in_flight(), 1);
    ingress.on_durable(at(200), id(1));
    ingress.forget(at(204));
    assert_eq!(ingress.in_flight(), 1, "from the latest copy on");
    ingress.forget(at(205));
    assert_eq!(ingress.in_flight(), 0);
}

#[test]
fn an_application_that_is_gone_leaves_nothing_and_another_one_stays() {
    let mut ingress = Ingress::default();
    let other = (AppId(2), id(7).1);
    for key in [id(1), id(2), other] {
        ingress.admit(key, &asked(0, 60), 9);
    }
    ingress.delete(APP);
    assert!(ingress.knows(other) && !ingress.knows(id(1)));
    assert_eq!((ingress.sessions(), ingress.in_flight()), (1, 1));
    let counted: Vec<AppId> = ingress.counts.keys().copied().collect();
    assert_eq!(counted, [AppId(2)]);
}

/// Its name, what it does to a request, and whether the request is still taken if it is known.
type Change<'a> = (&'static str, &'a dyn Fn(&mut Request), bool);

#[test]
fn a_request_within_all_bounds_is_taken_and_not_beyond_one() {
    let (now, ahead_max) = (at(1_000), Nanos::from_secs(100));
    let good = Request {
        app: APP,
        id: id(5).1,
        attempt: 0,
        deadline: now + ahead_max,
        sent: now + CLOCK_AHEAD_MAX,
        oldest_seq: 5,
        trace: e3_model::TraceContext::default(),
        key: vec![7; KEY_LEN_MAX],
        payload: vec![7; PAYLOAD_LEN_MAX],
    };
    let late = Timestamp(now.0 - LATE_MAX.0);
    let known = |q: &Request| check_request(now, q, true, ahead_max).is_ok();
    let new = |q: &Request| check_request(now, q, false, ahead_max).is_ok();
    let changed = |change: &dyn Fn(&mut Request)| {
        let mut q = good.clone();
        change(&mut q);
        q
    };
    assert!(new(&good) && known(&good));
    let least = changed(&|q| {
        q.key.truncate(1);
        q.payload.clear();
    });
    assert!(new(&least));
    let last = changed(&|q| q.deadline = late);
    assert!(new(&last) && known(&last));
    // What this node knows it has checked before, and repeats its answer.
    let beyond: [Change<'_>; 9] = [
        ("number", &|q| q.id.seq = 0, false),
        ("no key", &|q| q.key.clear(), false),
        ("long key", &|q| q.key.push(7), false),
        ("longer key", &|q| q.key.resize(9_999, 7), false),
        ("long payload", &|q| q.payload.push(7), false),
        ("longer payload", &|q| q.payload.resize(99_999, 7), false),
        ("deadline", &|q| q.deadline.0 += 1, true),
        ("sent", &|q| q.sent.0 += 1, true),
        ("late", &|q| q.deadline.0 = late.0 - 1, true),
    ];
    for (what, change, is_taken_if_known) in beyond {
        let q = changed(change);
        assert!(!new(&q), "{what}");
        assert_eq!(known(&q), is_taken_if_known, "{what}");
    }
    assert!(!known(&changed(&|q| q.oldest_seq = 6)));
}

#[test]
fn refusals_that_a_client_has_done_with_give_back_their_room() {
    let mut refused = Refused::default();
    let overloaded = reply(Outcome::Overloaded);
    for seq in 1..=10 {
        assert!(refused.insert(at(1), id(seq), &asked(0, 60), 1, &overloaded));
    }
    assert_eq!(refused.len(), 11);
    assert_eq!(refused.find(at(2), id(11), &asked(0, 60), 6), None);
    assert_eq!(refused.len(), 6, "the client and five requests");
}

#[test]
fn a_refusal_is_remembered_as_long_as_a_copy_could_be_admitted() {
    let overloaded = reply(Outcome::Overloaded);
    let attempt = asked(0, 60);
    let last = at(60) + LATE_MAX;
    let mut refused = Refused::default();
    assert!(refused.insert(last, id(1), &attempt, 1, &overloaded));
    assert!(refused.find(last, id(1), &attempt, 1).is_some());
    refused.forget(last);
    assert!(refused.find(last, id(1), &attempt, 1).is_some());
    refused.forget(last + Nanos(1));
    assert_eq!(refused.len(), 0);
    // Nothing is kept of what comes too late anyway.
    assert!(refused.insert(last + Nanos(1), id(1), &attempt, 1, &overloaded));
    assert_eq!(refused.len(), 0);
    // A later refusal keeps what is known of its client.
    for (seq, deadline) in [(1, 60), (2, 120)] {
        assert!(refused.insert(at(1), id(seq), &asked(0, deadline), 1, &overloaded));
    }
    refused.forget(at(100));
    assert!(refused.find(at(100), id(2), &asked(0, 120), 1).is_some());
    refused.forget(at(123));
    assert_eq!(refused.len(), 0);
}
