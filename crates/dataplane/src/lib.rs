//! What one worker core does with messages, as one state machine: ingress, duplicates, log,
//! replication, channels, leases.
//!
//! The way of a request: [`Worker::handle_datagram`] takes it from a client and puts it on a channel
//! to a shard of the source service; there it waits until the executor has room, runs, and becomes a
//! log entry; when all backups have the entry, its outputs go on along their channels and its reply
//! to the ingress. A message is kept by its sender until it is durable at its receiver, and known by
//! its identity wherever it arrives twice; so every effect takes place exactly once, whatever is
//! lost, repeated, moved or killed on the way.

mod app;
mod backup;
mod check;
mod emit;
mod ingress;
mod lease;
mod letters;
pub mod limits;
mod links;
mod plan;
mod primary;
mod replica;
mod report;
mod seen;
mod worker;

pub use report::Health;
pub use worker::{Config, Output, Worker};
