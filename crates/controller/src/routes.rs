//! The HTTP API: routes, errors, OpenAPI.

use crate::access::{self, Access, Gate};
use crate::limits::{BODY_LEN_MAX, DEPLOY_LEN_MAX, REPORT_LEN_MAX};
use crate::refusal::{Refusal, as_json, bad_json};
use crate::{Shared, metrics, nodes};
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use e3_control::CommandError;
use e3_model::api::*;
use schemars::{JsonSchema, Schema, schema_for};
use serde_json::{Value, json};
use std::sync::Arc;

/// One route of the API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Method.
    pub method: &'static str,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Who may use it.
    pub access: Access,
    /// Bytes of its body, if it takes one.
    body_len_max: Option<usize>,
    request: Option<fn() -> Schema>,
    response: Option<fn() -> Schema>,
}

fn schema<T: JsonSchema>() -> Schema {
    schema_for!(T)
}

const fn route(
    access: Access,
    method: &'static str,
    path: &'static str,
    summary: &'static str,
) -> Route {
    Route {
        method,
        path,
        summary,
        access,
        body_len_max: None,
        request: None,
        response: None,
    }
}

impl Route {
    const fn takes(mut self, request: fn() -> Schema, len_max: usize) -> Route {
        self.request = Some(request);
        self.body_len_max = Some(len_max);
        self
    }

    const fn takes_json(mut self, len_max: usize) -> Route {
        self.body_len_max = Some(len_max);
        self
    }

    const fn gives(mut self, response: fn() -> Schema) -> Route {
        self.response = Some(response);
        self
    }

    /// Its method, as requests name it.
    pub(crate) fn method(&self) -> String {
        self.method.to_ascii_uppercase()
    }

    pub(crate) fn is(&self, method: &Method) -> bool {
        method.as_str().eq_ignore_ascii_case(self.method)
    }

    /// Bytes of its body, if it takes one.
    pub(crate) fn body_len_max(&self) -> Option<usize> {
        self.body_len_max
    }
}

use Access::{Node, Open, Owner};

/// All routes. What is not in this table is refused, whatever the router says.
pub static ROUTES: [Route; 20] = [
    route(
        Open,
        "get",
        "/healthz",
        "the process works and can write its log",
    ),
    route(
        Open,
        "get",
        "/readyz",
        "everything that should run runs, and nothing is stuck",
    ),
    route(
        Owner,
        "get",
        "/metrics",
        "figures in Prometheus' text format, base units",
    ),
    route(Open, "get", "/openapi.json", "this description"),
    route(Owner, "get", "/v1/cluster", "the cluster").gives(schema::<ClusterView>),
    route(Owner, "get", "/v1/nodes", "all nodes").gives(schema::<Vec<NodeView>>),
    route(Owner, "get", "/v1/nodes/{name}", "one node").gives(schema::<NodeView>),
    route(Owner, "get", "/v1/apps", "all applications").gives(schema::<Vec<AppView>>),
    route(
        Owner,
        "post",
        "/v1/apps",
        "deploy an application; with ?dryRun=true only check whether it would be",
    )
    .takes(schema::<DeployRequest>, DEPLOY_LEN_MAX)
    .gives(schema::<DeployResponse>),
    route(Owner, "get", "/v1/apps/{name}", "one application").gives(schema::<AppView>),
    route(
        Owner,
        "delete",
        "/v1/apps/{name}",
        "delete an application and its state",
    ),
    route(
        Owner,
        "get",
        "/v1/apps/{name}/endpoints",
        "where clients send requests",
    )
    .gives(schema::<EndpointsView>),
    route(
        Node,
        "get",
        "/v1/apps/{name}/secrets/{secret}",
        "a secret's bytes, for nodes",
    ),
    route(Owner, "get", "/v1/instances", "all instances").gives(schema::<Vec<InstanceView>>),
    route(
        Owner,
        "get",
        "/v1/channels",
        "all channels, as their senders see them",
    ),
    route(
        Owner,
        "post",
        "/v1/migrations",
        "move a replica to another node",
    )
    .takes(schema::<MigrateRequest>, BODY_LEN_MAX)
    .gives(schema::<MigrateResponse>),
    route(
        Node,
        "get",
        "/v1/blobs/{digest}",
        "a module or asset by its SHA-256",
    ),
    route(Node, "post", "/v1/nodes/hello", "for nodes: join").takes_json(BODY_LEN_MAX),
    route(
        Node,
        "get",
        "/v1/nodes/{name}/plan",
        "for nodes, by id: the plan, if newer than `after`",
    ),
    route(
        Node,
        "post",
        "/v1/nodes/{name}/report",
        "for nodes, by id: state and events",
    )
    .takes_json(REPORT_LEN_MAX),
];

/// The OpenAPI description of the routes.
pub fn openapi() -> Value {
    let mut paths = serde_json::Map::new();
    let content = |s: fn() -> Schema| json!({ "application/json": { "schema": s() } });
    for r in ROUTES {
        let parameters: Vec<Value> = r
            .path
            .split('/')
            .filter_map(|p| p.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
            .collect();
        let mut ok = json!({ "description": "done" });
        if let Some(response) = r.response {
            ok["content"] = content(response);
        }
        let mut operation = json!({
            "summary": r.summary,
            "parameters": parameters,
            "responses": {
                "200": ok,
                "default": { "description": "refused", "content": content(schema::<ErrorView>) },
            },
        });
        if let Some(request) = r.request {
            operation["requestBody"] = json!({ "required": true, "content": content(request) });
        }
        let path = paths.entry(r.path).or_insert_with(|| json!({}));
        path[r.method] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "E3 controller", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
    })
}

pub(crate) fn router(shared: Shared, gate: Gate) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(async || Json(openapi())))
        .route(
            "/v1/cluster",
            get(async |State(s): State<Shared>| Json(s.core().cluster_view())),
        )
        .route(
            "/v1/nodes",
            get(async |State(s): State<Shared>| Json(s.core().node_views())),
        )
        .route("/v1/nodes/hello", post(nodes::hello))
        .route("/v1/nodes/{name}", get(node))
        .route("/v1/nodes/{name}/plan", get(nodes::plan))
        .route("/v1/nodes/{name}/report", post(nodes::report))
        .route(
            "/v1/apps",
            get(async |State(s): State<Shared>| Json(s.core().app_views())).post(deploy),
        )
        .route("/v1/apps/{name}", get(app))
        .route("/v1/apps/{name}", delete(delete_app))
        .route("/v1/apps/{name}/endpoints", get(endpoints))
        .route("/v1/apps/{name}/secrets/{secret}", get(secret))
        .route(
            "/v1/instances",
            get(async |State(s): State<Shared>| Json(s.core().instance_views())),
        )
        .route(
            "/v1/channels",
            get(async |State(s): State<Shared>| Json(s.core().channel_views())),
        )
        .route("/v1/migrations", post(migrate))
        .route("/v1/blobs/{digest}", get(blob))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "no such path".into()))
        // Bodies are read, within the bounds of their routes, before the handlers see them.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(gate),
            access::check,
        ))
        .layer(axum::middleware::map_response(as_json))
        .with_state(shared)
}

async fn healthz(State(s): State<Shared>) -> Result<Json<Value>, Refusal> {
    match s.core().broken() {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(e) => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, e)),
    }
}

async fn readyz(State(s): State<Shared>) -> Result<Json<Value>, Refusal> {
    let problems = s.core().problems();
    if problems.is_empty() {
        return Ok(Json(json!({ "status": "ready" })));
    }
    Err(Refusal::new(
        StatusCode::SERVICE_UNAVAILABLE,
        problems.join("; "),
    ))
}

fn no_app(name: &str) -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        CommandError::NoApp(name.into()).to_string(),
    )
}

async fn node(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<NodeView>, Refusal> {
    let core = s.core();
    let mut views = core.node_views();
    let known: Vec<String> = views.iter().map(|n| n.name.clone()).collect();
    match views.iter().position(|n| n.name == name) {
        Some(at) => Ok(Json(views.swap_remove(at))),
        None => {
            let error = CommandError::NoNode { name, known };
            Err(Refusal::new(StatusCode::NOT_FOUND, error.to_string()))
        }
    }
}

async fn app(State(s): State<Shared>, Path(name): Path<String>) -> Result<Json<AppView>, Refusal> {
    let core = s.core();
    let id = core.control.app_named(&name).ok_or_else(|| no_app(&name))?;
    Ok(Json(core.app_view(id, true)))
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeployQuery {
    #[serde(default)]
    dry_run: bool,
}

async fn deploy(
    State(s): State<Shared>,
    Query(query): Query<DeployQuery>,
    body: Result<Json<DeployRequest>, JsonRejection>,
) -> Result<Json<DeployResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    Ok(Json(s.core().deploy(&request, query.dry_run)?))
}

async fn delete_app(
    State(s): State<Shared>,
    Path(app): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let mut core = s.core();
    core.execute(&e3_control::Command::Delete { app })?;
    core.sweep();
    Ok(Json(json!({})))
}

async fn endpoints(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<EndpointsView>, Refusal> {
    let core = s.core();
    let id = core.control.app_named(&name).ok_or_else(|| no_app(&name))?;
    Ok(Json(core.endpoints_view(id)))
}

async fn secret(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
) -> Result<Vec<u8>, Refusal> {
    let core = s.core();
    let id = core.control.app_named(&app).ok_or_else(|| no_app(&app))?;
    let declared = core.control.apps[&id]
        .plan
        .app
        .spec
        .secrets
        .iter()
        .any(|s| s.name == name);
    let value = declared.then(|| core.blobs.secret(&app, &name)).flatten();
    value.ok_or_else(|| {
        let error = format!("application {app:?} has no secret {name:?}");
        Refusal::new(StatusCode::NOT_FOUND, error)
    })
}

async fn migrate(
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

async fn blob(State(s): State<Shared>, Path(digest): Path<String>) -> Response {
    match s.core().blobs.get(&digest) {
        Some(bytes) => {
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        None => {
            let error = format!("there is no blob {digest:?}");
            Refusal::new(StatusCode::NOT_FOUND, error).into_response()
        }
    }
}
