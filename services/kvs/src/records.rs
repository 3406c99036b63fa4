//! The record form: commands in a pipeline.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

use e3_pipeline::{Query, Record, RecordError, Value, status};
use e3_sdk::{Error, Request, now, reply};

use crate::Kvs;
use crate::limits::{
    ANSWER_BYTES_MAX, DATA_BYTES_MAX, EFFECTS_BYTES_MAX, KEY_BYTES_MAX, LARGE_BYTES,
    REPLY_BYTES_MAX,
};
use crate::protocol::{Verb, expires};
use crate::store::Outcome;

impl Kvs {
    pub(crate) fn on_record(
        &mut self,
        request: &Request<'_>,
        record: &Record<'_>,
    ) -> Result<(), Error> {
        let (op, answers) = match self.stage.query(request, record)? {
            Query::Forwarded => return Ok(()),
            Query::Mine(op) => (Some(op), true),
            Query::None => (None, false),
        };
        let parsed = match self.read(op, record) {
            Ok(parsed) => parsed,
            Err(error) => return self.stage.refuse(&error),
        };
        let key = &*parsed.key;
        if let Err(why) = self.begin_result(record, &parsed, answers)? {
            return reply(status::REFUSED, why.as_bytes());
        }
        // what is added when the command is executed: the number and `done`
        let more = match parsed.op {
            Op::Get | Op::Swap => 0,
            _ => self.result.len() + ANSWER_BYTES_MAX,
        };
        let len = self.out.bytes().len() + more;
        self.store.outputs = if answers {
            len
        } else {
            self.stage.output_bytes(request, len)
        };
        if len > REPLY_BYTES_MAX || self.store.outputs > EFFECTS_BYTES_MAX {
            let outputs = self.store.outputs;
            let why = format!(
                "record: the result has {len} bytes, {outputs} with all its copies, must have at \
                 most {REPLY_BYTES_MAX} and {EFFECTS_BYTES_MAX}"
            );
            return reply(status::REFUSED, why.as_bytes());
        }
        let (expires, value) = (parsed.expires, &*parsed.value);
        let outcome = match parsed.op {
            Op::Get => Outcome::Done,
            Op::Swap => self.store.store(Verb::Set, key, 0, expires, value)?,
            Op::Store(verb) => self.store.store(verb, key, 0, expires, value)?,
            Op::Delete => self.store.delete(key)?,
            Op::Add { down } => self.store.add(key, parsed.delta, down, false)?,
            Op::Touch => self.store.touch(key, expires)?,
        };
        let done = match outcome {
            Outcome::Done | Outcome::Number(_) => true,
            Outcome::NotStored | Outcome::Exists | Outcome::NotFound => false,
            Outcome::NoNumber => {
                let why = "item: is not a 64-bit number";
                return reply(status::REFUSED, why.as_bytes());
            }
            Outcome::TooLarge => {
                let why = format!("item: its data would exceed {DATA_BYTES_MAX} bytes");
                return reply(status::REFUSED, why.as_bytes());
            }
            Outcome::NoRoom => {
                let why = format!(
                    "record: what it stores and the result of {len} bytes together exceed \
                     {EFFECTS_BYTES_MAX} bytes"
                );
                return reply(status::REFUSED, why.as_bytes());
            }
        };
        if let Outcome::Number(value) = outcome {
            self.out.field(&self.result, Value::Int(value as i64));
        }
        if !matches!(parsed.op, Op::Get | Op::Swap) {
            self.out.field("done", Value::Bool(done));
        }
        if answers {
            reply(status::OK, self.out.bytes())
        } else {
            self.stage.forward_record(request, &mut self.out)
        }
    }

    /// Writes the record as far as it is known before anything is stored: without `done`, but after
    /// `get` and `swap` all of it. The inner error is why it cannot.
    fn begin_result(
        &mut self,
        record: &Record<'_>,
        parsed: &Parsed<'_>,
        answers: bool,
    ) -> Result<Result<(), String>, Error> {
        let out = self.out.clear();
        let mut without = alloc::vec!["done"];
        // the sender knows the value, but downstream services may not
        if (answers || self.stage.is_last()) && parsed.value.len() > LARGE_BYTES {
            match &self.fields {
                Some(fields) => without.extend(fields.names()),
                None => without.push(&self.value),
            }
        }
        match parsed.op {
            Op::Get | Op::Swap => without.push("version"),
            Op::Add { .. } => without.push(&self.result),
            _ => {}
        }
        if !matches!(parsed.op, Op::Get | Op::Swap) {
            out.copy(record, &without);
            return Ok(Ok(()));
        }
        match &self.fields {
            Some(fields) => without.extend(fields.results()),
            None => without.push(&self.result),
        }
        out.copy(record, &without);
        let Some(item) = self.store.get(&parsed.key)? else {
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
        Ok(Ok(()))
    }

    fn read<'a>(&self, op: Option<&str>, record: &Record<'a>) -> Result<Parsed<'a>, RecordError> {
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
            return Err(RecordError::value(&self.key, why));
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
                return Err(RecordError::value(&self.op, why));
            }
        };
        let counts = matches!(
            parsed.op,
            Op::Store(Verb::Append | Verb::Prepend) | Op::Add { .. }
        );
        if counts && self.fields.is_some() {
            let why = format!("is {op:?}, not supported for items that are records");
            return Err(RecordError::value(&self.op, why));
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
                    RecordError::value(&self.value, format!("is {delta}, must be at least 0"))
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
fn bytes<'a>(record: &Record<'a>, field: &str) -> Result<Cow<'a, [u8]>, RecordError> {
    match record.bytes(field) {
        Ok(bytes) => Ok(Cow::Borrowed(bytes)),
        Err(error @ RecordError::Type { .. }) => match record.int(field) {
            Ok(int) => Ok(Cow::Owned(format!("{int}").into_bytes())),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}
