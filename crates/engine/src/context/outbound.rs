//! Outbound requests that a handler makes, and the answers that requests bring.

use super::Ctx;
use crate::codes::{BOUND, LENGTH, NOT_ALLOWED, TIME, URL};
use crate::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use crate::memory::cut;
use e3_model::http_access::HttpFault;
use e3_model::limits::{
    HTTP_HEADERS_LEN_MAX, HTTP_HEADERS_MAX, NAME_LEN_MAX, OUTBOUND_AHEAD_MAX, URL_LEN_MAX,
};
use e3_model::outbound::{Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerSet, When};
use e3_model::{Nanos, Timestamp, check_name};

/// What the three kinds of outbound requests have in common.
pub(crate) struct Asked<'a> {
    /// Name.
    pub(crate) name: &'a [u8],
    /// Its key; empty for that of the request.
    pub(crate) key: &'a [u8],
    /// Payload or body.
    pub(crate) payload: &'a [u8],
    /// How long it may take, in nanoseconds.
    pub(crate) timeout: i64,
}

impl<'a> Asked<'a> {
    /// As a service compiled natively asks.
    pub(crate) fn new(name: &'a str, key: &'a [u8], payload: &'a [u8], timeout: i64) -> Asked<'a> {
        Asked {
            name: name.as_bytes(),
            key,
            payload,
            timeout,
        }
    }
}

/// Who is asked over HTTP, as a service passes it.
pub(crate) struct HttpParts<'a> {
    /// Method.
    pub(crate) method: &'a [u8],
    /// Address.
    pub(crate) url: &'a [u8],
    /// Header fields: `u32 name_len, u32 value_len, name, value` each.
    pub(crate) headers: &'a [u8],
}

/// What an outbound request is refused for.
type Refusal = (i32, String);

impl Ctx {
    /// Asks a service of the application.
    pub(crate) fn outbound_service(&mut self, asked: &Asked<'_>, to: &[u8], key: &[u8]) -> i32 {
        let made = self.service(to, key);
        self.outbound(asked, made)
    }

    /// Asks another application.
    pub(crate) fn outbound_application(&mut self, asked: &Asked<'_>, to: &[u8], key: &[u8]) -> i32 {
        let made = application(to, key);
        self.outbound(asked, made)
    }

    /// Asks over HTTP.
    pub(crate) fn outbound_http(&mut self, asked: &Asked<'_>, http: &HttpParts<'_>) -> i32 {
        let made = self.http(http);
        self.outbound(asked, made)
    }

    /// Outcome (high 32 bits) and status of the answer that the request brings; -1 if it brings none.
    pub(crate) fn answer(&self) -> i64 {
        let answer = self.invocation.as_ref().and_then(|i| i.answer);
        answer.map_or(-1, |answer| {
            i64::from(answer.outcome.code()) << 32 | i64::from(answer.status)
        })
    }

    fn outbound(&mut self, asked: &Asked<'_>, to: Result<Destination, Refusal>) -> i32 {
        let set = to.and_then(|to| self.outbound_set(asked, to));
        match set {
            Ok(set) => self.change_timer(asked.name, asked.key, Some(set)),
            Err((code, why)) => {
                self.refuse("outbound request", asked.name, &why);
                code
            }
        }
    }

    fn outbound_set(&self, asked: &Asked<'_>, to: Destination) -> Result<TimerSet, Refusal> {
        let len = asked.payload.len();
        if len > PAYLOAD_LEN_MAX {
            let why = format!("its payload has {len} bytes, must be at most {PAYLOAD_LEN_MAX}");
            return Err((BOUND, why));
        }
        let timeout = Nanos(asked.timeout.max(0) as u64);
        if timeout == Nanos::ZERO || timeout > OUTBOUND_AHEAD_MAX {
            let seconds = asked.timeout as f64 / 1e9;
            let why = format!("its time-out is {seconds} s, must be more than 0 and at most a day");
            return Err((TIME, why));
        }
        let deadline = Timestamp(self.now() as u64) + timeout;
        Ok(TimerSet {
            when: When::Answered(Box::new(Outbound { to, deadline })),
            payload: asked.payload.to_vec(),
        })
    }

    fn service(&self, to: &[u8], key: &[u8]) -> Result<Destination, Refusal> {
        let service = text(to, NAME_LEN_MAX);
        if !self.shared.spec.asks.contains(&service) {
            let why = format!("service {service:?} is not in `asks` of the manifest; add it there");
            return Err((NOT_ALLOWED, why));
        }
        let key = destination_key(key)?;
        Ok(Destination::Service { service, key })
    }

    fn http(&self, http: &HttpParts<'_>) -> Result<Destination, Refusal> {
        let invalid = |why: String| (URL, why);
        let Some(method) = str::from_utf8(http.method)
            .ok()
            .and_then(HttpMethod::from_name)
        else {
            let method = text(http.method, NAME_LEN_MAX);
            return Err(invalid(format!(
                "method {method:?} must be GET, POST, PUT, PATCH or DELETE"
            )));
        };
        let packed_max = HTTP_HEADERS_LEN_MAX + 8 * HTTP_HEADERS_MAX;
        if http.headers.len() > packed_max {
            let len = http.headers.len();
            return Err(invalid(format!(
                "its packed header fields have {len} bytes, must have at most {packed_max}"
            )));
        }
        let request = HttpRequest {
            method,
            url: text(http.url, URL_LEN_MAX),
            headers: headers(http.headers).ok_or_else(|| {
                invalid("its header fields are not packed as the ABI says".into())
            })?,
        };
        match request.check(&self.shared.spec.http) {
            Ok(()) => Ok(Destination::Http(request)),
            Err(fault @ HttpFault::NotAllowed { .. }) => Err((NOT_ALLOWED, fault.to_string())),
            Err(fault) => Err(invalid(fault.to_string())),
        }
    }
}

fn application(to: &[u8], key: &[u8]) -> Result<Destination, Refusal> {
    let application = text(to, NAME_LEN_MAX);
    check_name(&application).map_err(|why| (LENGTH, format!("application {why}")))?;
    let key = destination_key(key)?;
    Ok(Destination::Application { application, key })
}

fn text(bytes: &[u8], len_max: usize) -> String {
    String::from_utf8_lossy(cut(bytes, len_max)).into_owned()
}

/// The key to route by.
fn destination_key(key: &[u8]) -> Result<Vec<u8>, Refusal> {
    let len = key.len();
    if (1..=KEY_LEN_MAX).contains(&len) {
        Ok(key.to_vec())
    } else {
        Err((
            LENGTH,
            format!("the key to route by has {len} bytes, must be 1..={KEY_LEN_MAX}"),
        ))
    }
}

/// Unpacks header fields.
fn headers(mut packed: &[u8]) -> Option<Vec<(String, String)>> {
    let mut fields = Vec::new();
    while !packed.is_empty() {
        let (name_len, rest) = packed.split_first_chunk::<4>()?;
        let (value_len, rest) = rest.split_first_chunk::<4>()?;
        let (name, rest) = rest.split_at_checked(u32::from_le_bytes(*name_len) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_len) as usize)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        fields.push((text(name), text(value)));
        packed = rest;
    }
    Some(fields)
}
