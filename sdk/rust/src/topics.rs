//! Topics: a service publishes, and every service that is subscribed handles each publication once.
//!
//! The manifest names the application's topics (`topics`), who publishes on them (`publishes` of a
//! service), and which services are subscribed (`subscriptions`, also of other applications). A
//! publication takes effect when the handler's request commits, with its writes. At a subscriber it is
//! a request with the publication's key and payload; [`Request::topic`](crate::Request::topic) says
//! where it comes from. A reply to it goes nowhere. What requests with one routing key
//! publish reaches each subscriber in the order of their commits. Only a service with state publishes.
//!
//! ```
//! use e3_sdk::testing::{Call, Host};
//! use e3_sdk::{Error, Request, Service, publish};
//!
//! struct Orders;
//!
//! impl Service for Orders {
//!     fn init() -> Result<Self, Error> {
//!         Ok(Orders)
//!     }
//!
//!     fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
//!         publish("orders", b"customer 7", request.payload())
//!     }
//! }
//!
//! let host = Host::new().publishes("orders");
//! let outcome = host.call(&mut Orders, &Call::default());
//! assert_eq!(outcome.published[0].topic, "orders");
//! let delivery = outcome.published[0].delivered("shop");
//! assert_eq!(delivery.key, b"customer 7");
//! ```

pub use crate::topic::Topic;
use crate::{Error, check, sys};

/// Publishes on a topic of the application, which the manifest names in `publishes`. Each subscriber
/// routes the publication by `key`.
pub fn publish(topic: &str, key: &[u8], payload: &[u8]) -> Result<(), Error> {
    check(sys::publish(topic, key, payload)).map(drop)
}
