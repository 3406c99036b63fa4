//! What the generator leaves out: holes that are known and not closed yet. Each entry names its hole
//! and goes when the hole is closed; an empty list is the aim.

/// Hole: a node whose clock is off by more answers "expired" to what it should handle, or handles
/// what it should refuse.
pub(super) const CLOCK_OFFSET_MS_MAX: u64 = 100;
