//! Two services for tests of calls. With a channel `stock` it is a shop, otherwise the stock.
//!
//! The shop passes a request with an empty payload to the stock. For any other it calls the stock
//! with the request's key and payload, counts the request in the counter collection `count`, and replies with the
//! stock's answer; if the call fails, with status 1 and the reason. The stock counts each message under its key in `count`
//! and replies with the count (little endian, this message included). To a call it replies with
//! the count; if the payload is `write`, it writes first, which a call must not.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::string::ToString;
use e3_sdk::{Channel, Counter, Error, Request, Service, call, reply};

/// A shop, or the stock.
#[derive(Debug)]
pub struct Caller {
    count: Counter,
    stock: Option<Channel>,
}

impl Service for Caller {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            count: Counter::open("count")?,
            stock: Channel::named("stock"),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        request.with_key(|key| match &self.stock {
            Some(stock) if request.payload().is_empty() => stock.send(key, b""),
            Some(_) => match call("stock", key, request.payload()) {
                Ok(answer) => {
                    self.count.fetch_add(key, 1);
                    reply(answer.status, &answer.payload)
                }
                Err(error) => reply(1, error.to_string().as_bytes()),
            },
            None if request.is_call() && request.payload() != b"write" => {
                reply(0, &self.count.get(key).to_le_bytes())
            }
            None => {
                let count = self.count.fetch_add(key, 1) + 1;
                reply(0, &count.to_le_bytes())
            }
        })
    }
}

e3_sdk::service!(Caller, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Collection, Host, Kind};

    fn request(payload: &[u8], edge: i32) -> Call {
        Call {
            key: b"apple".to_vec(),
            payload: payload.to_vec(),
            edge,
            ..Call::default()
        }
    }

    #[test]
    fn a_shop_replies_with_what_the_stock_answers_and_counts() {
        let host = Host::new()
            .channel("stock")
            .collection("count", Kind::Counter)
            .answers(|service, key, payload| {
                assert_eq!((service, key), ("stock", &b"apple"[..]));
                match payload {
                    b"write" => Err(Error::CallFailed),
                    _ => Ok((0, b"7".to_vec())),
                }
            });
        let mut shop = Caller::init().unwrap();
        let asked = host.call(&mut shop, &request(b"ask", -1));
        assert_eq!(asked.replies, [(0, b"7".to_vec())]);
        let failed = host.call(&mut shop, &request(b"write", -1));
        assert_eq!(failed.replies[0].0, 1);
        let passed = host.call(&mut shop, &request(b"", -1));
        assert_eq!((passed.sent.len(), passed.replies.len()), (1, 0));
        let counts = [(b"apple".to_vec(), 1)].into();
        assert_eq!(host.state()[0].1, Collection::Counter(counts));
    }

    #[test]
    fn the_stock_counts_messages_and_only_reads_in_a_call() {
        let host = Host::new().collection("count", Kind::Counter);
        let mut stock = Caller::init().unwrap();
        let one = [(0, 1_i64.to_le_bytes().to_vec())];
        assert_eq!(host.call(&mut stock, &request(b"", 0)).replies, one);
        assert_eq!(host.call(&mut stock, &request(b"ask", -3)).replies, one);
        let wrote = host.call(&mut stock, &request(b"write", -3));
        assert_eq!(wrote.result, Err(Error::CallFailed));
        assert_eq!(host.call(&mut stock, &request(b"ask", -3)).replies, one);
    }
}
