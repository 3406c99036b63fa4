//! What services need to run: code, assets and secrets. A thread of its own fetches and compiles what
//! a plan names, so that views apply at once and a fail-over never waits for it. What shards of this
//! node need comes first. The rest follows: later shards here find it.

use crate::agent::{AgentEvent, Api, NoBytes};
use crate::complaints::Complaints;
use crate::config::NodeError;
use crate::essential;
use crate::limits::{LOAD_RETRY_INTERVAL, RETRY_INTERVAL, SUPPLIES_RETRY_MAX};
use e3_engine::{Code, Loader};
use e3_model::api::SecretValue;
use e3_model::application::Service;
use e3_model::plan::{AppPlan, NodePlan, Release};
use e3_model::{AppId, NodeId, ServiceId};
use e3_net::Doorbell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

/// What is here of what the plan names.
#[derive(Clone, Default)]
pub(crate) struct Supplies {
    /// By the module's SHA-256: its code, or why it does not load.
    pub(crate) code: BTreeMap<String, Result<Code, String>>,
    /// By SHA-256.
    pub(crate) assets: BTreeMap<String, Arc<[u8]>>,
    /// By application and name: those of services with shards here.
    pub(crate) secrets: BTreeMap<(AppId, String), Secret>,
    /// Why not all is here that services with shards here need.
    pub(crate) missing: BTreeMap<(AppId, ServiceId), String>,
}

/// A secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret {
    /// Grows each time it is set.
    pub(crate) version: u64,
    pub(crate) value: Vec<u8>,
    /// The value before, while services may still read it.
    pub(crate) previous: Option<Vec<u8>>,
}

/// What an instance is started with, as far as it may change while the instance serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inputs {
    /// Version of the application.
    pub(crate) code_version: u32,
    /// By secret: its version.
    secrets: BTreeMap<String, u64>,
}

impl Inputs {
    pub(crate) fn of(
        app: AppId,
        release: &Release,
        service: ServiceId,
        supplies: &Supplies,
    ) -> Inputs {
        Inputs {
            code_version: release.code_version,
            secrets: supplies.secret_versions(app, release.app.service(service)),
        }
    }

    /// Of a service without secrets.
    #[cfg(test)]
    pub(crate) fn of_version(code_version: u32) -> Inputs {
        Inputs {
            code_version,
            secrets: BTreeMap::new(),
        }
    }
}

impl Supplies {
    /// Whether a service has all that it needs to start in a version, or can never have it.
    pub(crate) fn suffice(&self, app: AppId, release: &Release, service: ServiceId) -> bool {
        let spec = release.app.service(service);
        let names = spec.assets.iter();
        let mut assets = names.filter_map(|name| release.assets.get(name));
        let mut secrets = spec.secrets.iter();
        self.code.contains_key(module(release, service))
            && assets.all(|digest| self.assets.contains_key(digest))
            && secrets.all(|name| self.secrets.contains_key(&(app, name.clone())))
    }

    /// Versions of the secrets of a service.
    pub(crate) fn secret_versions(&self, app: AppId, service: &Service) -> BTreeMap<String, u64> {
        let names = service.secrets.iter();
        let versions = names.filter_map(|name| {
            let secret = self.secrets.get(&(app, name.clone()))?;
            Some((name.clone(), secret.version))
        });
        versions.collect()
    }

    fn retain(&mut self, plan: &NodePlan, needs: &[Need]) {
        let releases: Vec<Release> = plan.apps.iter().flat_map(AppPlan::releases).collect();
        let is_named = |digest: &String| releases.iter().any(|r| r.modules.contains(digest));
        self.code.retain(|digest, _| is_named(digest));
        let is_named = |digest: &String| {
            let mut assets = releases.iter().flat_map(|r| r.assets.values());
            assets.any(|asset| asset == digest)
        };
        self.assets.retain(|digest, _| is_named(digest));
        let reads = |app: AppId, name: &String| {
            let mut here = needs.iter().filter(|n| n.is_here && n.app == app);
            here.any(|n| n.release.app.service(n.service).secrets.contains(name))
        };
        self.secrets.retain(|(app, name), _| reads(*app, name));
    }
}

/// SHA-256 of a service's module.
pub(crate) fn module(release: &Release, service: ServiceId) -> &String {
    &release.modules[usize::from(service.0)]
}

/// Fetches and compiles. It holds what it has given to the driver.
pub(crate) struct Supplier {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) api: Api,
    pub(crate) loader: Loader,
    pub(crate) have: Supplies,
    /// Modules by SHA-256.
    pub(crate) modules: BTreeMap<String, Arc<[u8]>>,
    /// Modules that were compiled, or cannot be.
    pub(crate) compiled: BTreeSet<String>,
    /// Whether modules are loaded again that did not load.
    pub(crate) loads_again: bool,
    /// Whether the driver has what is in `have`.
    pub(crate) is_told: bool,
    /// What was logged of each service.
    pub(crate) complaints: BTreeMap<(AppId, ServiceId), Complaints>,
    pub(crate) agent_events: Sender<AgentEvent>,
    pub(crate) bell: Doorbell,
}

impl Supplier {
    /// Starts the thread. It ends when the one that sends plans or the driver does.
    pub(crate) fn start(mut self, plans: Receiver<Arc<NodePlan>>) -> Result<(), NodeError> {
        let work = move || {
            self.loader.yield_to_others();
            let Ok(mut plan) = plans.recv() else { return };
            let mut pause = RETRY_INTERVAL;
            loop {
                let supplied = self.supply(&plan, &plans);
                self.loads_again = false;
                let wait = match supplied {
                    Supplied::All if self.has_failed() => LOAD_RETRY_INTERVAL,
                    Supplied::All => Duration::MAX,
                    Supplied::InPart => pause,
                    Supplied::Superseded(newer) => {
                        (plan, pause) = (newer, RETRY_INTERVAL);
                        continue;
                    }
                    Supplied::NotWanted => return,
                };
                plan = match plans.recv_timeout(wait) {
                    Ok(newer) => {
                        pause = RETRY_INTERVAL;
                        newer
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        pause = (pause * 2).min(SUPPLIES_RETRY_MAX);
                        self.loads_again = wait == LOAD_RETRY_INTERVAL;
                        plan
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                };
            }
        };
        essential::spawn("e3-supplies", work).map(drop)
    }

    /// Whether a module did not load. The machine may have lacked memory for it.
    fn has_failed(&self) -> bool {
        self.have.code.values().any(Result::is_err)
    }

    /// Brings what is here to the plan, until a newer one comes.
    fn supply(&mut self, plan: &Arc<NodePlan>, plans: &Receiver<Arc<NodePlan>>) -> Supplied {
        let mut needs = needs(plan, self.node);
        self.have.retain(plan, &needs);
        let is_named = |digest: &String| {
            let mut digests = needs.iter().map(|n| module(&n.release, n.service));
            digests.any(|named| named == digest)
        };
        self.modules.retain(|digest, _| is_named(digest));
        self.compiled.retain(is_named);
        let has = |app: AppId| plan.apps.iter().any(|named| named.id == app);
        self.complaints.retain(|(app, _), _| has(*app));
        needs.sort_by_key(|need| !need.is_here);
        let (mut supplied, mut missing) = (Supplied::All, BTreeMap::new());
        for need in &needs {
            match plans.try_recv() {
                Ok(newer) => return Supplied::Superseded(newer),
                Err(TryRecvError::Disconnected) => return Supplied::NotWanted,
                Err(TryRecvError::Empty) => {}
            }
            let fetched = self.fetch(need);
            if let Err(e) = fetched.and_then(|()| self.load(need)) {
                let complaints = self.complaints.entry((need.app, need.service));
                let text = e.to_string();
                if complaints.or_default().is_new(&text) {
                    let service = &need.release.app.service(need.service).name;
                    tracing::warn!(
                        service,
                        error = text,
                        "not all that the service needs is here"
                    );
                }
                supplied = Supplied::InPart;
                // A controller that is away for a moment is no error of the service.
                if need.is_here && !matches!(e, NoBytes::Lost { .. }) {
                    missing.insert((need.app, need.service), text);
                }
            } else if need.is_here && !self.tell() {
                return Supplied::NotWanted;
            }
        }
        if matches!(supplied, Supplied::All) {
            self.complaints.clear();
        }
        self.is_told &= missing == self.have.missing;
        self.have.missing = missing;
        if self.tell() {
            supplied
        } else {
            Supplied::NotWanted
        }
    }

    /// Gives the driver what is here, if that is news. Whether the driver still runs.
    fn tell(&mut self) -> bool {
        if std::mem::replace(&mut self.is_told, true) {
            return true;
        }
        let event = AgentEvent::Supplies(self.have.clone());
        let is_running = self.agent_events.send(event).is_ok();
        self.bell.ring();
        is_running
    }

    /// Fetches the assets and secrets of a service.
    fn fetch(&mut self, need: &Need) -> Result<(), NoBytes> {
        let release = &need.release;
        let spec = release.app.service(need.service);
        let names = spec.assets.iter();
        for digest in names.filter_map(|name| release.assets.get(name)) {
            if !self.have.assets.contains_key(digest) {
                let asset = self.api.blob(digest)?;
                self.have.assets.insert(digest.clone(), asset);
                self.is_told = false;
            }
        }
        // A node has the secrets of what runs there only.
        let here = spec.secrets.iter().filter(|_| need.is_here);
        for name in here {
            let wanted = need.secrets.get(name).copied();
            let key = (need.app, name.clone());
            let held = self.have.secrets.get(&key).map(|s| s.version);
            if held.is_none() || held < wanted {
                let secret = self.secret(&release.app.name, name, wanted.is_some())?;
                self.have.secrets.insert(key, secret);
                self.is_told = false;
            }
        }
        Ok(())
    }

    /// Fetches a secret. In clusters before format 8 the plan does not have its version, and the
    /// controller gives its bytes.
    fn secret(&self, app: &str, name: &str, has_version: bool) -> Result<Secret, NoBytes> {
        if !has_version {
            let path = format!("/v1/apps/{app}/secrets/{name}");
            let value = self.api.bytes(&path)?;
            return Ok(Secret {
                version: 0,
                value,
                previous: None,
            });
        }
        let (node, incarnation) = (self.node.0, self.incarnation);
        let path = format!("/v1/nodes/{node}/secrets/{app}/{name}?incarnation={incarnation}");
        let bytes = self.api.bytes(&path)?;
        // What is wrong with it is not said: an error's text may quote it.
        let unreadable = || {
            let text = format!("secret {name:?} of application {app:?} cannot be read");
            let (path, status) = (path.clone(), 200);
            NoBytes::Refused { path, status, text }
        };
        let read: SecretValue = serde_json::from_slice(&bytes).map_err(|_| unreadable())?;
        let unhex = |text: &str| unhex(text).ok_or_else(unreadable);
        Ok(Secret {
            version: read.version,
            value: unhex(&read.value)?,
            previous: read.previous.as_deref().map(unhex).transpose()?,
        })
    }

    /// Compiles the module of a service, and keeps its code for shards that are here.
    fn load(&mut self, need: &Need) -> Result<(), NoBytes> {
        let digest = module(&need.release, need.service);
        let has = if need.is_here {
            let code = self.have.code.get(digest);
            code.is_some_and(|code| code.is_ok() || !self.loads_again)
        } else {
            self.compiled.contains(digest)
        };
        if has {
            return Ok(());
        }
        let wasm = match self.modules.get(digest) {
            Some(wasm) => wasm.clone(),
            None => {
                let wasm = self.api.blob(digest)?;
                self.modules.insert(digest.clone(), wasm.clone());
                wasm
            }
        };
        let code = self.loader.load(&wasm).map_err(|e| e.to_string());
        if let Err(e) = &code {
            let service = &need.release.app.service(need.service).name;
            tracing::error!(service, error = e, "module does not compile");
        }
        self.compiled.insert(digest.clone());
        if need.is_here {
            self.have.code.insert(digest.clone(), code);
            self.is_told = false;
        }
        Ok(())
    }
}

/// Bytes of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [_, _] => u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok(),
        _ => None,
    };
    digits.map(byte).collect()
}

/// A service in a version that may run.
struct Need {
    app: AppId,
    /// By secret of the application: its version.
    secrets: BTreeMap<String, u64>,
    release: Release,
    service: ServiceId,
    /// Whether the node has shards of it.
    is_here: bool,
}

/// All services of a plan, in the versions that may run.
fn needs(plan: &NodePlan, node: NodeId) -> Vec<Need> {
    let mut needs = Vec::new();
    for app in &plan.apps {
        for release in app.releases() {
            for service in (0..release.modules.len()).map(|s| ServiceId(s as u16)) {
                let mut shards = app.shards.iter();
                let is_here = shards.any(|s| s.service == service && s.role(node).is_some());
                needs.push(Need {
                    app: app.id,
                    secrets: app.secrets.clone(),
                    release: release.clone(),
                    service,
                    is_here,
                });
            }
        }
    }
    needs
}

/// How far a plan was supplied.
enum Supplied {
    All,
    /// Something cannot be fetched now.
    InPart,
    Superseded(Arc<NodePlan>),
    /// Nobody wants it any more.
    NotWanted,
}
