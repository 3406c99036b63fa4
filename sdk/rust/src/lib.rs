//! The SDK for services: a safe Rust interface to the service ABI (docs/abi.md).
//!
//! A service is a type that implements [`Service`]; [`service!`] exports it from a WebAssembly
//! module. State that must last goes into collections ([`HashMap`], [`OrderedMap`], [`Array`],
//! [`Counter`], and with types in [`typed`]); the fields of the type are a cache that may be lost between two requests. On
//! targets other than wasm32 the same calls go to the in-memory host of [`testing`], so `cargo test`
//! tests a service.
//!
//! ```
//! use e3_sdk::{Error, Request, Service, reply};
//!
//! struct Echo;
//!
//! impl Service for Echo {
//!     fn init() -> Result<Self, Error> {
//!         Ok(Echo)
//!     }
//!
//!     fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
//!         reply(0, request.payload())
//!     }
//! }
//!
//! e3_sdk::service!(Echo, request_capacity = 2048);
//! ```

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod accel;
mod accel_portable;
mod answer;
pub mod calls;
mod collections;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod export;
#[cfg(any(target_arch = "wasm32", test))]
mod free_list;
pub mod limits;
mod logging;
pub mod math;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
pub mod outbound;
#[cfg(target_arch = "wasm32")]
#[path = "sys_wasm.rs"]
mod sys;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
#[cfg(not(target_arch = "wasm32"))]
mod testing_calls;
#[cfg(not(target_arch = "wasm32"))]
mod testing_outbound;
pub mod timers;
mod topic;
pub mod topics;
pub mod typed;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

#[cfg(not(target_arch = "wasm32"))]
use native::calls as sys;

pub use calls::call;
pub use collections::{Array, Counter, Entry, HashMap, OrderedMap, Scan};
pub use logging::Level;
#[doc(hidden)]
pub use logging::log_fmt;
pub use topics::publish;

/// Version of the ABI that the module is built for.
pub const ABI_VERSION: i32 = 1;

/// A service: made once for an instance, which then handles one request after the other.
pub trait Service: Sized {
    /// Opens channels and collections, reads secrets and configuration. Must not write.
    fn init() -> Result<Self, Error>;

    /// Handles one request. `Ok` commits its writes and outputs together; `Err` drops them and
    /// fails the attempt. An invalid request gets an error reply and `Ok`.
    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error>;
}

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
fn check(code: i32) -> Result<u32, Error> {
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

/// Identity of a request: the same for all messages that it causes, and for its retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The client.
    pub client: u64,
    /// The client's number for the request.
    pub sequence: u64,
}

/// The current request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    payload: &'a [u8],
}

impl<'a> Request<'a> {
    #[cfg_attr(target_arch = "wasm32", doc(hidden))]
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { payload }
    }

    /// Its payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The request's identity.
    pub fn id(&self) -> RequestId {
        let mut bytes = [0; 16];
        sys::request_id(&mut bytes);
        let bytes = u128::from_le_bytes(bytes);
        RequestId {
            client: bytes as u64,
            sequence: (bytes >> 64) as u64,
        }
    }

    /// The key that the message was routed by, in `out`, which must be long enough.
    pub fn key<'b>(&self, out: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let cap = out.len();
        let len = check(sys::request_key(out))? as usize;
        if len <= cap {
            Ok(&out[..len])
        } else {
            Err(Error::Short { len, cap })
        }
    }

    /// Runs `f` on that key. Most keys are short, so a buffer for a long one is cleared only if it is
    /// needed.
    pub fn with_key<R>(&self, f: impl FnOnce(&[u8]) -> Result<R, Error>) -> Result<R, Error> {
        #[cfg(target_arch = "wasm32")]
        if let Some(key) = sys::request_key_here() {
            return f(key);
        }
        let mut short = [0; 64];
        match self.key(&mut short) {
            Ok(key) => f(key),
            Err(Error::Short { .. }) => {
                let mut long = [0; limits::KEY_BYTES_MAX];
                f(self.key(&mut long)?)
            }
            Err(error) => Err(error),
        }
    }

    /// Slot of that key, below [`limits::SLOTS`]. Shards are split between slots, so what requests of
    /// different keys share must be kept for each slot apart, and added up when it is read.
    pub fn slot(&self) -> u16 {
        u16::try_from(sys::request_slot()).unwrap_or_default()
    }

    /// Name of the timer whose request it is; `None` from a client or a channel.
    pub fn timer(&self) -> Option<String> {
        if sys::request_edge() != limits::TIMER_EDGE {
            return None;
        }
        let name = collections::read_vec(sys::timer_name)?;
        String::from_utf8(name).ok()
    }

    /// The answer to an outbound request of the service, if the request brings one; its payload is the
    /// content.
    pub fn answer(&self) -> Option<answer::Answer> {
        if sys::request_edge() != limits::ANSWER_EDGE {
            return None;
        }
        let name = collections::read_vec(sys::timer_name)?;
        let name = String::from_utf8(name).ok()?;
        Some(answer::Answer::new(name, sys::answer()))
    }

    /// The topic of the publication that the request brings, if it does.
    pub fn topic(&self) -> Option<topic::Topic> {
        if sys::request_edge() != limits::TOPIC_EDGE {
            return None;
        }
        let topic = collections::read_vec(sys::topic)?;
        topic::Topic::parse(str::from_utf8(&topic).ok()?)
    }

    /// Whether another service calls: its handler waits for the reply. A write, a message or a timer makes
    /// the call fail, and so does the lack of a reply.
    pub fn is_call(&self) -> bool {
        sys::request_edge() == limits::CALL_EDGE
    }

    /// Index of the channel that the message came by, in the manifest's order; `None` from a
    /// client, a timer or a call, and with an answer or a publication.
    pub fn edge(&self) -> Option<u32> {
        u32::try_from(sys::request_edge()).ok()
    }
}

/// Nanoseconds since the Unix epoch, fixed for the request. It never goes back within a shard of a
/// stateful service. In a stateless one it is the time at which the client sent the request, or the
/// last stateful service before this one handled it.
pub fn now() -> i64 {
    sys::now()
}

/// Answers the client. Status 0 = ok, the others are the application's own.
pub fn reply(status: u32, payload: &[u8]) -> Result<(), Error> {
    check(sys::reply(status, payload)).map(drop)
}

/// An outgoing channel.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    handle: i32,
}

impl Channel {
    /// Opens the channel to the service that the manifest calls `name`.
    pub fn open(name: &'static str) -> Result<Self, Error> {
        Self::named(name).ok_or(Error::NoChannel(name))
    }

    /// Opens the channel of that name, if the service has it.
    pub fn named(name: &str) -> Option<Self> {
        match sys::channel(name) {
            handle @ 0.. => Some(Self { handle }),
            _ => None,
        }
    }

    /// Buffers a message; it leaves when the request commits, to the shard that owns `key`.
    pub fn send(&self, key: &[u8], payload: &[u8]) -> Result<(), Error> {
        check(sys::send(self.handle, key, payload)).map(drop)
    }
}

/// A read-only file that all instances on a node share.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    handle: i32,
}

impl Asset {
    /// Opens an asset by its name, if the manifest has it.
    pub fn open(name: &str) -> Option<Self> {
        match sys::asset(name) {
            handle @ 0.. => Some(Self { handle }),
            _ => None,
        }
    }

    /// Its size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an asset is not a container")]
    pub fn len(&self) -> u64 {
        sys::asset_len(self.handle).max(0) as u64
    }

    /// Reads from `offset` on; returns the bytes read, fewer than `out` has at the end.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        let offset = i64::try_from(offset).map_err(|_| Error::Index)?;
        check(sys::asset_read(self.handle, offset, out)).map(|len| len as usize)
    }
}

/// A secret that the manifest names.
pub fn secret(name: &'static str) -> Result<Vec<u8>, Error> {
    collections::read_vec(|out| sys::secret(name, out)).ok_or(Error::NoSecret(name))
}

/// The value that a secret had before the present one, until it is retired: what was made with the old
/// value is still accepted meanwhile. None if there is none.
pub fn previous_secret(name: &str) -> Option<Vec<u8>> {
    let name = alloc::format!("{name}@previous");
    collections::read_vec(|out| sys::secret(&name, out))
}

/// A value of the manifest's `config`, if it is there and text.
pub fn config(name: &str) -> Option<String> {
    let bytes = collections::read_vec(|out| sys::config(name, out))?;
    String::from_utf8(bytes).ok()
}

/// A value of the manifest's `config`, read as `T`; `default` if it is not there. A number has no plus
/// sign.
pub fn config_or<T: FromStr>(name: &'static str, default: T) -> Result<T, Error> {
    match config(name) {
        None => Ok(default),
        Some(value) => match value.trim().parse() {
            Ok(read) if !value.trim().starts_with('+') => Ok(read),
            _ => Err(Error::Config { name, value }),
        },
    }
}

/// Fills `out`, at most [`limits::RANDOM_BYTES_MAX`] bytes, with unpredictable random bytes. In a
/// stateful service a further attempt gets other ones, in a stateless one every run of a message gets
/// the same.
pub fn random(out: &mut [u8]) -> Result<(), Error> {
    check(sys::random(out)).map(drop)
}

/// Exports a [`Service`] from a WebAssembly module, with a request buffer of
/// `request_capacity` bytes. Does nothing on other targets.
#[macro_export]
macro_rules! service {
    ($service:ty, request_capacity = $capacity:expr) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code)]
        const _: () = {
            static BUFFER: $crate::export::Buffer<{ $capacity }> = $crate::export::Buffer::new();
            static SERVICE: $crate::export::Slot<$service> = $crate::export::Slot::new();

            // SAFETY (of the six names): each is exported once by a module, which has one
            // service, and has the type that docs/abi.md gives it.
            #[unsafe(no_mangle)]
            extern "C" fn e3_abi_version() -> i32 {
                $crate::ABI_VERSION
            }

            #[unsafe(no_mangle)]
            extern "C" fn e3_request_buffer() -> i32 {
                BUFFER.address()
            }

            #[unsafe(no_mangle)]
            extern "C" fn e3_request_capacity() -> i32 {
                $capacity
            }

            #[unsafe(no_mangle)]
            extern "C" fn e3_request_head() -> i32 {
                $crate::export::request_head()
            }

            #[unsafe(no_mangle)]
            extern "C" fn e3_init() -> i32 {
                SERVICE.init()
            }

            #[unsafe(no_mangle)]
            extern "C" fn e3_handle(len: i32) -> i32 {
                SERVICE.handle(&BUFFER, len)
            }
        };
    };
}
