//! Bounds of a channel.

use e3_model::Nanos;

/// Messages that may be in flight on a channel before the receiver has taken them.
pub const WINDOW_MESSAGES: u64 = 256;
/// Retransmission timeout before a round trip has been measured.
pub const RTO_INITIAL: Nanos = Nanos::from_millis(200);
/// Shortest retransmission timeout. A busy machine runs a process every few milliseconds only.
pub const RTO_MIN: Nanos = Nanos::from_millis(50);
/// Longest retransmission timeout.
pub const RTO_MAX: Nanos = Nanos::from_secs(2);
/// Acknowledged later messages after which an earlier one counts as lost (RFC 6675).
pub const REORDER_MAX: u32 = 3;
/// Without progress for this long, although acknowledgements come, a channel counts as stalled.
pub const STALL_AFTER: Nanos = Nanos::from_secs(10);
/// Acknowledgements that must have arrived in that time: the receiver is alive.
pub const STALL_ACKS: u32 = 3;

const _: () = assert!(
    STALL_AFTER.0 > RTO_MAX.0 * STALL_ACKS as u64,
    "a retransmission is answered"
);
const _: () = assert!(
    WINDOW_MESSAGES <= 64 * e3_wire::frame::SELECTIVE_WORDS as u64,
    "an acknowledgement covers all that has arrived"
);
const _: () = assert!(RTO_MIN.0 <= RTO_INITIAL.0 && RTO_INITIAL.0 <= RTO_MAX.0);
