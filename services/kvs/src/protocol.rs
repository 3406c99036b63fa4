//! The memcached text protocol (protocol.txt of memcached, "Commands"): bytes to commands.

use crate::limits::{KEY_BYTES_MAX, RELATIVE_S_MAX};
use memchr::memchr;

/// How an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// In any case.
    Set,
    /// If there is none of that key.
    Add,
    /// If there is one.
    Replace,
    /// Behind the data that is there.
    Append,
    /// Before the data that is there.
    Prepend,
    /// If it is still the version that the client saw.
    Cas(u64),
}

/// A command. Keys are 1 to 250 bytes without space or line end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`; with a time also `gat`, `gats`.
    Get {
        /// Keys, separated by spaces.
        keys: &'a [u8],
        /// Whether the answer has the versions.
        versions: bool,
        /// New expiry of the items.
        touch: Option<i64>,
    },
    /// The storage commands.
    Store {
        /// How.
        verb: Verb,
        /// Key.
        key: &'a [u8],
        /// The client's flags.
        flags: u32,
        /// Expiry as it was sent.
        exptime: i64,
        /// Data.
        data: &'a [u8],
    },
    /// `delete`.
    Delete(&'a [u8]),
    /// `incr`, `decr`.
    Add {
        /// Key.
        key: &'a [u8],
        /// How much.
        delta: u64,
        /// Whether it is taken off.
        down: bool,
    },
    /// `touch`.
    Touch(&'a [u8], i64),
    /// `version`.
    Version,
    /// `verbosity`: taken, without effect.
    Verbosity,
    /// `quit`: nothing to close here.
    Quit,
    /// `flush_all`.
    FlushAll,
}

/// Answers to what is no command.
pub mod fault {
    /// No command of this name, or not so many words.
    pub const ERROR: &str = "ERROR\r\n";
    /// Words that do not fit the command.
    pub const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
    /// Data that does not end where it was said to.
    pub const DATA: &str = "CLIENT_ERROR bad data chunk\r\n";
    /// `incr`, `decr`.
    pub const DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
    /// `touch`, `gat`.
    pub const EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
    /// `delete` with a time.
    pub const DELETE: &str =
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
}

/// A command, and whether it wants an answer; or the answer to what is none.
pub type Parsed<'a> = Result<(Command<'a>, bool), &'static str>;

/// Takes the next command off the front of `rest`; `None` at the end.
pub fn next<'a>(rest: &mut &'a [u8]) -> Option<Parsed<'a>> {
    if rest.is_empty() {
        return None;
    }
    let end = memchr(b'\n', rest);
    let (line, after) = match end {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        // all of the request is there: the rest of the line will never come
        None => {
            *rest = &[];
            return Some(Err(fault::ERROR));
        }
    };
    *rest = after;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Some(parse(line, rest))
}

fn parse<'a>(line: &'a [u8], rest: &mut &'a [u8]) -> Parsed<'a> {
    let mut words = words(line);
    let name = words.next().unwrap_or_default();
    let args: Args<'a> = {
        let mut args = Args::default();
        for word in words {
            // further words count, but are not looked at
            if let Some(place) = args.words.get_mut(args.count) {
                *place = word;
            }
            args.count += 1;
        }
        args
    };
    let quiet =
        (1..=args.words.len()).contains(&args.count) && args.words[args.count - 1] == b"noreply";
    let count = args.count - usize::from(quiet);
    let [a, b, c, d, e, _] = args.words;
    let command = match name {
        b"get" | b"gets" => get(line, name == b"gets", None)?,
        b"gat" | b"gats" => {
            let exptime = number(a).ok_or(fault::EXPTIME);
            match args.count {
                0 | 1 => return Err(fault::ERROR),
                _ => get(line, name == b"gats", Some(exptime?))?,
            }
        }
        b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas" => {
            if count != 4 + usize::from(name == b"cas") {
                return Err(fault::ERROR);
            }
            let verb = match name {
                b"set" => Some(Verb::Set),
                b"add" => Some(Verb::Add),
                b"replace" => Some(Verb::Replace),
                b"append" => Some(Verb::Append),
                b"prepend" => Some(Verb::Prepend),
                _ => number(e).map(Verb::Cas),
            };
            let key = key(a)?;
            let parsed = (verb, number(b), number(c), number::<usize>(d));
            let (Some(verb), Some(flags), Some(exptime), Some(len)) = parsed else {
                return Err(fault::FORMAT);
            };
            let data = data(len, rest)?;
            Command::Store {
                verb,
                key,
                flags,
                exptime,
                data,
            }
        }
        b"delete" => match (count, b) {
            (1, _) | (2, b"0") => Command::Delete(key(a)?),
            (0, _) => return Err(fault::ERROR),
            _ => return Err(fault::DELETE),
        },
        b"incr" | b"decr" if count == 2 => Command::Add {
            key: key(a)?,
            delta: number(b).ok_or(fault::DELTA)?,
            down: name == b"decr",
        },
        b"touch" if count == 2 => Command::Touch(key(a)?, number(b).ok_or(fault::EXPTIME)?),
        b"version" => Command::Version,
        b"verbosity" => Command::Verbosity,
        b"quit" => Command::Quit,
        b"flush_all" => Command::FlushAll,
        _ => return Err(fault::ERROR),
    };
    let quiet = (quiet && !matches!(command, Command::Get { .. } | Command::Version))
        || command == Command::Quit;
    Ok((command, !quiet))
}

/// The words after a command's name.
#[derive(Default)]
struct Args<'a> {
    words: [&'a [u8]; 6],
    count: usize,
}

/// Words, separated by spaces.
pub fn words(line: &[u8]) -> Words<'_> {
    Words { rest: line }
}

/// See [`words`].
pub struct Words<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = memchr(b' ', self.rest).unwrap_or(self.rest.len());
            let (word, after) = self.rest.split_at(end);
            self.rest = after.get(1..).unwrap_or_default();
            if !word.is_empty() {
                return Some(word);
            }
        }
        None
    }
}

fn get(line: &[u8], versions: bool, touch: Option<i64>) -> Result<Command<'_>, &'static str> {
    // the words before the keys: the name, and the time if there is one
    let mut words_before = words(line);
    for _ in 0..1 + usize::from(touch.is_some()) {
        words_before.next();
    }
    let keys = words_before.rest;
    if words(keys).next().is_none() {
        return Err(fault::ERROR);
    }
    words(keys).try_for_each(|k| key(k).map(drop))?;
    Ok(Command::Get {
        keys,
        versions,
        touch,
    })
}

fn key(word: &[u8]) -> Result<&[u8], &'static str> {
    match (1..=KEY_BYTES_MAX).contains(&word.len()) {
        true => Ok(word),
        false => Err(fault::FORMAT),
    }
}

/// A decimal number.
pub fn number<T: core::str::FromStr>(word: &[u8]) -> Option<T> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

/// Takes `len` bytes and the line end behind them off the front.
fn data<'a>(len: usize, rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let Some((data, after)) = rest.split_at_checked(len) else {
        *rest = &[];
        return Err(fault::DATA);
    };
    match after {
        [b'\r', b'\n', after @ ..] => {
            *rest = after;
            Ok(data)
        }
        // as memcached does, skip what was announced and two bytes more
        _ => {
            *rest = after.get(2..).unwrap_or_default();
            Err(fault::DATA)
        }
    }
}

/// When an item expires, in nanoseconds since the Unix epoch: 0 = never.
pub fn expires(exptime: i64, now: i64) -> i64 {
    const NANOS: i64 = 1_000_000_000;
    match exptime {
        0 => 0,
        ..0 => 1,
        1..=RELATIVE_S_MAX => now.saturating_add(exptime * NANOS),
        _ => exptime.saturating_mul(NANOS),
    }
}
