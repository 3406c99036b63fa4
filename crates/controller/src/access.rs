//! Who may do what: checked in one place, before a request's body is read and before its handler.
//!
//! There are two credentials, both bearer tokens (RFC 6750): the owner's and the nodes'. The table
//! of [`ROUTES`] says which of them a route takes. A browser on this machine is no owner: a request
//! must name a loopback address as its host, so that no foreign name that resolves to it passes (DNS
//! rebinding), and must not come from a page of another origin (RFC 6454).

use crate::connections::Place;
use crate::refusal::Refusal;
use crate::routes::{ROUTES, Route};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use e3_model::Token;
use http_body_util::LengthLimitError;
use hyper::body::Body as _;
use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Who may use a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody on this machine.
    Open,
    /// The cluster's owner.
    Owner,
    /// The cluster's nodes.
    Node,
}

/// What requests are checked against.
pub(crate) struct Gate {
    pub(crate) owner: Token,
    pub(crate) node: Token,
    /// Port on which the API listens.
    pub(crate) port: u16,
    /// Longest wait for the whole body of a request.
    pub(crate) body_timeout: Duration,
}

/// Whose token a request presents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Owner,
    Node,
}

/// Lets a request through to its handler, or refuses it.
pub(crate) async fn check(
    State(gate): State<Arc<Gate>>,
    matched: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let place = request.extensions().get::<Place>().cloned();
    let mut response = match gate.admit(matched.as_ref(), &request) {
        Ok(route) => match with_body(route, request, gate.body_timeout).await {
            Ok(request) => next.run(request).await,
            Err(refusal) => refusal.into_response(),
        },
        Err(refusal) => refusal.into_response(),
    };
    if place.is_none_or(|place| !place.is_trusted()) {
        // One request for each connection without a token: see the module `connections`.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

impl Gate {
    /// The route of a request that may be carried out.
    fn admit(
        &self,
        matched: Option<&MatchedPath>,
        request: &Request,
    ) -> Result<&'static Route, Refusal> {
        self.check_host(request)?;
        self.check_origin(request.headers())?;
        let method = match request.method() {
            &Method::HEAD => &Method::GET,
            method => method,
        };
        let path = matched.map(MatchedPath::as_str);
        let of_path = || ROUTES.iter().filter(|r| Some(r.path) == path);
        let route = of_path().find(|r| r.is(method));
        let role = self.role(request.headers());
        let is_open = |r: &Route| r.access == Access::Open;
        if !route.map_or_else(|| of_path().any(is_open), is_open) && role.is_none() {
            return Err(unauthorized(request.headers()));
        }
        let trusted = || request.extensions().get().is_none_or(Place::trust);
        if role.is_some() && !trusted() {
            let error = "too many connections".to_string();
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
        let Some(route) = route else {
            let methods: Vec<String> = of_path().map(Route::method).collect();
            return Err(match methods.is_empty() {
                true => Refusal::new(StatusCode::NOT_FOUND, "no such path".into()),
                false => not_allowed(methods.join(", ")),
            });
        };
        let whose = match (route.access, role) {
            (Access::Owner, Some(Role::Node)) => "the cluster's owner",
            (Access::Node, Some(Role::Owner)) => "the cluster's nodes",
            _ => return Ok(route),
        };
        let error = format!("{} {} is for {whose} only", route.method(), route.path);
        Err(Refusal::new(StatusCode::FORBIDDEN, error))
    }

    fn role(&self, headers: &HeaderMap) -> Option<Role> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return None;
        };
        // Both are compared, whichever is right.
        let owner = self.owner.is_presented(value.as_bytes());
        let node = self.node.is_presented(value.as_bytes());
        match (owner, node) {
            (true, _) => Some(Role::Owner),
            (_, true) => Some(Role::Node),
            _ => None,
        }
    }

    /// A request must be meant for this server (RFC 9110, section 7.4).
    fn check_host(&self, request: &Request) -> Result<(), Refusal> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let wanted = format!("must be 127.0.0.1:{0} or localhost:{0}", self.port);
        let refuse = |error| Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, error));
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return refuse(format!("there must be one Host header, and it {wanted}"));
        };
        let host = String::from_utf8_lossy(host.as_bytes());
        let target = request.uri().authority().map(Authority::as_str);
        match std::iter::once(&*host)
            .chain(target)
            .find(|h| !self.is_own(h))
        {
            None => Ok(()),
            Some(other) => refuse(format!("host {other:?} is not this controller, {wanted}")),
        }
    }

    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        for origin in headers.get_all(header::ORIGIN) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let own = origin.strip_prefix("http://");
            if !own.is_some_and(|authority| self.is_own(authority)) {
                let error = format!("origin {origin:?} is not this controller's own");
                return Err(Refusal::new(StatusCode::FORBIDDEN, error));
            }
        }
        Ok(())
    }

    /// Whether `host:port` is a loopback name or address with the port of the API.
    fn is_own(&self, authority: &str) -> bool {
        let Ok(parsed) = authority.parse::<Authority>() else {
            return false;
        };
        let host = parsed.host();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let loopback = host.eq_ignore_ascii_case("localhost")
            || address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback());
        // A URL's default port is left out.
        let port = parsed.port_u16().unwrap_or(80);
        loopback && port == self.port && !authority.contains('@')
    }
}

fn unauthorized(headers: &HeaderMap) -> Refusal {
    let error = match headers.contains_key(header::AUTHORIZATION) {
        true => "the token is not one of this cluster",
        false => "a token is missing",
    };
    let hint = "send the header `Authorization: Bearer TOKEN`; the owner's TOKEN is in the file `token` of the cluster's state directory";
    Refusal::new(StatusCode::UNAUTHORIZED, error.into())
        .with_hint(hint.into())
        .with_header(header::WWW_AUTHENTICATE, "Bearer".into())
}

fn not_allowed(methods: String) -> Refusal {
    let error = format!("this path takes {methods} only");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).with_header(header::ALLOW, methods)
}

/// The request with its body, read within a bounded time and length; a body that the route does not
/// take is left out.
async fn with_body(route: &Route, request: Request, longest: Duration) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let Some(len_max) = route.body_len_max() else {
        return Ok(Request::from_parts(parts, Body::empty()));
    };
    let too_long = || {
        let error = format!("the request's body has more than {len_max} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    };
    if body.size_hint().lower() > len_max as u64 {
        return Err(too_long());
    }
    let read = tokio::time::timeout(longest, to_bytes(body, len_max)).await;
    let Ok(read) = read else {
        let seconds = longest.as_secs_f64();
        let error = format!("the request's body was not complete within {seconds} s");
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error));
    };
    match read {
        Ok(bytes) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Err(e) if is_too_long(&e) => Err(too_long()),
        Err(_) => {
            let error = "the request's body is not complete".to_string();
            Err(Refusal::new(StatusCode::BAD_REQUEST, error))
        }
    }
}

fn is_too_long(e: &axum::Error) -> bool {
    e.source().is_some_and(|s| s.is::<LengthLimitError>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_with_the_own_port_are_own() {
        let gate = |port| Gate {
            owner: Token::new([1; 32]),
            node: Token::new([2; 32]),
            port,
            body_timeout: Duration::ZERO,
        };
        for own in [
            "127.0.0.1:7300",
            "localhost:7300",
            "LocalHost:7300",
            "[::1]:7300",
        ] {
            assert!(gate(7300).is_own(own), "{own}");
        }
        for other in [
            "",
            "127.0.0.1",
            "localhost:7301",
            "localhost:",
            "evil.example:7300",
            "localhost.evil.example:7300",
            "127.0.0.1.evil.example:7300",
            "evil.example@127.0.0.1:7300",
            "10.0.0.1:7300",
            "[::]:7300",
            "0.0.0.0:7300",
            "127.0.0.1:7300/x",
            "null",
        ] {
            assert!(!gate(7300).is_own(other), "{other}");
        }
        assert!(gate(80).is_own("localhost") && !gate(80).is_own("localhost:7300"));
    }
}
