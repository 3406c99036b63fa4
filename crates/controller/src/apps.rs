//! The handlers of the API for applications: deploying, reading, moving and forgetting.

use crate::audit::Subject;
use crate::deploy::Sent;
use crate::refusal::bad_json;
use crate::shared::{Shared, unblocked};
use crate::solve;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use e3_control::CommandError;
use e3_http::Refusal;
use e3_model::Format;
use e3_model::api::*;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

fn no_app(name: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        CommandError::NoApp(name.into()).to_string(),
    )
}

pub(crate) async fn app(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<AppView>, Refusal> {
    let core = s.core();
    let id = core.control.app_named(&name).ok_or_else(|| no_app(&name))?;
    Ok(Json(core.app_view(id, true)))
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct DeployQuery {
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn deploy(
    State(s): State<Shared>,
    Query(query): Query<DeployQuery>,
    request: Request,
) -> Result<(Extension<Subject>, Json<DeployResponse>), Refusal> {
    let blobs = s.core().blobs.clone();
    let blobs = Some(blobs).filter(|_| !query.dry_run);
    let runtime = Handle::current();
    // Its modules and assets may take long, and the controller serves the nodes meanwhile.
    let (request, sent) = unblocked(move || {
        // It stands for the memory of the body: see the module `access`.
        let _memory = request
            .extensions()
            .get::<Arc<OwnedSemaphorePermit>>()
            .cloned();
        let body = runtime.block_on(Json::<DeployRequest>::from_request(request, &()));
        let Json(mut request) = body.map_err(|e| bad_json(&e))?;
        let sent = Sent::read(&request, blobs.as_ref())?;
        (request.modules, request.assets) = Default::default();
        Ok::<_, Refusal>((request, sent))
    })
    .await?;
    if let Some(restore) = request.restore.as_ref().filter(|_| !query.dry_run) {
        let sync = s.core().restores.syncing(restore.restore, &restore.parts);
        unblocked(sync).await?;
    }
    let response = solve::deploy(&s, &request, sent, query.dry_run).await?;
    let subject = serde_json::to_string(&response).expect("answers have text keys only");
    Ok((Extension(Subject(subject)), Json(response)))
}

pub(crate) async fn delete_app(
    State(s): State<Shared>,
    Path(app): Path<String>,
) -> Result<Json<DeleteResponse>, Refusal> {
    let mut core = s.core();
    let name = app.clone();
    core.execute(&e3_control::Command::Delete { app })?;
    if core.control.format >= Format::ACCESS {
        core.blobs.remove_secrets(&name);
    }
    core.sweep();
    Ok(Json(DeleteResponse {}))
}

pub(crate) async fn endpoints(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<EndpointsView>, Refusal> {
    let core = s.core();
    let id = core.control.app_named(&name).ok_or_else(|| no_app(&name))?;
    Ok(Json(core.endpoints_view(id)))
}

pub(crate) async fn migrate(
    State(s): State<Shared>,
    body: Result<Json<MigrateRequest>, JsonRejection>,
) -> Result<Json<MigrateResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    let mut core = s.core();
    let command = core.migrate_command(&request)?;
    match core.execute(&command)? {
        e3_control::Applied::Moving(id) => Ok(Json(MigrateResponse { id })),
        other => unreachable!("a move begins or is refused, not {other:?}"),
    }
}

pub(crate) async fn forget(
    State(s): State<Shared>,
    body: Result<Json<ForgetRequest>, JsonRejection>,
) -> Result<Json<ForgetResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    let mut core = s.core();
    let command = core.forget_command(&request)?;
    core.execute(&command)?;
    tracing::warn!(shard = request.shard, "state given up by the operator");
    let shard = request.shard;
    Ok(Json(ForgetResponse { shard }))
}

pub(crate) async fn blob(State(s): State<Shared>, Path(digest): Path<String>) -> Response {
    let blobs = s.core().blobs.clone();
    let wanted = digest.clone();
    match unblocked(move || blobs.get(&wanted)).await {
        Ok(Some(bytes)) => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        Ok(None) => {
            let error = format!(
                "the controller has no module or asset with the SHA-256 {digest}; deploy the application again"
            );
            Refusal::new(StatusCode::NOT_FOUND, error).into_response()
        }
        Err(e) => {
            let error = e.to_string();
            s.core().complain(error.clone());
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error).into_response()
        }
    }
}
