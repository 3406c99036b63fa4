//! Who may do what: checked in one place, before a request's body is read and before its handler.
//!
//! There are two bearer tokens (RFC 6750): the owner's and the nodes'. The table [`ROUTES`] says which
//! of them a route accepts. A page in a browser on this machine is not the owner; see [`Own`].

use crate::connections::Place;
use crate::routes::{ROUTES, Route};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use e3_http::{Own, Refusal};
use e3_model::Token;
use http_body_util::LengthLimitError;
use hyper::body::Body as _;
use std::error::Error;
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

/// What requests are checked against: the two tokens, and the address of the API.
pub(crate) struct Gate {
    pub(crate) owner: Token,
    pub(crate) node: Token,
    pub(crate) own: Own,
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
        // A connection without a token serves one request: see the module `connections`.
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
        self.own.check(request)?;
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
            return Err(if methods.is_empty() {
                Refusal::new(StatusCode::NOT_FOUND, "no such path")
            } else {
                not_allowed(&methods.join(", "))
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
        // Both are compared, so that the time does not show which one matches.
        let owner = self.owner.is_presented(value.as_bytes());
        let node = self.node.is_presented(value.as_bytes());
        match (owner, node) {
            (true, _) => Some(Role::Owner),
            (_, true) => Some(Role::Node),
            _ => None,
        }
    }
}

fn unauthorized(headers: &HeaderMap) -> Refusal {
    Refusal::unauthorized(if headers.contains_key(header::AUTHORIZATION) {
        "the token is not one of this cluster"
    } else {
        "a token is missing"
    })
}

fn not_allowed(methods: &str) -> Refusal {
    let error = format!("this path takes {methods} only");
    let allowed = HeaderValue::from_str(methods).expect("methods are plain text");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).header(header::ALLOW, allowed)
}

/// The request with its body, read within a bounded time and length. A body that the route does not
/// take is dropped.
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
