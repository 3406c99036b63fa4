//! Stocks of goods that orders hold and release: a step of the workflow in `test-services/order`.
//!
//! Requests are text; their key is the name of the goods. `add N` adds to the stock. `hold ORDER N` takes N
//! for an order, `release ORDER` gives back what the order holds, `left` tells what is left. Replies have
//! status 0, or 1 if there is not enough, or 2 if the text is none of these.
//!
//! Both steps are idempotent by the order. An order that was released gets nothing any more, so a `hold`
//! that arrives after its `release` has no effect.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::vec::Vec;
use e3_sdk::{Counter, Error, HashMap, Request, Service, reply};

/// Status of the reply if there is not enough, or the order was released.
pub const STATUS_NONE_LEFT: u32 = 1;
/// Status of the reply to a text that is no command.
pub const STATUS_MALFORMED: u32 = 2;

/// What an order holds after its release.
const RELEASED: &[u8] = b"released";

/// Stocks.
#[derive(Debug)]
pub struct Stock {
    /// By goods: how much is left.
    left: Counter,
    /// By goods and order: how much it holds.
    holds: HashMap,
}

impl Stock {
    fn hold(&self, goods: &[u8], order: &str, quantity: i64) -> Result<(), Error> {
        let place = place(goods, order);
        match self.holds.get_vec(&place).as_deref() {
            Some(RELEASED) => return reply(STATUS_NONE_LEFT, b"the order was released"),
            Some(_) => return reply(0, b"held"),
            None => {}
        }
        if self.left.get(goods) < quantity {
            return reply(STATUS_NONE_LEFT, b"not enough left");
        }
        self.left.fetch_add(goods, -quantity);
        self.holds.put(&place, format!("{quantity}").as_bytes())?;
        reply(0, b"held")
    }

    fn release(&self, goods: &[u8], order: &str) -> Result<(), Error> {
        let place = place(goods, order);
        if let Some(held) = self.holds.get_vec(&place)
            && let Some(quantity) = number(&held)
        {
            self.left.fetch_add(goods, quantity);
        }
        self.holds.put(&place, RELEASED)?;
        reply(0, b"released")
    }

    fn command(&self, goods: &[u8], text: &str) -> Result<(), Error> {
        let words: Vec<&str> = text.split(' ').collect();
        match (
            words.as_slice(),
            words.last().and_then(|w| number(w.as_bytes())),
        ) {
            (["add", _], Some(quantity)) => {
                let before = self.left.fetch_add(goods, quantity);
                reply(0, format!("{}", before + quantity).as_bytes())
            }
            (["hold", order, _], Some(quantity)) => self.hold(goods, order, quantity),
            (["release", order], _) => self.release(goods, order),
            (["left"], _) => reply(0, format!("{}", self.left.get(goods)).as_bytes()),
            _ => reply(
                STATUS_MALFORMED,
                b"must be: add N, hold ORDER N, release ORDER, left; N is 1 to 1000000",
            ),
        }
    }
}

fn place(goods: &[u8], order: &str) -> Vec<u8> {
    [goods, b" ", order.as_bytes()].concat()
}

fn number(text: &[u8]) -> Option<i64> {
    let number = core::str::from_utf8(text).ok()?.parse().ok()?;
    (1..=1_000_000).contains(&number).then_some(number)
}

impl Service for Stock {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            left: Counter::open("left")?,
            holds: HashMap::open("holds")?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let text = core::str::from_utf8(request.payload()).unwrap_or_default();
        request.with_key(|goods| self.command(goods, text))
    }
}

e3_sdk::service!(Stock, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host, Kind};

    #[test]
    fn steps_are_idempotent_and_a_late_hold_has_no_effect() {
        let host = Host::new()
            .collection("left", Kind::Counter)
            .collection("holds", Kind::Hash);
        let mut stock = Stock::init().unwrap();
        for (text, status, answer) in [
            ("left", 0, "0"),
            ("hold a 1", 1, "not enough left"),
            ("add 3", 0, "3"),
            ("hold a 2", 0, "held"),
            ("hold a 2", 0, "held"),
            ("hold b 2", 1, "not enough left"),
            ("left", 0, "1"),
            ("release a", 0, "released"),
            ("release a", 0, "released"),
            ("left", 0, "3"),
            ("release c", 0, "released"),
            ("hold c 1", 1, "the order was released"),
            ("left", 0, "3"),
        ] {
            let call = Call {
                payload: text.into(),
                ..Call::default()
            };
            let outcome = host.call(&mut stock, &call);
            assert_eq!(
                outcome.replies,
                [(status, answer.as_bytes().to_vec())],
                "{text}"
            );
        }
        for bad in [
            "",
            "dance",
            "add 0",
            "add x",
            "hold a",
            "hold a -1",
            "\u{0}",
        ] {
            let call = Call {
                payload: bad.into(),
                ..Call::default()
            };
            assert_eq!(
                host.call(&mut stock, &call).replies[0].0,
                STATUS_MALFORMED,
                "{bad:?}"
            );
        }
    }
}
