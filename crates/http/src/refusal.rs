//! Refusals: a status of 400 or more, with the same kind of body in every answer.

use crate::limits::ERROR_LEN_MAX;
use axum::Json;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use e3_model::api::ErrorView;

/// An answer with a status of 400 or more.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    body: ErrorView,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Refusal {
    /// A refusal without hint and headers.
    pub fn new(status: StatusCode, error: impl Into<String>) -> Refusal {
        let error = error.into();
        Refusal {
            status,
            body: ErrorView { error, hint: None },
            headers: Vec::new(),
        }
    }

    /// What is wrong.
    pub fn error(&self) -> &str {
        &self.body.error
    }

    /// Status 400.
    pub fn bad(error: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, error)
    }

    /// Status 401: the token is missing or wrong.
    pub fn unauthorized(error: &str) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, error)
            .hint("send the header `Authorization: Bearer TOKEN`; an administrator makes TOKEN with `e3 token create`, and the owner's is in the file `token` of the cluster's state directory")
            .header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Adds a hint: what to do about it.
    pub fn hint(mut self, hint: impl Into<String>) -> Refusal {
        self.body.hint = Some(hint.into());
        self
    }

    /// Adds a header to the answer.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Refusal {
        self.headers.push((name, value));
        self
    }

    /// Says when to retry.
    pub fn retry_after(self, wait_s: u64) -> Refusal {
        self.header(RETRY_AFTER, wait_s.into())
    }
}

/// Why a request was refused: beside every refusal, for those who log it.
#[derive(Clone, Debug)]
pub struct Reason(pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let reason = Reason(self.body.error.clone());
        let mut response = (self.status, Json(self.body)).into_response();
        response.extensions_mut().insert(reason);
        for (name, value) in self.headers {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// Gives refusals of the framework (paths, queries, bodies, methods) the form of all others.
pub async fn as_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE);
    let is_json = kind.is_some_and(|k| k.as_bytes().starts_with(b"application/json"));
    if !(status.is_client_error() || status.is_server_error()) || is_json {
        return response;
    }
    let allow = response.headers().get(ALLOW).cloned();
    let body = axum::body::to_bytes(response.into_body(), ERROR_LEN_MAX).await;
    let text = String::from_utf8_lossy(&body.unwrap_or_default()).replace('\n', " ");
    let reason = status.canonical_reason().unwrap_or("refused");
    let error = match text.trim() {
        "" => reason.to_ascii_lowercase(),
        text => text.to_string(),
    };
    let mut refusal = Refusal::new(status, error);
    if let Some(allow) = allow {
        refusal = refusal.header(ALLOW, allow);
    }
    refusal.into_response()
}
