//! Rules in a subset of Snort 2's syntax, one a line.
//!
//! ```text
//! alert tcp any any -> 10.0.0.0/8 [80,8000:8080] (msg:"shell"; content:"/bin/|73 68|"; nocase; offset:4; depth:100; sid:7;)
//! ```
//!
//! - Action: `alert`, or `drop`, whose packets are not forwarded. Protocol: `tcp`, `udp`, `icmp`, `ip`
//!   (any). Direction: `->`, or `<>` for both.
//! - Addresses: `any`, `A.B.C.D`, `A.B.C.D/BITS`; ports: `any`, `N`, `A:B`, `A:`, `:B`; each may be a
//!   list `[x,y]`, and `!` before an element or a list excludes it. No blanks within.
//! - Options: `msg:"text"`, `content:"text"` or `content:!"text"` (backslash before `"`, `;`, `:`, `|` and
//!   itself; between bars pairs of hexadecimal digits, with or without blanks: `|90C8 C0 ff|`). For the
//!   preceding content: `nocase`, `offset:N` (it begins at byte N of the payload or later) and `depth:N` (it
//!   ends within N bytes from there). `sid:N`, unique, is required. `rev`, `gid`, `priority`, `classtype`,
//!   `reference` and `metadata` are ignored. Any other option is an error.
//! - Blank lines and lines that begin with `#` are skipped.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use e3_packet::number::decimal;

/// Longest content in bytes.
pub const CONTENT_LEN_MAX: usize = 1024;
/// Contents of a rule.
pub const CONTENTS_MAX: usize = 32;
/// Bytes of a message.
pub const MSG_LEN_MAX: usize = 200;

/// The action of a rule on a matching packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is reported.
    Alert,
    /// It is reported and dropped.
    Drop,
}

/// Included elements, and excluded ones; no elements = all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set<T> {
    include: Vec<T>,
    exclude: Vec<T>,
}

impl<T> Set<T> {
    fn has(&self, holds: impl Fn(&T) -> bool) -> bool {
        (self.include.is_empty() || self.include.iter().any(&holds))
            && !self.exclude.iter().any(&holds)
    }
}

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    base: u32,
    mask: u32,
}

impl Set<Net> {
    /// Whether the set has the address.
    pub fn has_address(&self, address: Ipv4Addr) -> bool {
        self.has(|net| address.to_bits() & net.mask == net.base)
    }
}

/// Ports from the first to the last.
pub type Ports = (u16, u16);

impl Set<Ports> {
    /// Whether the set has the port; a packet without ports matches `any` only.
    pub fn has_port(&self, port: Option<u16>) -> bool {
        match port {
            Some(port) => self.has(|(first, last)| (*first..=*last).contains(&port)),
            None => self.include.is_empty() && self.exclude.is_empty(),
        }
    }
}

/// Bytes that must occur in the payload, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the case of ASCII letters is ignored.
    pub nocase: bool,
    /// Whether they must not occur.
    pub negated: bool,
    /// Least offset of the first byte.
    pub offset: usize,
    /// Bytes from there within which they must end; none = up to the end of the payload.
    pub depth: Option<usize>,
}

impl Content {
    /// Whether an occurrence with this end satisfies offset and depth.
    pub fn is_at(&self, end: usize) -> bool {
        end - self.bytes.len() >= self.offset
            && self.depth.is_none_or(|depth| end <= self.offset + depth)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The action.
    pub action: Action,
    /// Number of the protocol; none = any.
    pub protocol: Option<u8>,
    /// Source addresses.
    pub source: Set<Net>,
    /// Source ports.
    pub source_ports: Set<Ports>,
    /// Destination addresses.
    pub destination: Set<Net>,
    /// Destination ports.
    pub destination_ports: Set<Ports>,
    /// Whether source and destination may be exchanged.
    pub both_ways: bool,
    /// Its message.
    pub msg: String,
    /// Its contents.
    pub contents: Vec<Content>,
    /// Its number.
    pub sid: u32,
}

impl Rule {
    /// Reads a line; none if it has no rule.
    pub fn parse(line: &str) -> Result<Option<Rule>, String> {
        let whole = line;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(None);
        }
        let (header, options) = line.split_once('(').ok_or("must have options in ( )")?;
        let options = options.strip_suffix(')').ok_or("must end with )")?;
        let header: Vec<&str> = header.split_whitespace().collect();
        let [
            action,
            protocol,
            source,
            source_ports,
            direction,
            destination,
            destination_ports,
        ] = header[..]
        else {
            let is = header.len();
            return Err(format!(
                "has {is} words before (, must be 7: action, protocol, addresses, ports, direction, \
                 addresses, ports"
            ));
        };
        let mut rule = Rule {
            action: match action {
                "alert" => Action::Alert,
                "drop" => Action::Drop,
                _ => return Err(format!("action is {action:?}, must be alert or drop")),
            },
            protocol: match protocol {
                "icmp" => Some(1),
                "tcp" => Some(6),
                "udp" => Some(17),
                "ip" => None,
                _ => {
                    return Err(format!(
                        "protocol is {protocol:?}, must be tcp, udp, icmp or ip"
                    ));
                }
            },
            source: set(source, "address", net)?,
            source_ports: set(source_ports, "port", ports)?,
            destination: set(destination, "address", net)?,
            destination_ports: set(destination_ports, "port", ports)?,
            both_ways: match direction {
                "->" => false,
                "<>" => true,
                _ => return Err(format!("direction is {direction:?}, must be -> or <>")),
            },
            msg: String::new(),
            contents: Vec::new(),
            sid: 0,
        };
        let mut rest = options.trim_start();
        while !rest.is_empty() {
            let (option, after) = cut_option(rest)?;
            rule.take(option, whole)?;
            rest = after.trim_start();
        }
        for content in &rule.contents {
            let (len, depth) = (content.bytes.len(), content.depth);
            if depth.is_some_and(|depth| depth < len) {
                let depth = depth.unwrap_or_default();
                return Err(format!(
                    "depth is {depth}, must be at least {len}, the content's length"
                ));
            }
        }
        match rule.sid {
            0 => Err("option \"sid\": is missing".into()),
            _ => Ok(Some(rule)),
        }
    }

    /// Applies an option, a part of `line`.
    fn take(&mut self, option: &str, line: &str) -> Result<(), String> {
        let (name, value) = match option.split_once(':') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => (option.trim(), ""),
        };
        match name {
            "msg" => {
                let text =
                    quoted(value).ok_or_else(|| format!("msg is {value}, must be quoted"))?;
                if text.len() > MSG_LEN_MAX {
                    let len = text.len();
                    return Err(format!(
                        "msg has {len} bytes, must be at most {MSG_LEN_MAX}"
                    ));
                }
                self.msg = unescaped(text);
            }
            "content" => {
                if self.contents.len() == CONTENTS_MAX {
                    return Err(format!("contents: must be at most {CONTENTS_MAX}"));
                }
                let (negated, text) = match value.strip_prefix('!') {
                    Some(text) => (true, text.trim_start()),
                    None => (false, value),
                };
                self.contents.push(Content {
                    bytes: content(text, line)?,
                    nocase: false,
                    negated,
                    offset: 0,
                    depth: None,
                });
            }
            "nocase" => self.last("nocase")?.nocase = true,
            "offset" => self.last("offset")?.offset = number(name, value, 0, 65535)? as usize,
            "depth" => self.last("depth")?.depth = Some(number(name, value, 1, 65535)? as usize),
            "sid" => self.sid = number(name, value, 1, u32::MAX)?,
            "rev" | "gid" | "priority" | "classtype" | "reference" | "metadata" => {}
            _ => return Err(format!("option {name:?}: is not supported")),
        }
        Ok(())
    }

    fn last(&mut self, name: &str) -> Result<&mut Content, String> {
        let last = self.contents.last_mut();
        last.ok_or_else(|| format!("option {name:?}: must follow a content"))
    }
}

fn number(name: &str, value: &str, min: u32, max: u32) -> Result<u32, String> {
    match decimal(value) {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{name} is {value:?}, must be {min}..={max}")),
    }
}

/// Cuts at the next semicolon that is neither quoted nor escaped.
fn cut_option(text: &str) -> Result<(&str, &str), String> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return Ok((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    Err(format!("option {text:?}: must end with ;"))
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// A text without its escaping backslashes.
fn unescaped(text: &str) -> String {
    let mut escaped = false;
    let mut keep = |c: char| {
        escaped = c == '\\' && !escaped;
        !escaped
    };
    text.chars().filter(|c| keep(*c)).collect()
}

/// The column of a line, from 1 on, in which `part` begins.
fn column(line: &str, part: &str) -> usize {
    let bytes = part.as_ptr().addr() - line.as_ptr().addr();
    line.char_indices()
        .take_while(|(at, _)| *at < bytes)
        .count()
        + 1
}

/// Appends the bytes of a hexadecimal part.
fn hexadecimal(part: &str, line: &str, bytes: &mut Vec<u8>) -> Result<(), String> {
    let mut high = None;
    for (at, c) in part.char_indices() {
        let Some(digit) = c.to_digit(16) else {
            if c.is_whitespace() {
                continue;
            }
            let column = column(line, &part[at..]);
            return Err(format!(
                "content: {c:?} at column {column} is not a hexadecimal digit"
            ));
        };
        match high.take() {
            None => high = Some(digit),
            Some(high) => bytes.push((high << 4 | digit) as u8),
        }
    }
    let digits = part.chars().filter(char::is_ascii_hexdigit).count();
    match high {
        None => Ok(()),
        Some(_) => Err(format!(
            "content: |{part}| at column {}: the number of hexadecimal digits is {digits}, must be even",
            column(line, part) - 1
        )),
    }
}

/// The bytes of a content, a part of `line`.
fn content(text: &str, line: &str) -> Result<Vec<u8>, String> {
    let inner = quoted(text).ok_or_else(|| format!("content is {text}, must be quoted"))?;
    let mut bytes = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '|' => {
                let rest = chars.as_str();
                let (hex, after) = rest.split_once('|').ok_or_else(|| {
                    let column = column(line, rest) - 1;
                    format!("content: the | at column {column} has no other | after it")
                })?;
                hexadecimal(hex, line, &mut bytes)?;
                chars = after.chars();
            }
            '\\' => {
                let escaped = chars.next().filter(|c| "\";:|\\".contains(*c));
                let escaped = escaped.ok_or("content: \\ must be before one of \" ; : | \\")?;
                bytes.push(escaped as u8);
            }
            '"' => return Err("content: \\ must be before \"".into()),
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    match bytes.len() {
        1..=CONTENT_LEN_MAX => Ok(bytes),
        len => Err(format!(
            "content has {len} bytes, must be 1..={CONTENT_LEN_MAX}"
        )),
    }
}

/// A set of addresses or ports.
fn set<T>(text: &str, what: &str, element: impl Fn(&str) -> Option<T>) -> Result<Set<T>, String> {
    let mut set = Set {
        include: Vec::new(),
        exclude: Vec::new(),
    };
    if text == "any" {
        return Ok(set);
    }
    let (all_negated, list) = match text.strip_prefix("![") {
        Some(rest) => (true, rest.strip_suffix(']')),
        None => match text.strip_prefix('[') {
            Some(rest) => (false, rest.strip_suffix(']')),
            None => (false, Some(text)),
        },
    };
    let list = list.ok_or_else(|| format!("{what} {text:?}: a ] is missing"))?;
    for word in list.split(',') {
        let (negated, name) = match word.strip_prefix('!') {
            Some(name) => (true, name),
            None => (false, word),
        };
        let element = element(name).filter(|_| !(negated && all_negated));
        let element = element.ok_or_else(|| format!("{what} {word:?}: cannot be read"))?;
        if negated || all_negated {
            set.exclude.push(element)
        } else {
            set.include.push(element)
        }
    }
    Ok(set)
}

fn net(text: &str) -> Option<Net> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, decimal(bits).filter(|b| *b <= 32)?),
        None => (text, 32),
    };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    let base = address.parse::<Ipv4Addr>().ok()?.to_bits() & mask;
    Some(Net { base, mask })
}

fn ports(text: &str) -> Option<Ports> {
    let end = |text: &str, default| match text {
        "" => Some(default),
        text => decimal(text),
    };
    match text.split_once(':') {
        None => decimal(text).map(|port| (port, port)),
        Some(("", "")) => None,
        Some((first, last)) => {
            let (first, last) = (end(first, 0)?, end(last, u16::MAX)?);
            (first <= last).then_some((first, last))
        }
    }
}

/// Reads a file of rules, at most `max`; an error comes with the number of its line.
pub fn parse_all(text: &str, max: usize) -> Result<Vec<Rule>, (u32, String)> {
    let mut rules: Vec<Rule> = Vec::new();
    let mut sids = alloc::collections::BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(rule) = Rule::parse(line).map_err(|why| (number, why))? else {
            continue;
        };
        if rules.len() == max {
            return Err((number, format!("more rules than {max}")));
        }
        if let Some(before) = sids.insert(rule.sid, number) {
            let why = format!("sid {} is already used on line {before}", rule.sid);
            return Err((number, why));
        }
        rules.push(rule);
    }
    Ok(rules)
}
