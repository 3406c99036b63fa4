//! Bounds.

/// Columns of a sketch.
pub const WIDTH: core::ops::RangeInclusive<u32> = 16..=65_536;
/// Rows of a sketch.
pub const DEPTH: core::ops::RangeInclusive<u8> = 1..=8;
/// Length of a window in seconds.
pub const WINDOW_S: core::ops::RangeInclusive<i64> = 1..=3600;
/// Least share of a window's packets that makes a flow heavy; with it a slot's list fits a value.
pub const SHARE_MIN: f64 = 0.001;
/// Largest share.
pub const SHARE_MAX: f64 = 0.5;
/// Heavy flows in a reply.
pub const REPORTED_MAX: usize = 100;
