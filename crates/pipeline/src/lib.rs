//! What the services of a pipeline share, so that each of them fits into any application: the format of
//! their data ([`Record`]), the statuses of their replies ([`status`]), and their downstream routes
//! ([`Stage`]).
//!
//! A service reads the fields that its configuration names, adds its own, and forwards the record. So only
//! the manifest determines which services take part, and in which order.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

mod builder;
mod lines;
mod record;
mod stage;
mod words;

pub use builder::{Array, Builder, Value};
pub use lines::{LINE_BYTES_MAX, Lines};
pub use record::{FIELDS_MAX, Record, RecordError};
pub use stage::{Query, Stage};
pub use words::Words;

/// Major types of CBOR (RFC 8949, section 3.1), in the high bits of a value's first byte.
mod major {
    pub(crate) const UNSIGNED: u8 = 0;
    pub(crate) const NEGATIVE: u8 = 1 << 5;
    pub(crate) const BYTES: u8 = 2 << 5;
    pub(crate) const TEXT: u8 = 3 << 5;
    pub(crate) const ARRAY: u8 = 4 << 5;
    pub(crate) const MAP: u8 = 5 << 5;
    pub(crate) const TAG: u8 = 6 << 5;
    /// True, false, null, floating point.
    pub(crate) const SIMPLE: u8 = 7 << 5;
    /// The bits that hold it.
    pub(crate) const MASK: u8 = 7 << 5;
}

/// Statuses of replies.
pub mod status {
    /// Done.
    pub const OK: u32 = 0;
    /// The request is invalid; the payload of the reply is the reason, as text.
    pub const MALFORMED: u32 = 1;
    /// The requested thing does not exist.
    pub const NOT_FOUND: u32 = 2;
    /// The request is valid and refused: not allowed, above a limit, or a conflict.
    pub const REFUSED: u32 = 3;
}
