//! The HTTP API: the table of routes.

use crate::access::Access;
use crate::limits::{
    BODY_LEN_MAX, CHUNK_LEN_MAX, DEPLOY_LEN_MAX, REPORT_LEN_MAX, TOPOLOGY_LEN_MAX,
};
use crate::route::{Answer, QueryOf, Route, route, schema};
use e3_control::limits::SECRET_LEN_MAX;
use e3_model::api::*;
use e3_model::plan::{NodeHello, NodePlan, NodeReport, NodeWelcome};
use e3_model::{AccessRole, Sealed};
use serde_json::{Map, Value};

use Access::{Node, Open};
use Answer::{Bytes, Json as Gives, Text};

const READ: Access = Access::Role(AccessRole::Read);
const DEPLOY: Access = Access::Role(AccessRole::Deploy);
const ADMIN: Access = Access::Role(AccessRole::Admin);

/// All routes. What is not in this table is refused, whatever the router says.
pub static ROUTES: [Route; 55] = [
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
    .refuses(&[409, 500, 507]),
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
        ("get", "/v1/power"),
        "listPower",
        "what racks and servers draw, measured or modelled, and their power caps",
        Gives(schema::<Vec<PowerView>>),
    ),
    route(
        ADMIN,
        ("post", "/v1/power"),
        "setPowerCap",
        "set the power cap of a server or a rack, or remove it",
        Gives(schema::<PowerView>),
    )
    .takes(schema::<PowerCapRequest>, BODY_LEN_MAX)
    .refuses(&[404, 409, 507]),
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
    .query(QueryOf::Offset)
    .refuses(&[500]),
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
    )
    .refuses(&[500]),
    route(
        Node,
        ("post", "/v1/nodes/hello"),
        "joinCluster",
        "for nodes: join",
        Gives(schema::<NodeWelcome>),
    )
    .takes(schema::<NodeHello>, REPORT_LEN_MAX)
    .refuses(&[404, 409, 507]),
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
    .query(QueryOf::Offset)
    .refuses(&[500]),
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
