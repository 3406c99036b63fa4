//! The controller's HTTP API, as a client.

use crate::failure::{Exit, Failure};
use crate::limits::{API_BODY_LEN_MAX, API_TIMEOUT};
use crate::settings::Settings;
use crate::state_dir::StateDir;
use e3_model::api::{
    AppView, ChannelView, ClusterView, DeployRequest, DeployResponse, EndpointsView, ErrorView,
    InstanceView, MigrateRequest, NodeView,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// A controller to talk to.
#[derive(Clone)]
pub struct Client {
    base: String,
    http: ureq::Agent,
}

impl Client {
    /// The controller that the settings name, or that of the cluster in the state directory.
    pub fn connect(settings: &Settings) -> Result<Client, Failure> {
        if let Some(url) = &settings.controller {
            if !url.starts_with("http://") {
                let message = format!("controller {url:?} must begin with http://");
                return Err(Failure::new(Exit::Input, message));
            }
            return Ok(Client::new(url));
        }
        let state = StateDir::new(&settings.dir);
        match state.running()? {
            Some(cluster) => Ok(Client::new(&cluster.url())),
            None => Err(Failure::new(
                Exit::Unreachable,
                format!("no cluster is up in {}", settings.dir.display()),
            )
            .hint("start one with: e3 up --detach")),
        }
    }

    /// The controller at a URL.
    pub fn new(url: &str) -> Client {
        Client::with_timeout(url, API_TIMEOUT)
    }

    /// The same controller, with another longest wait for an answer.
    pub fn patience(&self, timeout: Duration) -> Client {
        Client::with_timeout(&self.base, timeout)
    }

    fn with_timeout(url: &str, timeout: Duration) -> Client {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(Duration::from_secs(2)))
            .proxy(None)
            .build();
        Client {
            base: url.trim_end_matches('/').to_string(),
            http: config.into(),
        }
    }

    /// `GET /v1/cluster`.
    pub fn cluster(&self) -> Result<ClusterView, Failure> {
        self.get("/v1/cluster")
    }
    /// `GET /v1/nodes`.
    pub fn nodes(&self) -> Result<Vec<NodeView>, Failure> {
        self.get("/v1/nodes")
    }
    /// `GET /v1/nodes/{name}`.
    pub fn node(&self, name: &str) -> Result<NodeView, Failure> {
        self.get(&format!("/v1/nodes/{}", segment("node", name)?))
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
    /// `GET /v1/apps/{name}/endpoints`.
    pub fn endpoints(&self, app: &str) -> Result<EndpointsView, Failure> {
        self.get(&format!(
            "/v1/apps/{}/endpoints",
            segment("application", app)?
        ))
    }
    /// `POST /v1/apps`.
    pub fn deploy(&self, request: &DeployRequest) -> Result<DeployResponse, Failure> {
        let response = self.http.post(self.path("/v1/apps")).send_json(request);
        self.answer(response)
    }
    /// `DELETE /v1/apps/{name}`.
    pub fn delete(&self, app: &str) -> Result<(), Failure> {
        let path = format!("/v1/apps/{}", segment("application", app)?);
        self.body(self.http.delete(self.path(&path)).call())
            .map(drop)
    }
    /// `POST /v1/migrations`.
    pub fn migrate(&self, request: &MigrateRequest) -> Result<(), Failure> {
        self.post("/v1/migrations", request)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.answer(self.http.get(self.path(path)).call())
    }

    fn post(&self, path: &str, request: &impl Serialize) -> Result<(), Failure> {
        self.body(self.http.post(self.path(path)).send_json(request))
            .map(drop)
    }

    fn path(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn answer<T: DeserializeOwned>(&self, response: Response) -> Result<T, Failure> {
        let body = self.body(response)?;
        serde_json::from_slice(&body).map_err(|e| {
            let message = format!("the answer of {} cannot be read: {e}", self.base);
            Failure::new(Exit::Unexpected, message)
                .hint("is the controller of the same version as this program?")
        })
    }

    fn body(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let unreachable = |e: ureq::Error| {
            let (exit, hint) = match e {
                ureq::Error::Timeout(_) => (Exit::Timeout, "see: e3 logs controller"),
                _ => (
                    Exit::Unreachable,
                    "is it up? see: e3 doctor, e3 logs controller",
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
            400 | 413 | 422 => Exit::Input,
            503 => Exit::Unreachable,
            _ => Exit::Unexpected,
        };
        let view = serde_json::from_slice(&body).unwrap_or_else(|_| ErrorView {
            error: format!(
                "controller answered {status}: {}",
                String::from_utf8_lossy(&body)
            ),
            hint: None,
        });
        let failure = Failure::new(exit, view.error);
        Err(match view.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        })
    }
}

type Response = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// A name as a part of a path. Names hold nothing that would need an escape.
fn segment<'a>(what: &str, name: &'a str) -> Result<&'a str, Failure> {
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
