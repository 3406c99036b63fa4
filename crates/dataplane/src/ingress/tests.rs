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
    answered.map(|(asker, _)| asker)
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
    }
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
