//! Every way through the workflow, on the host of the SDK.

use super::*;
use e3_sdk::testing::{Asked, Call, Host, Kind, To};

const DONE: (Outcome, u32) = (Outcome::Done, 0);
const PAID: (Outcome, u32) = (Outcome::Done, 201);

struct Shop {
    host: Host,
    orders: Orders,
}

impl Shop {
    fn new() -> Shop {
        let host = Host::new()
            .collection("orders", Kind::Hash)
            .channel("stock")
            .channel("shipping")
            .asks("stock")
            .asks("shipping")
            .http_host("pay.example.com")
            .config("payments", "https://pay.example.com");
        let orders = Orders::init().unwrap();
        Shop { host, orders }
    }

    /// What a client is told.
    fn told(&mut self, text: &str) -> (u32, String) {
        let (reply, _) = self.command(text);
        (reply.0, String::from_utf8(reply.1).unwrap())
    }

    fn command(&mut self, text: &str) -> ((u32, Vec<u8>), Vec<Asked>) {
        let call = Call {
            key: b"o-1".to_vec(),
            payload: text.into(),
            ..Call::default()
        };
        let outcome = self.host.call(&mut self.orders, &call);
        assert_eq!(outcome.result, Ok(()));
        (outcome.replies[0].clone(), outcome.outbound)
    }

    /// Places an order; its first step.
    fn place(&mut self) -> Asked {
        let (reply, mut asked) = self.command("place apples 3 250");
        assert_eq!(reply, (0, b"running reserve".to_vec()));
        asked.remove(0)
    }

    /// Gives the answer to a step; what is asked next.
    fn answer(&mut self, asked: &Asked, answer: (Outcome, u32)) -> Option<Asked> {
        let call = asked.answered(answer.0, answer.1, b"");
        let outcome = self.host.call(&mut self.orders, &call);
        assert_eq!(outcome.result, Ok(()));
        outcome.outbound.into_iter().next()
    }

    /// Answers the undoing of everything from a step on.
    fn undo(&mut self, mut asked: Asked) -> Vec<String> {
        let mut undone = Vec::new();
        loop {
            undone.push(asked.name.clone());
            let ok = match asked.to {
                To::Http { .. } => PAID,
                _ => DONE,
            };
            match self.answer(&asked, ok) {
                Some(next) => asked = next,
                None => return undone,
            }
        }
    }
}

fn service(asked: &Asked) -> (&str, &str, &str) {
    let To::Service { service, key } = &asked.to else {
        panic!("{asked:?}");
    };
    let text = |bytes| str::from_utf8(bytes).unwrap();
    (service, text(key), text(&asked.payload))
}

fn http(asked: &Asked) -> (&str, &str) {
    match &asked.to {
        To::Http { method, url, .. } => (method, url),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_order_whose_steps_succeed_is_completed() {
    let mut shop = Shop::new();
    assert_eq!(shop.told("status").0, STATUS_ABSENT);
    let reserve = shop.place();
    assert_eq!(service(&reserve), ("stock", "apples", "hold o-1 3"));
    let charge = shop.answer(&reserve, DONE).unwrap();
    assert_eq!(
        http(&charge),
        ("PUT", "https://pay.example.com/charges/o-1")
    );
    assert_eq!(charge.payload, b"250");
    assert_eq!(shop.told("status"), (0, "running charge".into()));
    let ship = shop.answer(&charge, PAID).unwrap();
    assert_eq!(service(&ship), ("shipping", "parcels", "hold o-1 1"));
    assert_eq!(shop.answer(&ship, DONE), None);
    assert_eq!(shop.told("status"), (0, "completed".into()));
}

#[test]
fn every_failure_at_every_step_is_compensated_in_reverse() {
    let failures = [
        (Outcome::Done, 1),
        (Outcome::Done, 402),
        (Outcome::Done, 503),
        (Outcome::Overloaded, 0),
        (Outcome::Expired, 0),
        (Outcome::Failed, 200),
        (Outcome::Rejected, 0),
        (Outcome::Conflict, 0),
        (Outcome::Unknown, 0),
    ];
    let undoing = ["undoing ship", "undoing charge", "undoing reserve"];
    for failure in failures {
        for steps_done in 0..3 {
            let mut shop = Shop::new();
            let mut asked = shop.place();
            for done in [DONE, PAID].into_iter().take(steps_done) {
                asked = shop.answer(&asked, done).unwrap();
            }
            let step = asked.name.clone();
            let undo = shop.answer(&asked, failure).unwrap();
            assert_eq!(shop.undo(undo), undoing[2 - steps_done..], "{failure:?}");
            let (status, told) = shop.told("status");
            assert_eq!(status, 0);
            assert!(
                told.starts_with(&format!("compensated: {step}")),
                "{told:?}"
            );
        }
    }
}

#[test]
fn an_undo_that_fails_is_repeated_until_it_succeeds() {
    let mut shop = Shop::new();
    let reserve = shop.place();
    let charge = shop.answer(&reserve, DONE).unwrap();
    let refund = shop.answer(&charge, (Outcome::Unknown, 0)).unwrap();
    assert_eq!(
        http(&refund),
        ("DELETE", "https://pay.example.com/charges/o-1")
    );
    for failure in [(Outcome::Unknown, 0), (Outcome::Done, 500)] {
        let call = refund.answered(failure.0, failure.1, b"");
        let outcome = shop.host.call(&mut shop.orders, &call);
        assert_eq!(outcome.outbound, []);
        assert_eq!(outcome.timers[0].name, RETRY);
        assert_eq!(shop.told("status"), (0, "undoing charge".into()));
        let fires = Call {
            key: b"o-1".to_vec(),
            edge: -2,
            timer: RETRY.into(),
            ..Call::default()
        };
        let again = shop.host.call(&mut shop.orders, &fires).outbound.remove(0);
        assert_eq!((&again.name, &again.to), (&refund.name, &refund.to));
    }
    let release = shop.answer(&refund, PAID).unwrap();
    assert_eq!(service(&release), ("stock", "apples", "release o-1"));
    assert_eq!(shop.answer(&release, DONE), None);
    let told = "compensated: running charge unknown";
    assert_eq!(shop.told("status"), (0, told.into()));
}

#[test]
fn repetitions_and_late_answers_change_nothing() {
    let mut shop = Shop::new();
    let reserve = shop.place();
    let (reply, asked) = shop.command("place pears 9 9");
    assert_eq!((reply.1, asked), (b"running reserve".to_vec(), Vec::new()));
    let charge = shop.answer(&reserve, DONE).unwrap();
    assert_eq!(shop.answer(&reserve, (Outcome::Expired, 0)), None);
    assert_eq!(shop.told("status"), (0, "running charge".into()));
    let ship = shop.answer(&charge, PAID).unwrap();
    assert_eq!(shop.answer(&ship, DONE), None);
    assert_eq!(shop.answer(&ship, (Outcome::Failed, 0)), None);
    assert_eq!(shop.told("status"), (0, "completed".into()));
}

#[test]
fn what_is_for_a_stock_goes_on_to_it() {
    let shop = &mut Shop::new();
    for (text, channel, key, sent) in [
        ("supply stock apples 3", "stock", "apples", "add 3"),
        ("left shipping parcels", "shipping", "parcels", "left"),
    ] {
        let call = Call {
            payload: text.into(),
            key: b"any".to_vec(),
            ..Call::default()
        };
        let outcome = shop.host.call(&mut shop.orders, &call);
        let message = &outcome.sent[0];
        assert_eq!(outcome.replies, []);
        assert_eq!(message.channel, channel);
        assert_eq!(
            (&message.key[..], &message.payload[..]),
            (key.as_bytes(), sent.as_bytes())
        );
    }
}

#[test]
fn what_is_no_command_is_refused() {
    let mut shop = Shop::new();
    for bad in [
        "",
        "dance",
        "place",
        "place apples 0 1",
        "place apples 1 x",
        "place app/les 1 1",
        "place a|b 1 1",
        "left order apples",
        "supply stock app/les 1",
    ] {
        assert_eq!(shop.told(bad).0, STATUS_MALFORMED, "{bad:?}");
    }
    let key = "x".repeat(65);
    for key in [&key[..], "a b", "../x"] {
        let call = Call {
            key: key.into(),
            payload: "place apples 1 1".into(),
            ..Call::default()
        };
        let outcome = shop.host.call(&mut shop.orders, &call);
        assert_eq!(outcome.replies[0].0, STATUS_MALFORMED, "{key:?}");
    }
}
