//! Bounds and periods of the program.

use std::time::Duration;

/// Port of the controller unless said otherwise: HTTP over TCP, heartbeats over UDP.
pub const PORT_DEFAULT: u16 = 7300;
/// Between two heartbeats of a node (E3, ATC 2019, section 3).
pub const HEARTBEAT_MS: u64 = 50;
/// Silence after which a node counts as lost: 20 heartbeats, since here all nodes share few cores.
pub const HEARTBEAT_TIMEOUT_MS: u64 = 1_000;
/// Longest wait of `e3 up` until every node takes part.
pub const UP_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait of `e3 demo` until the application runs: the first time its code is compiled.
pub const DEPLOY_TIMEOUT: Duration = Duration::from_secs(180);
/// Looks at what the nodes have reported until it does not change any more.
pub const REPORTS_SETTLE_TRIES: u32 = 4;
/// Between two of them; nodes report once a second.
pub const REPORTS_SETTLE: Duration = Duration::from_millis(1_300);
/// Time that processes get to end by themselves.
pub const DOWN_GRACE: Duration = Duration::from_secs(4);
/// Between two looks at something that changes soon.
pub const POLL_INTERVAL: Duration = Duration::from_millis(40);
/// Between two looks at whether the state directory is still there.
pub const LOCK_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Between two status lines.
pub const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// A process that ends sooner than this is restarted only after a pause.
pub const RESTART_QUICK: Duration = Duration::from_secs(2);
/// Longest pause before a process is restarted.
pub const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest wait for an answer of the controller.
pub const API_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a connection is kept without use, which is less than the controller keeps it.
pub const API_IDLE_MAX: Duration = Duration::from_secs(5);
/// Longest answer of the controller.
pub const API_BODY_LEN_MAX: u64 = 64 << 20;
/// A log that is longer than this is renamed to `.log.1` when its process starts.
pub const LOG_LEN_MAX: u64 = 16 << 20;
/// Longest module or asset.
pub const BLOB_LEN_MAX: u64 = 128 << 20;
/// Memory that a cluster on this machine should find free.
pub const MEMORY_WANTED_BYTES: u64 = 1 << 30;
/// Files that a process should be allowed to open.
pub const OPEN_FILES_WANTED: u64 = 1024;

const _: () = assert!(HEARTBEAT_TIMEOUT_MS >= 4 * HEARTBEAT_MS);
const _: () = assert!(RESTART_QUICK.as_millis() < RESTART_PAUSE_MAX.as_millis());
