//! Bounds.

/// Length of a window in seconds.
pub const WINDOW_S: core::ops::RangeInclusive<i64> = 1..=3600;
/// Past windows in the history.
pub const HISTORY: core::ops::RangeInclusive<u64> = 2..=64;
/// Standard deviations.
pub const SIGMAS_MAX: f64 = 100.0;
/// Least standard deviation that can be configured, in bits.
pub const SIGMA_MIN_MAX: f64 = 32.0;
/// Addresses of past windows that are removed when a new one is added: more than one, so that they
/// are removed faster than they are added.
pub const FORGOTTEN_MAX: usize = 2;
/// Counts whose weights are kept in a table.
pub const WEIGHTS: usize = 1024;
