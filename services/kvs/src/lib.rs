//! A key-value store with the semantics of memcached, in two forms of request.
//!
//! *Text protocol* (memcached's protocol.txt): the payload is one or more commands as a client would
//! write them to a socket, the reply is what memcached would answer, byte for byte: `get gets gat gats
//! set add replace append prepend cas delete incr decr touch version verbosity quit`, with `noreply`.
//! `flush_all` is refused, since a shard holds only some of the keys. A command must be whole within
//! its request: data that is cut off is a bad data chunk. The status of the reply is OK if at least
//! one command was carried out (also if it found nothing); else it is that of the first fault:
//! MALFORMED for `ERROR` and `CLIENT_ERROR`, REFUSED for `SERVER_ERROR`, and nothing has changed.
//!
//! *Record*, for use among other services: `key` (text, bytes or a whole number, taken as decimal),
//! `value` (the same; for `incr` and `decr` a whole number, default 1), `ttl_s` (seconds, default 0 =
//! never expires), `version` (for `cas`). A record with the field `op` (`get set swap add replace append
//! prepend cas delete incr decr touch`) is a command to this service and is answered, or goes on to
//! the one that it is for ([`Stage::question`]); one without is handled as config `default-op` (default
//! `get`) says, or its field of another name (config `op`), and goes on. The result has `done`:
//! whether the command found what it needs and did it; after `get` also `value` (text if it is UTF-8,
//! else bytes) and `version`, after `incr` and `decr` `value` as a whole number. `swap` reads as `get`
//! does what is there, then sets. Config `key`, `value` and `result` (default: as `value`) name the
//! fields.
//!
//! With config `fields` (at most 16 names, separated by commas) an item is no value but a record: the
//! commands that store keep together, of any type, those of the fields that the request has (at least
//! one), and `get` and `swap` add each of them under its name behind config `prefix` (default
//! `last_`). So `default-op: swap` adds to every record what the one before of its key said. Such items
//! cannot be appended to or counted up.
//!
//! *Keys and shards*: the key of a command may be any. An item belongs to the slot of the key that
//! its request was routed by, and only requests of the same slot find it. So route each command by the
//! command's key (many keys in one `get`: one request each), or everything that belongs together by
//! one key, as by the name of a namespace.
//!
//! *Bounds*: keys 250 bytes, data 32,256 bytes, writes of a request together 40 KiB (what is beyond:
//! `SERVER_ERROR`, the rest is carried out).
//!
//! Collections: hash map `items` (slot, key -> expiry, version, flags, data), counter `versions` (slot
//! -> versions given), ordered map `expiries` (slot, expiry, key). Expired items are not there for any
//! command; they are dropped, four at a time, when an item with an expiry is stored in their slot.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

pub mod fields;
pub mod limits;
pub mod protocol;
pub mod store;
#[cfg(test)]
mod tests;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use e3_sdk::{Error, Request, Service, config, now, reply};
use e3_stage::{Builder, Fault, Question, Record, Stage, Value, status};
use fields::Fields;
use limits::{DATA_BYTES_MAX, EFFECTS_BYTES_MAX, KEY_BYTES_MAX, REPLY_BYTES_MAX};
use protocol::{Command, Verb, expires};
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
            // the head of a CBOR map; no command begins so
            payload @ [0xa0..=0xbf, ..] => match Record::parse(payload) {
                Ok(record) => self.on_record(request, &record),
                Err(fault) => self.stage.refuse(&fault),
            },
            text => self.on_text(text),
        }
    }
}

const NO_ROOM: &str = "SERVER_ERROR out of memory storing object\r\n";

impl Kvs {
    fn on_text(&mut self, mut rest: &[u8]) -> Result<(), Error> {
        self.reply.clear();
        let mut carried_out = false;
        let mut fault = None;
        if rest.is_empty() {
            rest = b"\n";
        }
        while let Some(parsed) = protocol::next(&mut rest) {
            if self.reply.len() + limits::ANSWER_BYTES_MAX > REPLY_BYTES_MAX
                || self.reply.len() + self.store.spent > EFFECTS_BYTES_MAX
            {
                let full = b"SERVER_ERROR the reply is full, what follows is not done\r\n";
                self.reply.extend_from_slice(full);
                fault = fault.or(Some(status::REFUSED));
                break;
            }
            let start = self.reply.len();
            let (done, answers) = match parsed {
                Ok((command, answers)) => (self.carry_out(&command)?, answers),
                Err(text) => {
                    self.reply.extend_from_slice(text.as_bytes());
                    (Err(status::MALFORMED), true)
                }
            };
            match done {
                Ok(()) => carried_out = true,
                Err(status) => fault = fault.or(Some(status)),
            }
            if !answers {
                self.reply.truncate(start);
            }
        }
        let status = match carried_out {
            true => status::OK,
            false => fault.unwrap_or(status::OK),
        };
        reply(status, &self.reply)
    }

    /// Carries a command out and writes the answer; the inner error is the status of a refusal.
    fn carry_out(&mut self, command: &Command<'_>) -> Result<Result<(), u32>, Error> {
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
            Command::Add { key, delta, down } => (self.store.add(key, delta, down)?, ""),
            Command::Touch(key, exptime) => {
                (self.store.touch(key, expires(exptime, now))?, "TOUCHED\r\n")
            }
            Command::Version => (
                Outcome::Done,
                concat!("VERSION e3-", env!("CARGO_PKG_VERSION"), "\r\n"),
            ),
            Command::Verbosity => (Outcome::Done, "OK\r\n"),
            Command::Quit => (Outcome::Done, ""),
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
        // what has touched an item was carried out in part
        let refused = |touched| {
            if touched {
                Ok(())
            } else {
                Err(status::REFUSED)
            }
        };
        for key in protocol::words(keys) {
            let spent = self.store.spent;
            let Some(item) = self.store.get(key)? else {
                continue;
            };
            // the line's numbers are counted at their longest
            let bytes = key.len() + item.data.len() + 2 * limits::ANSWER_BYTES_MAX;
            if self.reply.len() + bytes > REPLY_BYTES_MAX
                || self.reply.len() + bytes + spent > EFFECTS_BYTES_MAX
            {
                let text = b"SERVER_ERROR out of memory writing get response\r\n";
                self.reply.truncate(start);
                self.reply.extend_from_slice(text);
                return Ok(refused(touched));
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
            if self.store.touch(key, expires(exptime, now()))? == Outcome::NoRoom {
                self.reply.truncate(start);
                self.reply.extend_from_slice(NO_ROOM.as_bytes());
                return Ok(refused(touched));
            }
            touched = true;
        }
        self.reply.extend_from_slice(b"END\r\n");
        Ok(Ok(()))
    }

    fn on_record(&mut self, request: &Request<'_>, record: &Record<'_>) -> Result<(), Error> {
        let (op, answers) = match self.stage.question(request, record)? {
            Question::PassedOn => return Ok(()),
            Question::Mine(op) => (Some(op), true),
            Question::None => (None, false),
        };
        let parsed = match self.read(op, record) {
            Ok(parsed) => parsed,
            Err(fault) => return self.stage.refuse(&fault),
        };
        let key = &*parsed.key;
        let outcome = match parsed.op {
            Op::Get | Op::Swap => {
                if let Err(why) = self.found(record, key)? {
                    return reply(status::REFUSED, why.as_bytes());
                }
                match parsed.op {
                    Op::Swap => {
                        let (expires, value) = (parsed.expires, &*parsed.value);
                        self.store.store(Verb::Set, key, 0, expires, value)?
                    }
                    _ => Outcome::Done,
                }
            }
            Op::Store(verb) => {
                let (expires, value) = (parsed.expires, &*parsed.value);
                self.store.store(verb, key, 0, expires, value)?
            }
            Op::Delete => self.store.delete(key)?,
            Op::Add { down } => self.store.add(key, parsed.delta, down)?,
            Op::Touch => self.store.touch(key, parsed.expires)?,
        };
        let out = &mut self.out;
        let done = match outcome {
            Outcome::Done | Outcome::Number(_) => true,
            Outcome::NotStored | Outcome::Exists | Outcome::NotFound => false,
            Outcome::NoNumber => {
                let why = "item: holds no number of 64 bits, cannot be counted up or down";
                return reply(status::REFUSED, why.as_bytes());
            }
            Outcome::TooLarge | Outcome::NoRoom => {
                let why = format!("item: its data would exceed {DATA_BYTES_MAX} bytes");
                return reply(status::REFUSED, why.as_bytes());
            }
        };
        match outcome {
            _ if matches!(parsed.op, Op::Get | Op::Swap) => {}
            Outcome::Number(value) => {
                out.clear()
                    .copy(record, &[&self.result, "done"])
                    .field(&self.result, Value::Int(value as i64))
                    .field("done", Value::Bool(done));
            }
            _ => {
                let out = out.clear().copy(record, &["done"]);
                out.field("done", Value::Bool(done));
            }
        }
        match answers {
            true => reply(status::OK, out.bytes()),
            false => self.stage.pass_record(request, out),
        }
    }

    /// Writes the record with what is there under the key; the inner error is why it cannot.
    fn found(&mut self, record: &Record<'_>, key: &[u8]) -> Result<Result<(), String>, Error> {
        let out = self.out.clear();
        let mut without = alloc::vec!["done", "version"];
        match &self.fields {
            Some(fields) => without.extend(fields.results()),
            None => without.push(&self.result),
        }
        out.copy(record, &without);
        let Some(item) = self.store.get(key)? else {
            out.field("done", Value::Bool(false));
            return Ok(Ok(()));
        };
        match (&self.fields, core::str::from_utf8(item.data)) {
            (Some(fields), _) => {
                if fields.read(item.data, out).is_none() {
                    return Ok(Err("item: is a value, not a record of fields".into()));
                }
            }
            (None, Ok(text)) => {
                out.field(&self.result, Value::Text(text));
            }
            (None, Err(_)) => {
                out.field(&self.result, Value::Bytes(item.data));
            }
        }
        out.field("version", Value::Int(item.version as i64))
            .field("done", Value::Bool(true));
        Ok(match out.bytes().len() > REPLY_BYTES_MAX {
            true => Err(format!(
                "record: and the item exceed a message of {REPLY_BYTES_MAX} bytes"
            )),
            false => Ok(()),
        })
    }

    fn read<'a>(&self, op: Option<&str>, record: &Record<'a>) -> Result<Parsed<'a>, Fault> {
        let op = match op {
            Some(op) => op,
            None if record.has(&self.op) => record.text(&self.op)?,
            None => &self.default_op,
        };
        let mut parsed = Parsed {
            op: Op::Get,
            key: bytes(record, &self.key)?,
            value: Cow::Borrowed(&[]),
            expires: 0,
            delta: 1,
        };
        if !(1..=KEY_BYTES_MAX).contains(&parsed.key.len()) {
            let why = format!(
                "has {} bytes, must be 1..={KEY_BYTES_MAX}",
                parsed.key.len()
            );
            return Err(Fault::value(&self.key, why));
        }
        parsed.op = match op {
            "get" => Op::Get,
            "swap" => Op::Swap,
            "set" => Op::Store(Verb::Set),
            "add" => Op::Store(Verb::Add),
            "replace" => Op::Store(Verb::Replace),
            "append" => Op::Store(Verb::Append),
            "prepend" => Op::Store(Verb::Prepend),
            "cas" => Op::Store(Verb::Cas(record.int("version")? as u64)),
            "delete" => Op::Delete,
            "incr" | "decr" => Op::Add { down: op == "decr" },
            "touch" => Op::Touch,
            _ => {
                let why = format!(
                    "is {op:?}, must be one of get, set, swap, add, replace, append, prepend, cas, delete, incr, decr, touch"
                );
                return Err(Fault::value(&self.op, why));
            }
        };
        let counts = matches!(
            parsed.op,
            Op::Store(Verb::Append | Verb::Prepend) | Op::Add { .. }
        );
        if counts && self.fields.is_some() {
            let why = format!("is {op:?}, but items here are records of fields");
            return Err(Fault::value(&self.op, why));
        }
        match parsed.op {
            Op::Store(_) | Op::Swap => {
                parsed.value = match &self.fields {
                    Some(fields) => Cow::Owned(fields.item(record)?),
                    None => bytes(record, &self.value)?,
                }
            }
            Op::Add { .. } if record.has(&self.value) => {
                let delta = record.int(&self.value)?;
                parsed.delta = u64::try_from(delta).map_err(|_| {
                    Fault::value(&self.value, format!("is {delta}, must be at least 0"))
                })?;
            }
            _ => {}
        }
        if record.has("ttl_s") {
            parsed.expires = expires(record.int("ttl_s")?, now());
        }
        Ok(parsed)
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

/// A record's request.
struct Parsed<'a> {
    op: Op,
    key: Cow<'a, [u8]>,
    value: Cow<'a, [u8]>,
    expires: i64,
    delta: u64,
}

#[derive(Clone, Copy)]
enum Op {
    Get,
    Swap,
    Store(Verb),
    Delete,
    Add { down: bool },
    Touch,
}

/// Bytes, text, or a whole number in decimal.
fn bytes<'a>(record: &Record<'a>, field: &str) -> Result<Cow<'a, [u8]>, Fault> {
    match record.bytes(field) {
        Ok(bytes) => Ok(Cow::Borrowed(bytes)),
        Err(fault @ Fault::Type { .. }) => match record.int(field) {
            Ok(int) => Ok(Cow::Owned(format!("{int}").into_bytes())),
            Err(_) => Err(fault),
        },
        Err(fault) => Err(fault),
    }
}

e3_sdk::service!(Kvs, request_capacity = 32768);
