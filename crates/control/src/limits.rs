//! Bounds and timers of the controller.

use e3_model::Nanos;

/// Applications at a time.
pub const APPS_MAX: usize = 1024;
/// Silence after which a node counts as lost: many missed heartbeats, since a busy machine may
/// leave a process waiting for some hundred milliseconds.
pub const HEARTBEAT_TIMEOUT: Nanos = Nanos::from_secs(1);
/// What a controller that has just started gives the nodes to be heard again.
pub const START_GRACE: Nanos = Nanos::from_secs(3);
/// Finished moves that an application remembers, so that whoever asked hears how they ended.
pub const MOVES_MAX: usize = 64;
/// Losses of state that an application remembers by shard and time; the count goes on.
pub const LOSSES_MAX: usize = 64;
/// A migration or a joining backup that takes longer counts as stuck.
pub const PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(30);
