//! Bounds of a channel.

use e3_model::Nanos;

/// Messages that may be under way on a channel before the receiver has taken them.
pub const WINDOW_MESSAGES: u64 = 256;
/// Retransmission timeout before a round trip has been measured.
pub const RTO_INITIAL: Nanos = Nanos::from_millis(200);
/// Shortest retransmission timeout. A busy machine runs a process every few milliseconds only.
pub const RTO_MIN: Nanos = Nanos::from_millis(50);
/// Longest retransmission timeout.
pub const RTO_MAX: Nanos = Nanos::from_millis(2_000);
/// Acknowledged later messages after which an earlier one counts as lost (RFC 6675).
pub const REORDER_MAX: u32 = 3;

const _: () = assert!(RTO_MIN.0 <= RTO_INITIAL.0 && RTO_INITIAL.0 <= RTO_MAX.0);
