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
/// Use of a resource from which it is saturated.
pub const SATURATED_USE: f64 = 0.99;
/// Part of the requests of the second half of a run by which those in flight may grow.
pub const GROWTH_MAX: f64 = 0.02;

const _: () = assert!(MESSAGES_MAX < u32::MAX as usize);
