//! The client's side of the protocol without I/O: identity, retry, deadline, acknowledged replies.

pub mod limits;
pub mod requests;
