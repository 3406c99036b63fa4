//! The router that serves the routes, and the answers to whether the controller is well.

use crate::access::Gate;
use crate::openapi::openapi;
use crate::shared::Shared;
use crate::{
    access, apps, audit_route, backups, events, hardware, metrics, node_plan, nodes, operate,
    orchestrator, pending, power, restores, secrets, tokens,
};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use e3_http::{Refusal, as_json};
use e3_model::api::*;
use std::sync::Arc;

pub(crate) fn router(shared: Shared, gate: Gate) -> Router {
    Router::new()
        .merge(process_routes())
        .merge(node_routes())
        .merge(app_routes())
        .merge(cluster_routes())
        .merge(backup_routes())
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "no such path"))
        .layer(axum::middleware::from_fn_with_state(
            shared.clone(),
            nodes::wait_for_nodes,
        ))
        .merge(process_ends())
        // Bodies are read, within the bounds of their routes, before the handlers see them.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(gate),
            access::check,
        ))
        .layer(axum::middleware::map_response(as_json))
        .with_state(shared)
}

/// About this process.
fn process_routes() -> Router<Shared> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(async || Json(openapi())))
}

/// What says that a node's process has ended: the controller takes note of it before it waits for the
/// members after a start.
fn process_ends() -> Router<Shared> {
    Router::new()
        .route("/v1/nodes/hello", post(nodes::hello))
        .route("/v1/nodes/exited", post(nodes::exited))
}

/// For nodes, and about them.
fn node_routes() -> Router<Shared> {
    Router::new()
        .route(
            "/v1/nodes",
            get(async |State(s): State<Shared>| Json(s.core().node_views())).post(hardware::add),
        )
        .route("/v1/nodes/{name}", get(nodes::node))
        .route("/v1/nodes/{id}/plan", get(node_plan::plan))
        .route("/v1/nodes/{id}/report", post(nodes::report))
        .route(
            "/v1/nodes/{id}/secrets/{name}/{secret}",
            get(secrets::for_node),
        )
        .route(
            "/v1/nodes/{id}/backups/{backup}/{part}",
            post(backups::take),
        )
        .route(
            "/v1/nodes/{id}/restores/{restore}/{part}",
            get(restores::fetch),
        )
        .route("/v1/blobs/{digest}", get(apps::blob))
        .route("/v1/drain", post(operate::drain))
        .route("/v1/cordon", post(hardware::cordon))
        .route("/v1/resume", post(operate::resume))
        .route("/v1/remove", post(hardware::remove))
}

/// Applications: what they are, and what operators change of them.
fn app_routes() -> Router<Shared> {
    Router::new()
        .route(
            "/v1/apps",
            get(async |State(s): State<Shared>| Json(s.core().app_views())).post(apps::deploy),
        )
        .route("/v1/apps/{name}", get(apps::app).delete(apps::delete_app))
        .route("/v1/apps/{name}/endpoints", get(apps::endpoints))
        .route("/v1/apps/{name}/timers", get(pending::timers))
        .route("/v1/apps/{name}/secrets", get(secrets::list))
        .route(
            "/v1/apps/{name}/secrets/{secret}",
            get(secrets::for_older_node)
                .post(secrets::set)
                .delete(secrets::delete),
        )
        .route(
            "/v1/apps/{name}/secrets/{secret}/previous",
            delete(secrets::retire),
        )
        .route(
            "/v1/apps/{name}/secrets/{secret}/sealed",
            get(secrets::sealed),
        )
        .route(
            "/v1/instances",
            get(async |State(s): State<Shared>| Json(s.core().instance_views())),
        )
        .route(
            "/v1/channels",
            get(async |State(s): State<Shared>| Json(s.core().channel_views())),
        )
        .route("/v1/migrations", post(apps::migrate))
        .route("/v1/forget", post(apps::forget))
        .route("/v1/scale", post(operate::scale))
        .route("/v1/reshard", post(operate::reshard))
        .route("/v1/rollback", post(operate::rollback))
}

/// The cluster as a whole.
fn cluster_routes() -> Router<Shared> {
    Router::new()
        .route(
            "/v1/cluster",
            get(async |State(s): State<Shared>| Json(s.core().cluster_view())),
        )
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .route("/v1/audit", get(audit_route::list))
        .route("/v1/events", get(events::list))
        .route(
            "/v1/orchestrator",
            get(orchestrator::view).post(orchestrator::set),
        )
        .route("/v1/power", get(power::list).post(power::cap))
        .route("/v1/format", post(operate::raise_format))
}

/// Backups and restores of applications.
fn backup_routes() -> Router<Shared> {
    Router::new()
        .route("/v1/backups", post(backups::begin))
        .route(
            "/v1/backups/{backup}",
            get(backups::view).delete(backups::end),
        )
        .route("/v1/backups/{backup}/{file}", get(backups::fetch))
        .route("/v1/restores", post(restores::begin))
        .route("/v1/restores/{restore}/{part}", post(restores::upload))
}

fn status(status: ProcessStatus) -> Json<StatusView> {
    Json(StatusView { status })
}

async fn healthz(State(s): State<Shared>) -> Result<Json<StatusView>, Refusal> {
    match s.core().broken() {
        None => Ok(status(ProcessStatus::Ok)),
        Some(e) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, e)),
    }
}

async fn readyz(State(s): State<Shared>) -> Result<Json<StatusView>, Refusal> {
    let problems = s.core().problems();
    if problems.is_empty() {
        return Ok(status(ProcessStatus::Ready));
    }
    Err(Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        problems.join("; "),
    ))
}
