//! Timers of services, in log entries, snapshots and answers to clients.

use crate::codec::{Reader, WireError, Write};
use crate::limits::ENTRY_CONFIRMED_MAX;
use e3_model::cron::Cron;
use e3_model::limits::{
    CRON_LEN_MAX, HTTP_HEADERS_LEN_MAX, HTTP_HEADERS_MAX, KEY_LEN_MAX, NAME_LEN_MAX,
    PAYLOAD_LEN_MAX, REQUEST_TIMERS_MAX, TIMER_NAME_LEN_MAX, URL_LEN_MAX,
};
use e3_model::outbound::{Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::Publication;
use e3_model::{RequestId, Timestamp};

/// What names a timer within its service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimerName {
    /// Its key, which decides its slot.
    pub key: Vec<u8>,
    /// Its name.
    pub name: String,
}

/// What names a publication within its service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicationName {
    /// Key of the request that published it.
    pub key: Vec<u8>,
    /// Number of its timer, see [`Timer::seq`].
    pub seq: u64,
}

/// Which copies of a publication are confirmed, while others are not: the payload of a publication
/// without a topic, which is never sent. A release that does not know it removes it as one that nobody is
/// subscribed to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartialConfirmation {
    /// The publication, which has the same key: the number of its timer.
    pub publication: u64,
    /// Identities of the copies.
    pub copies: Vec<RequestId>,
}

/// A timer that is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timer {
    /// What names it.
    pub name: TimerName,
    /// When it fires next.
    pub next: Timestamp,
    /// Time of the entry that set it, or in which it was last handled.
    pub set_at: Timestamp,
    /// Its number among all timers of the log: with `set_at`, the identity of its request.
    pub seq: u64,
    /// When it fires.
    pub when: When,
    /// Payload of its request.
    pub payload: Vec<u8>,
}

impl TimerName {
    /// Bytes of what it holds.
    pub fn bytes(&self) -> usize {
        self.key.len() + self.name.len()
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_short(&self.key);
        out.put_short(self.name.as_bytes());
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<TimerName, WireError> {
        Ok(TimerName {
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
            name: decode_name(r)?,
        })
    }
}

impl PartialConfirmation {
    /// Bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + 16 * self.copies.len());
        out.put_u64(self.publication);
        for copy in &self.copies {
            out.put_u64(copy.client);
            out.put_u64(copy.seq);
        }
        out
    }

    /// Reads one that fills the whole slice.
    pub fn decode(bytes: &[u8]) -> Result<PartialConfirmation, WireError> {
        let mut r = Reader(bytes);
        let publication = r.u64()?;
        let mut copies = Vec::new();
        while !r.is_empty() {
            copies.push(RequestId {
                client: r.u64()?,
                seq: r.u64()?,
            });
        }
        Ok(PartialConfirmation {
            publication,
            copies,
        })
    }
}

impl Timer {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        self.name.encode(out);
        out.put_u64(self.next.0);
        out.put_u64(self.set_at.0);
        out.put_u64(self.seq);
        encode_when(out, &self.when);
        out.put_long(&self.payload);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Timer, WireError> {
        Ok(Timer {
            name: TimerName::decode(r)?,
            next: Timestamp(r.u64()?),
            set_at: Timestamp(r.u64()?),
            seq: r.u64()?,
            when: decode_when(r)?,
            payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec(),
        })
    }
}

pub(crate) fn decode_name(r: &mut Reader<'_>) -> Result<String, WireError> {
    text(r, "name of a timer", TIMER_NAME_LEN_MAX)
}

fn encode_when(out: &mut Vec<u8>, when: &When) {
    match when {
        When::At(at) => {
            out.put_u8(1);
            out.put_u64(at.0);
        }
        When::Cron(cron) => {
            out.put_u8(2);
            out.put_short(cron.as_str().as_bytes());
        }
        When::Answered(outbound) => {
            out.put_u8(3);
            encode_outbound(out, outbound);
        }
        When::Published(publication) => {
            out.put_u8(4);
            out.put_short(publication.topic.as_bytes());
            out.put_short(&publication.key);
        }
    }
}

fn encode_outbound(out: &mut Vec<u8>, outbound: &Outbound) {
    out.put_u64(outbound.deadline.0);
    match &outbound.to {
        Destination::Service { service, key } => {
            out.put_u8(1);
            out.put_short(service.as_bytes());
            out.put_short(key);
        }
        Destination::Application { application, key } => {
            out.put_u8(2);
            out.put_short(application.as_bytes());
            out.put_short(key);
        }
        Destination::Http(http) => {
            out.put_u8(3);
            out.put_short(http.method.as_str().as_bytes());
            out.put_short(http.url.as_bytes());
            out.put_u8(u8::try_from(http.headers.len()).expect("bounded by the executor"));
            for (name, value) in &http.headers {
                out.put_short(name.as_bytes());
                out.put_short(value.as_bytes());
            }
        }
    }
}

fn decode_when(r: &mut Reader<'_>) -> Result<When, WireError> {
    match r.u8()? {
        1 => Ok(When::At(Timestamp(r.u64()?))),
        2 => {
            let text = r.short_bytes("cron expression", CRON_LEN_MAX)?;
            let text = str::from_utf8(text).ok();
            let cron = text.and_then(|text| text.parse::<Cron>().ok());
            cron.map(When::Cron).ok_or(WireError::Cron)
        }
        3 => Ok(When::Answered(Box::new(decode_outbound(r)?))),
        4 => Ok(When::Published(Box::new(Publication {
            topic: text(r, "name of a topic", NAME_LEN_MAX)?,
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
        }))),
        other => Err(unknown("kind of timer", other)),
    }
}

fn decode_outbound(r: &mut Reader<'_>) -> Result<Outbound, WireError> {
    let deadline = Timestamp(r.u64()?);
    let to = match r.u8()? {
        1 => Destination::Service {
            service: text(r, "name of a service", NAME_LEN_MAX)?,
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
        },
        2 => Destination::Application {
            application: text(r, "name of an application", NAME_LEN_MAX)?,
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
        },
        3 => Destination::Http(decode_http(r)?),
        other => return Err(unknown("destination", other)),
    };
    Ok(Outbound { to, deadline })
}

fn decode_http(r: &mut Reader<'_>) -> Result<HttpRequest, WireError> {
    const METHOD: &str = "method";
    let method = text(r, METHOD, NAME_LEN_MAX)?;
    let method = HttpMethod::from_name(&method).ok_or(WireError::Text(METHOD))?;
    let url = text(r, "address", URL_LEN_MAX)?;
    let len = usize::from(r.u8()?);
    if len > HTTP_HEADERS_MAX {
        return Err(WireError::TooLong {
            what: "header fields of a request",
            len,
            max: HTTP_HEADERS_MAX,
        });
    }
    let mut header = || -> Result<_, WireError> {
        let name = text(r, "name of a header field", HTTP_HEADERS_LEN_MAX)?;
        Ok((name, text(r, "header field", HTTP_HEADERS_LEN_MAX)?))
    };
    let headers = (0..len).map(|_| header()).collect::<Result<_, _>>()?;
    Ok(HttpRequest {
        method,
        url,
        headers,
    })
}

pub(crate) fn text(
    r: &mut Reader<'_>,
    what: &'static str,
    len_max: usize,
) -> Result<String, WireError> {
    let bytes = r.short_bytes(what, len_max)?;
    let text = str::from_utf8(bytes).map_err(|_| WireError::Text(what))?;
    Ok(text.to_owned())
}

fn unknown(what: &'static str, value: u8) -> WireError {
    WireError::Unknown {
        what,
        value: value.into(),
    }
}

pub(crate) fn encode_changes(out: &mut Vec<u8>, changes: &[TimerChange]) {
    out.put_u8(u8::try_from(changes.len()).expect("bounded by the executor"));
    for TimerChange { name, key, set } in changes {
        out.put_short(name.as_bytes());
        out.put_short(key);
        match set {
            None => out.put_u8(0),
            Some(set) => {
                encode_when(out, &set.when);
                out.put_long(&set.payload);
            }
        }
    }
}

pub(crate) fn decode_changes(r: &mut Reader<'_>) -> Result<Vec<TimerChange>, WireError> {
    let len = usize::from(r.u8()?);
    if len > REQUEST_TIMERS_MAX {
        return Err(WireError::TooLong {
            what: "timers of an entry",
            len,
            max: REQUEST_TIMERS_MAX,
        });
    }
    (0..len).map(|_| decode_change(r)).collect()
}

fn decode_change(r: &mut Reader<'_>) -> Result<TimerChange, WireError> {
    let name = decode_name(r)?;
    let key = r.short_bytes("key", KEY_LEN_MAX)?.to_vec();
    let set = match r.0.first() {
        Some(0) => {
            r.u8()?;
            None
        }
        _ => Some(TimerSet {
            when: decode_when(r)?,
            payload: r.long_bytes("payload", PAYLOAD_LEN_MAX)?.to_vec(),
        }),
    };
    Ok(TimerChange { name, key, set })
}

pub(crate) fn encode_confirmed(out: &mut Vec<u8>, confirmed: &[PublicationName]) {
    out.put_u16(u16::try_from(confirmed.len()).expect("bounded by the primary"));
    for publication in confirmed {
        out.put_short(&publication.key);
        out.put_u64(publication.seq);
    }
}

pub(crate) fn decode_confirmed(r: &mut Reader<'_>) -> Result<Vec<PublicationName>, WireError> {
    let len = usize::from(r.u16()?);
    if len > ENTRY_CONFIRMED_MAX {
        return Err(WireError::TooLong {
            what: "confirmed publications of an entry",
            len,
            max: ENTRY_CONFIRMED_MAX,
        });
    }
    let mut one = || -> Result<_, WireError> {
        Ok(PublicationName {
            key: r.short_bytes("key", KEY_LEN_MAX)?.to_vec(),
            seq: r.u64()?,
        })
    };
    (0..len).map(|_| one()).collect()
}
