//! What one worker core does with messages, as one state machine: ingress, deduplication, log,
//! replication, channels, leases.
//!
//! The way of a request: [`Worker::handle_datagram`] takes it from a client and puts it on a channel
//! to a shard of the source service; there it waits until the executor has room, runs, and becomes a
//! log entry; when all backups have the entry, its outputs go downstream along their channels and
//! its reply to the ingress. A message is kept by its sender until it is durable at its receiver,
//! and known by its identity wherever it arrives twice; so every effect takes place exactly once,
//! whatever is lost, repeated, moved or killed on the way.
//!
//! A replica owns its transitions: a method takes an input and pushes effects, and the worker routes
//! them.

mod app;
mod asked;
mod backup;
mod check;
mod config;
mod cores;
mod dead_letters;
mod declared;
mod dedup;
pub mod deliberate;
mod emit;
mod ends;
mod expiry;
mod export;
mod history;
mod ingress;
mod interest;
mod journal;
mod lease;
pub mod limits;
mod links;
mod log;
mod outbound;
mod packer;
mod partial;
mod primary;
mod publications;
mod reach;
mod recovery;
mod refusal;
mod replica;
mod restore;
mod sending;
mod shard;
mod streams;
mod timer_table;
mod timers;
mod traffic;
mod transfer;
mod worker;

pub use config::{Config, EmulatedCores};
pub use outbound::{Attempts, HttpAsk};
pub use recovery::{Recovery, RecoveryError};
pub use worker::{Beside, Health, Kept, Output, Work, Worker};
