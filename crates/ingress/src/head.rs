//! The head of a request: routing key, idempotency key, deadline, and the formats of request and
//! response body.

use crate::limits::*;
use axum::http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use e3_http::Refusal;
use e3_model::Nanos;
use e3_model::limits::KEY_LEN_MAX;
use percent_encoding::percent_decode_str;

/// Header with the routing key.
pub const KEY: HeaderName = HeaderName::from_static("e3-key");
/// Header with the idempotency key.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header with the milliseconds until the deadline.
pub const DEADLINE: HeaderName = HeaderName::from_static("e3-deadline-ms");

/// Form of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// An object of JSON stands for a record.
    Json,
    /// A record as it is, in CBOR.
    Cbor,
    /// Bytes as they are.
    Bytes,
}

/// The head of a request.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) key: Vec<u8>,
    pub(crate) idempotency_key: Option<Vec<u8>>,
    pub(crate) timeout: Nanos,
    /// Form of the body.
    pub(crate) form: Form,
    /// Form in which the client wants a record.
    pub(crate) wants: Form,
}

impl Head {
    pub(crate) fn parse(parts: &Parts) -> Result<Head, Refusal> {
        check_size(&parts.headers)?;
        let query = query_key(parts.uri.query().unwrap_or_default())?;
        let header = single(&parts.headers, &KEY)?.map(<[u8]>::to_vec);
        Ok(Head {
            key: routing_key(query, header)?,
            idempotency_key: idempotency_key(&parts.headers)?,
            timeout: timeout(&parts.headers)?,
            form: form(&parts.headers)?,
            wants: wants(&parts.headers),
        })
    }
}

fn check_size(headers: &HeaderMap) -> Result<(), Refusal> {
    let size: usize = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if size <= HEADERS_LEN_MAX {
        return Ok(());
    }
    let error = format!("headers have {size} bytes, at most {HEADERS_LEN_MAX} are allowed");
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    Err(Refusal::new(status, error))
}

/// The value of a header that may be there once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    match values.next() {
        None => Ok(first.map(|v| v.as_bytes().trim_ascii())),
        Some(_) => Err(Refusal::bad(format!("header {name} is there twice"))),
    }
}

/// The parameter `key` of a query (application/x-www-form-urlencoded): any bytes.
fn query_key(query: &str) -> Result<Option<Vec<u8>>, Refusal> {
    let mut key = None;
    for parameter in query.split('&').filter(|p| !p.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).collect::<Vec<u8>>();
        if decode(name) != b"key" {
            let error = format!("unknown query parameter {name:?}");
            return Err(Refusal::bad(error).hint("the only parameter is key, the routing key"));
        }
        if key.replace(decode(value)).is_some() {
            return Err(Refusal::bad("query parameter \"key\" is there twice"));
        }
    }
    Ok(key)
}

fn routing_key(query: Option<Vec<u8>>, header: Option<Vec<u8>>) -> Result<Vec<u8>, Refusal> {
    let key = match (query, header) {
        (Some(query), Some(header)) if query != header => {
            let error = "the query and the header E3-Key have different routing keys";
            return Err(Refusal::bad(error));
        }
        (Some(key), _) | (None, Some(key)) => key,
        (None, None) => {
            let hint = "add ?key=KEY to the path, or the header E3-Key: KEY";
            return Err(Refusal::bad("the routing key is missing").hint(hint));
        }
    };
    match key.len() {
        1..=KEY_LEN_MAX => Ok(key),
        len => {
            let error = format!("routing key has {len} bytes, must have 1..={KEY_LEN_MAX}");
            Err(Refusal::bad(error))
        }
    }
}

/// The idempotency key: as it is, or a string in quotation marks (RFC 8941, section 3.3.3).
fn idempotency_key(headers: &HeaderMap) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(value) = single(headers, &IDEMPOTENCY_KEY)? else {
        return Ok(None);
    };
    let key = match value {
        [b'"', inner @ .., b'"'] => unquoted(inner),
        [b'"', ..] => None,
        _ => Some(value.to_vec()),
    };
    let key = key.filter(|key| key.iter().all(|b| matches!(b, 0x20..=0x7e)));
    let Some(key) = key else {
        let text = String::from_utf8_lossy(value);
        let error = format!("Idempotency-Key {text:?} is no text of printable ASCII characters");
        return Err(Refusal::bad(error));
    };
    match key.len() {
        1..=IDEMPOTENCY_KEY_LEN_MAX => Ok(Some(key)),
        len => {
            let error =
                format!("Idempotency-Key has {len} bytes, must have 1..={IDEMPOTENCY_KEY_LEN_MAX}");
            Err(Refusal::bad(error))
        }
    }
}

fn unquoted(inner: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        key.push(match byte {
            b'"' => return None,
            b'\\' => *bytes.next().filter(|b| matches!(b, b'"' | b'\\'))?,
            other => *other,
        });
    }
    Some(key)
}

fn timeout(headers: &HeaderMap) -> Result<Nanos, Refusal> {
    let Some(value) = single(headers, &DEADLINE)? else {
        return Ok(Nanos::from_millis(DEADLINE_MS));
    };
    let text = String::from_utf8_lossy(value);
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let ms = text.parse().ok().filter(|_| digits);
    match ms {
        Some(ms @ 1..=DEADLINE_MS_MAX) => Ok(Nanos::from_millis(ms)),
        _ => {
            let error = format!("E3-Deadline-Ms is {text:?}, must be 1..={DEADLINE_MS_MAX}");
            Err(Refusal::bad(error))
        }
    }
}

/// Type and parameters of a media type (RFC 9110, section 8.3.1), in lower case.
fn media_type(value: &str) -> (String, Vec<String>) {
    let mut parts = value.split(';').map(|p| p.trim().to_ascii_lowercase());
    (parts.next().unwrap_or_default(), parts.collect())
}

fn form(headers: &HeaderMap) -> Result<Form, Refusal> {
    let unsupported = |error| Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
    for coding in headers.get_all(TRANSFER_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            let coding = String::from_utf8_lossy(coding.as_bytes());
            let error = format!("Transfer-Encoding {coding:?} is not supported");
            return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, error));
        }
    }
    if let Some(coding) = single(headers, &CONTENT_ENCODING)?
        && !coding.eq_ignore_ascii_case(b"identity")
    {
        let coding = String::from_utf8_lossy(coding);
        return unsupported(format!("Content-Encoding {coding:?} is not supported"));
    }
    let Some(value) = single(headers, &CONTENT_TYPE)? else {
        return Ok(Form::Bytes);
    };
    let Ok(value) = std::str::from_utf8(value) else {
        return unsupported("Content-Type is no text".into());
    };
    let (kind, parameters) = media_type(value);
    match kind.split_once('/') {
        Some((kind, sub)) if !kind.is_empty() && !sub.is_empty() => {}
        _ => return unsupported(format!("Content-Type {value:?} is no media type")),
    }
    if kind != "application/json" {
        return Ok(Form::Bytes);
    }
    let utf8 = |p: &String| {
        let charset = p.strip_prefix("charset=").map(|c| c.trim_matches('"'));
        charset.is_none_or(|c| c == "utf-8" || c == "us-ascii")
    };
    if parameters.iter().all(utf8) {
        Ok(Form::Json)
    } else {
        unsupported(format!("Content-Type {value:?}: JSON must be in UTF-8"))
    }
}

/// The form that the client prefers among those available (RFC 9110, section 12.5.1); JSON if it
/// has no choice among them.
fn wants(headers: &HeaderMap) -> Form {
    let values = headers.get_all(ACCEPT).iter();
    let values: Vec<String> = values
        .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect();
    let ranges: Vec<(String, f32)> = values
        .iter()
        .flat_map(|v| v.split(','))
        .map(|range| {
            let (kind, parameters) = media_type(range);
            let quality = parameters.iter().find_map(|p| p.strip_prefix("q="));
            (kind, quality.and_then(|q| q.parse().ok()).unwrap_or(1.0))
        })
        .collect();
    // The most specific range that fits a form gives its weight.
    let quality = |form: &str| {
        let exact = ranges.iter().find(|(range, _)| range == form);
        let some = || ranges.iter().find(|(range, _)| range == "application/*");
        let any = || ranges.iter().find(|(range, _)| range == "*/*");
        exact.or_else(some).or_else(any).map_or(0.0, |(_, q)| *q)
    };
    let json = quality("application/json");
    let cbor = quality("application/cbor");
    let bytes = quality("application/octet-stream");
    if json >= cbor && json >= bytes {
        Form::Json
    } else if cbor >= bytes {
        Form::Cbor
    } else {
        Form::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn head(path: &str, headers: &[(&str, &str)]) -> Result<Head, Refusal> {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Head::parse(&request.body(()).unwrap().into_parts().0)
    }

    #[track_caller]
    fn refused(path: &str, headers: &[(&str, &str)], words: &str) {
        let refusal = head(path, headers).unwrap_err();
        assert!(format!("{refusal:?}").contains(words), "{refusal:?}");
    }

    #[test]
    fn the_routing_key_is_any_bytes() {
        let key = |path, headers: &[(&str, &str)]| head(path, headers).unwrap().key;
        assert_eq!(key("/v1/apps/a?key=alice", &[]), b"alice");
        assert_eq!(key("/v1/apps/a?key=a+b%2Bc%00%ff", &[]), b"a b+c\0\xff");
        assert_eq!(key("/v1/apps/a", &[("e3-key", "alice")]), b"alice");
        assert_eq!(key("/v1/apps/a?key=x", &[("e3-key", "x")]), b"x");
        refused("/v1/apps/a", &[], "routing key is missing");
        refused("/v1/apps/a?key=", &[], "0 bytes");
        refused("/v1/apps/a?key=x&key=x", &[], "twice");
        refused("/v1/apps/a?kye=x", &[], "kye");
        refused("/v1/apps/a?key=x", &[("e3-key", "y")], "different");
        let long = format!("/v1/apps/a?key={}", "k".repeat(KEY_LEN_MAX + 1));
        refused(&long, &[], "1025 bytes");
    }

    #[test]
    fn an_idempotency_key_is_a_text_with_or_without_quotation_marks() {
        let key = |value| {
            let head = head("/v1/apps/a?key=x", &[("Idempotency-Key", value)]);
            head.unwrap().idempotency_key.unwrap()
        };
        assert_eq!(key("order-1"), b"order-1");
        assert_eq!(key("\"order-1\""), b"order-1");
        assert_eq!(key("\"a\\\"b\\\\\""), b"a\"b\\");
        for bad in ["", "\"", "\"a", "\"a\"b\"", "\"a\\n\"", "\u{e4}"] {
            refused(
                "/v1/apps/a?key=x",
                &[("Idempotency-Key", bad)],
                "Idempotency-Key",
            );
        }
        let long = "k".repeat(256);
        refused(
            "/v1/apps/a?key=x",
            &[("Idempotency-Key", &long)],
            "256 bytes",
        );
        let twice = [("idempotency-key", "a"), ("idempotency-key", "a")];
        refused("/v1/apps/a?key=x", &twice, "twice");
    }

    #[test]
    fn a_deadline_is_a_bounded_number() {
        let ms = |value| {
            let head = head("/v1/apps/a?key=x", &[("E3-Deadline-Ms", value)]);
            head.unwrap().timeout.as_millis()
        };
        assert_eq!((ms("1"), ms("600000")), (1, 600_000));
        for bad in [
            "0",
            "600001",
            "-1",
            "+1",
            "1.5",
            "1s",
            "",
            "99999999999999999999",
        ] {
            refused("/v1/apps/a?key=x", &[("E3-Deadline-Ms", bad)], "1..=600000");
        }
        assert_eq!(
            head("/v1/apps/a?key=x", &[]).unwrap().timeout.0,
            10_000_000_000
        );
    }

    #[test]
    fn forms_of_bodies_and_answers() {
        let form = |kind| head("/?key=x", &[("content-type", kind)]).unwrap().form;
        for json in ["application/json", "Application/JSON; charset=\"UTF-8\""] {
            assert_eq!(form(json), Form::Json, "{json}");
        }
        for bytes in ["text/plain; charset=utf-8", "application/octet-stream"] {
            assert_eq!(form(bytes), Form::Bytes, "{bytes}");
        }
        for bad in ["application/json; charset=utf-16", "nonsense", "/json"] {
            refused("/?key=x", &[("content-type", bad)], "415");
        }
        refused("/?key=x", &[("content-encoding", "gzip")], "gzip");
        let codings = [("transfer-encoding", "gzip, chunked")];
        refused("/?key=x", &codings, "501");
        let wants = |accept| head("/?key=x", &[("accept", accept)]).unwrap().wants;
        for (accept, form) in [
            ("*/*", Form::Json),
            ("application/json", Form::Json),
            ("text/html", Form::Json),
            ("application/octet-stream", Form::Bytes),
            ("application/cbor", Form::Cbor),
            ("application/json;q=0.5, application/cbor", Form::Cbor),
            ("application/octet-stream, */*;q=0.1", Form::Bytes),
        ] {
            assert_eq!(wants(accept), form, "{accept}");
        }
        assert_eq!(head("/?key=x", &[]).unwrap().wants, Form::Json);
    }

    #[test]
    fn headers_are_bounded() {
        let long = "x".repeat(HEADERS_LEN_MAX);
        refused("/?key=x", &[("x-any", &long)], "431");
    }
}
