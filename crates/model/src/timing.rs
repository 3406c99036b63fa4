//! Periods of failure detection. They hold only together: a node that stands still is replaced within
//! half a second, and nobody replaces a node that still may act on what it was promised.

use crate::units::Nanos;

/// Between two heartbeats of a node.
pub const HEARTBEAT_INTERVAL: Nanos = Nanos::from_millis(20);
/// Silence after which a node counts as lost. Many heartbeats may be lost or late before that.
pub const HEARTBEAT_TIMEOUT: Nanos = Nanos::from_millis(270);
/// Between two turns in which the controller looks for silent nodes.
pub const SILENCE_CHECK_INTERVAL: Nanos = Nanos::from_millis(25);
/// Longest time between two turns of a controller that listens. After a longer one its process was
/// paused, or its clock stepped, and nothing can be said about what nodes did meanwhile.
pub const TURN_GAP_MAX: Nanos = Nanos::from_millis(100);
/// Turns of silence, beside its time, after which a node counts as lost: a clock that runs fast
/// leaves the controller no turns in which it could have heard the node.
pub const SILENT_TURNS_MIN: u64 = 5;
/// Nodes whose silence is by so much shorter than the timeout may be falling silent together with
/// one that has reached it; the decision waits for them.
pub const TOGETHER: Nanos = Nanos::from_millis(60);
/// A node whose loop has made no turn for so long sends no heartbeats. It serves no requests, and does not
/// wait for a processor only.
pub const STUCK_AFTER: Nanos = Nanos::from_secs(1);

/// Length of a lease.
pub const LEASE: Nanos = Nanos::from_millis(240);
/// What the holder of a lease gives away for clocks that run at different speed.
pub const LEASE_MARGIN: Nanos = Nanos::from_millis(24);
/// Between two requests for a lease.
pub const LEASE_INTERVAL: Nanos = PROBE_INTERVAL;

/// Between two probes of the way to a peer. Requests for leases share their datagrams.
pub const PROBE_INTERVAL: Nanos = Nanos::from_millis(40);
/// Probes that a node sends in a second at most. With more peers it asks each of them less often.
pub const PROBES_PER_S_MAX: u64 = 400;
/// Periods without an answer in a row after which a peer counts as unreachable: no sooner than the
/// leases between the two have run out, so that nothing stops that could have gone on.
pub const PROBES_MISSED: u32 = 6;
/// The same after which it is granted no lease: it could not hear of it. So what it was promised has
/// run out when it is replaced.
pub const PROBES_MISSED_UNLEASED: u32 = 3;
/// Periods after which a new process serves although most peers have not told it the time.
pub const PROBES_FIRST_MAX: u32 = 2 * PROBES_MISSED;
/// Answers in a row after which it counts as reachable again, so that a way that comes and goes does
/// not move shards each time.
pub const PROBES_ANSWERED: u32 = 50;

/// How long the shards of an application may stand still for a backup. Then the controller cancels it, and
/// takes no position any more that a shard has fixed.
pub const BACKUP_FREEZE_TIMEOUT: Nanos = Nanos::from_secs(5);
/// After so long a shard goes on by itself, and takes no further part in the backup: the controller has
/// given it up by then, or does not run.
pub const BACKUP_STILL_MAX: Nanos = Nanos::from_secs(10);

const _: () = assert!(
    BACKUP_FREEZE_TIMEOUT.0 * 2 <= BACKUP_STILL_MAX.0,
    "whatever the speed of the clocks, no shard goes on before the controller takes no positions any more"
);
const _: () = assert!(
    HEARTBEAT_INTERVAL.0 * 10 <= HEARTBEAT_TIMEOUT.0,
    "single heartbeats may be lost"
);
const _: () = assert!(
    SILENCE_CHECK_INTERVAL.0 * (SILENT_TURNS_MIN + 1) < HEARTBEAT_TIMEOUT.0,
    "the turns pass within the timeout"
);
const _: () = assert!(SILENCE_CHECK_INTERVAL.0 < TURN_GAP_MAX.0);
const _: () = assert!(TURN_GAP_MAX.0 < HEARTBEAT_TIMEOUT.0);
const _: () = assert!(TOGETHER.0 * 2 < HEARTBEAT_TIMEOUT.0);
const _: () = assert!(
    LEASE.0 + HEARTBEAT_INTERVAL.0 < HEARTBEAT_TIMEOUT.0,
    "leases have run out when a silent node is replaced"
);
const _: () = assert!(
    LEASE_INTERVAL.0 * 3 < LEASE.0 - LEASE_MARGIN.0,
    "two grants may be lost"
);
const _: () = assert!(
    PROBE_INTERVAL.0 * PROBES_MISSED as u64 >= LEASE.0,
    "leases have run out when a way counts as cut"
);
/// How far a node's clock may be from this one's for a lease.
pub const CLOCK_SKEW_MAX: Nanos = Nanos::from_millis(500);
