//! Bounds of the wire formats.

use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};

/// Version of all formats here.
pub const WIRE_VERSION: u8 = 2;
/// Bytes of a datagram, header included: what UDP over IPv4 can carry.
pub const DATAGRAM_LEN_MAX: usize = 65_507;
/// Bytes of one encoded message or log entry: one frame in one datagram.
pub const BODY_LEN_MAX: usize = 60_000;
/// Bytes of the dead letters in one datagram.
pub const LETTERS_LEN_MAX: usize = BODY_LEN_MAX;
/// Outputs of one log entry.
pub const ENTRY_OUTPUTS_MAX: usize = 4096;

const _: () = assert!(
    PAYLOAD_LEN_MAX + KEY_LEN_MAX + crate::message::HEADER_LEN <= BODY_LEN_MAX,
    "every message fits a frame"
);
const _: () = assert!(
    crate::entry::REASON_LEN_MAX + KEY_LEN_MAX + PAYLOAD_LEN_MAX + crate::entry::LETTER_HEADER_LEN
        <= LETTERS_LEN_MAX,
    "every dead letter fits"
);
const _: () = assert!(
    BODY_LEN_MAX + 4 + crate::frame::DATA_HEADER_LEN + crate::datagram::HEADER_LEN
        <= DATAGRAM_LEN_MAX,
    "every frame fits a datagram"
);
