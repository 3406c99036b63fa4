//! Timers: requests of the service to itself at a later time.
//!
//! A timer is named by its name and a key. The key must be of the same slot as that of the request that sets
//! it; most services use the request's own, for which an empty key stands. Timers take effect when the
//! request commits, with its writes. A timer fires once, with its key and payload, at its time or, if
//! nobody served then, as soon as the shard serves again. [`Request::timer`](crate::Request::timer)
//! tells its name. A reply to it goes nowhere. Only a service with state has timers.
//!
//! ```
//! use e3_sdk::testing::{Call, Host};
//! use e3_sdk::{Error, Request, Service, timers};
//! use std::time::Duration;
//!
//! struct Session;
//!
//! impl Service for Session {
//!     fn init() -> Result<Self, Error> {
//!         Ok(Session)
//!     }
//!
//!     fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
//!         match request.timer() {
//!             Some(_) => Ok(()), // the session has expired
//!             // each request sets it again
//!             None => timers::set_after("expire", b"", Duration::from_secs(900), b""),
//!         }
//!     }
//! }
//!
//! let host = Host::new();
//! let outcome = host.call(&mut Session, &Call::default());
//! assert_eq!(outcome.timers[0].name, "expire");
//! ```

use crate::{Error, check, now, sys};
use core::time::Duration;

/// Sets a timer for a time, in nanoseconds since the Unix epoch, at most a year ahead. It replaces one of
/// the same name and key.
pub fn set_at(name: &str, key: &[u8], at: i64, payload: &[u8]) -> Result<(), Error> {
    check(sys::timer_set(name, key, at, payload)).map(drop)
}

/// Sets a timer for a time after [`now`](crate::now), at most a year. It replaces one of the same name
/// and key.
pub fn set_after(name: &str, key: &[u8], after: Duration, payload: &[u8]) -> Result<(), Error> {
    let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
    set_at(name, key, now().saturating_add(after), payload)
}

/// Sets a timer that repeats by a cron expression: minute, hour, day of month, month, day of week, in
/// UTC. Times that were missed while nobody served are one. It replaces one of the same name and key.
pub fn cron(name: &str, key: &[u8], expression: &str, payload: &[u8]) -> Result<(), Error> {
    check(sys::timer_cron(name, key, expression, payload)).map(drop)
}

/// Cancels a timer; nothing happens if there is none.
pub fn cancel(name: &str, key: &[u8]) -> Result<(), Error> {
    check(sys::timer_cancel(name, key)).map(drop)
}
