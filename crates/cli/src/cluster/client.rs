//! A client of the controller's HTTP API.

use crate::cluster::credentials::read_token;
use crate::cluster::state_dir::{RunningCluster, StateDir};
use crate::limits::{API_BODY_LEN_MAX, API_IDLE_MAX, API_TIMEOUT, CONNECT_TIMEOUT};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use e3_model::api::{
    AddNodesRequest, AddNodesResponse, AppView, BackupRequest, BackupView, ChannelView,
    ChunkResponse, ClusterView, CordonResponse, DeployRequest, DeployResponse, DrainRequest,
    DrainResponse, EndpointsView, ErrorView, ExitedRequest, ExitedResponse, ForgetRequest,
    ForgetResponse, FormatRequest, FormatResponse, InstanceView, MigrateRequest, MigrateResponse,
    NodeRequest, NodeView, PendingView, RemoveNodeResponse, ReshardRequest, ReshardResponse,
    RestoreResponse, RollbackRequest, RollbackResponse, ScaleRequest, ScaleResponse, StatusView,
};
use e3_model::{Format, Token};
use e3_node::AddressResolver;
use serde::de::DeserializeOwned;
use std::time::Duration;
use ureq::RequestBuilder;
use ureq::unversioned::transport::DefaultConnector;

/// A connection to a controller.
#[derive(Clone)]
pub struct Client {
    base: String,
    pub(super) http: ureq::Agent,
    token: Option<Token>,
}

impl Client {
    /// Connects to the controller of the settings, else to that of the cluster in the state directory.
    pub fn connect(settings: &Settings) -> Result<Client, Failure> {
        let state = StateDir::new(&settings.dir);
        if let Some(url) = &settings.controller {
            if !url.starts_with("http://") {
                let message =
                    format!("the URL of the controller is {url:?}, must start with http://");
                return Err(Failure::new(Exit::Input, message));
            }
            let url = url.trim_end_matches('/');
            let token = settings.token()?;
            return match state.running() {
                Ok(Some(cluster)) if token.is_none() && cluster.url() == url => {
                    Client::of(&state, &cluster)
                }
                _ => Ok(Client::new(url, token, API_TIMEOUT)),
            };
        }
        let cluster = state.require_running()?;
        match settings.token()? {
            token @ Some(_) => Ok(Client::new(&cluster.url(), token, API_TIMEOUT)),
            None => Client::of(&state, &cluster),
        }
    }

    /// Connects to the controller of the cluster in a state directory.
    pub fn of(state: &StateDir, cluster: &RunningCluster) -> Result<Client, Failure> {
        let token = read_token(&state.token_file())?;
        Ok(Client::new(&cluster.url(), Some(token), API_TIMEOUT))
    }

    /// The same controller, with another timeout for requests.
    pub fn with_timeout(&self, timeout: Duration) -> Client {
        Client::new(&self.base, self.token.clone(), timeout)
    }

    fn new(url: &str, token: Option<Token>, timeout: Duration) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_age(API_IDLE_MAX)
            .proxy(None)
            .build();
        Client {
            base: url.to_string(),
            http: ureq::Agent::with_parts(
                config,
                DefaultConnector::default(),
                AddressResolver::default(),
            ),
            token,
        }
    }

    /// `GET /healthz`: an error says why the controller decides nothing.
    pub fn health(&self) -> Result<StatusView, Failure> {
        self.get("/healthz")
    }
    /// `GET /v1/cluster`.
    pub fn cluster(&self) -> Result<ClusterView, Failure> {
        self.get("/v1/cluster")
    }
    /// `GET /v1/nodes`.
    pub fn nodes(&self) -> Result<Vec<NodeView>, Failure> {
        self.get("/v1/nodes")
    }
    /// One of them. `GET /v1/nodes/{name}` would take a node named `hello` for another route.
    pub fn node(&self, name: &str) -> Result<NodeView, Failure> {
        let nodes = self.nodes()?;
        let known: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
        let error = format!(
            "there is no node {name:?}; the topology has {}",
            known.join(", ")
        );
        let node = nodes.into_iter().find(|n| n.name == name);
        node.ok_or_else(|| Failure::new(Exit::NotFound, error))
    }
    /// `GET /v1/apps`.
    pub fn apps(&self) -> Result<Vec<AppView>, Failure> {
        self.get("/v1/apps")
    }
    /// `GET /v1/apps/{name}`.
    pub fn app(&self, name: &str) -> Result<AppView, Failure> {
        self.get(&format!("/v1/apps/{}", segment("application", name)?))
    }
    /// `GET /v1/instances`.
    pub fn instances(&self) -> Result<Vec<InstanceView>, Failure> {
        self.get("/v1/instances")
    }
    /// `GET /v1/channels`.
    pub fn channels(&self) -> Result<Vec<ChannelView>, Failure> {
        self.get("/v1/channels")
    }
    /// `GET /v1/apps/{name}/timers`.
    pub fn timers(&self, app: &str, service: Option<&str>) -> Result<Vec<PendingView>, Failure> {
        let query = match service {
            Some(service) => format!("?service={}", segment("service", service)?),
            None => String::new(),
        };
        self.get(&format!(
            "/v1/apps/{}/timers{query}",
            segment("application", app)?
        ))
    }
    /// `GET /v1/apps/{name}/endpoints`.
    pub fn endpoints(&self, app: &str) -> Result<EndpointsView, Failure> {
        self.get(&format!(
            "/v1/apps/{}/endpoints",
            segment("application", app)?
        ))
    }
    /// `POST /v1/apps`.
    pub fn deploy(&self, request: &DeployRequest) -> Result<DeployResponse, Failure> {
        let post = self.http.post(self.path("/v1/apps"));
        self.answer(self.authorized(post).send_json(request))
    }
    /// `POST /v1/apps?dryRun=true`.
    pub fn dry_run(&self, request: &DeployRequest) -> Result<DeployResponse, Failure> {
        let path = self.path("/v1/apps?dryRun=true");
        let post = self.http.post(path);
        self.answer(self.authorized(post).send_json(request))
    }
    /// `DELETE /v1/apps/{name}`.
    pub fn delete(&self, app: &str) -> Result<(), Failure> {
        let path = format!("/v1/apps/{}", segment("application", app)?);
        let delete = self.http.delete(self.path(&path));
        self.body(self.authorized(delete).call()).map(drop)
    }
    /// `POST /v1/migrations`.
    pub fn migrate(&self, request: &MigrateRequest) -> Result<MigrateResponse, Failure> {
        let post = self.http.post(self.path("/v1/migrations"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `POST /v1/forget`.
    pub fn forget(&self, shard: &str) -> Result<ForgetResponse, Failure> {
        let shard = shard.to_string();
        let request = self.http.post(self.path("/v1/forget"));
        self.answer(self.authorized(request).send_json(ForgetRequest { shard }))
    }

    /// `POST /v1/drain`.
    pub fn drain(&self, request: &DrainRequest) -> Result<DrainResponse, Failure> {
        let post = self.http.post(self.path("/v1/drain"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `POST /v1/resume`.
    pub fn resume(&self, node: &str) -> Result<DrainResponse, Failure> {
        let node = node.to_string();
        let request = self.http.post(self.path("/v1/resume"));
        self.answer(self.authorized(request).send_json(NodeRequest { node }))
    }

    /// `POST /v1/nodes`.
    pub fn add_nodes(&self, request: &AddNodesRequest) -> Result<AddNodesResponse, Failure> {
        let post = self.http.post(self.path("/v1/nodes"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `POST /v1/cordon`.
    pub fn cordon(&self, node: &str) -> Result<CordonResponse, Failure> {
        let node = node.to_string();
        let request = self.http.post(self.path("/v1/cordon"));
        self.answer(self.authorized(request).send_json(NodeRequest { node }))
    }

    /// `POST /v1/remove`.
    pub fn remove_node(&self, node: &str) -> Result<RemoveNodeResponse, Failure> {
        let node = node.to_string();
        let request = self.http.post(self.path("/v1/remove"));
        self.answer(self.authorized(request).send_json(NodeRequest { node }))
    }

    /// `POST /v1/format`.
    pub fn raise_format(&self, format: Format) -> Result<FormatResponse, Failure> {
        let post = self.http.post(self.path("/v1/format"));
        self.answer(self.authorized(post).send_json(FormatRequest { format }))
    }

    /// `POST /v1/scale`.
    pub fn scale(&self, request: &ScaleRequest) -> Result<ScaleResponse, Failure> {
        let post = self.http.post(self.path("/v1/scale"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `POST /v1/reshard`.
    pub fn reshard(&self, request: &ReshardRequest) -> Result<ReshardResponse, Failure> {
        let post = self.http.post(self.path("/v1/reshard"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `POST /v1/rollback`.
    pub fn rollback(&self, app: &str) -> Result<RollbackResponse, Failure> {
        let app = app.to_string();
        let post = self.http.post(self.path("/v1/rollback"));
        self.answer(self.authorized(post).send_json(RollbackRequest { app }))
    }

    /// `POST /v1/backups`.
    pub fn begin_backup(&self, app: &str) -> Result<BackupView, Failure> {
        let app = app.to_string();
        let post = self.http.post(self.path("/v1/backups"));
        self.answer(self.authorized(post).send_json(BackupRequest { app }))
    }

    /// `GET /v1/backups/{backup}`.
    pub fn backup(&self, backup: u64) -> Result<BackupView, Failure> {
        self.get(&format!("/v1/backups/{backup}"))
    }

    /// `GET /v1/backups/{backup}/{file}`: bytes from an offset on.
    pub fn backup_file(&self, backup: u64, file: &str, offset: u64) -> Result<Vec<u8>, Failure> {
        let path = self.path(&format!("/v1/backups/{backup}/{file}?offset={offset}"));
        self.body(self.authorized(self.http.get(path)).call())
    }

    /// `DELETE /v1/backups/{backup}`.
    pub fn end_backup(&self, backup: u64) -> Result<(), Failure> {
        let path = self.path(&format!("/v1/backups/{backup}"));
        self.body(self.authorized(self.http.delete(path)).call())
            .map(drop)
    }

    /// `POST /v1/restores`.
    pub fn begin_restore(&self, app: &str) -> Result<RestoreResponse, Failure> {
        let app = app.to_string();
        let post = self.http.post(self.path("/v1/restores"));
        self.answer(self.authorized(post).send_json(BackupRequest { app }))
    }

    /// `POST /v1/restores/{restore}/{part}`.
    pub fn restore_part(
        &self,
        restore: u64,
        part: &str,
        offset: u64,
        bytes: &[u8],
    ) -> Result<ChunkResponse, Failure> {
        let path = self.path(&format!("/v1/restores/{restore}/{part}?offset={offset}"));
        self.answer(self.authorized(self.http.post(path)).send(bytes))
    }

    /// `POST /v1/nodes/exited`.
    pub fn exited(&self, node: &str, pid: u32) -> Result<ExitedResponse, Failure> {
        let node = node.to_string();
        let request = self.http.post(self.path("/v1/nodes/exited"));
        self.answer(
            self.authorized(request)
                .send_json(ExitedRequest { node, pid }),
        )
    }

    pub(super) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.answer(self.authorized(self.http.get(self.path(path))).call())
    }

    pub(super) fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", token.authorization()),
            None => request,
        }
    }

    pub(super) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(super) fn answer<T: DeserializeOwned>(&self, response: Response) -> Result<T, Failure> {
        let body = self.body(response)?;
        serde_json::from_slice(&body).map_err(|e| {
            let message = format!("controller {}: unreadable response: {e}", self.base);
            Failure::new(Exit::Unexpected, message)
                .hint("controller and program may be of different versions")
        })
    }

    fn body(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let unreachable = |e: ureq::Error| {
            let (exit, hint) = match e {
                ureq::Error::Timeout(_) => (Exit::Timeout, "see: e3 logs controller"),
                _ => (
                    Exit::Unreachable,
                    "check that it is up: e3 doctor, e3 logs controller",
                ),
            };
            Failure::new(exit, format!("controller {}: {e}", self.base)).hint(hint)
        };
        let mut response = response.map_err(unreachable)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(API_BODY_LEN_MAX);
        let body = body.read_to_vec().map_err(unreachable)?;
        if status < 400 {
            return Ok(body);
        }
        let exit = match status {
            404 => Exit::NotFound,
            409 => Exit::Conflict,
            400 | 401 | 403 | 413 | 421 | 422 => Exit::Input,
            429 | 503 => Exit::Unreachable,
            _ => Exit::Unexpected,
        };
        let view = serde_json::from_slice(&body).unwrap_or_else(|_| ErrorView {
            error: format!(
                "controller responded {status}: {}",
                String::from_utf8_lossy(&body)
            ),
            hint: None,
        });
        if status == 401 {
            let failure = Failure::new(exit, format!("controller {}: {}", self.base, view.error));
            let hint = "set E3_TOKEN, or give --token-file FILE; e3 token create makes one, and the owner's token is in the file `token` of the cluster's state directory";
            return Err(failure.hint(hint));
        }
        let failure = Failure::new(exit, view.error);
        Err(match view.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    }
}

type Response = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// A name as a part of a path. Valid names need no escapes.
pub(super) fn segment<'a>(what: &str, name: &'a str) -> Result<&'a str, Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !name.is_empty() && name.chars().all(good) {
        Ok(name)
    } else {
        Err(Failure::new(
            Exit::NotFound,
            format!("there is no {what} {name:?}"),
        ))
    }
}
