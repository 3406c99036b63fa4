//! Outbound requests: to another service, to another application, or over HTTP. The answer comes back
//! as a request to the service itself.
//!
//! A handler does not wait for the answer: it asks, writes down in a collection how far it is, and
//! returns. The request leaves when the handler's request commits, with its writes. Its answer is handled
//! by the same service, under the same key, exactly once: [`Request::answer`] tells the name,
//! the outcome and the status, and [`Request::payload`] is the content. If nobody answers in time, the
//! answer says so. Only a service with state makes outbound requests, and only to whom its manifest names
//! (`asks`, `http`).
//!
//! An outbound request is named by its name and a key, like a timer: [`crate::timers::cancel`] gives it up, asking
//! again under the same name and key replaces it, and then no answer to the earlier one comes. What was asked
//! may still be handled.
//!
//! ```
//! use e3_sdk::outbound::{HttpRequest, Outbound, Outcome};
//! use e3_sdk::testing::{Call, Host, To};
//! use e3_sdk::{Error, Request, Service, reply};
//! use std::time::Duration;
//!
//! struct Payments;
//!
//! impl Service for Payments {
//!     fn init() -> Result<Self, Error> {
//!         Ok(Payments)
//!     }
//!
//!     fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
//!         match request.answer() {
//!             None => {
//!                 let charge = HttpRequest::post("https://pay.example.com/charges");
//!                 Outbound::new("charge", Duration::from_secs(30)).over_http(&charge, request.payload())?;
//!                 reply(0, b"started")
//!             }
//!             Some(answer) if answer.is_http_ok() => Ok(()), // paid
//!             Some(_) => Ok(()), // not paid, or nobody knows: see docs/workflows.md
//!         }
//!     }
//! }
//!
//! let host = Host::new().http_host("pay.example.com");
//! let outcome = host.call(&mut Payments, &Call::default());
//! let asked = &outcome.outbound[0];
//! assert!(matches!(&asked.to, To::Http { url, .. } if url == "https://pay.example.com/charges"));
//! let answer = asked.answered(Outcome::Done, 201, b"{}");
//! assert_eq!(host.call(&mut Payments, &answer).result, Ok(()));
//! ```
//!
//! [`Request::answer`]: crate::Request::answer
//! [`Request::payload`]: crate::Request::payload

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use crate::answer::{Answer, Outcome};
use crate::{Error, check, sys};

/// An outbound request that is being made: its name, and how long its answer may take.
#[derive(Clone, Copy, Debug)]
pub struct Outbound<'a> {
    name: &'a str,
    key: &'a [u8],
    timeout: Duration,
}

impl<'a> Outbound<'a> {
    /// A request of that name, which is given up after `timeout`, at most a day.
    pub fn new(name: &'a str, timeout: Duration) -> Self {
        let key = b"";
        Self { name, key, timeout }
    }

    /// The key that it is kept under and that its answer has, in place of the request's. It must be of
    /// the same slot.
    #[must_use]
    pub fn with_key(self, key: &'a [u8]) -> Self {
        Self { key, ..self }
    }

    /// Asks a service of the application, which the manifest names in `asks`. It handles the request
    /// once, however often it is sent, and its reply is the answer. `key` routes it.
    pub fn to_service(&self, service: &str, key: &[u8], payload: &[u8]) -> Result<(), Error> {
        let timeout = self.timeout_ns();
        let asked = sys::outbound_service(self.name, self.key, service, key, payload, timeout);
        check(asked).map(drop)
    }

    /// Asks another application, as a client would. It handles the request once, however often it
    /// is sent, and its reply is the answer. `key` routes it.
    pub fn to_application(
        &self,
        application: &str,
        key: &[u8],
        payload: &[u8],
    ) -> Result<(), Error> {
        let (name, timeout) = (self.name, self.timeout_ns());
        let asked = sys::outbound_application(name, self.key, application, key, payload, timeout);
        check(asked).map(drop)
    }

    /// Asks over HTTP a host that the manifest lists in `http.hosts`. The platform repeats the request until
    /// there is an answer, each time with the same `Idempotency-Key`, so that the other side can
    /// recognise it. The answer's status is that of HTTP, its payload the body. Redirects are not followed.
    pub fn over_http(&self, request: &HttpRequest, body: &[u8]) -> Result<(), Error> {
        check(sys::outbound_http(
            self.name,
            self.key,
            request.method.as_str(),
            &request.url,
            &packed(&request.headers),
            body,
            self.timeout_ns(),
        ))
        .map(drop)
    }

    fn timeout_ns(&self) -> i64 {
        i64::try_from(self.timeout.as_nanos()).unwrap_or(i64::MAX)
    }
}

/// Methods of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`
    Get,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

impl Method {
    /// As in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        }
    }
}

/// A request over HTTP, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// Absolute address, `http://` or `https://`.
    pub url: String,
    /// Header fields. The platform sets `Host`, `Content-Length`, `Idempotency-Key` and `User-Agent`.
    pub headers: Vec<(String, String)>,
}

impl HttpRequest {
    /// A request without header fields.
    pub fn new(method: Method, url: &str) -> Self {
        Self {
            method,
            url: url.to_owned(),
            headers: Vec::new(),
        }
    }

    /// A `GET`.
    pub fn get(url: &str) -> Self {
        Self::new(Method::Get, url)
    }

    /// A `POST`.
    pub fn post(url: &str) -> Self {
        Self::new(Method::Post, url)
    }

    /// Adds a header field.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// Header fields as the ABI has them.
fn packed(headers: &[(String, String)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, value) in headers {
        packed.extend((name.len() as u32).to_le_bytes());
        packed.extend((value.len() as u32).to_le_bytes());
        packed.extend(name.as_bytes());
        packed.extend(value.as_bytes());
    }
    packed
}
