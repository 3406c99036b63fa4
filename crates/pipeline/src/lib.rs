//! What the services of the shipped applications share, so that each of them fits into any
//! application: what they say to each other ([`Record`]), what they answer ([`status`]), and where
//! their results go ([`Stage`]).
//!
//! A service reads the fields that its configuration names, adds its own, and passes the record on.
//! So the order of services, and which of them take part, is the manifest's business alone.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

mod builder;
mod lines;
mod record;
mod stage;
mod words;

pub use builder::{Array, Builder, Value};
pub use lines::{LINE_BYTES_MAX, Lines};
pub use record::{FIELDS_MAX, Fault, Record};
pub use stage::{Question, Stage};
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
    /// The request is wrong in itself; the payload of the reply says how, as text.
    pub const MALFORMED: u32 = 1;
    /// What the request asks for is not there.
    pub const NOT_FOUND: u32 = 2;
    /// The request is understood and refused: not allowed, over a limit, a conflict.
    pub const REFUSED: u32 = 3;
}
