//! Client of E3 applications: requests with identity, retry, deadline and acknowledged replies.
//!
//! - [`requests`]: the protocol as a state machine without I/O.
//! - [`udp`]: the same on a UDP socket.
//! - [`dead_letters`]: dead letters, read and replayed.

pub mod dead_letters;
mod error;
pub mod limits;
pub mod udp;

pub use e3_client_core::requests::{self, Call};
pub use error::ClientError;
