//! Bounds and periods of a node process.

use e3_model::Nanos;
use std::time::Duration;

/// Period of the clock that preempts long handlers.
pub const PREEMPTION_TICK: Duration = Duration::from_micros(200);
/// Bound of one instance's linear memory.
pub const INSTANCE_MEMORY_LEN_MAX: usize = 256 << 20;
/// How late a timer may be where delays are emulated.
pub const EMULATION_TIMER_SLACK_NS: u64 = 1_000;
/// Instances of one node.
pub const INSTANCES_MAX: u32 = 512;
/// Longest wait of one plan request at the controller.
pub const PLAN_WAIT: Duration = Duration::from_secs(10);
/// Applications that a request for a plan names; a node with more has all applications in its plan.
pub const PLAN_APPS_MAX: usize = 4096;
/// Longest wait for a connection to the controller.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for any answer of the controller.
pub const API_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest time that a connection is kept without use, which is less than the controller keeps it.
pub const IDLE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a shard's state in one request to the controller.
pub const CHUNK_LEN_MAX: usize = 1 << 20;
/// Bytes of all shards for backups that wait for the controller. If there are more, a backup is given up.
pub const EXPORTS_LEN_MAX: u64 = 256 << 20;
/// Chunks of states that were fetched and not read yet.
pub const CHUNKS_AHEAD: usize = 4;
/// Bytes that a journal has before a checkpoint makes it shorter.
pub const JOURNAL_LEN_MIN: u64 = 64 << 20;
/// Between two tries while the disk is full.
pub const DISK_RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// An instance that did not start is started again after this time.
pub const START_RETRY_MIN: Duration = Duration::from_secs(1);
/// The time doubles with each failure up to this one.
pub const START_RETRY_MAX: Duration = Duration::from_secs(30);
/// A module that did not load is loaded again after this time.
pub const LOAD_RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// Between two tries while the controller is down.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// The time between two tries to fetch what services need doubles up to this one.
pub const SUPPLIES_RETRY_MAX: Duration = Duration::from_secs(5);
/// Between two tries to fetch a state that the controller does not have.
pub const MISSING_PART_INTERVAL: Duration = Duration::from_secs(5);
/// Different texts that a loop logs of what fails again and again.
pub const COMPLAINTS_MAX: usize = 32;
/// The controller's answer to a hello came at once if it took no longer.
pub const HELLO_PROMPT: Nanos = Nanos::from_millis(100);
/// How often a hello is repeated whose answer took longer.
pub const HELLO_LATE_MAX: u32 = 3;
/// Longest wait of the thread that delivers reports before it looks whether the node stops.
pub const OUTBOX_WAIT: Duration = Duration::from_secs(1);
/// Bytes of a module, an asset or a secret.
pub const BLOB_LEN_MAX: u64 = 256 << 20;
/// Bytes of any other answer of the controller.
pub const ANSWER_LEN_MAX: u64 = 64 << 20;
/// Datagrams taken in one turn before handlers run.
pub const RECEIVE_MAX: usize = 64;
/// Yields in a row without work before the loop sleeps.
pub const YIELDS_MAX: u32 = 8;
/// A yield that returns sooner found no other thread to run.
pub const YIELD_MIN: Duration = Duration::from_micros(2);
/// Requests taken from the ingress in one turn.
pub const REQUESTS_MAX: usize = 64;
/// Between two reports without a new event.
pub const REPORT_INTERVAL: Nanos = Nanos::from_secs(1);
/// Between two reports of the same events.
pub const EVENT_INTERVAL: Nanos = Nanos::from_millis(200);
/// Bytes that an emulated port holds in one direction at a time. More are lost, as on a full port.
pub const PORT_LEN_MAX: usize = 16 << 20;
/// How long an emulated port carries one datagram at most.
pub const CARRIED_MAX: Nanos = Nanos::from_secs(60);
/// A process that exceeds its memory by one part in so many is ended.
pub const EXCESS_DIVISOR: u64 = 8;
/// Longest turn of the engine before the driver looks at the network again.
pub const TURN_MAX: Duration = Duration::from_micros(500);
/// Ports that are tried: one that is free for UDP may be taken for TCP.
pub const PORTS_TRIED: usize = 64;

const _: () = assert!(PLAN_WAIT.as_secs() < API_TIMEOUT.as_secs());
