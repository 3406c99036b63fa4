//! Bounds of the effects of an invocation.

/// Bytes of all effects of one invocation, at most: they become one log entry, which must fit in
/// one datagram.
pub const EFFECTS_LEN_MAX: usize = 56 * 1024;
/// Bytes that an output adds to the effects beside its key and payload.
pub const OUTPUT_OVERHEAD_LEN: usize = 16;
/// Bytes that a timer adds to them beside its name, key, cron expression and payload.
pub const TIMER_OVERHEAD_LEN: usize = 24;
