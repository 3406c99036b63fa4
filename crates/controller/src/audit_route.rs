//! The handler of the API for the audit log.

use crate::limits::AUDIT_ANSWER_MAX;
use crate::shared::Shared;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use e3_http::Refusal;
use e3_model::api::AuditView;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AuditQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    since_unix_ms: u64,
}

pub(crate) async fn list(
    State(s): State<Shared>,
    Query(q): Query<AuditQuery>,
) -> Result<Json<Vec<AuditView>>, Refusal> {
    let read = s.audit().read(q.after, q.since_unix_ms, AUDIT_ANSWER_MAX);
    read.map(Json).map_err(|e| {
        let error = format!("the audit log cannot be read: {e}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    })
}
