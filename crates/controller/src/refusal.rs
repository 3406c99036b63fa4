//! Refusals: every answer of 400 and above has the same body.

use crate::core::ExecuteError;
use crate::limits::ERROR_LEN_MAX;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use e3_control::CommandError;
use e3_model::api::ErrorView;
use e3_store::StoreError;

/// An error as the API tells it.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: ErrorView,
    header: Option<(HeaderName, String)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, error: String) -> Refusal {
        Refusal {
            status,
            body: ErrorView { error, hint: None },
            header: None,
        }
    }

    pub(crate) fn with_hint(mut self, hint: String) -> Refusal {
        self.body.hint = Some(hint);
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: String) -> Refusal {
        self.header = Some((name, value));
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (
            self.status,
            axum::response::AppendHeaders(self.header),
            Json(self.body),
        )
            .into_response()
    }
}

impl From<ExecuteError> for Refusal {
    fn from(e: ExecuteError) -> Refusal {
        let status = match &e {
            ExecuteError::Command(c) => match c {
                CommandError::NoApp(_)
                | CommandError::NoNode { .. }
                | CommandError::NoShard(_)
                | CommandError::NoReplica { .. } => StatusCode::NOT_FOUND,
                CommandError::Fixed { .. }
                | CommandError::NoVersion(_)
                | CommandError::Moving { .. }
                | CommandError::AlreadyThere { .. } => StatusCode::CONFLICT,
                CommandError::Admit(_)
                | CommandError::Misfit { .. }
                | CommandError::NoAppId
                | CommandError::TooManyApps(_) => StatusCode::UNPROCESSABLE_ENTITY,
            },
            ExecuteError::Store(_) | ExecuteError::Broken(_) => StatusCode::INSUFFICIENT_STORAGE,
        };
        Refusal::new(status, e.to_string())
    }
}

impl From<StoreError> for Refusal {
    fn from(e: StoreError) -> Refusal {
        Refusal::new(StatusCode::INSUFFICIENT_STORAGE, e.to_string())
    }
}

/// Refusals of the framework (paths, queries, bodies, methods) in the shape of all others.
pub(crate) async fn as_json(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let json = kind.is_some_and(|k| k.as_bytes().starts_with(b"application/json"));
    if !(status.is_client_error() || status.is_server_error()) || json {
        return response;
    }
    let body = axum::body::to_bytes(response.into_body(), ERROR_LEN_MAX).await;
    let text = String::from_utf8_lossy(&body.unwrap_or_default()).replace('\n', " ");
    let reason = status.canonical_reason().unwrap_or("refused");
    let error = match text.trim() {
        "" => reason.to_ascii_lowercase(),
        text => text.to_string(),
    };
    Refusal::new(status, error).into_response()
}

pub(crate) fn bad_json(e: &JsonRejection) -> Refusal {
    Refusal::new(e.status(), e.body_text())
}
