//! Outbound requests of services: to a service of the application, to another application, or over
//! HTTP. The answer comes back as a request to the service itself.
//!
//! An outbound request is named like a timer, by name and key, and is kept like one until its
//! answer is handled: see [`crate::timer::When::Answered`].

use crate::outcome::Outcome;
use crate::time::Timestamp;

/// An outbound request; its payload is that of its timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outbound {
    /// Who is asked.
    pub to: Destination,
    /// Until when it is repeated; then the answer is [`Outcome::Expired`], or [`Outcome::Unknown`] if
    /// it may have been handled.
    pub deadline: Timestamp,
}

/// Who is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A service of the same application.
    Service {
        /// Its name.
        service: String,
        /// Key to route by.
        key: Vec<u8>,
    },
    /// The ingress service of another application.
    Application {
        /// Its name.
        application: String,
        /// Key to route by.
        key: Vec<u8>,
    },
    /// An HTTP server.
    Http(HttpRequest),
}

/// A request over HTTP; the timer's payload is its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpRequest {
    /// Method.
    pub method: HttpMethod,
    /// Absolute address, `http://` or `https://`.
    pub url: String,
    /// Header fields beside those that the platform sets.
    pub headers: Vec<(String, String)>,
}

/// Methods of outbound requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpMethod {
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

/// What came back for an outbound request; the payload of the request that brings it is the
/// answer's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Outcome.
    pub outcome: Outcome,
    /// Status of the service that answered, or of HTTP; 0 if nobody answered.
    pub status: u32,
}

impl HttpMethod {
    const ALL: [HttpMethod; 5] = [
        HttpMethod::Get,
        HttpMethod::Post,
        HttpMethod::Put,
        HttpMethod::Patch,
        HttpMethod::Delete,
    ];

    /// As in a request line.
    pub fn as_str(self) -> &'static str {
        match self {
            HttpMethod::Get => "GET",
            HttpMethod::Post => "POST",
            HttpMethod::Put => "PUT",
            HttpMethod::Patch => "PATCH",
            HttpMethod::Delete => "DELETE",
        }
    }

    /// From its name in a request line.
    pub fn from_name(name: &str) -> Option<HttpMethod> {
        HttpMethod::ALL.into_iter().find(|m| m.as_str() == name)
    }
}

impl Outbound {
    /// Bytes of what it holds.
    pub fn bytes(&self) -> usize {
        match &self.to {
            Destination::Service { service, key } => service.len() + key.len(),
            Destination::Application { application, key } => application.len() + key.len(),
            Destination::Http(http) => {
                let headers = http
                    .headers
                    .iter()
                    .map(|(name, value)| name.len() + value.len());
                http.url.len() + headers.sum::<usize>()
            }
        }
    }
}
