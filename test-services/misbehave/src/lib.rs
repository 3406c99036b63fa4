//! Every kind of failure of a service, on demand, for tests of the platform.
//!
//! The first byte of the payload selects the failure ([`fault`]). First the service counts the
//! request in the counter collection `attempts`, if it has one: a failed attempt must leave no
//! trace there.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::vec::Vec;
use core::hint::black_box;

use e3_sdk::{Channel, Counter, Error, HashMap, Request, Service, reply};

/// The first byte of the payload.
pub mod fault {
    /// Nothing: reply with the payload.
    pub const NONE: u8 = 0;
    /// Trap (by a panic, which logs first).
    pub const TRAP: u8 = 1;
    /// Loop for ever.
    pub const LOOP: u8 = 2;
    /// Allocate and touch memory until there is none.
    pub const ALLOCATE: u8 = 3;
    /// Grow the memory to 4 GB at once; replies 0 if that was refused.
    pub const GROW: u8 = 4;
    /// Reply, or send by `next` if there is that channel, until it is refused, and then commit.
    pub const OUTPUTS: u8 = 5;
    /// Return the code in the next 4 bytes (little endian).
    pub const CODE: u8 = 6;
    /// Be busy for as many iterations as the next 8 bytes say (little endian), then reply.
    pub const BUSY: u8 = 7;
    /// Call itself until the stack is used up.
    pub const RECURSE: u8 = 8;
    /// Write 1 KiB under new keys of the hash collection `items` until it is refused, then commit.
    pub const WRITES: u8 = 9;
}

/// Status of the reply to an unknown request.
pub const STATUS_MALFORMED: u32 = 1;

/// Bytes of a step of [`fault::ALLOCATE`].
const STEP_BYTES: usize = 1 << 20;

/// Misbehaves.
#[derive(Debug)]
pub struct Misbehave {
    attempts: Option<Counter>,
    next: Option<Channel>,
}

impl Service for Misbehave {
    fn init() -> Result<Self, Error> {
        Ok(Self {
            attempts: Counter::open("attempts").ok(),
            next: Channel::open("next").ok(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        if let Some(attempts) = &self.attempts {
            attempts.fetch_add(b"attempts", 1);
        }
        let Some((&kind, rest)) = request.payload().split_first() else {
            return reply(STATUS_MALFORMED, b"payload: is empty");
        };
        match kind {
            fault::NONE => reply(0, request.payload()),
            fault::TRAP => panic!("told to trap"),
            fault::LOOP => loop {
                black_box(());
            },
            fault::ALLOCATE => {
                let mut hoard = Vec::new();
                loop {
                    hoard.push(black_box(alloc::vec![1_u8; STEP_BYTES]));
                }
            }
            fault::GROW => reply(u32::from(grow()), &[]),
            fault::OUTPUTS => {
                self.flood(request.payload());
                Ok(())
            }
            fault::CODE => Err(Error::Code(number(rest) as i32)),
            fault::BUSY => {
                let mut sum = 0_u64;
                for n in 0..number(rest) {
                    sum = black_box(sum.wrapping_add(n));
                }
                reply(0, &sum.to_le_bytes())
            }
            fault::RECURSE => reply(0, &recurse(number(rest) | 1 << 40).to_le_bytes()),
            fault::WRITES => {
                let items = HashMap::open("items")?;
                let mut n = 0_u64;
                while items.put(&n.to_le_bytes(), &[1; 1024]).is_ok() {
                    n += 1;
                }
                Ok(())
            }
            _ => reply(STATUS_MALFORMED, b"payload: unknown fault"),
        }
    }
}

impl Misbehave {
    fn flood(&self, payload: &[u8]) {
        loop {
            let refused = match &self.next {
                Some(next) => next.send(b"k", payload).is_err(),
                None => reply(0, payload).is_err(),
            };
            if refused {
                return;
            }
        }
    }
}

/// True if the host let the memory grow to 4 GB.
fn grow() -> bool {
    #[cfg(target_arch = "wasm32")]
    {
        let pages = core::arch::wasm32::memory_size::<0>();
        core::arch::wasm32::memory_grow::<0>(65_536 - pages) != usize::MAX
    }
    #[cfg(not(target_arch = "wasm32"))]
    false
}

fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 64]);
    if depth == 0 {
        return 0;
    }
    recurse(depth - 1).wrapping_add(frame[0])
}

/// A little-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .take(8)
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

e3_sdk::service!(Misbehave, request_capacity = 2048);

#[cfg(test)]
mod tests {
    use super::*;
    use e3_sdk::testing::{Call, Host, Kind, Outcome};

    fn call(payload: &[u8]) -> Outcome {
        let host = Host::new()
            .collection("attempts", Kind::Counter)
            .collection("items", Kind::Hash);
        let mut service = Misbehave::init().unwrap();
        let call = Call {
            payload: payload.to_vec(),
            ..Call::default()
        };
        host.call(&mut service, &call)
    }

    // The rest of the faults ends the process natively; the engine's tests have them.
    #[test]
    fn does_what_it_is_told() {
        assert_eq!(call(&[fault::NONE]).replies, [(0, [fault::NONE].to_vec())]);
        assert_eq!(call(&[fault::CODE, 7, 0, 0, 0]).result, Err(Error::Code(7)));
        assert_eq!(
            call(&[fault::BUSY, 4]).replies,
            [(0, 6_u64.to_le_bytes().to_vec())]
        );
        assert!(call(&[fault::OUTPUTS]).replies.len() > 1);
        assert_eq!(call(&[fault::WRITES]).result, Ok(()));
        assert_eq!(call(&[]).replies[0].0, STATUS_MALFORMED);
        assert_eq!(call(&[99]).replies[0].0, STATUS_MALFORMED);
    }

    #[test]
    #[should_panic(expected = "told to trap")]
    fn traps() {
        call(&[fault::TRAP]);
    }
}
