//! The engine of one worker core.

use crate::code::{self, Code, LoadError, Loader};
use crate::config::{EngineConfig, EngineError};
use crate::context::Ctx;
use crate::fiber::{Parts, Shim};
use crate::imports;
use crate::instance::Instance;
use crate::limits::{
    COMPLETIONS_MAX, FIBER_STACK_LEN, INSTANCE_IDS_MAX, QUEUE_LEN_MAX, TABLE_LEN_MAX,
    WASM_STACK_LEN_MAX,
};
use crate::shared::{Core, Shared};
use crate::spec::{InstanceId, InstanceSpec, StartError};
use crate::stats::Stats;
use crate::ticker::Watch;
use e3_collections::State;
use e3_invocation::{Call, CallAnswer, Completion, Failed, HandlerError, Invocation};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::{
    Config, InstanceAllocationStrategy, Linker, ModuleVersionStrategy, OptLevel,
    PoolingAllocationConfig,
};

/// Runs the instances of one worker core. It belongs to one thread (it is not `Send`).
pub struct Engine {
    config: EngineConfig,
    linker: Linker<Ctx>,
    shim: Rc<Shim>,
    core: Rc<Core>,
    watch: Arc<Watch>,
    /// By instance id.
    slots: Vec<Option<Instance>>,
    /// Instances with requests, in the order they are to run.
    ready: VecDeque<InstanceId>,
    /// Instances that were preempted, in the order they are to resume.
    preempted: VecDeque<InstanceId>,
    /// How long `ready` was served since an instance of `preempted` last ran.
    ready_served: Duration,
    /// Completions that the caller is taking.
    done: Vec<(InstanceId, Completion)>,
}

/// A new version of an instance, see [`Engine::replace`]. If it is dropped, the instance stays.
pub struct Successor {
    instance: Instance,
    /// Requests of the instance that had ended when the successor was made.
    requests_before: u64,
}

fn wasmtime_config(config: &EngineConfig) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    // while one is replaced, there is one more
    let instances_max = config.instances_max + 1;
    pool.total_memories(instances_max)
        .total_tables(instances_max)
        .total_stacks(instances_max)
        // the service and the shim
        .total_core_instances(instances_max * 2)
        .max_memory_size(config.instance_memory_bytes_max)
        .table_elements(TABLE_LEN_MAX)
        .max_unused_warm_slots(instances_max)
        // clearing this much by hand is cheaper than giving pages back
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(4 << 10);
    let mut c = Config::new();
    c.allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .memory_init_cow(true)
        .epoch_interruption(true)
        .consume_fuel(config.count_instructions)
        .concurrency_support(false)
        .wasm_backtrace_max_frames(None)
        .native_unwind_info(false)
        .generate_address_map(false)
        .max_wasm_stack(WASM_STACK_LEN_MAX)
        .async_stack_size(FIBER_STACK_LEN)
        .cranelift_opt_level(OptLevel::Speed);
    c
}

impl Engine {
    /// An engine without instances.
    pub fn new(config: EngineConfig) -> Result<Engine, EngineError> {
        config.validate()?;
        let machine = |e: wasmtime::Error| EngineError::Machine(code::one_line(&e));
        let mut settings = wasmtime_config(&config);
        settings
            .module_version(ModuleVersionStrategy::WasmtimeVersion)
            .map_err(machine)?;
        let engine = wasmtime::Engine::new(&settings).map_err(machine)?;
        let mut linker = Linker::new(&engine);
        imports::define(&mut linker).map_err(machine)?;
        let shim = Rc::new(Shim::new(&engine).map_err(machine)?);
        Ok(Engine {
            watch: config.ticker.watch(engine),
            core: Rc::new(Core::new(&config, Instant::now())),
            linker,
            shim,
            config,
            slots: Vec::new(),
            ready: VecDeque::new(),
            preempted: VecDeque::new(),
            ready_served: Duration::ZERO,
            done: Vec::new(),
        })
    }

    /// Checks and compiles a module, or takes it from the cache.
    pub fn load(&self, wasm: &[u8]) -> Result<Code, LoadError> {
        self.loader().load(wasm)
    }

    /// What loads modules for this engine, also on other threads.
    pub fn loader(&self) -> Loader {
        Loader {
            linker: self.linker.clone(),
            memory_bytes_max: self.config.instance_memory_bytes_max,
            cache_dir: self.config.cache_dir.clone(),
        }
    }

    /// Starts an instance on these collections. When this returns, the instance has finished its
    /// `e3_init`, unless that takes longer than a tick: then [`Engine::run`] continues it.
    pub fn start(
        &mut self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
        state: Rc<RefCell<State>>,
    ) -> Result<(), StartError> {
        if id.0 >= INSTANCE_IDS_MAX || self.instance(id).is_some() {
            return Err(StartError::Id(id));
        }
        let maximum = self.config.instances_max;
        if self.instances() >= maximum {
            let service = spec.name;
            return Err(StartError::Full { service, maximum });
        }
        let shared = Shared::new(id, spec, Rc::clone(&self.core), Rc::default());
        let mut instance = self.new_instance(code, shared, state)?;
        self.poll_start(&mut instance)?;
        let at = id.0 as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        if instance.is_suspended() {
            instance.is_queued = true;
            self.preempted.push_back(id);
        }
        self.slots[at] = Some(instance);
        Ok(())
    }

    fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// Another version of an instance, on the same collections, for [`Engine::replace`].
    pub fn successor(
        &self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
    ) -> Result<Successor, StartError> {
        let old = self.instance(id).ok_or(StartError::Gone(id))?;
        let (state, counters) = (Rc::clone(&old.parts.state), &old.shared().counters);
        let requests_before = counters.requests.get();
        let shared = Shared::new(id, spec, Rc::clone(&self.core), Rc::clone(counters));
        Ok(Successor {
            instance: self.new_instance(code, shared, state)?,
            requests_before,
        })
    }

    /// Asks an instance to pause before its next request. True if no request is in progress;
    /// otherwise [`Engine::run`] returns when that request ends.
    pub fn pause(&self, id: InstanceId) -> bool {
        let instance = self.instance(id).map(Instance::shared);
        let within = instance.filter(|shared| shared.is_within_request.get());
        within.inspect(|shared| shared.pauses.set(true)).is_none()
    }

    /// Continues, for at most a tick, to put a successor in the place of its instance: the
    /// successor starts, then takes over between two requests, with the queue and the counters.
    /// Returns the successor if that takes longer: call again after [`Engine::run`]. If it does not
    /// start, the old instance stays.
    pub fn replace(&mut self, mut successor: Successor) -> Result<Option<Successor>, StartError> {
        let new = &mut successor.instance;
        let id = new.shared().id;
        if !new.shared().has_started.get() {
            self.poll_start(new)?;
        }
        let old = self.instance(id);
        if !old.is_some_and(|old| Rc::ptr_eq(&old.parts.state, &new.parts.state)) {
            return Err(StartError::Gone(id));
        }
        if !new.shared().has_started.get() || !self.pause(id) {
            return Ok(Some(successor));
        }
        let old = self.slots[id.0 as usize].as_mut().expect("looked at");
        let is_stale = old.shared().counters.requests.get() != successor.requests_before;
        if new.shared().has_read.get() && is_stale {
            // it may keep what it read before those requests: it starts again, in place
            new.restart();
        }
        new.shared().queue.swap(&old.shared().queue);
        if old.is_queued {
            self.ready.retain(|i| *i != id);
            self.preempted.retain(|i| *i != id);
        }
        if !new.has_fiber() || !new.shared().queue.borrow().is_empty() {
            new.is_queued = true;
            self.ready.push_back(id);
        }
        *old = successor.instance;
        Ok(None)
    }

    /// An instance that has not begun to start.
    fn new_instance(
        &self,
        code: &Code,
        shared: Shared,
        state: Rc<RefCell<State>>,
    ) -> Result<Instance, StartError> {
        if !wasmtime::Engine::same(code.pre.module().engine(), self.linker.engine()) {
            return Err(StartError::ForeignCode(shared.id));
        }
        if code.memory_bytes_min > shared.spec.memory_bytes_max {
            return Err(StartError::Memory {
                minimum: code.memory_bytes_min,
                maximum: shared.spec.memory_bytes_max,
                service: shared.spec.name,
            });
        }
        Ok(Instance::new(Parts {
            shim: Rc::clone(&self.shim),
            code: code.clone(),
            shared: Rc::new(shared),
            state,
        }))
    }

    /// Begins or continues the start of an instance, for at most a tick.
    fn poll_start(&self, instance: &mut Instance) -> Result<(), StartError> {
        let busy = self.config.ticker.busy(&self.watch);
        let polled = instance.poll(Instant::now());
        drop(busy);
        match polled {
            None => Ok(()),
            Some(ended) => Err(StartError::Failed {
                service: instance.shared().spec.name.clone(),
                error: ended.error,
            }),
        }
    }

    /// Drops an instance, its queue, and its completions that were not taken.
    pub fn stop(&mut self, id: InstanceId) {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::take);
        if slot.is_some() {
            self.ready.retain(|i| *i != id);
            self.preempted.retain(|i| *i != id);
            self.core
                .completions
                .borrow_mut()
                .retain(|(of, _)| *of != id);
            self.core.calls.borrow_mut().retain(|(of, _)| *of != id);
        }
    }

    /// Queues an invocation. An instance handles its invocations strictly in order.
    pub fn submit(&mut self, id: InstanceId, invocation: Invocation) -> Result<(), Box<Failed>> {
        let refused = |error, invocation| Err(Box::new(Failed { error, invocation }));
        let Some(Some(instance)) = self.slots.get_mut(id.0 as usize) else {
            return refused(HandlerError::NotRunning, invocation);
        };
        let mut queue = instance.parts.shared.queue.borrow_mut();
        if queue.len() >= QUEUE_LEN_MAX {
            return refused(HandlerError::QueueFull(QUEUE_LEN_MAX), invocation);
        }
        queue.push_back(invocation);
        if !instance.is_queued && !instance.is_waiting() {
            instance.is_queued = true;
            self.ready.push_back(id);
        }
        Ok(())
    }

    /// Runs instances until there is nothing to do, the time is up, or many completions wait.
    /// Returns whether there is more to do. A long handler delays the return by at most a tick.
    pub fn run(&mut self, max_wall: Duration) -> bool {
        let mut now = Instant::now();
        self.core.run_until.set(now + max_wall);
        if !self.has_work() {
            return false;
        }
        let watch = Arc::clone(&self.watch);
        let ticker = self.config.ticker.clone();
        let busy = ticker.busy(&watch);
        while let Some((id, was_preempted)) = self.pick() {
            self.resume(id, now);
            let then = std::mem::replace(&mut now, Instant::now());
            self.ready_served = if was_preempted {
                Duration::ZERO
            } else {
                self.ready_served + (now - then)
            };
            if now >= self.core.run_until.get()
                || self.core.completions.borrow().len() >= COMPLETIONS_MAX
            {
                break;
            }
        }
        drop(busy);
        if self.core.has_long.take() {
            self.watch.note_long();
        }
        self.has_work()
    }

    /// Whether [`Engine::run`] has something to do.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.preempted.is_empty()
    }

    /// The next instance to run, and whether it was preempted. Preempted instances run after the
    /// others, but get every second tick if the others always have work.
    fn pick(&mut self) -> Option<(InstanceId, bool)> {
        let turn = self.ready_served >= self.config.ticker.period();
        if (turn || self.ready.is_empty())
            && let Some(id) = self.preempted.pop_front()
        {
            return Some((id, true));
        }
        self.ready.pop_front().map(|id| (id, false))
    }

    /// Runs one instance until it has nothing to do, is preempted or fails.
    fn resume(&mut self, id: InstanceId, now: Instant) {
        let Some(Some(instance)) = self.slots.get_mut(id.0 as usize) else {
            return;
        };
        instance.is_queued = false;
        if let Some(ended) = instance.poll(now) {
            instance.on_end(ended);
        }
        if instance.is_suspended() {
            instance.is_queued = true;
            self.preempted.push_back(id);
        } else if !instance.is_waiting() && !instance.shared().queue.borrow().is_empty() {
            instance.is_queued = true;
            self.ready.push_back(id);
        }
    }

    /// Takes the calls that handlers made since the last time. Each handler waits until
    /// [`Engine::answer`].
    pub fn calls(&mut self) -> Vec<(InstanceId, Call)> {
        std::mem::take(&mut *self.core.calls.borrow_mut())
    }

    /// Hands a handler the answer to its call of that token and index. An answer that nobody waits for
    /// is dropped.
    pub fn answer(&mut self, id: InstanceId, awaited: (u64, u32), answer: CallAnswer) {
        if let Some(Some(instance)) = self.slots.get_mut(id.0 as usize)
            && instance.take_answer(awaited, answer)
        {
            instance.is_queued = true;
            self.ready.push_back(id);
        }
    }

    /// Whether the instance's handler waits for the answer to a call.
    pub fn is_waiting(&self, id: InstanceId) -> bool {
        self.instance(id).is_some_and(Instance::is_waiting)
    }

    /// Takes the completions, in the order they ended.
    pub fn completions(&mut self) -> std::vec::Drain<'_, (InstanceId, Completion)> {
        self.done.append(&mut self.core.completions.borrow_mut());
        self.done.drain(..)
    }

    /// A buffer with this content: a recycled one, or a new one if there is none.
    pub fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        self.core.buffer_with(content)
    }

    /// Takes a buffer back for reuse, such as the payload of a reply that was sent.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.core.recycle(buffer);
    }

    /// Figures of an instance.
    pub fn stats(&self, id: InstanceId) -> Option<Stats> {
        self.instance(id).map(Instance::stats)
    }

    /// Number of instances.
    pub fn instances(&self) -> u32 {
        self.slots.iter().flatten().count() as u32
    }
}
