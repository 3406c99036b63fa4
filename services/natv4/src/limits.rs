//! Bounds.

/// Public addresses.
pub const ADDRESSES_MAX: usize = 256;
/// Prefixes of the inside.
pub const INSIDE_MAX: usize = 64;
/// Idle mappings that a slot without free ports gives back at once.
pub const RECLAIMED_MAX: usize = 64;
/// Longest idle time that can be configured, in seconds: a month.
pub const IDLE_S_MAX: u32 = 31 * 24 * 3600;
