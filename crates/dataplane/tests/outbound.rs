//! Outbound requests to services: what is asked takes effect once, and each answer is handled once,
//! wherever the shards are that ask and that are asked.

use crate::common::outbound::*;
use crate::common::{Cluster, Handler, shard};
use e3_invocation::{Effects, HandlerError};
use e3_model::outbound::Destination;
use e3_model::timer::TimerChange;
use e3_model::{AppId, ServiceId, ShardKey, Timestamp, Via};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::rc::Rc;

/// Every request makes the first service ask the second one this.
fn ask_back(c: &mut Cluster, deadline: Timestamp, payload: &'static [u8]) -> Answers {
    handle(c, move |_| vec![ask("q", to("back"), deadline, payload)])
}

#[test]
fn an_answer_is_handled_once_and_what_is_asked_takes_effect_once() {
    for (what, content) in [(&b"ping"[..], &b"re ping"[..]), (b"on ping", b"re on ping")] {
        let mut c = cluster();
        let deadline = after(&c, 10_000);
        let answers = ask_back(&mut c, deadline, what);
        request(&mut c, 1);
        c.pass(100);
        assert_eq!(*answers.borrow(), one("q", DONE, content));
        assert_eq!(c.outcomes(1), [Outcome::Done], "of the client's request");
        c.pass(12_000);
        for node in [0, 1] {
            assert_eq!(counted(&c, node, shard(0, 0), b"q"), 1);
            assert_eq!(open(&c, node), 0);
        }
        for node in [2, 3] {
            assert_eq!(counted(&c, node, shard(1, 0), what), 1);
        }
        let at_end = i64::from(what.starts_with(b"on"));
        assert_eq!(counted(&c, 3, shard(2, 0), what), at_end);
        assert_eq!(answers.borrow().len(), 1);
        assert_eq!(c.nodes[&0].worker.kept().open, 0, "nothing is kept of it");
    }
}

#[test]
fn nobody_is_asked_before_the_entry_is_committed() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = handle(&mut c, move |seq| {
        let url = ask("h", Destination::Http(http()), deadline, b"");
        let payload = seq.to_string();
        vec![ask("q", to("back"), deadline, payload.as_bytes()), url]
    });
    // The backup gets nothing of it.
    c.cut.extend([(0, 1), (1, 0)]);
    request(&mut c, 1);
    c.pass(300);
    assert_eq!(counted(&c, 0, shard(0, 0), b"requests"), 1);
    assert_eq!(counted(&c, 2, shard(1, 0), b"1"), 0);
    assert_eq!(c.http.len(), 0);
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    // Nothing was handled but the request that its ingress kept.
    assert_eq!(counted(&c, 1, shard(0, 0), b"requests"), 1);
    assert_eq!(counted(&c, 2, shard(1, 0), b"1"), 1);
    assert_eq!((answers.borrow().len(), c.http.len()), (1, 1));
}

#[test]
fn who_takes_over_gets_the_answer_that_its_predecessor_did_not() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = ask_back(&mut c, deadline, b"on ping");
    // The answer of the end is lost with node 0.
    c.cut.insert((3, 0));
    request(&mut c, 1);
    c.pass(100);
    assert_eq!(counted(&c, 3, shard(2, 0), b"on ping"), 1);
    assert_eq!((answers.borrow().len(), open(&c, 1)), (0, 1));
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(2_000);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re on ping"));
    assert_eq!(counted(&c, 2, shard(1, 0), b"on ping"), 1);
    assert_eq!(counted(&c, 3, shard(2, 0), b"on ping"), 1);
    assert_eq!(open(&c, 1), 0);
}

/// Those to the first two attempts are lost.
#[test]
fn an_answer_that_is_lost_is_asked_for_again_soon() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = ask_back(&mut c, deadline, b"on ping");
    c.cut.insert((3, 0));
    request(&mut c, 1);
    c.pass(400);
    assert_eq!(counted(&c, 3, shard(2, 0), b"on ping"), 1);
    c.cut.clear();
    c.pass(300);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re on ping"));
}

/// Whoever was asked before the deadline still has the answer.
#[test]
fn who_takes_over_just_after_the_deadline_asks_once_more() {
    let mut c = cluster();
    let deadline = after(&c, 2_000);
    let answers = ask_back(&mut c, deadline, b"ping");
    c.cut.insert((2, 0));
    request(&mut c, 1);
    c.pass(100);
    assert_eq!(counted(&c, 2, shard(1, 0), b"ping"), 1);
    c.kill(0);
    c.pass(1_900);
    assert_eq!(c.now, deadline);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(1_000);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re ping"));
    assert_eq!(counted(&c, 2, shard(1, 0), b"ping"), 1);
}

#[test]
fn who_takes_over_long_after_the_deadline_does_not_know_the_outcome() {
    let mut c = cluster();
    let deadline = after(&c, 2_000);
    let answers = handle(&mut c, move |_| {
        let asks = ["a", "b", "c"];
        asks.map(|name| ask(name, to("back"), deadline, b"on ping"))
            .to_vec()
    });
    c.cut.insert((3, 0));
    request(&mut c, 1);
    c.pass(100);
    assert_eq!(counted(&c, 3, shard(2, 0), b"on ping"), 3);
    c.kill(0);
    c.pass(10_000);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    let outcomes: Vec<_> = answers.borrow().iter().map(|a| a.1).collect();
    assert_eq!(outcomes, vec![nobody(Outcome::Unknown); 3]);
    assert_eq!(open(&c, 1), 0);
}

#[test]
fn an_answer_that_the_successor_has_handled_is_not_handled_again() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = ask_back(&mut c, deadline, b"ping");
    c.nodes.get_mut(&2).unwrap().held = true;
    request(&mut c, 1);
    c.pass(50);
    // The backup gets the entry that handles the answer; the primary never hears that it has.
    c.cut.insert((1, 0));
    c.nodes.get_mut(&2).unwrap().held = false;
    c.pass(30);
    assert_eq!((answers.borrow().len(), open(&c, 1)), (1, 0));
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    assert_eq!(answers.borrow().len(), 1);
    assert_eq!(counted(&c, 1, shard(0, 0), b"q"), 1);
}

#[test]
fn an_answer_whose_entry_is_lost_is_handled_by_the_successor() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let answers = ask_back(&mut c, deadline, b"ping");
    c.nodes.get_mut(&2).unwrap().held = true;
    request(&mut c, 1);
    c.pass(50);
    c.cut.insert((0, 1));
    c.nodes.get_mut(&2).unwrap().held = false;
    c.pass(30);
    assert_eq!((answers.borrow().len(), open(&c, 1)), (1, 1));
    c.kill(0);
    c.promote(shard(0, 0), 1);
    c.publish();
    c.pass(3_000);
    assert_eq!(answers.borrow().len(), 2, "the first run had no effect");
    assert_eq!(counted(&c, 1, shard(0, 0), b"q"), 1);
    assert_eq!(counted(&c, 2, shard(1, 0), b"ping"), 1);
}

#[test]
fn the_one_asked_may_fail_over_before_and_after_it_has_handled_the_request() {
    for lost in [(2, 0), (2, 3), (0, 2)] {
        let mut c = cluster();
        let deadline = after(&c, 30_000);
        let answers = ask_back(&mut c, deadline, b"ping");
        c.cut.insert(lost);
        request(&mut c, 1);
        c.pass(100);
        assert_eq!(answers.borrow().len(), 0);
        c.kill(2);
        c.promote(shard(1, 0), 3);
        c.shard(shard(2, 0)).backups.clear();
        c.publish();
        c.pass(4_000);
        assert_eq!(*answers.borrow(), one("q", DONE, b"re ping"), "{lost:?}");
        assert_eq!(counted(&c, 3, shard(1, 0), b"ping"), 1, "{lost:?}");
    }
}

#[test]
fn lost_datagrams_change_nothing() {
    let mut c = cluster();
    let deadline = after(&c, 60_000);
    let answers = handle(&mut c, move |seq| {
        let name = format!("q{seq}");
        vec![ask(&name, to("back"), deadline, name.as_bytes())]
    });
    for seq in 1..=40 {
        request(&mut c, seq);
    }
    c.pass(5);
    c.loss_permille = 300;
    c.pass(20_000);
    c.loss_permille = 0;
    c.pass(5_000);
    let handled = counted(&c, 0, shard(0, 0), b"requests");
    assert!(handled > 30, "{handled} requests");
    assert_eq!(answers.borrow().len() as i64, handled);
    assert!(
        answers
            .borrow()
            .iter()
            .all(|(_, answer, _)| *answer == DONE)
    );
    for seq in 1..=40 {
        let name = format!("q{seq}");
        let effects = counted(&c, 2, shard(1, 0), name.as_bytes());
        assert!(effects <= 1);
        assert_eq!(counted(&c, 0, shard(0, 0), name.as_bytes()), effects);
    }
}

#[test]
fn without_an_answer_the_outcome_is_unknown_and_if_nobody_was_asked_expired() {
    let mut c = cluster();
    let (soon, now) = (after(&c, 2_000), c.now);
    let answers = handle(&mut c, move |_| {
        vec![
            ask("q", to("back"), soon, b"ping"),
            ask("past", to("back"), now, b"ping"),
        ]
    });
    c.cut.extend([(0, 2), (2, 0)]);
    request(&mut c, 1);
    c.pass(1_900);
    assert_eq!(
        *answers.borrow(),
        one("past", nobody(Outcome::Expired), b"")
    );
    c.pass(950);
    assert_eq!(answers.borrow().len(), 1, "clients ask for a second more");
    c.pass(200);
    assert_eq!(
        answers.borrow()[1..],
        one("q", nobody(Outcome::Unknown), b"")
    );
    // Its copy comes too late to be handled.
    c.cut.clear();
    c.pass(3_000);
    assert_eq!(counted(&c, 2, shard(1, 0), b"ping"), 0);
    assert_eq!((answers.borrow().len(), open(&c, 0)), (2, 0));
}

#[test]
fn what_no_ingress_admits_expires() {
    let mut c = cluster();
    let soon = after(&c, 2_000);
    let answers = ask_back(&mut c, soon, b"ping");
    let worker = &mut c.nodes.get_mut(&0).unwrap().worker;
    worker.set_memory_full(Some("used up".into()));
    // Handled all the same: it was admitted elsewhere.
    request(&mut c, 1);
    c.pass(4_000);
    assert_eq!(*answers.borrow(), one("q", nobody(Outcome::Expired), b""));
    assert_eq!(counted(&c, 2, shard(1, 0), b"ping"), 0);
}

#[test]
fn the_one_asked_may_answer_that_it_was_too_late() {
    let mut c = cluster();
    let soon = after(&c, 1_000);
    let answers = ask_back(&mut c, soon, b"ping");
    c.cut.insert((0, 2));
    request(&mut c, 1);
    c.pass(1_200);
    c.cut.clear();
    c.pass(600);
    assert_eq!(answers.borrow().len(), 1);
    assert_eq!(answers.borrow()[0].1, nobody(Outcome::Expired));
    assert_eq!(c.report(2, shard(1, 0)).dead_letters, 1);
}

#[test]
fn an_answer_to_what_is_cancelled_or_asked_again_is_not_handled() {
    let mut c = cluster();
    let deadline = after(&c, 20_000);
    let answers = handle(&mut c, move |seq| match seq {
        1 => vec![
            ask("a", to("back"), deadline, b"a1"),
            ask("b", to("back"), deadline, b"b1"),
            ask("h", Destination::Http(http()), deadline, b"h1"),
        ],
        _ => vec![
            ask("a", to("back"), deadline, b"a2"),
            cancel("b"),
            cancel("h"),
        ],
    });
    c.nodes.get_mut(&2).unwrap().held = true;
    request(&mut c, 1);
    c.pass(50);
    request(&mut c, 2);
    c.pass(50);
    c.nodes.get_mut(&2).unwrap().held = false;
    answer_http(&mut c, 200, b"charged");
    c.pass(25_000);
    assert_eq!(*answers.borrow(), one("a", DONE, b"re a2"));
    for what in [b"a1", b"a2", b"b1"] {
        let effects = counted(&c, 2, shard(1, 0), what);
        assert_eq!(effects, 1, "it may take place all the same");
    }
    assert_eq!(open(&c, 0), 0);
}

#[test]
fn services_that_do_not_exist_and_requests_out_of_bounds_are_rejected() {
    let mut c = cluster();
    let (deadline, year) = (after(&c, 10_000), after(&c, 365 * 24 * 3_600_000));
    let answers = handle(&mut c, move |_| {
        let application = Destination::Application {
            application: "other".into(),
            key: b"k".to_vec(),
        };
        let keyless = Destination::Service {
            service: "back".into(),
            key: Vec::new(),
        };
        vec![
            ask("a", to("nowhere"), deadline, b""),
            ask("b", application, deadline, b""),
            ask("c", keyless, deadline, b""),
            ask("d", to("back"), year, b""),
        ]
    });
    request(&mut c, 1);
    c.pass(100);
    let expected = [
        "application \"flow\" has no service \"nowhere\"",
        "application \"other\" does not run here",
        "key of 0 and payload of 0 bytes",
        "deadline is 3153",
    ];
    assert_eq!(answers.borrow().len(), expected.len());
    for ((_, answer, reason), expected) in answers.borrow().iter().zip(expected) {
        assert_eq!(*answer, nobody(Outcome::Rejected));
        let reason = String::from_utf8_lossy(reason);
        assert!(reason.starts_with(expected), "{reason}");
    }
}

#[test]
fn another_application_is_asked_at_its_ingress_service() {
    let mut c = cluster();
    let mut other = Cluster::new(FLOW, 5, |_| vec![2, 3]).plan;
    other.id = AppId(2);
    std::sync::Arc::make_mut(&mut other.app).name = "other".into();
    let key = ShardKey {
        app: AppId(2),
        ..shard(0, 0)
    };
    let serves: Handler = Box::new(|service, invocation, state| {
        assert_eq!((service, invocation.id.via), (ServiceId(0), Via::Ingress));
        serve(service, invocation, state)
    });
    c.other = Some((other, serves));
    c.publish();
    c.pass(500);
    let deadline = after(&c, 10_000);
    let answers = handle(&mut c, move |_| {
        let to = Destination::Application {
            application: "other".into(),
            key: b"asked".to_vec(),
        };
        vec![ask("q", to, deadline, b"ping")]
    });
    request(&mut c, 1);
    c.pass(100);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re ping"));
    assert_eq!(counted(&c, 3, key, b"ping"), 1);
}

#[test]
fn services_that_ask_each_other_and_themselves_do_not_block_each_other() {
    let mut c = cluster();
    let deadline = after(&c, 50_000);
    let answers = Rc::new(RefCell::new(0));
    let noted = answers.clone();
    // The front asks the back and itself; both ask the front twice more before they are done.
    c.handler = Box::new(move |service, invocation, state| {
        let payload = &invocation.payload;
        if invocation.answer.is_some() {
            *noted.borrow_mut() += 1;
            assert_eq!(invocation.answer.map(|a| a.outcome), Some(Outcome::Done));
            return Ok(Effects::default());
        }
        let depth = match invocation.id.request.client {
            1 => 0,
            _ => payload[0],
        };
        let mut effects = count(invocation, state, &[depth]);
        if depth < 3 {
            let request = invocation.id.request;
            let name = |to: &str| format!("{to} {:x} {:x}", request.client, request.seq);
            let asks = |target: &str| TimerChange {
                key: invocation.key.clone(),
                ..ask(&name(target), to(target), deadline, &[depth + 1])
            };
            effects.timers = match service {
                ServiceId(0) => vec![asks("back"), asks("front")],
                _ => vec![asks("front")],
            };
        }
        effects.reply = reply(0, Vec::new());
        Ok(effects)
    });
    // More than are admitted, with executors that do little at a time.
    for node in [0, 2] {
        c.nodes.get_mut(&node).unwrap().per_ms = 2;
    }
    for seq in 1..=60 {
        request(&mut c, seq);
    }
    c.pass(30_000);
    let requests: i64 = counted(&c, 0, shard(0, 0), &[0]);
    assert_eq!(requests, 60);
    // One asks 2, of which the back asks 1 and the front 2, which ask 1 + 2 + 2.
    let at =
        |depth: u8| counted(&c, 0, shard(0, 0), &[depth]) + counted(&c, 2, shard(1, 0), &[depth]);
    assert_eq!([at(1), at(2), at(3)], [120, 180, 300]);
    assert_eq!(*answers.borrow(), 120 + 180 + 300);
    assert_eq!((open(&c, 0), c.report(2, shard(1, 0)).timers), (0, 0));
}

#[test]
fn an_answer_whose_handler_fails_is_a_dead_letter_and_its_replay_brings_it_again() {
    let mut c = cluster();
    let deadline = after(&c, 30_000);
    let asks = move |_| vec![ask("q", to("back"), deadline, b"ping")];
    let (mut works, answers) = handler(asks);
    let failing = Rc::new(RefCell::new(true));
    let fails = failing.clone();
    c.handler = Box::new(move |service, invocation, state| {
        if invocation.answer.is_some() && *fails.borrow() {
            Err(HandlerError::Code(1))
        } else {
            works(service, invocation, state)
        }
    });
    request(&mut c, 1);
    c.pass(500);
    let letters = c.read_letters(0, shard(0, 0)).letters;
    let (id, letter) = &letters[0];
    assert_eq!((id.via, letter.timer.as_str()), (Via::Timer, "q"));
    assert_eq!(
        (letter.answer, &letter.payload[..]),
        (Some(DONE), &b"re ping"[..])
    );
    assert_eq!(open(&c, 0), 0);
    *failing.borrow_mut() = false;
    c.replay_first(0, shard(0, 0), 7);
    assert_eq!(c.outcomes(7), [Outcome::Done]);
    assert_eq!(*answers.borrow(), one("q", DONE, b"re ping"));
    assert_eq!(c.report(1, shard(0, 0)).dead_letters, 0);
}
