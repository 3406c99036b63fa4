//! Why an operation failed, and the codes of docs/abi.md that say so.

use alloc::string::String;
use core::fmt;

/// Why a call of the host, and with it usually the attempt, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The handle does not belong to this service.
    NoHandle,
    /// The request's bound on outputs, writes or bytes is reached.
    Bound,
    /// The collection is of another kind.
    WrongKind,
    /// The index is out of range.
    Index,
    /// The node does not have the accelerator.
    Absent,
    /// A length that an accelerator, or the name of a timer, may not have.
    Length,
    /// The time is more than a year ahead; for an outbound request the time-out is 0, or more than a day.
    TooFarAhead,
    /// The text is no cron expression; the service's log says why.
    Cron,
    /// The key belongs to another slot than the request's.
    OtherSlot,
    /// The address, the method or a header field of an outbound request is not valid; the service's log says why.
    Url,
    /// The manifest does not allow the service to ask this service or host, or to publish on this topic.
    NotAllowed,
    /// The manifest declares no such collection for the service.
    NoCollection(&'static str),
    /// The manifest gives the service no such outgoing channel.
    NoChannel(&'static str),
    /// The manifest names no such secret.
    NoSecret(&'static str),
    /// The manifest gives the service no such asset.
    NoAsset(&'static str),
    /// A configuration value that cannot be read.
    Config {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
    },
    /// A secret that is too short or too long.
    SecretLength {
        /// Its name.
        name: &'static str,
        /// Its bytes.
        len: usize,
        /// What they must be.
        must_be: &'static str,
    },
    /// An asset whose contents cannot be used.
    Asset {
        /// Its name.
        name: &'static str,
        /// The line that is wrong, from 1 on; 0 = none in particular.
        line: u32,
        /// What is wrong there, with the bound.
        reason: String,
    },
    /// A value is longer than the buffer that it was to be read into.
    Short {
        /// Length of the value.
        len: usize,
        /// Length of the buffer.
        cap: usize,
    },
    /// The manifest does not let the service call one of that name.
    NoService,
    /// No node serves the shard that was called.
    Unavailable,
    /// A call brought no answer in time.
    TimedOut,
    /// The called handler failed; the service's log says why.
    CallFailed,
    /// What lies in a collection is no key or no value of the expected type.
    Type(&'static str),
    /// The service's own reason; must not be 0.
    Code(i32),
}

impl Error {
    /// The code that the handler returns to the host: never 0.
    pub fn code(&self) -> i32 {
        match self {
            Self::NoHandle => -1,
            Self::Bound => -2,
            Self::WrongKind => -3,
            Self::Index => -4,
            Self::Absent => -5,
            Self::Length => -6,
            Self::TooFarAhead => -7,
            Self::Cron => -8,
            Self::OtherSlot => -9,
            Self::NoCollection(_) => -10,
            Self::NoChannel(_) => -11,
            Self::NoSecret(_) => -12,
            Self::Config { .. } => -13,
            Self::Short { .. } => -14,
            Self::Code(0) => -15,
            Self::Asset { .. } => -16,
            Self::NoAsset(_) => -18,
            Self::SecretLength { .. } => -17,
            Self::Type(_) => -19,
            Self::Url => -20,
            Self::NotAllowed => -21,
            Self::NoService => -22,
            Self::Unavailable => -23,
            Self::TimedOut => -24,
            Self::CallFailed => -25,
            Self::Code(code) => *code,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHandle => f.write_str("no such handle"),
            Self::Bound => f.write_str("the request's bound on outputs or writes is reached"),
            Self::WrongKind => f.write_str("the collection is of another kind"),
            Self::Index => f.write_str("the index is out of range"),
            Self::Absent => f.write_str("the node does not have the accelerator"),
            Self::Length => f.write_str("a length that is not allowed"),
            Self::TooFarAhead => f.write_str("the time is more than a year ahead"),
            Self::Cron => f.write_str("the text is no cron expression of five fields"),
            Self::OtherSlot => f.write_str("the key belongs to another slot than the request's"),
            Self::Url => f.write_str("the address, method or a header field is not valid"),
            Self::NotAllowed => {
                f.write_str("the manifest does not allow asking this service or host")
            }
            Self::NoCollection(name) => write!(f, "collection {name:?}: is not in the manifest"),
            Self::NoChannel(name) => write!(f, "channel {name:?}: is not in the manifest"),
            Self::NoSecret(name) => write!(f, "secret {name:?}: is not in the manifest"),
            Self::NoAsset(name) => write!(f, "asset {name:?}: is not in the manifest"),
            Self::Config { name, value } => write!(f, "config {name:?}: invalid value {value:?}"),
            Self::Asset {
                name,
                line: 0,
                reason,
            } => write!(f, "asset {name:?}: {reason}"),
            Self::Asset { name, line, reason } => {
                write!(f, "asset {name:?}: line {line}: {reason}")
            }
            Self::SecretLength { name, len, must_be } => {
                write!(f, "secret {name:?}: has {len} bytes, must be {must_be}")
            }
            Self::Short { len, cap } => write!(f, "value: has {len} bytes, must be at most {cap}"),
            Self::NoService => f.write_str("the manifest does not name the called service"),
            Self::Unavailable => f.write_str("no node serves the shard that was called"),
            Self::TimedOut => f.write_str("the call brought no answer in time"),
            Self::CallFailed => f.write_str("the called handler failed"),
            Self::Type(what) => write!(f, "{what}: is not of the expected type"),
            Self::Code(code) => write!(f, "code {code}"),
        }
    }
}

impl core::error::Error for Error {}

/// Turns the return value of a host call into a result.
pub(crate) fn check(code: i32) -> Result<u32, Error> {
    match code {
        0.. => Ok(code.unsigned_abs()),
        -1 => Err(Error::NoHandle),
        -2 => Err(Error::Bound),
        -3 => Err(Error::WrongKind),
        -4 => Err(Error::Index),
        -5 => Err(Error::Absent),
        -6 => Err(Error::Length),
        -7 => Err(Error::TooFarAhead),
        -8 => Err(Error::Cron),
        -9 => Err(Error::OtherSlot),
        -20 => Err(Error::Url),
        -21 => Err(Error::NotAllowed),
        _ => Err(Error::Code(code)),
    }
}
