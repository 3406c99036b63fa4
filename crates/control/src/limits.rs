//! Bounds and timers of the controller.

use e3_model::Nanos;

/// Applications at a time.
pub const APPS_MAX: usize = 1024;
/// What a controller that has just started gives the nodes to be heard again.
pub const START_GRACE: Nanos = Nanos::from_secs(3);
/// Finished moves that an application remembers, so that their outcomes can be queried.
pub const MOVES_MAX: usize = 64;
/// Losses of state that an application remembers by shard and time; the count goes on.
pub const LOSSES_MAX: usize = 64;
/// Moves in flight at which draining begins no other: each copies the state of a shard.
pub const DRAIN_MOVES_MAX: usize = 2;
/// Replicas that move to a node because it came back, for each time that it does.
pub const RETURN_MOVES_MAX: u16 = 64;
/// Time without progress after which a migration or a joining backup counts as stalled.
pub const PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(30);
