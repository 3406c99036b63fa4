//! Frame and heartbeat formats: what goes between processes, byte for byte.
//!
//! A datagram is a header with a checksum and a run of frames (peer to peer), or of client frames.
//! All integers are little endian. Decoding is total: any bytes give a value or an error, never a panic, and no
//! length is believed before it is checked.

pub mod client;
pub mod codec;
pub mod datagram;
pub mod entry;
pub mod frame;
pub mod heartbeat;
pub mod limits;
pub mod message;

pub use codec::WireError;
