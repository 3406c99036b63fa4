//! Who may do what: checked in one place, before a request's body is read and before its handler.
//!
//! Bearer tokens (RFC 6750) say who asks: the owner's and the nodes' are files of the state directory,
//! the others are in the controller's log. The table [`ROUTES`] says which role a route needs. A page
//! in a browser on this machine is nobody; see [`Own`]. Design: docs/design/020.

use crate::audit::Subject;
use crate::connections::Place;
use crate::limits::DEPLOY_LEN_MAX;
use crate::rate::Buckets;
use crate::route::Route;
use crate::routes::ROUTES;
use crate::shared::Shared;
use crate::tokens::{OWNER, hash};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use e3_http::{Own, Reason, Refusal};
use e3_model::api::AuditView;
use e3_model::{AccessRole, Nanos, Timestamp, Token};
use http_body_util::LengthLimitError;
use hyper::body::Body as _;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Who may use a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Everybody on this machine.
    Open,
    /// Who has a token with this role, or with one that includes it.
    Role(AccessRole),
    /// The cluster's nodes.
    Node,
}

/// What requests are checked against.
pub(crate) struct Gate {
    pub(crate) owner: Token,
    pub(crate) node: Token,
    pub(crate) own: Own,
    /// Longest wait for the whole body of a request.
    pub(crate) body_timeout: Duration,
    pub(crate) buckets: Mutex<Buckets>,
    /// Bytes of deployments that may still be in memory.
    pub(crate) deployments: Arc<Semaphore>,
    /// Refusals that the audit log takes: it must not lose what took effect to a token that may do nothing.
    pub(crate) refusals: Mutex<Buckets>,
    pub(crate) shared: Shared,
}

/// Whose token a request presents.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Who {
    Nobody,
    Node,
    User { name: String, role: AccessRole },
    Expired { name: String },
}

/// A request that was identified, and whether it may go on.
struct Admitted {
    route: Option<&'static Route>,
    who: Who,
    refusal: Option<Refusal>,
}

/// Lets a request through to its handler, or refuses it. Commands and what came of them go to the
/// audit log.
pub(crate) async fn check(
    State(gate): State<Arc<Gate>>,
    matched: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let place = request.extensions().get::<Place>().cloned();
    let admitted = gate.admit(matched.as_ref(), &request);
    let path = request.uri().path().to_string();
    let mut detail = String::new();
    let needed = match (&admitted.refusal, admitted.route) {
        (None, Some(route)) => memory_of(route, &request),
        _ => None,
    };
    if let Some(bytes) = needed {
        let memory = gate.deployments.clone().acquire_many_owned(bytes).await;
        let memory = memory.expect("the semaphore is never closed");
        request.extensions_mut().insert(Arc::new(memory));
    }
    let mut response = match (admitted.refusal, admitted.route) {
        (Some(refusal), _) => refusal.into_response(),
        (None, None) => no_path().into_response(),
        (None, Some(route)) => match with_body(route, request, gate.body_timeout).await {
            Ok((request, bytes)) => {
                if route.body_is_audited() {
                    detail = json_of(&bytes);
                }
                drop(bytes);
                next.run(request).await
            }
            Err(refusal) => refusal.into_response(),
        },
    };
    if let (Some(route), Who::User { name, .. }) = (admitted.route, admitted.who)
        && route.is_command()
        && response.status() != StatusCode::TOO_MANY_REQUESTS
    {
        if let Some(Subject(subject)) = response.extensions().get() {
            detail.clone_from(subject);
        }
        gate.note(route, name, path, detail, &response);
    }
    if place.is_none_or(|place| !place.is_trusted()) {
        // A connection without a token serves one request: see the module `connections`.
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

impl Gate {
    /// The route of a request that may be carried out.
    fn admit(&self, matched: Option<&MatchedPath>, request: &Request) -> Admitted {
        let method = match request.method() {
            &Method::HEAD => &Method::GET,
            method => method,
        };
        let path = matched.map(MatchedPath::as_str);
        let mut of_path = ROUTES.iter().filter(|r| Some(r.path) == path);
        let mut admitted = Admitted {
            route: of_path.find(|r| r.is(method)),
            who: Who::Nobody,
            refusal: None,
        };
        admitted.refusal = self.own.check(request).err();
        if admitted.refusal.is_none() {
            let now = self.shared.core().clock.now();
            admitted.who = self.who(request.headers(), now);
            admitted.refusal = self.refusal(path, &admitted, request, now);
        }
        admitted
    }

    /// Why a request may not be carried out.
    fn refusal(
        &self,
        path: Option<&str>,
        admitted: &Admitted,
        request: &Request,
        now: Timestamp,
    ) -> Option<Refusal> {
        let (route, who) = (admitted.route, &admitted.who);
        let of_path = || ROUTES.iter().filter(|r| Some(r.path) == path);
        let is_open = |r: &Route| r.access == Access::Open;
        let is_anybody = matches!(who, Who::Nobody | Who::Expired { .. });
        if !route.map_or_else(|| of_path().any(is_open), is_open) && is_anybody {
            return Some(unauthorized(route, who, request.headers()));
        }
        let trusted = || request.extensions().get().is_none_or(Place::trust);
        if !is_anybody && !trusted() {
            let error = "too many connections".to_string();
            return Some(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
        if let Who::User { name, .. } = who
            && let Err(wait) = take(&self.buckets, name, now)
        {
            return Some(too_many(name, wait));
        }
        let Some(route) = route else {
            let methods: Vec<String> = of_path().map(Route::method).collect();
            return Some(if methods.is_empty() {
                no_path()
            } else {
                not_allowed(&methods.join(", "))
            });
        };
        forbidden(route, who)
    }

    fn who(&self, headers: &HeaderMap, now: Timestamp) -> Who {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Who::Nobody;
        };
        // Both are compared, so that the time does not show which one matches.
        let owner = self.owner.is_presented(value.as_bytes());
        let node = self.node.is_presented(value.as_bytes());
        match (owner, node) {
            (true, _) => Who::User {
                name: OWNER.into(),
                role: AccessRole::Admin,
            },
            (_, true) => Who::Node,
            _ => self.created(value.as_bytes(), now),
        }
    }

    /// The token of the log that is presented. Which hash is found says nothing about a token.
    fn created(&self, authorization: &[u8], now: Timestamp) -> Who {
        let Some(token) = Token::presented(authorization) else {
            return Who::Nobody;
        };
        let (hash, core) = (hash(&token), self.shared.core());
        let mut tokens = core.control.tokens.iter();
        match tokens.find(|(_, t)| t.hash == hash) {
            None => Who::Nobody,
            Some((name, token)) if token.is_expired(now) => Who::Expired { name: name.clone() },
            Some((name, token)) => Who::User {
                name: name.clone(),
                role: token.role,
            },
        }
    }

    /// Writes a command to the audit log.
    fn note(&self, route: &Route, who: String, path: String, detail: String, response: &Response) {
        let reason = response.extensions().get::<Reason>();
        let now = self.shared.core().clock.now();
        if response.status() == StatusCode::FORBIDDEN && take(&self.refusals, &who, now).is_err() {
            return;
        }
        let record = AuditView {
            number: 0,
            at_unix_ms: now.since(Timestamp::ZERO).as_millis(),
            who,
            operation: route.name.into(),
            path,
            detail,
            status: response.status().as_u16(),
            error: reason.map_or_else(String::new, |r| r.0.clone()),
        };
        // The command has taken effect, so its answer is given.
        if let Err(e) = self.shared.audit().append(record) {
            tracing::error!(error = %e, "a command is missing in the audit log");
        }
    }
}

fn take(buckets: &Mutex<Buckets>, name: &str, now: Timestamp) -> Result<(), Nanos> {
    let buckets = buckets.lock();
    let mut buckets = buckets.unwrap_or_else(PoisonError::into_inner);
    buckets.take(name, now)
}

fn no_path() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "no such path")
}

fn unauthorized(route: Option<&Route>, who: &Who, headers: &HeaderMap) -> Refusal {
    let why = match who {
        Who::Expired { name } => {
            let error = format!("token {name:?} has expired");
            return Refusal::unauthorized(&error).hint(format!(
                "ask for another: e3 token revoke {name}, e3 token create {name} --role ROLE"
            ));
        }
        _ if headers.contains_key(header::AUTHORIZATION) => "the token is not one of this cluster",
        _ => "a token is missing",
    };
    let needed = route.map(|r| (r, r.access));
    Refusal::unauthorized(&match needed {
        Some((r, Access::Role(role))) => {
            format!(
                "{why}; {} {} needs one with role {role}",
                r.method(),
                r.path
            )
        }
        _ => why.to_string(),
    })
}

fn forbidden(route: &Route, who: &Who) -> Option<Refusal> {
    let what = || format!("{} {}", route.method(), route.path);
    let refuse = |error: String| Refusal::new(StatusCode::FORBIDDEN, error);
    match (route.access, who) {
        (Access::Role(needed), Who::User { name, role }) if *role < needed => {
            let error = format!(
                "{} needs role {needed}; token {name:?} has role {role}",
                what()
            );
            let hint = format!("use a token with it: e3 token create NAME --role {needed}");
            Some(refuse(error).hint(hint))
        }
        (Access::Role(_), Who::Node) => {
            Some(refuse(format!("{} is not for the cluster's nodes", what())))
        }
        (Access::Node, Who::User { .. }) => Some(refuse(format!(
            "{} is for the cluster's nodes only",
            what()
        ))),
        _ => None,
    }
}

fn too_many(name: &str, wait: Nanos) -> Refusal {
    let error = format!("token {name:?} sends too many requests");
    let wait_s = wait.0.div_ceil(1_000_000_000).max(1);
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, error)
        .hint(format!("send the request again after {wait_s} s"))
        .retry_after(wait_s)
}

fn not_allowed(methods: &str) -> Refusal {
    let error = format!("this path takes {methods} only");
    let allowed = HeaderValue::from_str(methods).expect("methods are plain text");
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, error).header(header::ALLOW, allowed)
}

/// Bytes of a deployment, for which memory must have room. Other bodies are small, or those of nodes.
fn memory_of(route: &Route, request: &Request) -> Option<u32> {
    let len_max = route.body_len_max().filter(|len| *len >= DEPLOY_LEN_MAX)?;
    match request.body().size_hint().exact() {
        // It is refused.
        Some(len) if len > len_max as u64 => None,
        len => Some(len.unwrap_or(len_max as u64) as u32),
    }
}

/// A body in one line, if it is JSON.
fn json_of(body: &[u8]) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_slice(body);
    value.map_or_else(|_| String::new(), |value| value.to_string())
}

/// The request with its body, read within a bounded time and length. A body that the route does not
/// take is dropped.
async fn with_body(
    route: &Route,
    request: Request,
    longest: Duration,
) -> Result<(Request, Bytes), Refusal> {
    let (parts, body) = request.into_parts();
    let Some(len_max) = route.body_len_max() else {
        return Ok((Request::from_parts(parts, Body::empty()), Bytes::new()));
    };
    let announced = body.size_hint().lower();
    if announced > len_max as u64 {
        return Err(too_long(&announced.to_string(), len_max));
    }
    let read = tokio::time::timeout(longest, to_bytes(body, len_max)).await;
    let Ok(read) = read else {
        let seconds = longest.as_secs_f64();
        let error = format!("the request's body was not complete within {seconds} s");
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error));
    };
    match read {
        Ok(bytes) => {
            let request = Request::from_parts(parts, Body::from(bytes.clone()));
            Ok((request, bytes))
        }
        Err(e) if is_too_long(&e) => Err(too_long(&format!("more than {len_max}"), len_max)),
        Err(_) => {
            let error = "the request's body is not complete".to_string();
            Err(Refusal::new(StatusCode::BAD_REQUEST, error))
        }
    }
}

fn too_long(len: &str, len_max: usize) -> Refusal {
    let error = format!("the request's body has {len} bytes, must be at most {len_max}");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error)
}

fn is_too_long(e: &axum::Error) -> bool {
    e.source().is_some_and(|s| s.is::<LengthLimitError>())
}
