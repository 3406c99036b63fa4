//! Bounds and timers of the controller.

use e3_model::Nanos;

/// Applications at a time.
pub const APPS_MAX: usize = 1024;
/// Silence after which a node counts as lost: many missed heartbeats, since a busy machine may
/// leave a process waiting for a few hundred milliseconds.
pub const HEARTBEAT_TIMEOUT: Nanos = Nanos::from_secs(1);
/// Longest time between two turns of a controller that listens. After a longer one its process was
/// paused, or its clock stepped, and nothing can be said about what nodes did meanwhile.
pub const TURN_GAP_MAX: Nanos = Nanos::from_millis(300);
/// Turns of silence, beside its time, after which a node counts as lost: a clock that runs fast
/// leaves the controller no turns in which it could have heard the node.
pub const SILENT_TURNS_MIN: u64 = 5;
/// Nodes whose silence is by so much shorter than the timeout may be falling silent together with
/// one that has reached it; the decision waits for them. Three heartbeats.
pub const TOGETHER: Nanos = Nanos::from_millis(150);
/// What a controller that has just started gives the nodes to be heard again.
pub const START_GRACE: Nanos = Nanos::from_secs(3);
/// Finished moves that an application remembers, so that their outcomes can be queried.
pub const MOVES_MAX: usize = 64;
/// Losses of state that an application remembers by shard and time; the count goes on.
pub const LOSSES_MAX: usize = 64;
/// Time without progress after which a migration or a joining backup counts as stalled.
pub const PROGRESS_TIMEOUT: Nanos = Nanos::from_secs(30);

const _: () = assert!(TURN_GAP_MAX.0 < HEARTBEAT_TIMEOUT.0);
const _: () = assert!(TOGETHER.0 * 2 < HEARTBEAT_TIMEOUT.0);
