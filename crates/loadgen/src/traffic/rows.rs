//! Tables with commas between values (RFC 4180, the first line names the columns), and lines of JSON
//! with an object each: every row or object becomes a record (a CBOR map) of its fields.
//!
//! Values of a table are whole numbers, numbers, `true` and `false` where they are written like that,
//! else texts; an empty one, and `null` of JSON, is a field that is not there. The key is the text of
//! the named field, else the number of the line. A byte order mark of UTF-8 at the start is skipped.
//! Ambiguous input is refused with its line: a quote that is never closed, text
//! behind a closing quote, a NUL byte, UTF-16, two fields of one name.

use super::items::{Columns, Fault, Item, Place, Since, Traffic, push};
use super::time;
use crate::limits::TRAFFIC_FIELDS_MAX;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use std::fmt;

/// The bytes behind a byte order mark, if they can be text.
fn text_of(bytes: &[u8]) -> Result<&[u8], Fault> {
    if matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) {
        return Err(Fault::new(Place::Line(1), "is UTF-16, must be UTF-8"));
    }
    let text = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    match text.iter().position(|b| *b == 0) {
        Some(at) => {
            let line = 1 + text[..at].iter().filter(|b| **b == b'\n').count() as u64;
            Err(Fault::new(
                Place::Line(line),
                "has a NUL byte, must be text",
            ))
        }
        None => Ok(text),
    }
}

/// Checks the quotes of a table by RFC 4180: the reader of tables takes what is left of a file as one
/// value where a quote is never closed.
fn check_quotes(bytes: &[u8]) -> Result<(), Fault> {
    #[derive(PartialEq)]
    enum At {
        Start,
        Plain,
        Quoted,
        Closed,
    }
    let (mut line, mut opened, mut at) = (1, 1, At::Start);
    for byte in bytes {
        at = match (at, byte) {
            (At::Start, b'"') => {
                opened = line;
                At::Quoted
            }
            (At::Quoted, b'"') => At::Closed,
            (At::Quoted, _) => At::Quoted,
            // a quote within a quoted value is written twice
            (At::Closed, b'"') => At::Quoted,
            (_, b',' | b'\n' | b'\r') => At::Start,
            (At::Closed, _) => {
                let why =
                    "has text behind a closing quote; a quote within a value is written twice";
                return Err(Fault::new(Place::Line(line), why));
            }
            (At::Start | At::Plain, _) => At::Plain,
        };
        line += u64::from(*byte == b'\n');
    }
    if at == At::Quoted {
        Err(Fault::new(
            Place::Line(opened),
            "opens a quote that is never closed",
        ))
    } else {
        Ok(())
    }
}

/// An object of JSON, each of whose names is there once.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Fields, D::Error> {
        struct Reads;
        impl<'de> Visitor<'de> for Reads {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object as {\"name\": value}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format!("{name:?} is there twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Reads)
    }
}

/// Type of a value of a table.
fn value(text: &str) -> Value {
    let digits = text.strip_prefix('-').unwrap_or(text);
    // 007 and 1e5x are no numbers but names
    let leads = digits.starts_with('0') && !digits.starts_with("0.") && digits != "0";
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.ends_with(|c: char| c.is_ascii_digit())
        && !leads;
    if numeric && let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    let number = numeric.then(|| text.parse().ok().and_then(Number::from_f64));
    match (text, number.flatten()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Some(number)) => number.into(),
        _ => text.into(),
    }
}

/// Text of a field that is a time or a key.
fn text(fields: &Map<String, Value>, column: &str, place: Place) -> Result<String, Fault> {
    match fields.get(column) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Bool(_)) => Err(Fault::new(place, format!("{column:?} is true or false"))),
        Some(_) => Err(Fault::new(place, format!("{column:?} is a list"))),
        None => Err(Fault::new(place, format!("{column:?} is missing"))),
    }
}

/// What is wrong, without the place that `serde_json` adds, which counts each line as the first.
fn words(error: &serde_json::Error) -> String {
    let all = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    all.strip_suffix(&place).unwrap_or(&all).to_string()
}

fn has_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(values) => values.iter().any(has_object),
        _ => false,
    }
}

/// Requests in the making.
struct Items<'a> {
    columns: &'a Columns,
    items: Vec<Item>,
    since: Since,
}

impl Items<'_> {
    /// Takes the fields of a line. `written` has the text of the time and the key, where that is not
    /// the fields' own.
    fn take(
        &mut self,
        line: u64,
        fields: &Map<String, Value>,
        written: impl Fn(&str) -> Option<String>,
    ) -> Result<(), Fault> {
        let place = Place::Line(line);
        let of = |column: &String| match written(column) {
            Some(text) => Ok(text),
            None => text(fields, column, place),
        };
        let at = match self.columns.time.as_ref() {
            None => Default::default(),
            Some(column) => {
                let text = of(column)?;
                let must_be = "must be seconds or a date and time as 2026-03-01T08:30:00Z";
                let wrong = || Fault::new(place, format!("{column:?} is {text:?}, {must_be}"));
                self.since.of(time::parse(&text).ok_or_else(wrong)?)
            }
        };
        let key = match self.columns.key.as_ref() {
            None => line.to_string(),
            Some(column) => of(column)?,
        };
        let count = fields.len();
        if !(1..=TRAFFIC_FIELDS_MAX).contains(&count) {
            let why = format!("has {count} fields, must have 1..={TRAFFIC_FIELDS_MAX}");
            return Err(Fault::new(place, why));
        }
        let item = Item {
            at,
            key: key.into_bytes(),
            payload: crate::record(fields),
        };
        push(&mut self.items, place, item)
    }

    fn traffic(self, what: &'static str) -> Traffic {
        Traffic {
            items: self.items,
            what,
            timed: self.columns.time.is_some(),
            left_out: 0,
        }
    }
}

/// Reads a table.
pub fn csv(bytes: &[u8], columns: &Columns) -> Result<Traffic, Fault> {
    let bytes = text_of(bytes)?;
    check_quotes(bytes)?;
    let mut reader = csv::Reader::from_reader(bytes);
    let wrong = |error: csv::Error| {
        let at = |p: &Option<csv::Position>| Place::Line(p.as_ref().map_or(1, csv::Position::line));
        match error.kind() {
            csv::ErrorKind::UnequalLengths {
                pos,
                len,
                expected_len,
            } => {
                let why = format!("has {len} values, must have {expected_len} like the first line");
                Fault::new(at(pos), why)
            }
            csv::ErrorKind::Utf8 { pos, err } => {
                Fault::new(at(pos), format!("is not UTF-8: {err}"))
            }
            _ => Fault::new(Place::File, error.to_string()),
        }
    };
    let names: Vec<String> = reader
        .headers()
        .map_err(wrong)?
        .iter()
        .map(Into::into)
        .collect();
    let head = |why: String| Fault::new(Place::Line(1), why);
    let mut seen = BTreeSet::new();
    if let Some(name) = names.iter().find(|n| n.is_empty() || !seen.insert(*n)) {
        return Err(head(format!(
            "column {name:?} is there twice, or has no name"
        )));
    }
    for column in columns.time.iter().chain(&columns.key) {
        if !names.contains(column) {
            let why = format!("has no column {column:?}, but {}", names.join(", "));
            return Err(head(why));
        }
    }
    let mut items = Items {
        columns,
        items: Vec::new(),
        since: Since::default(),
    };
    let mut row = csv::StringRecord::new();
    while reader.read_record(&mut row).map_err(wrong)? {
        let line = row.position().map_or(1, csv::Position::line);
        let filled = || names.iter().zip(&row).filter(|(_, text)| !text.is_empty());
        let fields = filled()
            .map(|(name, text)| (name.clone(), value(text)))
            .collect();
        // a key 1.50 is not 1.5
        let written = |column: &str| {
            let found = filled().find(|(name, _)| *name == column);
            found.map(|(_, text)| text.to_string())
        };
        items.take(line, &fields, written)?;
    }
    Ok(items.traffic("rows"))
}

/// Reads lines of JSON; blank ones are left out.
pub fn json(bytes: &[u8], columns: &Columns) -> Result<Traffic, Fault> {
    let bytes = text_of(bytes)?;
    let mut items = Items {
        columns,
        items: Vec::new(),
        since: Since::default(),
    };
    for (number, line) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |why: String| Fault::new(Place::Line(number), why);
        let Fields(mut fields) = serde_json::from_slice(line).map_err(|e| {
            wrong(format!(
                "is not a JSON object: column {}: {}",
                e.column(),
                words(&e)
            ))
        })?;
        fields.retain(|_, value| !value.is_null());
        if let Some((name, _)) = fields.iter().find(|(_, value)| has_object(value)) {
            let why = "must be text, a number, true or false, or a list of such";
            return Err(wrong(format!("{name:?} has an object, {why}")));
        }
        items.take(number, &fields, |_| None)?;
    }
    Ok(items.traffic("objects"))
}
