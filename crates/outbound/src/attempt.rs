//! One attempt at a request: what it shows about the other side.

use crate::connecting::{self, Noted};
use crate::limits::{
    ATTEMPT_MAX, CONNECT_MAX, IDLE_CONNECTIONS_MAX, IDLE_HOST_CONNECTIONS_MAX,
    RESPONSE_HEADERS_LEN_MAX,
};
use crate::request::Request;
use crate::resolver::Guarded;
use e3_model::limits::PAYLOAD_LEN_MAX;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;
use ureq::http::{self, HeaderMap};
use ureq::unversioned::resolver::Resolver;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body, Error};

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The answer.
    Response {
        /// Status.
        status: u32,
        /// Body.
        body: Vec<u8>,
    },
    /// A response that asks to try again.
    Busy {
        /// Status.
        status: u32,
        /// Body.
        body: Vec<u8>,
        /// When, if it says so.
        retry_after: Option<Duration>,
    },
    /// The answer, with a body that cannot be delivered.
    TooLong {
        /// Status.
        status: u32,
        /// Why.
        reason: String,
    },
    /// The request did not reach the server.
    NotReached(String),
    /// The server may have handled the request.
    NoAnswer(String),
    /// No attempt can succeed.
    Impossible(String),
}

/// Makes attempts; keeps connections.
pub(crate) struct Client {
    agent: Agent,
}

impl Client {
    pub(crate) fn new(version: &str) -> Client {
        Client::with_resolver(version, Guarded::default())
    }

    pub(crate) fn with_resolver(version: &str, resolver: impl Resolver) -> Client {
        let config = Agent::config_builder()
            // The service decides about redirects: another host may not be allowed.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            .user_agent(format!("e3/{version}"))
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_resolve(Some(CONNECT_MAX))
            .max_response_header_size(RESPONSE_HEADERS_LEN_MAX)
            .max_idle_connections(IDLE_CONNECTIONS_MAX)
            .max_idle_connections_per_host(IDLE_HOST_CONNECTIONS_MAX)
            .build();
        let connector = Noted(DefaultConnector::default());
        let agent = Agent::with_parts(config, connector, Noted(resolver));
        Client { agent }
    }

    /// Makes one attempt, which ends before `left` has passed.
    pub(crate) fn attempt(&self, request: &Request, left: Duration) -> Attempt {
        let http = match message(request) {
            Ok(http) => http,
            Err(error) => return Attempt::Impossible(format!("not a request: {error}")),
        };
        let configured = self.agent.configure_request(http);
        let http = configured
            .timeout_global(Some(left.min(ATTEMPT_MAX)))
            .build();
        connecting::begin();
        caught(|| self.perform(request, http))
    }

    fn perform(&self, request: &Request, http: http::Request<&[u8]>) -> Attempt {
        // A request without a body has no length either.
        let response = if request.body.is_empty() && !takes_body(&http) {
            self.agent.run(http.map(|_| ()))
        } else {
            self.agent.run(http)
        };
        match response {
            Ok(response) => received(response),
            Err(error) => failed(&error),
        }
    }
}

/// Makes an attempt, which may panic: for instance, if the system has no thread to look up a name.
fn caught(attempt: impl FnOnce() -> Attempt) -> Attempt {
    // What a panic leaves behind is a connection at most, and the agent keeps none that was in use.
    panic::catch_unwind(AssertUnwindSafe(attempt))
        .unwrap_or_else(|_| unanswered("the attempt panicked; see the node's log".into()))
}

fn takes_body(http: &http::Request<&[u8]>) -> bool {
    !matches!(*http.method(), http::Method::GET | http::Method::DELETE)
}

/// The request as it is sent.
fn message(request: &Request) -> Result<http::Request<&[u8]>, http::Error> {
    let mut builder = http::Request::builder()
        .method(request.http.method.as_str())
        .uri(&request.http.url)
        .header("idempotency-key", &request.idempotency_key);
    for (name, value) in &request.http.headers {
        builder = builder.header(name, value);
    }
    builder.body(&request.body[..])
}

fn received(mut response: http::Response<Body>) -> Attempt {
    let status = u32::from(response.status().as_u16());
    let retry_after = retry_after(response.headers());
    let is_busy = matches!(status, 408 | 425 | 429 | 502 | 503 | 504);
    // A body as long as the limit counts as too long.
    let body = response
        .body_mut()
        .with_config()
        .limit(PAYLOAD_LEN_MAX as u64 + 1);
    let body = match body.read_to_vec() {
        Ok(body) => body,
        // What the page says does not matter: it is asked again.
        Err(_) if is_busy => Vec::new(),
        Err(Error::BodyExceedsLimit(_)) => {
            let reason = format!(
                "response with status {status} has a body of more than {PAYLOAD_LEN_MAX} bytes"
            );
            return Attempt::TooLong { status, reason };
        }
        Err(error) => {
            return Attempt::NoAnswer(format!("response with status {status} broke off: {error}"));
        }
    };
    if is_busy {
        return Attempt::Busy {
            status,
            body,
            retry_after,
        };
    }
    Attempt::Response { status, body }
}

/// `Retry-After` in seconds (RFC 9110, 10.2.3). A date is not read: the usual wait follows.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get("retry-after")?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// What a failed attempt shows.
fn failed(error: &Error) -> Attempt {
    let reason = error.to_string();
    match error {
        Error::Http(_) | Error::BadUri(_) => Attempt::Impossible(reason),
        Error::Rustls(tls) if is_certificate(tls) => Attempt::Impossible(reason),
        Error::Io(io) if within(io).is_some_and(is_certificate) => Attempt::Impossible(reason),
        _ => unanswered(reason),
    }
}

/// An attempt that brought no response. In doubt the server may have handled the request.
fn unanswered(reason: String) -> Attempt {
    if connecting::failed() {
        Attempt::NotReached(reason)
    } else {
        Attempt::NoAnswer(reason)
    }
}

/// The server's certificate is not valid, which is found before the request is sent.
fn is_certificate(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidCertificate(_))
}

fn within(io: &io::Error) -> Option<&rustls::Error> {
    io.get_ref()?.downcast_ref()
}
