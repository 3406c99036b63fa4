//! The outcome of a request as an HTTP response.

use crate::calls::{Given, Refused, Result as Ending};
use crate::head::Form;
use crate::limits::NOT_READY_WAIT_S;
use crate::record;
use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use e3_http::Refusal;
use e3_wire::entry::{Outcome, Reply};

/// Header with the outcome of the request, in a word.
pub const OUTCOME: HeaderName = HeaderName::from_static("e3-outcome");
/// Header with the service's own status.
pub const STATUS: HeaderName = HeaderName::from_static("e3-status");
/// Header with the attempts that the node made.
pub const ATTEMPTS: HeaderName = HeaderName::from_static("e3-attempts");
/// Header with the identity of the request, as dead letters show it.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("e3-request-id");

/// Values of the header [`OUTCOME`].
pub(crate) const OUTCOMES: [&str; 6] = [
    "done",
    "failed",
    "expired",
    "overloaded",
    "refused",
    "unknown",
];

/// Answer to a call that was taken.
pub(crate) fn given(app: &str, given: Given, wants: Form) -> Response {
    let outcome = match &given.result {
        Ending::Reply(reply) => match reply.outcome {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Expired => "expired",
            Outcome::Unknown => "unknown",
            Outcome::Overloaded => "overloaded",
            Outcome::Rejected | Outcome::Conflict => "refused",
        },
        Ending::Overloaded { .. } => "overloaded",
        Ending::Deleted => "refused",
        Ending::NoAnswer | Ending::Stopped => "unknown",
    };
    let attempts = given.attempts;
    let id = given.id.to_string();
    let mut response = match given.result {
        Ending::Reply(reply) if reply.outcome == Outcome::Done => done(reply, wants),
        Ending::Reply(reply) => not_done(app, &reply).into_response(),
        Ending::Overloaded { wait_s } => overloaded(app, wait_s).into_response(),
        Ending::Deleted => Refusal::new(
            StatusCode::NOT_FOUND,
            format!("application {app:?} was deleted"),
        )
        .into_response(),
        Ending::NoAnswer => {
            let error = format!("application {app:?} did not answer before the deadline");
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, error)
                .hint("the request may still be handled; retry it with the same Idempotency-Key, at any node")
                .into_response()
        }
        Ending::Stopped => stopping().into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(OUTCOME, HeaderValue::from_static(outcome));
    headers.insert(ATTEMPTS, attempts.into());
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    response
}

fn done(reply: Reply, wants: Form) -> Response {
    let record = record::from_cbor(&reply.payload);
    let mut response = match (record, wants) {
        (Some(record), Form::Json) => Json(record).into_response(),
        (Some(_), Form::Cbor) => raw("application/cbor", reply.payload),
        _ => raw("application/octet-stream", reply.payload),
    };
    response.headers_mut().insert(STATUS, reply.status.into());
    response
}

fn raw(kind: &'static str, bytes: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static(kind))], bytes).into_response()
}

fn not_done(app: &str, reply: &Reply) -> Refusal {
    let reason = String::from_utf8_lossy(&reply.payload);
    match reply.outcome {
        Outcome::Expired => {
            let error = format!("application {app:?}: request expired: {reason}");
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, error).hint(
                "it was not handled and is a dead letter; retry it with the same Idempotency-Key, or without one as a new request",
            )
        }
        Outcome::Failed => {
            let error = format!("application {app:?}: request failed: {reason}");
            let hint = format!(
                "it is a dead letter; see: e3 get dead-letters --app {app}; once the cause is fixed: e3 replay {app}"
            );
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error).hint(hint)
        }
        Outcome::Unknown => {
            let error = format!("application {app:?}: outcome of the request is unknown: {reason}");
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, error).hint(
                "it came long after its deadline or after a fail-over; repeat it with its idempotency key, if it has one, or look whether it took effect before you send it as a new request",
            )
        }
        Outcome::Conflict => key_reused(),
        _ => {
            let error = format!("application {app:?} did not take the request: {reason}");
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error).retry_after(NOT_READY_WAIT_S)
        }
    }
}

/// Answer to a call that was not taken.
pub(crate) fn refused(app: &str, refused: Refused) -> Refusal {
    match refused {
        Refused::NotReady => stopping(),
        Refused::NoApp { known } => {
            let error = format!("there is no application {app:?}");
            let hint = if known.is_empty() {
                "deploy one with: e3 deploy".to_string()
            } else {
                format!("there are: {}", known.join(", "))
            };
            Refusal::new(StatusCode::NOT_FOUND, error).hint(hint)
        }
        Refused::Overloaded { wait_s } => {
            let refusal = overloaded(app, wait_s);
            refusal.header(OUTCOME, HeaderValue::from_static("overloaded"))
        }
        Refused::DeadlineTooLong {
            timeout,
            timeout_max,
        } => {
            let (ms, ms_max) = (timeout.as_millis(), timeout_max.as_millis());
            let error =
                format!("E3-Deadline-Ms is {ms}, must be at most {ms_max} for application {app:?}");
            Refusal::bad(error)
                .hint("the bound is the deadline in its manifest, or a minute if that is longer")
                .header(OUTCOME, HeaderValue::from_static("refused"))
        }
        Refused::KeyReused => key_reused().header(OUTCOME, HeaderValue::from_static("refused")),
    }
}

fn key_reused() -> Refusal {
    Refusal::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "the Idempotency-Key was used for a request with another routing key or payload",
    )
    .hint("a new request needs a new Idempotency-Key")
}

fn overloaded(app: &str, wait_s: u64) -> Refusal {
    let error = format!("application {app:?} has too many requests in flight at this node");
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, error)
        .hint(format!("nothing was done; retry after {wait_s} s"))
        .retry_after(wait_s)
}

fn stopping() -> Refusal {
    Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the node takes no requests: it is starting, stopping, or not a member of the cluster",
    )
    .hint("retry at another node, with the same Idempotency-Key; see: e3 get nodes")
    .retry_after(NOT_READY_WAIT_S)
}
