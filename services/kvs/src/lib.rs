//! A key-value store with the semantics of memcached and two forms of requests.
//!
//! *Text protocol* (memcached's protocol.txt): the payload is one or more commands as a client writes
//! them to a socket, the reply is what memcached would answer, byte for byte: `get gets gat gats set
//! add replace append prepend cas delete incr decr touch version verbosity quit`, with `noreply`.
//! `checks/test_memcached.py` compares the replies with those of a real memcached. The differences:
//!
//! - `flush_all` is answered with `SERVER_ERROR`, since a shard holds only some of the keys.
//! - The meta commands (`mg`, `ms`, ...), `stats` and other commands that manage a server are unknown:
//!   `ERROR`. `version` names e3.
//! - A command must be complete within its request. A line without an end is an `ERROR`, data without its
//!   end a bad data chunk, and an empty request is an `ERROR`. After `quit` the rest of the request is
//!   ignored, but there is no connection to close.
//! - The bounds below, where `append` and `prepend` answer `SERVER_ERROR object too large for cache`
//!   and memcached `NOT_STORED`.
//! - Flags and lengths beyond 32 bits are a `CLIENT_ERROR`, expiry times beyond 32 bits are valid;
//!   memcached drops the high bits of all three.
//! - A request whose first byte is 0xa0 to 0xbf is a record.
//! - Some of memcached's replies depend on its memory or on what it is still sending: it then does not
//!   pad a number, reads beyond data of blanks, and drops the replies before a `get` with a long key.
//!
//! The status of the reply is OK if at least one command was executed (also if it found nothing).
//! Otherwise it is that of the first error: MALFORMED for `ERROR` and `CLIENT_ERROR`, REFUSED for
//! `SERVER_ERROR`, and nothing has changed, except that a `set` of too much data removes the item.
//!
//! *Record*, for use in a pipeline: `key` (text, bytes or a whole number, taken as decimal),
//! `value` (the same; for `incr` and `decr` a whole number, default 1), `ttl_s` (seconds, default 0 =
//! never expires), `version` (for `cas`). A record with the field `op` (`get set swap add replace append
//! prepend cas delete incr decr touch`) is a query: this service answers it, or forwards it to the service
//! that it names ([`Stage::query`]). Other records are handled by config `default-op` (default `get`), or
//! by the field that config `op` names, and are forwarded. The result has `done`: whether the command found
//! what it needs and took effect; after `get` also `value` (text if it is UTF-8, else bytes) and `version`,
//! after `incr` and `decr` `value` as a whole number. `swap` reads the item as `get` does, then sets it. The
//! reply to a command that stores omits a `value` of more than 16 KiB. Config `key`, `value` and `result`
//! (default: as `value`) name the fields.
//!
//! With config `fields` (at most 16 names, separated by commas) an item is a record instead of a value: the
//! commands that store keep those of the fields, of any type, that the request has (at least one), and
//! `get` and `swap` add each of them under its name behind config `prefix` (default `last_`). So
//! `default-op: swap` adds to every record the previous values of its key. Such items do not support
//! `append`, `prepend`, `incr` and `decr`.
//!
//! *Keys and shards*: the key of a command may be any. An item belongs to the slot of the routing key of
//! its request, and only requests of the same slot find it. So route each command by the command's key
//! (for a `get` of many keys: one request each), or route related items by one common key, such as the name
//! of a namespace.
//!
//! *Bounds*: keys 250 bytes, data 32,256 bytes, writes of a request together 40 KiB, writes with reply
//! and messages together 55 KiB. A command that exceeds them is answered with `SERVER_ERROR`; the other
//! commands of its request are executed. A record that exceeds them is refused and changes nothing, for
//! example a `swap` of two long values, or a long value that is both stored and forwarded.
//!
//! Collections: hash map `items` ([`store`]), counter `versions` (slot -> versions used), ordered map
//! `expiries` (slot, expiry, key). No command finds an expired item; expired items are removed, four at a
//! time, when an item with an expiry is stored in their slot.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod fields;
pub mod limits;
pub mod protocol;
mod records;
pub mod store;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;

use e3_pipeline::{Builder, Record, Stage, status};
use e3_sdk::{Error, Request, Service, config, now, reply};
use fields::Fields;
use limits::{EFFECTS_BYTES_MAX, REPLY_BYTES_MAX};
use protocol::{Command, expires};
use store::{Outcome, Store};

/// The service.
#[derive(Debug)]
pub struct Kvs {
    stage: Stage,
    op: String,
    default_op: String,
    key: String,
    value: String,
    result: String,
    fields: Option<Fields>,
    store: Store,
    reply: Vec<u8>,
    out: Builder,
}

impl Service for Kvs {
    fn init() -> Result<Self, Error> {
        let name = |name, default: &str| config(name).unwrap_or_else(|| default.into());
        let value = name("value", "value");
        Ok(Self {
            stage: Stage::open()?,
            op: name("op", "op"),
            default_op: name("default-op", "get"),
            key: name("key", "key"),
            result: name("result", &value),
            value,
            fields: Fields::open()?,
            store: Store::open()?,
            reply: Vec::new(),
            out: Builder::new(),
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        self.store.begin(request.slot(), now());
        match request.payload() {
            // the head of a CBOR map; no command begins with it
            payload @ [0xa0..=0xbf, ..] => match Record::parse(payload) {
                Ok(record) => self.on_record(request, &record),
                Err(error) => self.stage.refuse(&error),
            },
            text => self.on_text(text),
        }
    }
}

const NO_ROOM: &str = "SERVER_ERROR out of memory storing object\r\n";

impl Kvs {
    fn on_text(&mut self, mut rest: &[u8]) -> Result<(), Error> {
        self.reply.clear();
        let mut executed = false;
        let mut error = None;
        if rest.is_empty() {
            rest = b"\n";
        }
        while let Some(parsed) = protocol::next(&mut rest) {
            self.store.outputs = self.reply.len() + limits::ANSWER_BYTES_MAX;
            if self.store.outputs > REPLY_BYTES_MAX
                || self.store.outputs + self.store.spent > EFFECTS_BYTES_MAX
            {
                let full = b"SERVER_ERROR the reply is full, what follows is not done\r\n";
                self.reply.extend_from_slice(full);
                error = error.or(Some(status::REFUSED));
                break;
            }
            let start = self.reply.len();
            let done = match parsed.command {
                Ok(command) => self.execute(&command)?,
                Err(text) => {
                    self.reply.extend_from_slice(text.as_bytes());
                    Err(status::MALFORMED)
                }
            };
            match done {
                Ok(()) => executed = true,
                Err(status) => error = error.or(Some(status)),
            }
            if parsed.quiet {
                self.reply.truncate(start);
            }
        }
        let status = if executed {
            status::OK
        } else {
            error.unwrap_or(status::OK)
        };
        reply(status, &self.reply)
    }

    /// Executes a command and writes its reply; the inner error is the status of a refusal.
    fn execute(&mut self, command: &Command<'_>) -> Result<Result<(), u32>, Error> {
        let now = now();
        let (outcome, done) = match *command {
            Command::Get {
                keys,
                versions,
                touch,
            } => return self.on_get(keys, versions, touch),
            Command::Store {
                verb,
                key,
                flags,
                exptime,
                data,
            } => {
                let expires = expires(exptime, now);
                (
                    self.store.store(verb, key, flags, expires, data)?,
                    "STORED\r\n",
                )
            }
            Command::Delete(key) => (self.store.delete(key)?, "DELETED\r\n"),
            Command::Add { key, delta, down } => (self.store.add(key, delta, down, true)?, ""),
            Command::Touch(key, exptime) => {
                (self.store.touch(key, expires(exptime, now))?, "TOUCHED\r\n")
            }
            Command::Version => (
                Outcome::Done,
                concat!("VERSION e3-", env!("CARGO_PKG_VERSION"), "\r\n"),
            ),
            Command::Verbosity => (Outcome::Done, "OK\r\n"),
            Command::Quit => return Ok(Ok(())),
            Command::FlushAll => {
                let text = b"SERVER_ERROR flush_all: a shard holds only some of the keys\r\n";
                self.reply.extend_from_slice(text);
                return Ok(Err(status::REFUSED));
            }
        };
        let (text, done) = match outcome {
            Outcome::Done => (done, Ok(())),
            Outcome::NotStored => ("NOT_STORED\r\n", Ok(())),
            Outcome::Exists => ("EXISTS\r\n", Ok(())),
            Outcome::NotFound => ("NOT_FOUND\r\n", Ok(())),
            Outcome::Number(value) => {
                push_number(&mut self.reply, value);
                ("\r\n", Ok(()))
            }
            Outcome::NoNumber => (
                "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
                Err(status::MALFORMED),
            ),
            Outcome::TooLarge => (
                "SERVER_ERROR object too large for cache\r\n",
                Err(status::REFUSED),
            ),
            Outcome::NoRoom => (NO_ROOM, Err(status::REFUSED)),
        };
        self.reply.extend_from_slice(text.as_bytes());
        Ok(done)
    }

    fn on_get(
        &mut self,
        keys: &[u8],
        versions: bool,
        touch: Option<i64>,
    ) -> Result<Result<(), u32>, Error> {
        let start = self.reply.len();
        let mut touched = false;
        for key in protocol::words(keys) {
            if let Err(text) = protocol::key(key) {
                return Ok(self.drop_items(start, text, touched, status::MALFORMED));
            }
            let spent = self.store.spent;
            let Some(item) = self.store.get(key)? else {
                continue;
            };
            // the numbers of the line are counted with their longest form
            let bytes = key.len() + item.data.len() + 2 * limits::ANSWER_BYTES_MAX;
            if self.reply.len() + bytes > REPLY_BYTES_MAX
                || self.reply.len() + bytes + spent > EFFECTS_BYTES_MAX
            {
                let text = "SERVER_ERROR out of memory writing get response\r\n";
                return Ok(self.drop_items(start, text, touched, status::REFUSED));
            }
            let reply = &mut self.reply;
            reply.extend_from_slice(b"VALUE ");
            reply.extend_from_slice(key);
            let numbers = [item.flags.into(), item.data.len() as u64, item.version];
            for number in &numbers[..2 + usize::from(versions)] {
                reply.push(b' ');
                push_number(reply, *number);
            }
            for part in [b"\r\n", item.data, b"\r\n"] {
                reply.extend_from_slice(part);
            }
            let Some(exptime) = touch else {
                continue;
            };
            self.store.outputs = self.reply.len() + limits::ANSWER_BYTES_MAX;
            if self.store.touch(key, expires(exptime, now()))? == Outcome::NoRoom {
                return Ok(self.drop_items(start, NO_ROOM, touched, status::REFUSED));
            }
            touched = true;
        }
        self.reply.extend_from_slice(b"END\r\n");
        Ok(Ok(()))
    }

    /// Answers a `get` with an error instead of items. If it has touched an item, it counts as executed.
    fn drop_items(
        &mut self,
        start: usize,
        text: &str,
        touched: bool,
        status: u32,
    ) -> Result<(), u32> {
        self.reply.truncate(start);
        self.reply.extend_from_slice(text.as_bytes());
        if touched { Ok(()) } else { Err(status) }
    }
}

/// Appends a number in decimal.
fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

e3_sdk::service!(Kvs, request_capacity = 32768);
