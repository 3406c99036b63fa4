//! What services need to run: code, assets and secrets. A thread of its own fetches and compiles what
//! a plan names, so that views apply at once and a fail-over never waits for it. What shards of this
//! node need comes first. The rest follows: later shards here find it.

use crate::agent::{AgentEvent, Api};
use crate::limits::RETRY_INTERVAL;
use e3_engine::{Code, Loader};
use e3_model::plan::{AppPlan, NodePlan};
use e3_model::{AppId, NodeId, ServiceId};
use e3_net::Doorbell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::thread;

/// What is here of what the plan names.
#[derive(Clone, Default)]
pub(crate) struct Supplies {
    /// By the module's SHA-256: its code, or why it does not load.
    pub(crate) code: BTreeMap<String, Result<Code, String>>,
    /// By SHA-256.
    pub(crate) assets: BTreeMap<String, Arc<[u8]>>,
    /// By application and name.
    pub(crate) secrets: BTreeMap<(AppId, String), Vec<u8>>,
}

impl Supplies {
    /// Whether a service has all that it needs to start, or can never have it.
    pub(crate) fn suffice(&self, app: &AppPlan, service: ServiceId) -> bool {
        let spec = app.app.service(service);
        let mut assets = spec.assets.iter().filter_map(|name| app.assets.get(name));
        let mut secrets = spec.secrets.iter();
        self.code.contains_key(module(app, service))
            && assets.all(|digest| self.assets.contains_key(digest))
            && secrets.all(|name| self.secrets.contains_key(&(app.id, name.clone())))
    }

    fn retain(&mut self, plan: &NodePlan) {
        let is_named = |digest: &String| plan.apps.iter().any(|a| a.modules.contains(digest));
        self.code.retain(|digest, _| is_named(digest));
        let is_named = |digest: &String| {
            let mut assets = plan.apps.iter().flat_map(|a| a.assets.values());
            assets.any(|asset| asset == digest)
        };
        self.assets.retain(|digest, _| is_named(digest));
        let apps: BTreeSet<AppId> = plan.apps.iter().map(|a| a.id).collect();
        self.secrets.retain(|(app, _), _| apps.contains(app));
    }
}

/// SHA-256 of a service's module.
pub(crate) fn module(app: &AppPlan, service: ServiceId) -> &String {
    &app.modules[usize::from(service.0)]
}

/// Fetches and compiles. It holds what it has given to the driver.
pub(crate) struct Supplier {
    pub(crate) node: NodeId,
    pub(crate) api: Api,
    pub(crate) loader: Loader,
    pub(crate) have: Supplies,
    /// Modules by SHA-256.
    pub(crate) modules: BTreeMap<String, Arc<[u8]>>,
    /// Modules that were compiled, or cannot be.
    pub(crate) compiled: BTreeSet<String>,
    /// Whether the driver has what is in `have`.
    pub(crate) is_told: bool,
    pub(crate) agent_events: Sender<AgentEvent>,
    pub(crate) bell: Doorbell,
}

impl Supplier {
    /// Starts the thread. It ends when the one that sends plans or the driver does.
    pub(crate) fn start(mut self, plans: Receiver<Arc<NodePlan>>) {
        thread::spawn(move || {
            self.loader.yield_to_others();
            let Ok(mut plan) = plans.recv() else { return };
            loop {
                let next = match self.supply(&plan, &plans) {
                    Supplied::All => plans.recv().ok(),
                    Supplied::Superseded(newer) => Some(newer),
                    Supplied::InPart => match plans.recv_timeout(RETRY_INTERVAL) {
                        Ok(newer) => Some(newer),
                        Err(RecvTimeoutError::Timeout) => Some(plan),
                        Err(RecvTimeoutError::Disconnected) => None,
                    },
                    Supplied::NotWanted => None,
                };
                match next {
                    Some(next) => plan = next,
                    None => return,
                }
            }
        });
    }

    /// Brings what is here to the plan, until a newer one comes.
    fn supply(&mut self, plan: &Arc<NodePlan>, plans: &Receiver<Arc<NodePlan>>) -> Supplied {
        self.have.retain(plan);
        let is_named = |digest: &String| plan.apps.iter().any(|a| a.modules.contains(digest));
        self.modules.retain(|digest, _| is_named(digest));
        self.compiled.retain(is_named);
        let services = plan.apps.iter().flat_map(|app| {
            let services = (0..app.modules.len()).map(|s| ServiceId(s as u16));
            services.map(move |service| (app, service))
        });
        let is_here = |(app, service): &(&AppPlan, ServiceId)| {
            let mut shards = app.shards.iter();
            shards.any(|s| s.service == *service && s.role(self.node).is_some())
        };
        let (here, elsewhere): (Vec<_>, Vec<_>) = services.partition(is_here);
        let here = here.into_iter().map(|(app, service)| (app, service, true));
        let elsewhere = elsewhere.into_iter().map(|(app, s)| (app, s, false));
        let mut supplied = Supplied::All;
        for (app, service, is_here) in here.chain(elsewhere) {
            match plans.try_recv() {
                Ok(newer) => return Supplied::Superseded(newer),
                Err(TryRecvError::Disconnected) => return Supplied::NotWanted,
                Err(TryRecvError::Empty) => {}
            }
            let fetched = self.fetch(app, service);
            if let Err(e) = fetched.and_then(|()| self.load(app, service, is_here)) {
                let service = &app.app.service(service).name;
                tracing::warn!(service, error = e, "not all that the service needs is here");
                supplied = Supplied::InPart;
            } else if is_here && !std::mem::replace(&mut self.is_told, true) {
                let event = AgentEvent::Supplies(self.have.clone());
                if self.agent_events.send(event).is_err() {
                    return Supplied::NotWanted;
                }
                self.bell.ring();
            }
        }
        supplied
    }

    /// Fetches the assets and secrets of a service.
    fn fetch(&mut self, app: &AppPlan, service: ServiceId) -> Result<(), String> {
        let spec = app.app.service(service);
        for digest in spec.assets.iter().filter_map(|name| app.assets.get(name)) {
            if !self.have.assets.contains_key(digest) {
                let asset = self.api.bytes(&format!("/v1/blobs/{digest}"))?;
                self.have.assets.insert(digest.clone(), asset.into());
                self.is_told = false;
            }
        }
        for name in &spec.secrets {
            let key = (app.id, name.clone());
            if !self.have.secrets.contains_key(&key) {
                let path = format!("/v1/apps/{}/secrets/{name}", app.app.name);
                let secret = self.api.bytes(&path)?;
                self.have.secrets.insert(key, secret);
                self.is_told = false;
            }
        }
        Ok(())
    }

    /// Compiles the module of a service, and keeps its code for shards that are here.
    fn load(&mut self, app: &AppPlan, service: ServiceId, is_here: bool) -> Result<(), String> {
        let digest = module(app, service);
        let has = match is_here {
            true => self.have.code.contains_key(digest),
            false => self.compiled.contains(digest),
        };
        if has {
            return Ok(());
        }
        let wasm = match self.modules.get(digest) {
            Some(wasm) => wasm.clone(),
            None => {
                let wasm: Arc<[u8]> = self.api.bytes(&format!("/v1/blobs/{digest}"))?.into();
                self.modules.insert(digest.clone(), wasm.clone());
                wasm
            }
        };
        let code = self.loader.load(&wasm).map_err(|e| e.to_string());
        if let Err(e) = &code {
            let service = &app.app.service(service).name;
            tracing::error!(service, error = e, "module does not compile");
        }
        self.compiled.insert(digest.clone());
        if is_here {
            self.have.code.insert(digest.clone(), code);
            self.is_told = false;
        }
        Ok(())
    }
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
