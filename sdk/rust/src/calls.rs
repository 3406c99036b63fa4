//! Calls: a handler asks another service of its application and waits for the answer.
//!
//! The manifest names the services that a service may call (`calls`). The called service's handler gets
//! the request; [`Request::is_call`](crate::Request::is_call) tells it that somebody waits. It reads and
//! replies; a write, a message or a timer makes it fail. A call reads all writes of requests that were answered
//! before it began. It may run several times, since nothing of it is logged.
//!
//! ```
//! use e3_sdk::testing::{Call, Host};
//! use e3_sdk::{Error, Request, Service, call, reply};
//!
//! struct Shop;
//!
//! impl Service for Shop {
//!     fn init() -> Result<Self, Error> {
//!         Ok(Shop)
//!     }
//!
//!     fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
//!         let price = call("prices", request.payload(), b"")?;
//!         reply(price.status, &price.payload)
//!     }
//! }
//!
//! let host = Host::new().answers(|service, key, _payload| {
//!     assert_eq!((service, key), ("prices", &b"apple"[..]));
//!     Ok((0, b"3".to_vec()))
//! });
//! let payload = b"apple".to_vec();
//! let outcome = host.call(&mut Shop, &Call { payload, ..Call::default() });
//! assert_eq!(outcome.replies, [(0, b"3".to_vec())]);
//! ```

use crate::{Error, collections, sys};
use alloc::vec::Vec;

/// What a called service replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its status: 0 = ok, the others are the service's own.
    pub status: u32,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// Asks the shard of `service` that owns `key`, and waits for its reply. Writes and messages of the caller
/// take effect when its handler returns, as always. A caller that returns the error fails the attempt,
/// which is repeated as always.
pub fn call(service: &str, key: &[u8], payload: &[u8]) -> Result<Answer, Error> {
    match sys::call(service, key, payload) {
        0.. => Ok(Answer {
            status: sys::call_status() as u32,
            payload: collections::read_vec(sys::call_answer).unwrap_or_default(),
        }),
        -1 => Err(Error::NoService),
        -2 => Err(Error::Bound),
        -10 => Err(Error::Unavailable),
        -11 => Err(Error::TimedOut),
        -12 => Err(Error::CallFailed),
        code => Err(Error::Code(code)),
    }
}
