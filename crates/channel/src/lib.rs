//! Lossless, flow-controlled, ordered channels as state machines.
//!
//! Both ends number messages from 1. The receiver states absolutely how far it is: *received* stops
//! retransmission, *durable* frees the sender's outbox, *limit* is the credit; so late and repeated
//! acknowledgements do no harm (selective acknowledgement as in RFC 2018, retransmission timer as
//! in RFC 6298). An end neither reads a clock nor sends: the owner passes `now` and takes what is
//! due. When an end's incarnation changes, the owner restarts the channel with
//! [`Sender::restart`]; what was not durable is sent again and recognised by its identity.
//!
//! **No frame stops a channel for good.** Messages are numbered within an epoch. Each frame carries
//! enough state for the receiving end to detect that the two ends have diverged: a data frame says how
//! many messages the sender still keeps, an acknowledgement says all that the receiver has. An end that
//! receives a state which the other cannot have (an epoch that it never began, a number that it never
//! sent, messages that were freed before they were durable) begins a new epoch: the sender numbers
//! its messages from 1 again; the receiver resets its state and says so in its next acknowledgement,
//! and the sender takes the next epoch. So a wrong frame does harm only until the next right one. A
//! sender also begins a new epoch if its messages do not arrive for [`limits::STALL_AFTER`] although
//! acknowledgements do.

pub mod limits;
mod receiver;
mod sender;

pub use receiver::{Arrival, Receiver, Taken};
pub use sender::{Acked, Sender, Transmit};

/// Number of a message: its place within an epoch of its channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Number {
    /// The epoch.
    pub epoch: u32,
    /// From 1.
    pub seq: u64,
}

/// Whether epoch `a` comes after `b`. Epochs wrap around (as in RFC 1982), so none is the last.
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
