//! One link of a chain, for tests: counts each request under its routing key in the counter
//! collection `passed`, then forwards it by the channel `next`; the last link, which has no such
//! channel, replies with its count (little endian, this request included).

#![cfg_attr(target_arch = "wasm32", no_std)]

use e3_sdk::{Channel, Counter, Error, Request, Service, limits, reply};

/// A link.
#[derive(Debug)]
pub struct Chain {
    passed: Counter,
    next: Option<Channel>,
}

impl Service for Chain {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            passed: Counter::open("passed")?,
            next: Channel::open("next").ok(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let mut buffer = [0; limits::KEY_BYTES_MAX];
        let key = request.key(&mut buffer)?;
        let passed = self.passed.fetch_add(key, 1) + 1;
        match &self.next {
            Some(next) => next.send(key, request.payload()),
            None => reply(0, &passed.to_le_bytes()),
        }
    }
}

e3_sdk::service!(Chain, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host, Kind};

    #[test]
    fn counts_then_forwards_or_replies() {
        let call = Call {
            key: b"k".to_vec(),
            payload: b"hello".to_vec(),
            ..Call::default()
        };
        let host = Host::new()
            .channel("next")
            .collection("passed", Kind::Counter);
        let outcome = host.call(&mut Chain::init().unwrap(), &call);
        assert_eq!(outcome.replies, []);
        assert_eq!(outcome.sent[0].payload, b"hello");

        let host = Host::new().collection("passed", Kind::Counter);
        let mut last = Chain::init().unwrap();
        host.call(&mut last, &call);
        let outcome = host.call(&mut last, &call);
        assert_eq!(outcome.replies, [(0, 2_i64.to_le_bytes().to_vec())]);
        assert_eq!(outcome.sent, []);
    }
}
