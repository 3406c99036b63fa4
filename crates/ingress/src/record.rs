//! Records: objects of JSON outside, maps of CBOR (RFC 8949) inside.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciborium::Value as Cbor;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// Why a text is no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// It is no JSON (RFC 8259), or names a field twice.
    Syntax(String),
    /// It is JSON, but no object.
    NotObject,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Syntax(reason) => write!(f, "invalid JSON: {reason}"),
            RecordError::NotObject => write!(f, "must be a JSON object"),
        }
    }
}

/// Reads an object of JSON.
pub fn parse(json: &[u8]) -> Result<Value, RecordError> {
    match serde_json::from_slice(json) {
        Ok(Strict(value @ Value::Object(_))) => Ok(value),
        Ok(_) => Err(RecordError::NotObject),
        Err(e) => Err(RecordError::Syntax(e.to_string())),
    }
}

/// CBOR of a record.
pub fn to_cbor(record: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(record, &mut bytes).expect("a vector takes every byte");
    bytes
}

/// The record that bytes hold, if they hold exactly one. Byte strings become Base64; what JSON has
/// no number for becomes null.
pub fn from_cbor(bytes: &[u8]) -> Option<Value> {
    // A map's head: what is anything else need not be read.
    if !matches!(bytes.first(), Some(0xa0..=0xbf)) {
        return None;
    }
    let mut rest = bytes;
    let value: Cbor = ciborium::from_reader(&mut rest).ok()?;
    rest.is_empty().then(|| json(value)).flatten()
}

fn json(value: Cbor) -> Option<Value> {
    Some(match value {
        Cbor::Null => Value::Null,
        Cbor::Bool(value) => value.into(),
        Cbor::Integer(value) => {
            let value = i128::from(value);
            let exact = i64::try_from(value).map(Number::from);
            let exact = exact.or_else(|_| u64::try_from(value).map(Number::from));
            exact.map_or_else(|_| (value as f64).into(), Value::Number)
        }
        Cbor::Float(value) => value.into(),
        Cbor::Text(text) => text.into(),
        Cbor::Bytes(bytes) => STANDARD.encode(bytes).into(),
        Cbor::Tag(_, value) => json(*value)?,
        Cbor::Array(items) => items.into_iter().map(json).collect::<Option<_>>()?,
        Cbor::Map(fields) => {
            let field = |(name, value)| match name {
                Cbor::Text(name) => Some((name, json(value)?)),
                _ => None,
            };
            let fields: Option<Map<_, _>> = fields.into_iter().map(field).collect();
            Value::Object(fields?)
        }
        _ => return None,
    })
}

/// Any JSON in which no object names a field twice.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strict, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Strict)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field {name:?}")));
            }
            let Strict(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_goes_there_and_back() {
        let text = br#"{"op": "put", "n": -7, "big": 18446744073709551615, "x": 1.5, "y": true,
            "none": null, "list": [1, "two", {"three": []}], "\u00fc": "\ud83d\ude00"}"#;
        let record = parse(text).unwrap();
        assert_eq!(from_cbor(&to_cbor(&record)), Some(record));
        let spaced = parse(b"{\"a\":1,\n \"b\" : 2}").unwrap();
        assert_eq!(to_cbor(&spaced), to_cbor(&json!({"b": 2, "a": 1})));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bad in [
            "",
            "{",
            "{\"a\": NaN}",
            "{\"a\": Infinity}",
            "{\"a\": 1e999}",
            "{\"a\": 01}",
            "{\"a\": 1,}",
            "{'a': 1}",
            "{\"a\": 1} x",
            "{\"a\": \"\\ud800\"}",
            "{\"a\": 1, \"a\": 2}",
            "{\"a\": {\"b\": 1, \"\\u0062\": 2}}",
        ] {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, RecordError::Syntax(_)), "{bad}: {error}");
        }
        assert!(matches!(
            parse(b"{\"a\": \"\xff\"}"),
            Err(RecordError::Syntax(_))
        ));
        let deep = format!("{{\"a\": {}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(matches!(
            parse(deep.as_bytes()),
            Err(RecordError::Syntax(_))
        ));
        for other in ["1", "null", "[]", "\"a\"", "true"] {
            assert_eq!(
                parse(other.as_bytes()),
                Err(RecordError::NotObject),
                "{other}"
            );
        }
        let text = parse(b"{\"a\": 1, \"a\": 2}").unwrap_err().to_string();
        assert!(
            text.contains("duplicate field \"a\"") && text.contains("line 1"),
            "{text}"
        );
    }

    #[test]
    fn what_json_lacks_is_told_as_well_as_it_can_be() {
        let of = |value: Cbor| {
            let mut bytes = Vec::new();
            let map = Cbor::Map(vec![("v".into(), value)]);
            ciborium::into_writer(&map, &mut bytes).unwrap();
            from_cbor(&bytes).map(|mut v| v["v"].take())
        };
        assert_eq!(of(Cbor::Bytes(vec![1, 2, 3])), Some(json!("AQID")));
        assert_eq!(of(Cbor::Float(f64::NAN)), Some(Value::Null));
        assert_eq!(of(Cbor::Float(f64::INFINITY)), Some(Value::Null));
        assert_eq!(of(u64::MAX.into()), Some(json!(u64::MAX)));
        assert_eq!(of(i64::MIN.into()), Some(json!(i64::MIN)));
        assert_eq!(of(Cbor::Map(vec![(1.into(), 2.into())])), None);
    }

    #[test]
    fn other_bytes_are_no_record() {
        let whole = to_cbor(&json!({"a": [1, 2, 3]}));
        for cut in 0..whole.len() {
            assert_eq!(from_cbor(&whole[..cut]), None);
        }
        let more = [&whole[..], b"x"].concat();
        for bytes in [&more[..], b"plain text", &[0x80], &[0xbf], &[0xff; 40]] {
            assert_eq!(from_cbor(bytes), None);
        }
    }
}
