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
mod error;
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
#[cfg(not(target_arch = "wasm32"))]
mod testing_state;
#[cfg(not(target_arch = "wasm32"))]
mod testing_types;
pub mod timers;
mod topic;
pub mod topics;
pub mod typed;

use alloc::string::String;
use alloc::vec::Vec;
use core::str::FromStr;

#[cfg(not(target_arch = "wasm32"))]
use native::calls as sys;

use error::check;

pub use calls::call;
pub use collections::{Array, Counter, Entry, HashMap, OrderedMap, Scan};
pub use error::Error;
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
