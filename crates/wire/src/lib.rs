//! Frame and heartbeat formats: what goes between processes, byte for byte.
//!
//! A datagram is a header with a checksum and a run of frames (peer to peer), or of client frames.
//! All integers are little endian. Decoding is total: any bytes give a value or an error, never a panic. Every
//! length is checked before it is used.

pub mod archive;
pub mod call;
pub mod client;
pub mod codec;
pub mod datagram;
pub mod dead_letter;
pub mod entry;
pub mod frame;
pub mod heartbeat;
mod heartbeat_key;
pub mod journal;
pub mod limits;
pub mod message;
mod node;
pub mod part;
pub mod replicated;
pub mod timer;

pub use codec::WireError;
pub use heartbeat_key::{HEARTBEAT_KEY_HEADER, HeartbeatKey, HeartbeatKeys};

use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use limits::{BODY_LEN_MAX, DATAGRAM_LEN_MAX, DEAD_LETTERS_LEN_MAX, REASON_LEN_MAX};

const _: () = assert!(
    PAYLOAD_LEN_MAX + KEY_LEN_MAX + message::HEADER_LEN <= BODY_LEN_MAX,
    "every message fits a frame"
);
const _: () = assert!(
    REASON_LEN_MAX + KEY_LEN_MAX + PAYLOAD_LEN_MAX + dead_letter::HEADER_LEN
        <= DEAD_LETTERS_LEN_MAX,
    "every dead letter fits"
);
const _: () = assert!(
    PAYLOAD_LEN_MAX + KEY_LEN_MAX + call::HEADER_LEN + datagram::HEADER_LEN <= DATAGRAM_LEN_MAX,
    "every call fits a datagram"
);
const _: () = assert!(
    BODY_LEN_MAX + 4 + frame::DATA_HEADER_LEN + datagram::HEADER_LEN <= DATAGRAM_LEN_MAX,
    "every frame fits a datagram"
);
