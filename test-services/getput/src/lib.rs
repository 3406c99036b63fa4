//! One get and one put on the hash collection `items` for each request, for benchmarks.
//!
//! The first 8 bytes of the payload are the key, the rest (at most 56 bytes) is the new value;
//! the reply is the value before (empty if there was none). Nothing is allocated.

#![cfg_attr(target_arch = "wasm32", no_std)]

use e3_sdk::{Error, HashMap, Request, Service, reply};

/// Bytes of the key at the start of the payload.
pub const KEY_BYTES: usize = 8;
/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 56;
/// Status of the reply to a payload that is too short or too long.
pub const STATUS_MALFORMED: u32 = 1;

/// Exchanges a value.
#[derive(Debug)]
pub struct GetPut {
    items: HashMap,
}

impl Service for GetPut {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            items: HashMap::open("items")?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let Some((key, value)) = request.payload().split_at_checked(KEY_BYTES) else {
            return reply(
                STATUS_MALFORMED,
                b"payload: shorter than the key of 8 bytes",
            );
        };
        if value.len() > VALUE_BYTES_MAX {
            return reply(STATUS_MALFORMED, b"payload: longer than 64 bytes");
        }
        let mut buffer = [0; VALUE_BYTES_MAX];
        let before = self.items.get(key, &mut buffer)?.unwrap_or(&[]);
        self.items.put(key, value)?;
        reply(0, before)
    }
}

e3_sdk::service!(GetPut, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host, Kind};

    #[test]
    fn exchanges_values_and_names_faults() {
        let host = Host::new().collection("items", Kind::Hash);
        let mut service = GetPut::init().unwrap();
        let mut call = |payload: &[u8]| {
            let call = Call {
                payload: payload.to_vec(),
                ..Call::default()
            };
            host.call(&mut service, &call).replies
        };
        assert_eq!(call(b"12345678first"), [(0, b"".to_vec())]);
        assert_eq!(call(b"12345678second"), [(0, b"first".to_vec())]);
        assert_eq!(call(b"87654321"), [(0, b"".to_vec())]);
        assert_eq!(call(b"1234567")[0].0, STATUS_MALFORMED);
        assert_eq!(call(&[0; 65])[0].0, STATUS_MALFORMED);
    }
}
