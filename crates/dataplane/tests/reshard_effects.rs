//! Timers, outbound requests and publications follow their slots when a service gets other shards.

use crate::common::topics::{audit, publication};
use crate::common::{Cluster, Handler, count_and_forward};
use crate::reshard::*;
use e3_invocation::Effects;
use e3_model::Nanos;
use e3_model::application::Subscription;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::service_timer::ServiceTimer;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Who is asked for a request: an HTTP server, or the front.
fn asked(seq: u64) -> Destination {
    match seq % 2 {
        0 => Destination::Http(HttpRequest {
            method: HttpMethod::Get,
            url: "http://server.example/".into(),
            headers: Vec::new(),
        }),
        _ => Destination::Service {
            service: "front".into(),
            key: seq.to_le_bytes().to_vec(),
        },
    }
}

/// The back asks for each message; the payloads of the answers that it handled are noted.
fn handle_asks(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let answers = Rc::new(RefCell::new(Vec::new()));
    let noted = answers.clone();
    let deadline = c.now + Nanos::from_secs(60);
    c.handler = Box::new(move |service, invocation, state| {
        let seq = u64::from_le_bytes(invocation.key.as_slice().try_into().unwrap());
        if let Some(answer) = invocation.answer {
            assert_eq!(answer.outcome, Outcome::Done);
            noted.borrow_mut().push(seq);
            return count_and_forward(0, invocation, state);
        }
        let is_asked = invocation.payload == b"asked";
        let channels = u16::from(service != SERVICE && !is_asked);
        let mut effects = count_and_forward(channels, invocation, state)?;
        if service == SERVICE {
            let to = asked(seq);
            effects.timers.push(TimerChange {
                name: "ask".into(),
                key: invocation.key.clone(),
                set: Some(TimerSet {
                    when: When::Answered(Box::new(Outbound { to, deadline })),
                    payload: b"asked".to_vec(),
                }),
            });
        }
        Ok(effects)
    });
    answers
}

/// The HTTP server answers all that it was asked; gives the idempotency keys.
fn answer_http(c: &mut Cluster) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (node, ask) in std::mem::take(&mut c.http) {
        let now = c.clock(node);
        let answer = Answer {
            outcome: Outcome::Done,
            status: 200,
        };
        let worker = &mut c.nodes.get_mut(&node).unwrap().worker;
        worker.on_http_answer(now, ask.ticket, answer, Vec::new());
        assert!(keys.insert(ask.idempotency_key), "asked by two shards");
    }
    keys
}

#[test]
fn outbound_requests_follow_their_slots_and_are_answered_once() {
    for (durability, after) in [("memory", 6), ("disk", 6), ("memory", 1), ("disk", 1)] {
        let mut c = cluster(durability);
        let answers = handle_asks(&mut c);
        for seq in 1..=40 {
            request(&mut c, seq);
        }
        c.pass(100);
        assert_eq!(answers.borrow().len(), 20, "the front has answered");
        let asked: BTreeSet<String> = c.http.drain(..).map(|(_, a)| a.idempotency_key).collect();
        freeze(&mut c);
        // These reach the front, which goes on, and the back when it is another.
        for seq in 41..=60 {
            request(&mut c, seq);
        }
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        c.pass(300);
        let again = answer_http(&mut c);
        assert_eq!((asked.len(), again.len()), (20, 30), "{durability}");
        assert!(again.is_superset(&asked), "under the same identities");
        c.pass(1_000);
        each_once(&c, 60);
        let mut answered = answers.borrow().clone();
        answered.sort();
        assert_eq!(answered, Vec::from_iter(1..=60), "{durability}, {after}");
        assert_eq!(c.http.len(), 0);
    }
}

/// The back publishes each request's number; an application on node 2 notes what it gets.
fn handle_publications(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let handled = Rc::new(RefCell::new(Vec::new()));
    let noted = handled.clone();
    let subscriber: Handler = Box::new(move |_, invocation, _| {
        let seq = u64::from_le_bytes(invocation.payload[..].try_into().unwrap());
        noted.borrow_mut().push(seq);
        Ok(Effects::default())
    });
    c.other = Some((audit("chain", 3, &[2]), subscriber));
    c.handler = Box::new(|service, invocation, state| {
        let channels = u16::from(service != SERVICE);
        let mut effects = count_and_forward(channels, invocation, state)?;
        if service == SERVICE {
            let change = publication("orders", invocation, &invocation.key);
            effects.timers.push(change);
        }
        Ok(effects)
    });
    c.publish();
    c.pass(500);
    handled
}

#[test]
fn publications_follow_their_slots_and_arrive_once() {
    for (durability, after) in [("memory", 6), ("disk", 6), ("memory", 1), ("disk", 1)] {
        let mut c = cluster(durability);
        let handled = handle_publications(&mut c);
        c.nodes.get_mut(&2).unwrap().held = true;
        for seq in 1..=40 {
            request(&mut c, seq);
        }
        c.pass(100);
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        for seq in 41..=60 {
            request(&mut c, seq);
        }
        c.pass(300);
        c.nodes.get_mut(&2).unwrap().held = false;
        c.pass(5_000);
        each_once(&c, 60);
        let mut handled = handled.borrow().clone();
        handled.sort();
        assert_eq!(handled, Vec::from_iter(1..=60), "{durability}, {after}");
        let open: u64 = [0, 1].map(|node| timers(&c, node)).iter().sum();
        assert_eq!(open, 0, "{durability}, {after}");
    }
}

/// The front is subscribed too; what it gets is noted.
fn subscribe_the_front(c: &mut Cluster) -> Rc<RefCell<Vec<u64>>> {
    let app = Arc::make_mut(&mut c.plan.app);
    app.spec.subscriptions.push(Subscription {
        topic: "orders".into(),
        service: "front".into(),
    });
    let handled = Rc::new(RefCell::new(Vec::new()));
    let noted = handled.clone();
    let mut inner = std::mem::replace(&mut c.handler, Box::new(|_, _, _| unreachable!()));
    c.handler = Box::new(move |service, invocation, state| {
        if invocation.topic.is_none() {
            return inner(service, invocation, state);
        }
        let seq = u64::from_le_bytes(invocation.payload[..].try_into().unwrap());
        noted.borrow_mut().push(seq);
        count_and_forward(0, invocation, state)
    });
    c.publish();
    handled
}

#[test]
fn who_has_confirmed_a_publication_follows_its_slot() {
    for (durability, after) in [("memory", 6), ("disk", 1)] {
        let mut c = cluster(durability);
        let late = handle_publications(&mut c);
        let early = subscribe_the_front(&mut c);
        c.nodes.get_mut(&2).unwrap().held = true;
        for seq in 1..=10 {
            request(&mut c, seq);
        }
        // The front forgets what it has confirmed, with the next that it handles.
        c.pass_coarsely(400);
        request(&mut c, 11);
        c.pass_coarsely(1);
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        c.publish();
        c.pass(3_000);
        c.nodes.get_mut(&2).unwrap().held = false;
        c.pass(10_000);
        for handled in [&early, &late] {
            let mut handled = handled.borrow().clone();
            handled.sort();
            assert_eq!(handled, Vec::from_iter(1..=11), "{durability}, {after}");
        }
        let open: u64 = [0, 1].map(|node| timers(&c, node)).iter().sum();
        assert_eq!(open, 0, "{durability}, {after}");
    }
}

fn timers(c: &Cluster, node: u32) -> u64 {
    let report = c.nodes[&node].worker.report();
    report.instances.iter().map(|i| i.timers).sum()
}

#[test]
fn timers_of_the_manifest_follow_their_keys_and_are_not_set_again() {
    let mut c = cluster("memory");
    let timer = |n: usize| ServiceTimer {
        name: format!("t{n}"),
        every: Some(Nanos::from_secs(10)),
        cron: None,
        key: None,
        payload: None,
    };
    Arc::make_mut(&mut c.plan.app).spec.services[1].timers = (0..8).map(timer).collect();
    c.publish();
    let fired = Rc::new(RefCell::new(Vec::new()));
    let noted = fired.clone();
    c.handler = Box::new(move |_, invocation, _| {
        noted.borrow_mut().extend(invocation.timer.clone());
        Ok(Effects::default())
    });
    c.pass(1_000);
    assert_eq!(timers(&c, 1), 8);
    for after in [6, 1, 2] {
        freeze(&mut c);
        wait_until_stopped(&mut c);
        switch(&mut c, after);
        let entries = op(&c);
        c.publish();
        c.pass(500);
        assert_eq!((timers(&c, 1), timers(&c, 0)), (8, 8));
        assert!(op(&c) <= entries, "{after} shards: nothing is set again");
    }
    // The test begins half a second after a multiple of ten seconds.
    c.pass(12_000);
    let mut names = fired.borrow().clone();
    names.sort();
    let expected: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    assert_eq!(names, expected, "each once");
}
