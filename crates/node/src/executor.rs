//! Runs the worker's handlers on the engine.

use crate::agent::Prepared;
use crate::log;
use e3_collections::State;
use e3_dataplane::{Execute, ExecuteOutcome, Executed};
use e3_engine::{
    Code, Engine, EngineConfig, EngineError, InstanceId, InstanceSpec, Outcome, Request,
};
use e3_model::{Nanos, ShardKey};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Longest turn of the engine before the driver looks at the network again.
const TURN_MAX: Duration = Duration::from_micros(500);

/// The engine of one worker, with shards in place of its instance ids.
pub(crate) struct Executor {
    engine: Engine,
    /// Loaded code by the module's SHA-256.
    code: BTreeMap<String, Code>,
    ids: BTreeMap<ShardKey, InstanceId>,
    keys: BTreeMap<InstanceId, ShardKey>,
}

impl Executor {
    pub(crate) fn new(config: EngineConfig) -> Result<Executor, EngineError> {
        let engine = Engine::new(config)?;
        Ok(Executor {
            engine,
            code: BTreeMap::new(),
            ids: BTreeMap::new(),
            keys: BTreeMap::new(),
        })
    }

    /// Makes an instance ready.
    pub(crate) fn start(
        &mut self,
        key: ShardKey,
        state: Rc<RefCell<State>>,
        prepared: &Prepared,
    ) -> Result<(), String> {
        self.stop(key);
        let apps = &prepared.plan.apps;
        let app = apps
            .iter()
            .find(|a| a.id == key.app)
            .ok_or("application is not in the plan")?;
        let service = app.app.service(key.service);
        let digest = &app.modules[usize::from(key.service.0)];
        if !self.code.contains_key(digest) {
            let wasm = prepared.blobs.get(digest).ok_or("module is not here")?;
            let code = self.engine.load(wasm).map_err(|e| e.to_string())?;
            self.code.insert(digest.clone(), code);
        }
        let secret = |name: &String| {
            let value = prepared.secrets.get(&(key.app, name.clone()))?;
            Some((name.clone(), value.clone()))
        };
        let asset = |name: &String| {
            let blob = prepared.blobs.get(app.assets.get(name)?)?;
            Some((name.clone(), blob.clone()))
        };
        let channels = || app.app.channels_from(key.service);
        let spec = InstanceSpec {
            name: format!("{}/{}/{}", app.app.name, service.name, key.shard),
            channels: channels()
                .map(|(_, _, c)| (c.name().to_string(), c.outputs))
                .collect(),
            collections: service.collections.clone(),
            secrets: service.secrets.iter().filter_map(secret).collect(),
            config: service.config.clone(),
            assets: service.assets.iter().filter_map(asset).collect(),
            memory_bytes_max: usize::try_from(service.resources.memory.0).unwrap_or(usize::MAX),
            deadline: Duration::from_nanos(service.deadline.0),
        };
        let id = (0..)
            .map(InstanceId)
            .find(|i| !self.keys.contains_key(i))
            .expect("endless");
        self.engine
            .start(id, &self.code[digest], spec, state)
            .map_err(|e| e.to_string())?;
        self.ids.insert(key, id);
        self.keys.insert(id, key);
        Ok(())
    }

    /// Drops an instance and its requests.
    pub(crate) fn stop(&mut self, key: ShardKey) {
        if let Some(id) = self.ids.remove(&key) {
            self.engine.stop(id);
            self.keys.remove(&id);
        }
    }

    /// Queues a run. None if it was taken, else what came of it.
    pub(crate) fn submit(&mut self, run: Execute) -> Option<Executed> {
        let (key, token) = (run.key, run.token);
        let failed = |reason: String| {
            let outcome = ExecuteOutcome::Failed(reason);
            Some(Executed {
                key,
                token,
                outcome,
                busy: Nanos(0),
            })
        };
        let Some(id) = self.ids.get(&key) else {
            return failed("service does not run".into());
        };
        let mut request_id = [0; 16];
        request_id[..8].copy_from_slice(&run.request.client.to_le_bytes());
        request_id[8..].copy_from_slice(&run.request.seq.to_le_bytes());
        let request = Request {
            token,
            slot: run.slot.0,
            now_ns: run.now.0,
            request_id,
            edge: run.edge,
            key: run.message_key,
            payload: run.payload,
        };
        match self.engine.submit(*id, request) {
            Ok(()) => None,
            Err(e) => failed(e.to_string()),
        }
    }

    /// Runs for a turn; true if there is more to run. What is finished goes to `done`.
    pub(crate) fn run(&mut self, done: &mut Vec<Executed>) -> bool {
        let more = self.engine.run(TURN_MAX);
        for completion in self.engine.completions() {
            let Some(key) = self.keys.get(&completion.id) else {
                continue;
            };
            let outcome = match completion.outcome {
                Outcome::Done {
                    batch,
                    outputs,
                    reply,
                } => ExecuteOutcome::Done {
                    batch: batch.into_bytes(),
                    outputs: outputs
                        .into_iter()
                        .map(|o| (o.channel, o.key, o.payload))
                        .collect(),
                    reply: reply.map(|r| (r.status, r.payload)),
                },
                Outcome::Failed(failed) => {
                    log(&format!("{key}: attempt failed: {}", failed.failure));
                    ExecuteOutcome::Failed(failed.failure.to_string())
                }
            };
            let busy = Nanos(completion.busy.as_nanos() as u64);
            done.push(Executed {
                key: *key,
                token: completion.token,
                outcome,
                busy,
            });
        }
        more
    }

    /// Handler runs of a shard that were preempted.
    pub(crate) fn preemptions(&self, key: ShardKey) -> u64 {
        let id = self.ids.get(&key);
        id.and_then(|id| self.engine.stats(*id))
            .map_or(0, |s| s.preemptions)
    }
}
