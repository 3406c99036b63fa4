//! Requests over HTTP: attempts, repeats and answers.

use super::*;

const APP: AppId = AppId(3);

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO + Nanos::from_millis(ms)
}

fn served(name: &str, id: AppId) -> Option<BTreeMap<String, Served>> {
    let timeout_max = Nanos::from_secs(60);
    Some(
        [(
            name.to_string(),
            Served {
                id,
                identity: id,
                timeout_max,
            },
        )]
        .into(),
    )
}

fn calls() -> Calls {
    let mut calls = Calls::new(77);
    calls.set_apps(served("app", APP));
    calls
}

fn call(idempotency_key: Option<&str>, key: &str, payload: &str, timeout_ms: u64) -> Call {
    Call {
        app: "app".into(),
        key: key.into(),
        payload: payload.into(),
        idempotency_key: idempotency_key.map(Into::into),
        timeout: Nanos::from_millis(timeout_ms),
    }
}

fn reply(outcome: Outcome) -> Reply {
    Reply {
        outcome,
        status: 0,
        payload: vec![],
    }
}

fn sent(calls: &mut Calls) -> Vec<Request> {
    std::iter::from_fn(|| calls.poll_request()).collect()
}

fn given(calls: &mut Calls) -> Vec<(u64, Result)> {
    let given = std::iter::from_fn(|| calls.poll_given());
    given
        .map(|(ticket, given)| (ticket, given.result))
        .collect()
}

#[test]
fn a_request_is_repeated_until_there_is_an_answer() {
    let mut calls = calls();
    let ticket = calls.submit(at(0), call(None, "k", "p", 10_000)).unwrap();
    let first = sent(&mut calls).remove(0);
    assert_eq!((first.deadline, first.oldest_seq), (at(10_000), 1));
    calls.on_timer(at(499));
    assert!(sent(&mut calls).is_empty());
    calls.on_timer(at(500));
    let second = sent(&mut calls).remove(0);
    assert_eq!((second.id, second.deadline), (first.id, first.deadline));
    calls.on_answer(at(600), APP, first.id, reply(Outcome::Done));
    let done = Result::Reply(reply(Outcome::Done));
    assert_eq!(given(&mut calls), [(ticket, done)]);
    calls.on_answer(at(601), APP, first.id, reply(Outcome::Done));
    assert!(given(&mut calls).is_empty(), "one outcome");
    assert_eq!(calls.next_deadline(), None);
}

#[test]
fn without_an_answer_the_client_is_told_after_its_deadline() {
    let mut calls = calls();
    let ticket = calls.submit(at(0), call(None, "k", "p", 100)).unwrap();
    let mut now = at(0);
    while let Some(next) = calls.next_deadline() {
        assert!(next > now);
        now = next;
        calls.on_timer(now);
    }
    assert_eq!(now, at(1100));
    assert_eq!(given(&mut calls), [(ticket, Result::NoAnswer)]);
    assert_eq!(sent(&mut calls).len(), 1, "none after the deadline");
}

#[test]
fn identities_without_key_are_counted_and_say_what_is_answered() {
    let mut calls = calls();
    for _ in 0..3 {
        calls.submit(at(0), call(None, "k", "p", 1000)).unwrap();
    }
    let requests = sent(&mut calls);
    let ids: Vec<_> = requests.iter().map(|r| (r.id.client, r.id.seq)).collect();
    assert_eq!(ids, [(77, 1), (77, 2), (77, 3)]);
    calls.on_answer(at(1), APP, requests[0].id, reply(Outcome::Done));
    calls.on_answer(at(1), APP, requests[1].id, reply(Outcome::Done));
    calls.submit(at(2), call(None, "k", "p", 1000)).unwrap();
    assert_eq!(sent(&mut calls)[0].oldest_seq, 3);
}

#[test]
fn repeats_with_an_idempotency_key_wait_together_each_with_its_deadline() {
    let mut calls = calls();
    let a = calls.submit(at(0), call(Some("i"), "k", "p", 100)).unwrap();
    let b = calls
        .submit(at(50), call(Some("i"), "k", "p", 5000))
        .unwrap();
    let requests = sent(&mut calls);
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].oldest_seq, 0, "no number");
    // The shard refuses the first deadline; the second one has not passed.
    calls.on_answer(at(150), APP, requests[0].id, reply(Outcome::Expired));
    assert!(given(&mut calls).is_empty());
    calls.on_timer(at(200));
    let again = sent(&mut calls).remove(0);
    assert_eq!((again.id, again.deadline), (requests[0].id, at(5050)));
    calls.on_timer(at(1100));
    assert_eq!(given(&mut calls), [(a, Result::NoAnswer)]);
    calls.on_answer(at(1200), APP, again.id, reply(Outcome::Done));
    let done = Result::Reply(reply(Outcome::Done));
    assert_eq!(given(&mut calls), [(b, done)]);
}

#[test]
fn an_expiry_that_stays_is_the_outcome() {
    let mut calls = calls();
    let ticket = calls
        .submit(at(0), call(Some("i"), "k", "p", 9000))
        .unwrap();
    let id = sent(&mut calls)[0].id;
    for _ in 0..EXPIRED_RETRIES_MAX {
        calls.on_answer(at(1), APP, id, reply(Outcome::Expired));
        assert!(given(&mut calls).is_empty());
    }
    calls.on_answer(at(1), APP, id, reply(Outcome::Expired));
    let expired = Result::Reply(reply(Outcome::Expired));
    assert_eq!(given(&mut calls), [(ticket, expired)]);
}

#[test]
fn an_idempotency_key_is_for_one_request() {
    let mut calls = calls();
    calls.submit(at(0), call(Some("i"), "k", "p", 100)).unwrap();
    let id = sent(&mut calls)[0].id;
    let elsewhere = calls.submit(at(1), call(Some("i"), "other", "p", 100));
    assert_eq!(elsewhere, Err(Refused::KeyReused), "in flight");
    // The shard knows what it has; it decides.
    let other = calls
        .submit(at(1), call(Some("i"), "k", "other", 100))
        .unwrap();
    let other_id = sent(&mut calls)[0].id;
    assert_eq!(other_id.client, id.client);
    calls.on_answer(at(2), APP, other_id, reply(Outcome::Conflict));
    let conflict = Result::Reply(reply(Outcome::Conflict));
    assert_eq!(given(&mut calls), [(other, conflict)]);
    calls.on_answer(at(3), APP, id, reply(Outcome::Done));
    given(&mut calls);
    for (key, payload) in [("other", "p"), ("k", "other")] {
        let reused = calls.submit(at(4), call(Some("i"), key, payload, 100));
        assert_eq!(reused, Err(Refused::KeyReused), "answered");
    }
    assert!(calls.submit(at(5), call(Some("i"), "k", "p", 100)).is_ok());
    assert!(calls.submit(at(5), call(Some("j"), "k", "p", 100)).is_ok());
}

#[test]
fn a_refusal_speaks_for_the_first_attempt_only() {
    let mut calls = calls();
    let a = calls.submit(at(0), call(None, "k", "p", 9000)).unwrap();
    let b = calls.submit(at(0), call(None, "k", "p", 9000)).unwrap();
    let ids: Vec<_> = sent(&mut calls).iter().map(|r| r.id).collect();
    calls.on_answer(at(1), APP, ids[0], reply(Outcome::Overloaded));
    assert_eq!(given(&mut calls), [(a, Result::Overloaded { wait_s: 1 })]);
    calls.on_timer(at(500));
    for refusal in [Outcome::Overloaded, Outcome::Rejected] {
        calls.on_answer(at(501), APP, ids[1], reply(refusal));
        assert!(given(&mut calls).is_empty());
    }
    calls.on_answer(at(4200), APP, ids[1], reply(Outcome::Done));
    assert_eq!(given(&mut calls)[0].0, b);
    calls.submit(at(5000), call(None, "k", "p", 9000)).unwrap();
    let id = sent(&mut calls).last().unwrap().id;
    calls.on_answer(at(5001), APP, id, reply(Outcome::Overloaded));
    let wait_s = 5;
    assert_eq!(given(&mut calls)[0].1, Result::Overloaded { wait_s });
}

#[test]
fn calls_are_bounded() {
    let mut calls = calls();
    for _ in 0..CALLS_MAX {
        calls.submit(at(0), call(None, "k", "p", 1000)).unwrap();
    }
    let full = calls.submit(at(0), call(None, "k", "p", 1000));
    assert_eq!(full, Err(Refused::Overloaded { wait_s: 1 }));
    let id = sent(&mut calls)[0].id;
    calls.on_answer(at(1), APP, id, reply(Outcome::Done));
    assert!(calls.submit(at(1), call(None, "k", "p", 1000)).is_ok());
}

#[test]
fn without_a_plan_nothing_is_taken_and_what_is_in_flight_waits() {
    let mut calls = calls();
    let ticket = calls.submit(at(0), call(None, "k", "p", 9000)).unwrap();
    sent(&mut calls);
    calls.set_apps(None);
    let refused = calls.submit(at(1), call(None, "k", "p", 9000));
    assert_eq!(refused, Err(Refused::NotReady));
    calls.on_timer(at(500));
    assert!(sent(&mut calls).is_empty());
    calls.set_apps(served("app", APP));
    calls.on_timer(at(1250));
    assert_eq!(sent(&mut calls).len(), 1);
    calls.set_apps(served("new", AppId(4)));
    assert_eq!(given(&mut calls), [(ticket, Result::Deleted)]);
    let known = vec!["new".to_string()];
    let refused = calls.submit(at(1300), call(None, "k", "p", 9000));
    assert_eq!(refused, Err(Refused::NoApp { known }));
}

#[test]
fn clients_are_told_that_the_node_stops() {
    let mut calls = calls();
    let a = calls.submit(at(0), call(None, "k", "p", 9000)).unwrap();
    let b = calls
        .submit(at(0), call(Some("i"), "k", "p", 9000))
        .unwrap();
    calls.close();
    let mut stopped = given(&mut calls);
    stopped.sort_by_key(|(ticket, _)| *ticket);
    assert_eq!(stopped, [(a, Result::Stopped), (b, Result::Stopped)]);
    assert_eq!(calls.next_deadline(), None);
}

#[test]
fn a_deadline_beyond_the_application_s_bound_is_refused() {
    let mut calls = calls();
    let timeout_max = Nanos::from_secs(60);
    assert!(calls.submit(at(0), call(None, "k", "p", 60_000)).is_ok());
    let timeout = Nanos::from_millis(60_001);
    let refused = Refused::DeadlineTooLong {
        timeout,
        timeout_max,
    };
    let asked = calls.submit(at(0), call(None, "k", "p", 60_001));
    assert_eq!(asked, Err(refused));
}
