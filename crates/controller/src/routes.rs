//! The HTTP API: the table of routes, and the router that serves them.

use crate::access::{self, Access, Gate};
use crate::limits::{
    BODY_LEN_MAX, CHUNK_LEN_MAX, DEPLOY_LEN_MAX, REPORT_LEN_MAX, TOPOLOGY_LEN_MAX,
};
use crate::shared::Shared;
use crate::{
    apps, audit_route, backups, events, hardware, metrics, node_plan, nodes, openapi::openapi,
    operate, orchestrator, pending, secrets, tokens,
};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use e3_control::limits::SECRET_LEN_MAX;
use e3_http::{Refusal, as_json};
use e3_model::api::*;
use e3_model::plan::{NodeHello, NodePlan, NodeReport, NodeWelcome};
use e3_model::{AccessRole, Sealed};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Makes the schema of a type, and of the types that it refers to.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Schema {
    schemas.subschema_for::<T>()
}

/// A body that a route takes: JSON, or bytes if it has no schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) schema: Option<SchemaOf>,
    pub(crate) len_max: usize,
}

/// What a route answers with status 200.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    Json(SchemaOf),
    /// Text of this media type.
    Text(&'static str),
    Bytes,
}

/// Parameters in the query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueryOf {
    None,
    Deploy,
    Plan,
    Offset,
    Service,
    /// Which process of a node asks.
    Process,
    Audit,
    Events,
}

/// One route of the API.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Name of the operation.
    pub name: &'static str,
    /// Method.
    pub method: &'static str,
    /// Path with parameters in braces.
    pub path: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Who may use it.
    pub access: Access,
    pub(crate) body: Option<Body>,
    pub(crate) answer: Answer,
    pub(crate) query: QueryOf,
    /// Statuses of refusals, beside those that follow from access, parameters and body.
    refusals: &'static [u16],
}

const fn route(
    access: Access,
    (method, path): (&'static str, &'static str),
    name: &'static str,
    summary: &'static str,
    answer: Answer,
) -> Route {
    Route {
        name,
        method,
        path,
        summary,
        access,
        body: None,
        answer,
        query: QueryOf::None,
        refusals: &[],
    }
}

impl Route {
    const fn takes(mut self, schema: SchemaOf, len_max: usize) -> Route {
        let schema = Some(schema);
        self.body = Some(Body { schema, len_max });
        self
    }

    const fn takes_bytes(mut self, len_max: usize) -> Route {
        let schema = None;
        self.body = Some(Body { schema, len_max });
        self
    }

    const fn query(mut self, query: QueryOf) -> Route {
        self.query = query;
        self
    }

    const fn refuses(mut self, statuses: &'static [u16]) -> Route {
        self.refusals = statuses;
        self
    }

    /// Its method, as requests name it.
    pub(crate) fn method(&self) -> String {
        self.method.to_ascii_uppercase()
    }

    pub(crate) fn is(&self, method: &Method) -> bool {
        method.as_str() == self.method()
    }

    /// Bytes of its body, if it takes one.
    pub(crate) fn body_len_max(&self) -> Option<usize> {
        self.body.map(|b| b.len_max)
    }

    /// Whether it changes something, and so is written to the audit log. The many requests that upload
    /// a state are not: the deployment that uses it is.
    pub(crate) fn is_command(&self) -> bool {
        let uploads = self.query == QueryOf::Offset;
        self.method != "get" && matches!(self.access, Access::Role(_)) && !uploads
    }

    /// Whether its body goes to the audit log: short JSON, never bytes, which may be a secret.
    pub(crate) fn body_is_audited(&self) -> bool {
        let short = |b: Body| b.schema.is_some() && b.len_max <= BODY_LEN_MAX;
        self.body.is_some_and(short)
    }

    /// Names of the parameters in its path.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        let parts = self.path.split('/');
        parts.filter_map(|p| p.strip_prefix('{')?.strip_suffix('}'))
    }

    /// All statuses of its refusals.
    pub(crate) fn statuses(&self) -> BTreeSet<u16> {
        // Any request: a foreign origin, another host, no place for the connection.
        let mut statuses = BTreeSet::from([403, 421, 503]);
        statuses.extend(self.refusals);
        match self.access {
            Access::Open => {}
            Access::Node => drop(statuses.insert(401)),
            Access::Role(_) => statuses.extend([401, 429]),
        }
        if self.path_parameters().next().is_some() {
            statuses.extend([400, 404]);
        }
        if self.query != QueryOf::None {
            statuses.insert(400);
        }
        if let Some(body) = &self.body {
            statuses.extend([400, 408, 413]);
            if body.schema.is_some() {
                statuses.extend([415, 422]);
            }
        }
        statuses
    }
}

use Access::{Node, Open};
use Answer::{Bytes, Json as Gives, Text};

const READ: Access = Access::Role(AccessRole::Read);
const DEPLOY: Access = Access::Role(AccessRole::Deploy);
const ADMIN: Access = Access::Role(AccessRole::Admin);

/// All routes. What is not in this table is refused, whatever the router says.
pub static ROUTES: [Route; 53] = [
    route(
        Open,
        ("get", "/healthz"),
        "getHealth",
        "the process works and can write its log",
        Gives(schema::<StatusView>),
    ),
    route(
        Open,
        ("get", "/readyz"),
        "getReadiness",
        "all nodes are up and every application is healthy",
        Gives(schema::<StatusView>),
    ),
    route(
        READ,
        ("get", "/metrics"),
        "getMetrics",
        "figures in Prometheus' text format, base units",
        Text("text/plain"),
    )
    .refuses(&[500]),
    route(
        Open,
        ("get", "/openapi.json"),
        "getOpenapi",
        "this description",
        Gives(schema::<Map<String, Value>>),
    ),
    route(
        READ,
        ("get", "/v1/cluster"),
        "getCluster",
        "the cluster",
        Gives(schema::<ClusterView>),
    ),
    route(
        READ,
        ("get", "/v1/nodes"),
        "listNodes",
        "all nodes",
        Gives(schema::<Vec<NodeView>>),
    ),
    route(
        ADMIN,
        ("post", "/v1/nodes"),
        "addNodes",
        "add racks, servers or nodes to the cluster",
        Gives(schema::<AddNodesResponse>),
    )
    .takes(schema::<AddNodesRequest>, TOPOLOGY_LEN_MAX)
    .refuses(&[409, 507]),
    route(
        READ,
        ("get", "/v1/nodes/{name}"),
        "getNode",
        "one node",
        Gives(schema::<NodeView>),
    ),
    route(
        READ,
        ("get", "/v1/apps"),
        "listApps",
        "all applications",
        Gives(schema::<Vec<AppView>>),
    ),
    route(
        DEPLOY,
        ("post", "/v1/apps"),
        "deployApp",
        "deploy an application, or update it in place",
        Gives(schema::<DeployResponse>),
    )
    .takes(schema::<DeployRequest>, DEPLOY_LEN_MAX)
    .query(QueryOf::Deploy)
    .refuses(&[409, 507]),
    route(
        READ,
        ("get", "/v1/apps/{name}"),
        "getApp",
        "one application",
        Gives(schema::<AppView>),
    ),
    route(
        DEPLOY,
        ("delete", "/v1/apps/{name}"),
        "deleteApp",
        "delete an application and its state",
        Gives(schema::<DeleteResponse>),
    )
    .refuses(&[507]),
    route(
        READ,
        ("get", "/v1/apps/{name}/endpoints"),
        "getEndpoints",
        "where clients send requests",
        Gives(schema::<EndpointsView>),
    ),
    route(
        READ,
        ("get", "/v1/apps/{name}/timers"),
        "listTimers",
        "timers, outbound requests and publications that are pending at each shard",
        Gives(schema::<Vec<PendingView>>),
    )
    .query(QueryOf::Service),
    route(
        DEPLOY,
        ("get", "/v1/apps/{name}/secrets"),
        "listSecrets",
        "secrets of an application, without their values",
        Gives(schema::<Vec<SecretView>>),
    ),
    route(
        DEPLOY,
        ("post", "/v1/apps/{name}/secrets/{secret}"),
        "setSecret",
        "give a secret a value; the one before stays readable for services",
        Gives(schema::<SecretView>),
    )
    .takes_bytes(SECRET_LEN_MAX)
    .refuses(&[409, 422, 500, 507]),
    route(
        DEPLOY,
        ("delete", "/v1/apps/{name}/secrets/{secret}"),
        "deleteSecret",
        "delete a secret that no running application names",
        Gives(schema::<DeleteSecretResponse>),
    )
    .refuses(&[409, 507]),
    route(
        DEPLOY,
        ("delete", "/v1/apps/{name}/secrets/{secret}/previous"),
        "retireSecret",
        "services can no longer read the value before the present one",
        Gives(schema::<SecretView>),
    )
    .refuses(&[507]),
    route(
        ADMIN,
        ("get", "/v1/apps/{name}/secrets/{secret}/sealed"),
        "getSealedSecret",
        "a secret as it is stored: encrypted",
        Gives(schema::<Sealed>),
    ),
    route(
        Node,
        ("get", "/v1/apps/{name}/secrets/{secret}"),
        "getSecret",
        "a secret's bytes, for nodes of clusters with format 7",
        Bytes,
    )
    .refuses(&[409]),
    route(
        ADMIN,
        ("get", "/v1/tokens"),
        "listTokens",
        "tokens and their roles, without their texts",
        Gives(schema::<Vec<TokenView>>),
    ),
    route(
        ADMIN,
        ("post", "/v1/tokens"),
        "createToken",
        "create a token, which is shown this once",
        Gives(schema::<TokenResponse>),
    )
    .takes(schema::<TokenRequest>, BODY_LEN_MAX)
    .refuses(&[409, 500, 507]),
    route(
        ADMIN,
        ("delete", "/v1/tokens/{token}"),
        "revokeToken",
        "revoke a token: its next request is refused",
        Gives(schema::<RevokeResponse>),
    )
    .refuses(&[409, 507]),
    route(
        ADMIN,
        ("get", "/v1/audit"),
        "listAudit",
        "the last commands, who gave them, and what came of them",
        Gives(schema::<Vec<AuditView>>),
    )
    .query(QueryOf::Audit)
    .refuses(&[500]),
    route(
        READ,
        ("get", "/v1/events"),
        "listEvents",
        "what happened lately: migrations, nodes lost and returned, decisions of the orchestrator",
        Gives(schema::<Vec<Event>>),
    )
    .query(QueryOf::Events),
    route(
        READ,
        ("get", "/v1/orchestrator"),
        "getOrchestrator",
        "settings of the orchestrator, and the instances that it has moved away",
        Gives(schema::<OrchestratorView>),
    ),
    route(
        ADMIN,
        ("post", "/v1/orchestrator"),
        "setOrchestrator",
        "change settings of the orchestrator; what is not named stays",
        Gives(schema::<OrchestratorView>),
    )
    .takes(schema::<OrchestratorRequest>, BODY_LEN_MAX)
    .refuses(&[409, 507]),
    route(
        READ,
        ("get", "/v1/instances"),
        "listInstances",
        "all instances",
        Gives(schema::<Vec<InstanceView>>),
    ),
    route(
        READ,
        ("get", "/v1/channels"),
        "listChannels",
        "all channels, as their senders see them",
        Gives(schema::<Vec<ChannelView>>),
    ),
    route(
        DEPLOY,
        ("post", "/v1/migrations"),
        "moveReplica",
        "move a replica to another node",
        Gives(schema::<MigrateResponse>),
    )
    .takes(schema::<MigrateRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        ADMIN,
        ("post", "/v1/forget"),
        "forgetShard",
        "give up the state of a shard whose only copies are on silent nodes",
        Gives(schema::<ForgetResponse>),
    )
    .takes(schema::<ForgetRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        ADMIN,
        ("post", "/v1/drain"),
        "drainNode",
        "take a node out of service: its replicas move elsewhere",
        Gives(schema::<DrainResponse>),
    )
    .takes(schema::<DrainRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        ADMIN,
        ("post", "/v1/resume"),
        "resumeNode",
        "take a drained or cordoned node back into service",
        Gives(schema::<DrainResponse>),
    )
    .takes(schema::<NodeRequest>, BODY_LEN_MAX)
    .refuses(&[404, 507]),
    route(
        ADMIN,
        ("post", "/v1/cordon"),
        "cordonNode",
        "a node gets no new instances, and keeps those that it has",
        Gives(schema::<CordonResponse>),
    )
    .takes(schema::<NodeRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        ADMIN,
        ("post", "/v1/remove"),
        "removeNode",
        "remove a node, on which nothing is, from the cluster for good",
        Gives(schema::<RemoveNodeResponse>),
    )
    .takes(schema::<NodeRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        ADMIN,
        ("post", "/v1/format"),
        "raiseFormat",
        "make a newer format the active one, when every node has it",
        Gives(schema::<FormatResponse>),
    )
    .takes(schema::<FormatRequest>, BODY_LEN_MAX)
    .refuses(&[409, 507]),
    route(
        DEPLOY,
        ("post", "/v1/scale"),
        "scaleService",
        "change how many copies the shards of a service have",
        Gives(schema::<ScaleResponse>),
    )
    .takes(schema::<ScaleRequest>, BODY_LEN_MAX)
    .refuses(&[404, 507]),
    route(
        DEPLOY,
        ("post", "/v1/reshard"),
        "reshardService",
        "change the number of shards of a service",
        Gives(schema::<ReshardResponse>),
    )
    .takes(schema::<ReshardRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        DEPLOY,
        ("post", "/v1/rollback"),
        "rollBackApp",
        "deploy the version before the running one again",
        Gives(schema::<RollbackResponse>),
    )
    .takes(schema::<RollbackRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        DEPLOY,
        ("post", "/v1/backups"),
        "beginBackup",
        "take a backup of an application while it serves",
        Gives(schema::<BackupView>),
    )
    .takes(schema::<BackupRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
    route(
        DEPLOY,
        ("get", "/v1/backups/{backup}"),
        "getBackup",
        "how far a backup is, and what its file is to hold",
        Gives(schema::<BackupView>),
    ),
    route(
        DEPLOY,
        ("delete", "/v1/backups/{backup}"),
        "endBackup",
        "give up a backup, or remove its files after they were fetched",
        Gives(schema::<DeleteResponse>),
    )
    .refuses(&[507]),
    route(
        DEPLOY,
        ("get", "/v1/backups/{backup}/{file}"),
        "getBackupFile",
        "bytes of a shard's state, or of a module or asset by its SHA-256",
        Bytes,
    )
    .query(QueryOf::Offset),
    route(
        DEPLOY,
        ("post", "/v1/restores"),
        "beginRestore",
        "where the states of shards go with which an application is to begin",
        Gives(schema::<RestoreResponse>),
    )
    .takes(schema::<BackupRequest>, BODY_LEN_MAX)
    .refuses(&[409, 507]),
    route(
        DEPLOY,
        ("post", "/v1/restores/{restore}/{part}"),
        "putRestorePart",
        "bytes of the state of a shard",
        Gives(schema::<ChunkResponse>),
    )
    .takes_bytes(CHUNK_LEN_MAX)
    .query(QueryOf::Offset)
    .refuses(&[409, 507]),
    route(
        ADMIN,
        ("post", "/v1/nodes/exited"),
        "exitedNode",
        "for who starts nodes: a process has ended",
        Gives(schema::<ExitedResponse>),
    )
    .takes(schema::<ExitedRequest>, BODY_LEN_MAX)
    .refuses(&[404, 507]),
    route(
        Node,
        ("get", "/v1/blobs/{digest}"),
        "getBlob",
        "a module or asset by its SHA-256",
        Bytes,
    ),
    route(
        Node,
        ("post", "/v1/nodes/hello"),
        "joinCluster",
        "for nodes: join",
        Gives(schema::<NodeWelcome>),
    )
    .takes(schema::<NodeHello>, BODY_LEN_MAX)
    .refuses(&[404, 507]),
    route(
        Node,
        ("get", "/v1/nodes/{id}/plan"),
        "getPlan",
        "for nodes: the plan, if it is newer than `after`",
        Gives(schema::<NodePlan>),
    )
    .query(QueryOf::Plan)
    .refuses(&[409]),
    route(
        Node,
        ("post", "/v1/nodes/{id}/report"),
        "reportNode",
        "for nodes: state and events",
        Gives(schema::<ReportResponse>),
    )
    .takes(schema::<NodeReport>, REPORT_LEN_MAX)
    .refuses(&[409]),
    route(
        Node,
        ("post", "/v1/nodes/{id}/backups/{backup}/{part}"),
        "putBackupPart",
        "for nodes: bytes of the state of a shard",
        Gives(schema::<ChunkResponse>),
    )
    .takes_bytes(CHUNK_LEN_MAX)
    .query(QueryOf::Offset)
    .refuses(&[409, 507]),
    route(
        Node,
        ("get", "/v1/nodes/{id}/restores/{restore}/{part}"),
        "getRestorePart",
        "for nodes: bytes of the state with which a shard begins",
        Bytes,
    )
    .query(QueryOf::Offset),
    route(
        Node,
        ("get", "/v1/nodes/{id}/secrets/{name}/{secret}"),
        "getSecretValue",
        "for nodes: a secret of a service that runs there",
        Gives(schema::<SecretValue>),
    )
    .query(QueryOf::Process)
    .refuses(&[409, 500]),
];

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
            get(async |State(s): State<Shared>| Json(s.core().node_views())).post(hardware::add),
        )
        .route("/v1/nodes/hello", post(nodes::hello))
        .route("/v1/nodes/exited", post(nodes::exited))
        .route("/v1/nodes/{name}", get(nodes::node))
        .route("/v1/nodes/{id}/plan", get(node_plan::plan))
        .route("/v1/nodes/{id}/report", post(nodes::report))
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
            "/v1/nodes/{id}/secrets/{name}/{secret}",
            get(secrets::for_node),
        )
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .route("/v1/audit", get(audit_route::list))
        .route("/v1/events", get(events::list))
        .route(
            "/v1/orchestrator",
            get(orchestrator::view).post(orchestrator::set),
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
        .route("/v1/drain", post(operate::drain))
        .route("/v1/cordon", post(hardware::cordon))
        .route("/v1/remove", post(hardware::remove))
        .route("/v1/format", post(operate::raise_format))
        .route("/v1/resume", post(operate::resume))
        .route("/v1/scale", post(operate::scale))
        .route("/v1/reshard", post(operate::reshard))
        .route("/v1/rollback", post(operate::rollback))
        .route("/v1/backups", post(backups::begin))
        .route(
            "/v1/backups/{backup}",
            get(backups::view).delete(backups::end),
        )
        .route("/v1/backups/{backup}/{file}", get(backups::fetch))
        .route("/v1/restores", post(backups::begin_restore))
        .route("/v1/restores/{restore}/{part}", post(backups::upload))
        .route(
            "/v1/nodes/{id}/backups/{backup}/{part}",
            post(backups::take),
        )
        .route(
            "/v1/nodes/{id}/restores/{restore}/{part}",
            get(backups::restored),
        )
        .route("/v1/blobs/{digest}", get(apps::blob))
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "no such path"))
        .layer(axum::middleware::from_fn_with_state(
            shared.clone(),
            nodes::wait_for_nodes,
        ))
        // Bodies are read, within the bounds of their routes, before the handlers see them.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(
            Arc::new(gate),
            access::check,
        ))
        .layer(axum::middleware::map_response(as_json))
        .with_state(shared)
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
