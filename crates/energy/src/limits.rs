//! Bounds of the meters.

/// Meters that are listed.
pub const METERS_MAX: usize = 64;
