//! Requests from users' programs: the adapter between the protocols that clients speak and the
//! node's worker.
//!
//! A protocol adapter ([`http`]) turns what a client sends into a [`Call`], hands it to the [`Gate`]
//! and receives its outcome. The gate knows no protocol: it gives each request its identity
//! ([`identity`]), repeats it until there is an answer ([`calls`]) and bounds how many there are. The
//! worker is at the other end of a queue ([`Door`]); nothing here runs on its thread.

mod answer;
pub mod calls;
mod connections;
mod gate;
mod head;
pub mod http;
pub mod identity;
mod keys;
pub mod limits;
pub mod openapi;
pub mod record;

pub use calls::{Call, Given, Refused, Result as CallResult};
pub use gate::{Door, Gate, pair};
