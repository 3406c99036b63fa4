//! Runs the handlers of a worker on the engine, and brings instances to the version of the plan.

use crate::limits::TURN_MAX;
use crate::processor_time;
use crate::supplies::{Inputs, Supplies, module};
use e3_collections::State;
use e3_engine::{
    Code, Engine, EngineConfig, EngineError, InstanceId, InstanceSpec, Loader, RandomKey, Startup,
    Successor,
};
use e3_invocation::{Call, CallAnswer, Completion, Failed, HandlerError, Invocation, Outcome};
use e3_model::plan::{AppPlan, InstanceReport, NodePlan, Release};
use e3_model::{Accelerator, Nanos, ShardKey};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The engine of one worker, with shards in place of its instance ids.
pub(crate) struct Executor {
    engine: Engine,
    running: BTreeMap<ShardKey, Running>,
    keys: BTreeMap<InstanceId, ShardKey>,
    /// Shards to start when all that they need is here.
    waiting: BTreeMap<ShardKey, Waiting>,
    /// Shards whose instance runs in another version than that of the plan.
    outdated: Vec<ShardKey>,
    /// The replacement in progress.
    replacing: Option<Replacing>,
    /// Makes the random bytes of stateless services.
    random_key: RandomKey,
    /// How fast the node's accelerators are, in bytes per second.
    rates: BTreeMap<Accelerator, f64>,
    /// Whether the processor time of each handler run is measured, since emulation multiplies it.
    measures_each: bool,
}

/// An instance that runs.
struct Running {
    id: InstanceId,
    /// As users name it: `app/service/shard`.
    name: String,
    /// What it was started with.
    inputs: Inputs,
    /// What it did not start with, and why.
    refused: Option<(Inputs, String)>,
}

/// A shard to start later: its collections, and what it is to run then.
pub(crate) struct Waiting {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) invocations: Vec<Invocation>,
}

/// What came of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Started {
    /// The instance is there.
    Yes,
    /// Not all that it needs is here.
    Waits,
}

/// A replacement in progress.
struct Replacing {
    key: ShardKey,
    inputs: Inputs,
    successor: Successor,
}

impl Executor {
    /// An executor without instances. `rates` are those of all accelerators of this machine.
    pub(crate) fn new(
        config: EngineConfig,
        rates: &[(Accelerator, f64)],
        random_key: RandomKey,
        measures_each: bool,
    ) -> Result<Executor, EngineError> {
        let here = rates.iter().filter(|(a, _)| config.accelerators.has(*a));
        let rates = here.copied().collect();
        let engine = Engine::new(config)?;
        Ok(Executor {
            engine,
            running: BTreeMap::new(),
            keys: BTreeMap::new(),
            waiting: BTreeMap::new(),
            outdated: Vec::new(),
            replacing: None,
            random_key,
            rates,
            measures_each,
        })
    }

    /// What loads modules for this executor, on another thread.
    pub(crate) fn loader(&self) -> Loader {
        self.engine.loader()
    }

    /// Starts the instance of a shard, or keeps it waiting. If the version of the plan has not started
    /// everywhere yet, it starts in the one before that has, and is updated later.
    pub(crate) fn start(
        &mut self,
        key: ShardKey,
        state: Rc<RefCell<State>>,
        plan: &NodePlan,
        supplies: &Supplies,
    ) -> Result<Started, String> {
        self.stop(key);
        let app = app_of(plan, key)?;
        let release = app.initial();
        if !supplies.suffice(key.app, &release, key.service) {
            let invocations = Vec::new();
            self.waiting.insert(key, Waiting { state, invocations });
            return Ok(Started::Waits);
        }
        let code = code(&release, key, supplies)?;
        let name = plan.shard_name(key);
        let id = (0..)
            .map(InstanceId)
            .find(|i| !self.keys.contains_key(i))
            .expect("endless");
        self.engine
            .start(
                id,
                &code,
                spec(&name, &release, key, supplies, self.random_key),
                state,
            )
            .map_err(|e| e.to_string())?;
        let running = Running {
            id,
            name,
            inputs: Inputs::of(key.app, &release, key.service, supplies),
            refused: None,
        };
        self.running.insert(key, running);
        self.keys.insert(id, key);
        if app.code_version != release.code_version {
            self.handle_plan(plan, supplies);
        }
        Ok(Started::Yes)
    }

    /// The shards that wait for what they need: to be started again.
    pub(crate) fn take_waiting(&mut self) -> BTreeMap<ShardKey, Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Finds the instances that a plan has in another version, which is here, or whose secrets were set
    /// since they started.
    pub(crate) fn handle_plan(&mut self, plan: &NodePlan, supplies: &Supplies) {
        let wanted = |key: &ShardKey| {
            let release = app_of(plan, *key).ok()?.wanted();
            let is_here = supplies.suffice(key.app, &release, key.service);
            is_here.then(|| Inputs::of(key.app, &release, key.service, supplies))
        };
        let is_outdated = |(key, running): &(&ShardKey, &Running)| {
            let refused = running.refused.as_ref().map(|(inputs, _)| inputs);
            wanted(key).is_some_and(|w| w != running.inputs && Some(&w) != refused)
        };
        let outdated = self.running.iter().filter(is_outdated);
        self.outdated = outdated.map(|(key, _)| *key).collect();
        let outdated = &self.outdated;
        self.replacing = self
            .replacing
            .take()
            .filter(|r| outdated.contains(&r.key) && wanted(&r.key).as_ref() == Some(&r.inputs));
    }

    /// Continues, for at most a tick, to replace outdated instances, one after the other. An
    /// instance whose new version does not start stays. True if there is more to do.
    pub(crate) fn update(&mut self, plan: &NodePlan, supplies: &Supplies) -> bool {
        let next = match &self.replacing {
            Some(replacing) => Some(replacing.key),
            // one between two requests; those before it are asked to pause
            None => {
                let pauses = |key: &&ShardKey| self.engine.pause(self.running[*key].id);
                self.outdated.iter().find(pauses).copied()
            }
        };
        // While a handler waits for the answer to a call there is nothing to do.
        let can_go_on = |key: &ShardKey| !self.engine.is_waiting(self.running[key].id);
        let Some(key) = next else {
            return self.outdated.iter().any(can_go_on);
        };
        let replaced = self.replace(key, plan, supplies);
        if replaced == Ok(false) {
            return !self.engine.is_waiting(self.running[&key].id);
        }
        self.outdated.retain(|k| *k != key);
        let running = self.running.get_mut(&key).expect("it is outdated");
        let wanted = app_of(plan, key).map(AppPlan::wanted);
        let inputs = wanted.map(|w| Inputs::of(key.app, &w, key.service, supplies));
        match (replaced, inputs) {
            (Ok(_), Ok(inputs)) => {
                running.inputs = inputs;
                running.refused = None;
            }
            (Err(reason), Ok(inputs)) => {
                let (name, version) = (&running.name, inputs.code_version);
                tracing::error!("{name}: version {version} does not start: {reason}");
                running.refused = Some((inputs, reason));
            }
            // The application has been deleted.
            (_, Err(_)) => {}
        }
        !self.outdated.is_empty()
    }

    /// Continues to replace an outdated instance; true if it is replaced.
    fn replace(
        &mut self,
        key: ShardKey,
        plan: &NodePlan,
        supplies: &Supplies,
    ) -> Result<bool, String> {
        let release = app_of(plan, key)?.wanted();
        let successor = match self.replacing.take() {
            Some(replacing) => replacing.successor,
            None => {
                let code = code(&release, key, supplies)?;
                let Running { id, name, .. } = &self.running[&key];
                let spec = spec(name, &release, key, supplies, self.random_key);
                let successor = self.engine.successor(*id, &code, spec);
                successor.map_err(|e| e.to_string())?
            }
        };
        let left = self.engine.replace(successor).map_err(|e| e.to_string())?;
        self.replacing = left.map(|successor| Replacing {
            key,
            inputs: Inputs::of(key.app, &release, key.service, supplies),
            successor,
        });
        Ok(self.replacing.is_none())
    }

    /// Drops an instance and its requests.
    pub(crate) fn stop(&mut self, key: ShardKey) {
        self.waiting.remove(&key);
        if let Some(Running { id, .. }) = self.running.remove(&key) {
            self.replacing.take_if(|r| r.key == key);
            self.outdated.retain(|k| *k != key);
            self.engine.stop(id);
            self.keys.remove(&id);
        }
    }

    /// Queues an invocation for a shard's instance.
    pub(crate) fn submit(
        &mut self,
        key: ShardKey,
        invocation: Invocation,
    ) -> Result<(), Box<Failed>> {
        if let Some(Running { id, .. }) = self.running.get(&key) {
            return self.engine.submit(*id, invocation);
        }
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // Given out before the worker knew; the worker bounds how many.
            waiting.invocations.push(invocation);
            return Ok(());
        }
        let error = HandlerError::NotRunning;
        Err(Box::new(Failed { error, invocation }))
    }

    /// Runs handlers for a turn; true if there is more to run. Completions are added to `done`.
    pub(crate) fn run(&mut self, done: &mut Vec<(ShardKey, Completion)>) -> bool {
        if !self.measures_each {
            return self.run_for(TURN_MAX, done);
        }
        let begin = Instant::now();
        while self.run_for(Duration::ZERO, done) {
            if begin.elapsed() >= TURN_MAX {
                return true;
            }
        }
        false
    }

    fn run_for(&mut self, time_max: Duration, done: &mut Vec<(ShardKey, Completion)>) -> bool {
        let mut on_cpu = 1.0;
        // Many turns run no handler, and reading the thread's clock is a system call.
        if self.engine.has_work() {
            let (begin, cpu_begin) = (Instant::now(), processor_time::of_thread());
            self.engine.run(time_max);
            // On a busy machine the turn waits for the processor. Emulation multiplies service
            // times, so it must not count that as work.
            let cpu = processor_time::of_thread()
                .saturating_sub(cpu_begin)
                .as_secs_f64();
            on_cpu = (cpu / begin.elapsed().as_secs_f64().max(1e-9)).min(1.0);
        }
        for (id, mut completion) in self.engine.completions() {
            let Some(key) = self.keys.get(&id) else {
                continue;
            };
            if let Outcome::Failed(failed) = &completion.outcome {
                let name = &self.running[key].name;
                tracing::warn!("{name}: attempt failed: {failed}");
            }
            completion.busy = Nanos((completion.busy.0 as f64 * on_cpu) as u64);
            done.push((*key, completion));
        }
        self.engine.has_work()
    }

    /// Takes the calls that handlers made. Each waits until [`Executor::answer`].
    pub(crate) fn calls(&mut self) -> Vec<(ShardKey, Call)> {
        let calls = self.engine.calls().into_iter();
        let calls = calls.filter_map(|(id, call)| Some((*self.keys.get(&id)?, call)));
        calls.collect()
    }

    /// Hands a handler the answer to its call of that token and index.
    pub(crate) fn answer(&mut self, key: ShardKey, awaited: (u64, u32), answer: CallAnswer) {
        if let Some(running) = self.running.get(&key) {
            self.engine.answer(running.id, awaited, answer);
        }
    }

    /// How fast the node's accelerators are, in bytes per second.
    pub(crate) fn rates(&self) -> &BTreeMap<Accelerator, f64> {
        &self.rates
    }

    /// Adds preemptions, version and error to the report of an instance.
    pub(crate) fn report(&self, report: &mut InstanceReport) {
        let Some(running) = self.running.get(&report.key) else {
            return;
        };
        let stats = self.engine.stats(running.id).unwrap_or_default();
        report.preemptions = stats.preemptions;
        let (version, error) = match (stats.startup, &running.refused) {
            (Startup::Starting, _) => (0, None),
            (Startup::Failed(error), _) => (0, Some(format!("does not start: {error}"))),
            (Startup::Started, refused) => {
                let old = running.inputs.code_version;
                let refusal = |(inputs, reason): &(Inputs, String)| {
                    let version = inputs.code_version;
                    if version == old {
                        format!("does not start with its new secrets, the old ones stay: {reason}")
                    } else {
                        format!("version {version} does not start, version {old} stays: {reason}")
                    }
                };
                (old, refused.as_ref().map(refusal))
            }
        };
        report.code_version = version;
        report.error = report.error.take().or(error);
    }
}

fn app_of(plan: &NodePlan, key: ShardKey) -> Result<&AppPlan, String> {
    let app = plan.apps.iter().find(|a| a.id == key.app);
    app.ok_or_else(|| "application is not in the plan".to_string())
}

/// What the instance of a shard is started with.
pub(crate) fn initial_inputs(
    plan: &NodePlan,
    supplies: &Supplies,
    key: ShardKey,
) -> Option<Inputs> {
    let release = app_of(plan, key).ok()?.initial();
    Some(Inputs::of(key.app, &release, key.service, supplies))
}

/// The code of a shard's service.
fn code(release: &Release, key: ShardKey, supplies: &Supplies) -> Result<Code, String> {
    let code = supplies.code.get(module(release, key.service));
    code.ok_or("module is not here")?.clone()
}

/// What a shard's instance is given.
fn spec(
    name: &str,
    release: &Release,
    key: ShardKey,
    supplies: &Supplies,
    random_key: RandomKey,
) -> InstanceSpec {
    let app = &release.app;
    let service = app.service(key.service);
    let values = |name: &String| {
        let secret = supplies.secrets.get(&(key.app, name.clone()));
        let previous = secret.and_then(|s| s.previous.clone());
        let value = secret.map(|s| (name.clone(), s.value.clone()));
        value
            .into_iter()
            .chain(previous.map(|value| (format!("{name}@previous"), value)))
    };
    let asset = |name: &String| {
        let blob = supplies.assets.get(release.assets.get(name)?)?;
        Some((name.clone(), blob.clone()))
    };
    let channels = app.channels_from(key.service);
    InstanceSpec {
        name: name.to_string(),
        stateful: service.stateful,
        channels: channels.map(|(_, _, c)| c.into()).collect(),
        collections: service.collections.clone(),
        secrets: service.secrets.iter().flat_map(values).collect(),
        random_key: (!service.stateful).then_some(random_key),
        calls: service.calls.clone(),
        config: service.config.clone(),
        assets: service.assets.iter().filter_map(asset).collect(),
        asks: service.asks.clone(),
        publishes: service.publishes.clone(),
        http: service.http.clone().unwrap_or_default(),
        accelerators: service.accelerators.iter().copied().collect(),
        memory_bytes_max: usize::try_from(service.resources.memory.0).unwrap_or(usize::MAX),
        deadline: Duration::from_nanos(service.deadline.0),
    }
}
