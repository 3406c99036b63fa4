//! Bounds and timers of the load generator.

use e3_model::Nanos;

/// Deadline of the first request; with the grace after it, the load waits 5 s for an answer.
pub const PROBE_DEADLINE: Nanos = Nanos::from_secs(4);
/// Requests without outcome; beyond it the client is saturated.
pub const IN_FLIGHT_MAX: usize = 1 << 16;
/// Requests of one run: the ledger keeps a record for each.
pub const REQUESTS_MAX: u64 = 100_000_000;
/// Highest rate that can be asked for.
pub const RATE_RPS_MAX: f64 = 10_000_000.0;
/// Requests become due together at this interval, so that they share datagrams and wake-ups.
pub const TICK: Nanos = Nanos::from_millis(1);
/// Length of one entry of the timeline, and time between two reports of progress.
pub const TIMELINE_STEP: Nanos = Nanos::from_millis(100);
/// Longest latency that is distinguished from longer ones.
pub const LATENCY_MAX: Nanos = Nanos::from_secs(3_600);
/// Part of the requests that may be refused (not admitted, over a rate, refused by the application)
/// without being sent to be refused; beyond it, the load has failed.
pub const REFUSED_SHARE_MAX: f64 = 0.1;
/// Queries in flight while the state is read back.
pub const CHECKS_IN_FLIGHT_MAX: usize = 64;
/// Longest time for reading the state back; what is not read by then counts as not answered.
pub const CHECK_TIME_MAX: Nanos = Nanos::from_secs(120);
/// Bytes of a file of traffic: it is read and checked as a whole before anything is sent.
pub const TRAFFIC_LEN_MAX: u64 = 512 << 20;
/// Requests of such a file.
pub const TRAFFIC_REQUESTS_MAX: usize = 5_000_000;
/// Columns of a row, or fields of an object: as many as a record may have.
pub const TRAFFIC_FIELDS_MAX: usize = 64;
/// Bytes of a captured packet, as libpcap has it (`MAXIMUM_SNAPLEN`).
pub const CAPTURED_LEN_MAX: u32 = 262_144;
/// Longest replay of a file.
pub const TRAFFIC_TIME_MAX: Nanos = Nanos::from_secs(31 * 24 * 3_600);

const _: () = assert!(TICK.0 < TIMELINE_STEP.0);
