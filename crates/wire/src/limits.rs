//! Bounds of the wire formats.

use e3_model::limits::KEY_LEN_MAX;

/// Bytes of a datagram, header included: what UDP over IPv4 can carry.
pub const DATAGRAM_LEN_MAX: usize = 65_507;
/// Bytes of one encoded message or log entry: one frame in one datagram.
pub const BODY_LEN_MAX: usize = 60_000;
/// Bytes of the dead letters in one datagram.
pub const DEAD_LETTERS_LEN_MAX: usize = BODY_LEN_MAX;
/// Bytes of the reason of a dead letter.
pub const REASON_LEN_MAX: usize = 256;
/// Reigns of primaries that a log remembers.
pub const REIGNS_MAX: usize = 16;
/// Collections of one service.
pub const COLLECTIONS_MAX: usize = 1024;
/// Outputs of one log entry.
pub const ENTRY_OUTPUTS_MAX: usize = 4096;
/// Confirmed publications of one log entry.
pub const ENTRY_CONFIRMED_MAX: usize = 48;
const _: () = assert!(ENTRY_CONFIRMED_MAX * (KEY_LEN_MAX + 10) + 256 < BODY_LEN_MAX);
