//! The memcached text protocol (protocol.txt of memcached, "Commands"): bytes to commands.

use crate::limits::{KEY_BYTES_MAX, RELATIVE_S_MAX};
use memchr::memchr;

/// How an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Always.
    Set,
    /// If the key has no item.
    Add,
    /// If the key has an item.
    Replace,
    /// Appended to the data.
    Append,
    /// Prepended to the data.
    Prepend,
    /// If the item still has the version that the client read.
    Cas(u64),
}

/// A command. Keys are 1 to 250 bytes without space or line end; those of `get` are not checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `get`, `gets`; with a time also `gat`, `gats`.
    Get {
        /// Keys, separated by spaces.
        keys: &'a [u8],
        /// Whether the reply has the versions.
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
        /// Whether it is subtracted.
        down: bool,
    },
    /// `touch`.
    Touch(&'a [u8], i64),
    /// `version`.
    Version,
    /// `verbosity`: accepted, without effect.
    Verbosity,
    /// `quit`: the rest of the request is not executed.
    Quit,
    /// `flush_all`.
    FlushAll,
}

/// Replies to invalid commands.
pub mod error {
    /// No command of this name, or a wrong number of words.
    pub const ERROR: &str = "ERROR\r\n";
    /// Words that do not fit the command.
    pub const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
    /// Data that does not end where the command says.
    pub const DATA: &str = "CLIENT_ERROR bad data chunk\r\n";
    /// `incr`, `decr`.
    pub const DELTA: &str = "CLIENT_ERROR invalid numeric delta argument\r\n";
    /// `touch`, `gat`, `flush_all`.
    pub const EXPTIME: &str = "CLIENT_ERROR invalid exptime argument\r\n";
    /// `delete` with a time.
    pub const DELETE: &str =
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
}

/// The result of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The command, or the reply to an invalid line.
    pub command: Result<Command<'a>, &'static str>,
    /// Whether the client asked for no reply. It then gets none for an error either, unless the
    /// number of words is wrong, as in memcached.
    pub quiet: bool,
}

/// Takes the next command off the front of `rest`; `None` at the end.
pub fn next<'a>(rest: &mut &'a [u8]) -> Option<Parsed<'a>> {
    if rest.is_empty() {
        return None;
    }
    let Some(end) = memchr(b'\n', rest) else {
        // the request is complete: the rest of the line will never arrive
        *rest = &[];
        return Some(Parsed {
            command: Err(error::ERROR),
            quiet: false,
        });
    };
    let (line, after) = (&rest[..end], &rest[end + 1..]);
    *rest = after;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // memcached reads lines as C strings
    let line = memchr(0, line).map_or(line, |end| &line[..end]);
    let mut quiet = false;
    let command = parse(line, rest, &mut quiet);
    Some(Parsed { command, quiet })
}

fn parse<'a>(
    line: &'a [u8],
    rest: &mut &'a [u8],
    quiet: &mut bool,
) -> Result<Command<'a>, &'static str> {
    let mut words = words(line);
    let name = words.next().unwrap_or_default();
    let Some(command) = Name::of(name) else {
        return Err(error::ERROR);
    };
    if let Name::Get { versions, touch } = command {
        return get(words, versions, touch);
    }
    let mut args = [&b""[..]; ARGS_MAX];
    let mut count = 0;
    for word in words {
        // further words are counted, but not read
        if let Some(place) = args.get_mut(count) {
            *place = word;
        }
        count += 1;
    }
    let (min, max) = command.words();
    if !(min..=max).contains(&count) {
        return Err(error::ERROR);
    }
    // whatever other word it is
    *quiet = command.may_be_quiet() && args[..count].last() == Some(&&b"noreply"[..]);
    let [a, b, ..] = args;
    match command {
        Name::Store(verb) => store(verb, args, rest),
        Name::Delete => {
            let valid = match count {
                1 => true,
                2 => b == b"0" || *quiet,
                _ => b == b"0" && *quiet,
            };
            *quiet &= count > 1;
            if valid {
                key(a).map(Command::Delete)
            } else {
                Err(error::DELETE)
            }
        }
        Name::Add { down } => Ok(Command::Add {
            key: key(a)?,
            delta: unsigned(b).ok_or(error::DELTA)?,
            down,
        }),
        Name::Touch => Ok(Command::Touch(key(a)?, signed(b).ok_or(error::EXPTIME)?)),
        Name::Version => Ok(Command::Version),
        Name::Verbosity => match unsigned(a) {
            Some(_) => Ok(Command::Verbosity),
            None => Err(error::FORMAT),
        },
        Name::Quit => {
            *rest = &[];
            Ok(Command::Quit)
        }
        Name::FlushAll => {
            if count == usize::from(*quiet) || signed(a).is_some() {
                Ok(Command::FlushAll)
            } else {
                Err(error::EXPTIME)
            }
        }
        Name::Get { .. } => Err(error::ERROR),
    }
}

/// A command that stores the data after its line.
fn store<'a>(
    verb: Verb,
    [a, b, c, d, e, _]: [&'a [u8]; ARGS_MAX],
    rest: &mut &'a [u8],
) -> Result<Command<'a>, &'static str> {
    let verb = match verb {
        Verb::Cas(_) => unsigned(e).map(Verb::Cas),
        verb => Some(verb),
    };
    let key = key(a)?;
    let flags = unsigned(b).and_then(|n| u32::try_from(n).ok());
    let len = signed(d).filter(|len| (0..=DATA_LEN_MAX).contains(len));
    let (Some(verb), Some(flags), Some(exptime), Some(len)) = (verb, flags, signed(c), len) else {
        return Err(error::FORMAT);
    };
    Ok(Command::Store {
        verb,
        key,
        flags,
        exptime,
        data: data(len as usize, rest)?,
    })
}

/// Words after the name of a command that are read.
const ARGS_MAX: usize = 6;
/// Longest data that memcached reads on for: 2^31 - 1 with its line end, and less than that.
const DATA_LEN_MAX: i64 = i32::MAX as i64 - 3;

/// A command by its name.
#[derive(Clone, Copy)]
enum Name {
    Get { versions: bool, touch: bool },
    Store(Verb),
    Delete,
    Add { down: bool },
    Touch,
    Version,
    Verbosity,
    Quit,
    FlushAll,
}

impl Name {
    fn of(name: &[u8]) -> Option<Name> {
        let get = |versions, touch| Name::Get { versions, touch };
        Some(match name {
            b"get" => get(false, false),
            b"gets" => get(true, false),
            b"gat" => get(false, true),
            b"gats" => get(true, true),
            b"set" => Name::Store(Verb::Set),
            b"add" => Name::Store(Verb::Add),
            b"replace" => Name::Store(Verb::Replace),
            b"append" => Name::Store(Verb::Append),
            b"prepend" => Name::Store(Verb::Prepend),
            b"cas" => Name::Store(Verb::Cas(0)),
            b"delete" => Name::Delete,
            b"incr" => Name::Add { down: false },
            b"decr" => Name::Add { down: true },
            b"touch" => Name::Touch,
            b"version" => Name::Version,
            b"verbosity" => Name::Verbosity,
            b"quit" => Name::Quit,
            b"flush_all" => Name::FlushAll,
            _ => return None,
        })
    }

    /// Least and most words after the name. One more than a command needs is `noreply`; memcached
    /// accepts any other word in its place and reads none.
    fn words(self) -> (usize, usize) {
        match self {
            Name::Get { .. } => (1, usize::MAX),
            Name::Store(Verb::Cas(_)) => (5, 6),
            Name::Store(_) => (4, 5),
            Name::Delete => (1, 3),
            Name::Add { .. } | Name::Touch => (2, 3),
            Name::Verbosity => (1, 2),
            Name::FlushAll => (0, 2),
            Name::Version | Name::Quit => (0, usize::MAX),
        }
    }

    fn may_be_quiet(self) -> bool {
        !matches!(self, Name::Get { .. } | Name::Version | Name::Quit)
    }
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

fn get(mut words: Words<'_>, versions: bool, touch: bool) -> Result<Command<'_>, &'static str> {
    let keys = words.rest;
    let first = words.next().ok_or(error::ERROR)?;
    let (keys, touch) = if touch {
        (words.rest, Some(signed(first).ok_or(error::EXPTIME)?))
    } else {
        (keys, None)
    };
    Ok(Command::Get {
        keys,
        versions,
        touch,
    })
}

/// A word as a key.
pub fn key(word: &[u8]) -> Result<&[u8], &'static str> {
    if (1..=KEY_BYTES_MAX).contains(&word.len()) {
        Ok(word)
    } else {
        Err(error::FORMAT)
    }
}

/// A number as C's `strtoull` reads it and memcached takes it: blanks, a sign and digits, then the
/// end or a blank. `-n` is 2^64 - n, and none if that is 2^63 or more.
pub fn unsigned(word: &[u8]) -> Option<u64> {
    let (negative, magnitude) = number(word)?;
    if negative {
        Some(magnitude.wrapping_neg()).filter(|n| (*n as i64) >= 0)
    } else {
        Some(magnitude)
    }
}

/// The same as C's `strtol` reads it.
pub fn signed(word: &[u8]) -> Option<i64> {
    let (negative, magnitude) = number(word)?;
    if negative {
        0i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    }
}

fn number(word: &[u8]) -> Option<(bool, u64)> {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
    let start = word.iter().position(|b| !is_blank(b))?;
    let (negative, digits) = match &word[start..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let len = digits.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, after) = digits.split_at(len);
    let ends = after.first().is_none_or(|b| is_blank(b) || *b == 0);
    if digits.is_empty() || !ends {
        return None;
    }
    let step = |n: u64, digit: &u8| n.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let magnitude = digits.iter().try_fold(0, step)?;
    Some((negative, magnitude))
}

/// Takes `len` bytes and the line end behind them off the front.
fn data<'a>(len: usize, rest: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let Some((data, after)) = rest.split_at_checked(len) else {
        *rest = &[];
        return Err(error::DATA);
    };
    match after {
        [b'\r', b'\n', after @ ..] => {
            *rest = after;
            Ok(data)
        }
        // as memcached does, skip what was announced and two bytes more
        _ => {
            *rest = after.get(2..).unwrap_or_default();
            Err(error::DATA)
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
