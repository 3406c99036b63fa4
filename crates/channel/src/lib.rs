//! Lossless, flow-controlled, ordered channels as state machines.
//!
//! Both ends number messages from 1. The receiver states absolutely how far it is: *received* stops
//! retransmission, *durable* frees the sender's outbox, *limit* is the credit; so late and repeated
//! acknowledgements do no harm (selective acknowledgement as in RFC 2018, retransmission timer as
//! in RFC 6298). An end neither reads a clock nor sends: the owner passes `now` and takes what is
//! due. When an end's incarnation changes, the owner restarts the channel with
//! [`Sender::restart`]; what was not durable is sent again and recognised by its identity.

pub mod limits;
mod receiver;
mod sender;

pub use receiver::{Arrival, Receiver};
pub use sender::Sender;
