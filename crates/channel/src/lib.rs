//! Lossless, flow-controlled, ordered channels as state machines.
//!
//! Both ends number messages from 1. The receiver states absolutely how far it is: *received* stops
//! retransmission, *durable* frees the sender's outbox, *limit* is the credit; so late and repeated
//! acknowledgements do no harm (selective acknowledgement as in RFC 2018, retransmission timer as
//! in RFC 6298). An end neither reads a clock nor sends: the owner passes `now` and takes what is
//! due. When an end's incarnation changes, the owner restarts the channel with
//! [`Sender::restart`]; what was not durable is sent again and recognised by its identity.
//!
//! **No frame stops a channel for good.** Messages are numbered within an epoch. Each frame that goes
//! along the channel carries enough for the other end to see that the two no longer fit together:
//! data say how much the sender still keeps, acknowledgements all that the receiver has. An end that
//! sees what the other's honest state cannot explain (an epoch that it never began, a number that
//! it never sent, messages that were freed before they were durable) begins a new epoch: the
//! sender numbers what it has from 1 again; the receiver forgets its place and says so in its next
//! acknowledgement, and the sender takes the epoch after. So whatever a wrong frame made an end
//! believe lasts until the next right one. As a second line, a sender whose messages do not arrive
//! for [`limits::STALL_AFTER`] although acknowledgements come begins a new epoch too.

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
