//! Bounds of a run.

use e3_model::Nanos;

/// Longest simulated time: two days.
pub const DURATION_MAX: Nanos = Nanos(48 * 3600 * 1_000_000_000);
/// Reports of the nodes' loads, and checks of all queues, in a run.
pub const TICKS: u64 = 100;
/// Messages in flight; with more the cluster is saturated and the run ends.
pub const MESSAGES_MAX: usize = 4_000_000;
/// Samples that are kept.
pub const SAMPLES_MAX: usize = 10_000_000;
/// Spans that a trace keeps.
pub const SPANS_MAX: usize = 1_000_000;
/// Use of a resource from which it is saturated. A guess, as the next one; design page 026 has the reasons.
pub const SATURATED_USE: f64 = 0.99;
/// Part of the requests of the second half of a run by which those in flight may grow.
pub const GROWTH_MAX: f64 = 0.02;
/// Time after which a node sends a message again that was not acknowledged: `RTO_MIN` of crate `channel`.
pub const RESEND_AFTER: Nanos = Nanos::from_millis(50);
/// The same of a client, the first time: `RETRY_AFTER` of crate `client-core`.
pub const CLIENT_RETRY_AFTER: Nanos = Nanos::from_millis(500);
/// Growth of that time with each attempt: `RETRY_GROWTH` there.
pub const CLIENT_RETRY_GROWTH: (u64, u64) = (3, 2);
/// Longest such time: `RETRY_AFTER_MAX` there.
pub const CLIENT_RETRY_AFTER_MAX: Nanos = Nanos::from_secs(3);
/// Age of a request at which its client gives up: `DEADLINE` of crate `client`.
pub const CLIENT_DEADLINE: Nanos = Nanos::from_secs(10);
/// Bytes of a part of a state that is copied.
pub const COPY_PART_BYTES: u64 = 16 << 10;

const _: () = assert!(MESSAGES_MAX < u32::MAX as usize);
