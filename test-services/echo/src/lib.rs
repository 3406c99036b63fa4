//! The shortest service: it replies with the payload, without an allocation or a copy.

#![cfg_attr(target_arch = "wasm32", no_std)]

use e3_sdk::{Error, Request, Service, reply};

/// Answers with the payload.
#[derive(Debug)]
pub struct Echo;

impl Service for Echo {
    fn init() -> Result<Self, Error> {
        Ok(Self)
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        reply(0, request.payload())
    }
}

e3_sdk::service!(Echo, request_capacity = 32 * 1024);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host};

    #[test]
    fn answers_with_the_payload() {
        let host = Host::new();
        let call = Call {
            payload: b"hello".to_vec(),
            ..Call::default()
        };
        let outcome = host.call(&mut Echo::init().unwrap(), &call);
        assert_eq!(outcome.replies, [(0, b"hello".to_vec())]);
    }
}
