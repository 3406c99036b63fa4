//! Bounds of the load generator, and its timers.

use e3_model::Nanos;

/// Wait for an answer before the first repeat.
pub const RETRY_AFTER: Nanos = Nanos::from_millis(500);
/// Each further wait is longer by this ratio: numerator, denominator.
pub const RETRY_GROWTH: (u64, u64) = (3, 2);
/// Longest wait between two attempts.
pub const RETRY_AFTER_MAX: Nanos = Nanos::from_secs(3);
/// Wait before a request is repeated that a node rejected (it may have no plan yet).
pub const REJECTED_RETRY_AFTER: Nanos = Nanos::from_millis(50);
/// How long an answer is awaited beyond the deadline; then the outcome is unknown.
pub const ANSWER_GRACE: Nanos = Nanos::from_secs(1);
/// A request's deadline, unless the user sets it: several fail-overs long.
pub const DEADLINE: Nanos = Nanos::from_secs(10);
/// Wait before a question about dead letters is asked again.
pub const LETTERS_RETRY_AFTER: Nanos = Nanos::from_millis(200);
/// Deadline of the first request; with the grace after it, 5 s are waited for an answer.
pub const PROBE_DEADLINE: Nanos = Nanos::from_secs(4);
/// Least time between two looks for new routes.
pub const REFRESH_INTERVAL: Nanos = Nanos::from_millis(200);
/// Bytes of a datagram after which no further request is packed into it.
pub const DATAGRAM_LEN_GOAL: usize = 16 * 1024;
/// Socket buffers, so that answers survive a moment in which the client is not scheduled.
pub const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// Requests without outcome; beyond it the client is saturated.
pub const IN_FLIGHT_MAX: usize = 1 << 16;
/// Requests of one run: the ledger keeps a record for each.
pub const REQUESTS_MAX: u64 = 100_000_000;
/// Highest rate that can be asked for.
pub const RATE_RPS_MAX: f64 = 10_000_000.0;
/// Requests fall due together at this interval, so that they travel and wake together.
pub const TICK: Nanos = Nanos::from_millis(1);
/// Length of one entry of the timeline, and time between two reports of progress.
pub const TIMELINE_STEP: Nanos = Nanos::from_millis(100);
/// Longest latency that is told apart from longer ones.
pub const LATENCY_MAX: Nanos = Nanos::from_secs(3_600);
/// Part of the requests that may be refused (not admitted, over a rate, refused by the application)
/// without being sent to be refused; beyond it, the load has failed.
pub const REFUSED_SHARE_MAX: f64 = 0.1;
/// Questions in flight while the state is read back.
pub const CHECKS_IN_FLIGHT_MAX: usize = 64;
/// Attempts of one such question (each with all its repeats).
pub const CHECK_ATTEMPTS_MAX: u32 = 8;
/// Longest time for reading the state back; what is not read by then counts as not answered.
pub const CHECK_TIME_MAX: Nanos = Nanos::from_secs(120);
/// Wait before a question is asked again; doubles.
pub const CHECK_RETRY_AFTER: Nanos = Nanos::from_millis(250);
/// Time between two questions about floods during a load: less than half of the time that ddos
/// remembers in the manifests.
pub const FLOOD_REPORT_INTERVAL: Nanos = Nanos::from_secs(60);
/// Bytes of a file of traffic: it is read and checked as a whole before anything is sent.
pub const TRAFFIC_LEN_MAX: u64 = 512 << 20;
/// Requests of such a file.
pub const TRAFFIC_REQUESTS_MAX: usize = 5_000_000;
/// Columns of a row, or fields of an object: what a record has room for.
pub const TRAFFIC_FIELDS_MAX: usize = 64;
/// Bytes of a captured packet, as libpcap has it (`MAXIMUM_SNAPLEN`).
pub const CAPTURED_LEN_MAX: u32 = 262_144;
/// Longest replay of a file.
pub const TRAFFIC_TIME_MAX: Nanos = Nanos::from_secs(31 * 24 * 3_600);
/// Most thermostats of one run: they share the upper half of their ids.
pub const THERMOSTATS_MAX: u32 = 1 << 16;
/// Most sensors of one run: they share the upper half of their ids.
pub const SENSORS_MAX: u32 = 1 << 16;

const _: () = assert!(DATAGRAM_LEN_GOAL < e3_wire::limits::DATAGRAM_LEN_MAX);
const _: () = assert!(TICK.0 < TIMELINE_STEP.0);
