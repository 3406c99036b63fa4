//! The engine of one worker core.

use crate::code::{self, Code};
use crate::host::{self, Ctx};
use crate::instance::{Core, Counters, Ended, Fiber, Phase, Shared, Shim, bump, fiber};
use crate::limits::{
    COMPLETIONS_MAX, FIBER_STACK_LEN, INSTANCE_IDS_MAX, QUEUE_LEN_MAX, TABLE_LEN_MAX,
    WASM_STACK_LEN_MAX,
};
use crate::ticker::Watch;
use crate::types::{
    EngineConfig, EngineError, InstanceId, InstanceSpec, LoadError, StartError, Startup, Stats,
};
use e3_collections::State;
use e3_invocation::{Completion, Failed, HandlerError, Invocation};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
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
    slots: Vec<Option<Slot>>,
    /// Instances with requests, in the order they are to run.
    ready: VecDeque<InstanceId>,
    /// Instances that were preempted, in the order they are to resume.
    preempted: VecDeque<InstanceId>,
    /// How long `ready` was served since an instance of `preempted` last ran.
    ready_served: Duration,
    /// Completions on their way out.
    done: Vec<(InstanceId, Completion)>,
}

/// A version that is to take an instance's place, see [`Engine::replace`]. If it is dropped the
/// instance stays as it is.
pub struct Successor {
    slot: Slot,
    /// Requests of the instance that had ended when it began.
    requests_before: u64,
}

/// An instance.
struct Slot {
    shared: Rc<Shared>,
    code: Code,
    state: Rc<RefCell<State>>,
    /// None after a failure: made again for the next request.
    fiber: Option<Fiber>,
    /// Why the last try to start it failed.
    start_error: Option<HandlerError>,
    /// Whether it is in one of the engine's two queues.
    queued: bool,
}

fn wasmtime_config(config: &EngineConfig) -> Config {
    let mut pool = PoolingAllocationConfig::new();
    // While one is replaced there is one more.
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
        host::define(&mut linker).map_err(machine)?;
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
        let (memory_max, cache) = (
            self.config.instance_memory_bytes_max,
            self.config.cache_dir.as_deref(),
        );
        code::load(&self.linker, wasm, memory_max, cache)
    }

    /// Starts an instance on these collections. When this returns, the instance has run its
    /// `e3_init`, unless that takes longer than a tick; it then goes on in [`Engine::run`].
    pub fn start(
        &mut self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
        state: Rc<RefCell<State>>,
    ) -> Result<(), StartError> {
        let at = id.0 as usize;
        if id.0 >= INSTANCE_IDS_MAX || matches!(self.slots.get(at), Some(Some(_))) {
            return Err(StartError::Id(id));
        }
        let maximum = self.config.instances_max;
        if self.instances() >= maximum {
            let service = spec.name;
            return Err(StartError::Full { service, maximum });
        }
        let mut slot = self.slot(id, code, spec, state, Rc::default())?;
        self.poll_start(&mut slot)?;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        if slot.is_suspended() {
            slot.queued = true;
            self.preempted.push_back(id);
        }
        self.slots[at] = Some(slot);
        Ok(())
    }

    /// Another version of an instance, on the same collections, for [`Engine::replace`].
    pub fn successor(
        &self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
    ) -> Result<Successor, StartError> {
        let Some(Some(old)) = self.slots.get(id.0 as usize) else {
            return Err(StartError::Gone(id));
        };
        let (state, counters) = (Rc::clone(&old.state), Rc::clone(&old.shared.counters));
        let requests_before = counters.requests.get();
        let slot = self.slot(id, code, spec, state, counters)?;
        Ok(Successor {
            slot,
            requests_before,
        })
    }

    /// Whether an instance is between two requests. If not, [`Engine::run`] gives the core back
    /// when the one in progress ends.
    pub fn make_room(&self, id: InstanceId) -> bool {
        let slot = self.slots.get(id.0 as usize).and_then(Option::as_ref);
        let within = slot.filter(|slot| slot.shared.is_within_request.get());
        within
            .inspect(|slot| slot.shared.pauses.set(true))
            .is_none()
    }

    /// Goes on, for a tick at most, with putting a successor in its instance's place: it starts,
    /// then takes over between two requests. Requests that wait go to it, counters go on. It comes
    /// back if that takes longer: try again after [`Engine::run`]. If it does not start, the old
    /// one stays.
    pub fn replace(&mut self, mut successor: Successor) -> Result<Option<Successor>, StartError> {
        let new = &mut successor.slot;
        let id = new.shared.id;
        if !new.shared.has_started.get() {
            self.poll_start(new)?;
        }
        let at = id.0 as usize;
        let old = self.slots.get(at).and_then(Option::as_ref);
        if !old.is_some_and(|old| Rc::ptr_eq(&old.state, &new.state)) {
            return Err(StartError::Gone(id));
        }
        if !new.shared.has_started.get() || !self.make_room(id) {
            return Ok(Some(successor));
        }
        let old = self.slots[at].as_mut().expect("looked at");
        let is_stale = old.shared.counters.requests.get() != successor.requests_before;
        if new.shared.has_read.get() && is_stale {
            // it may have kept what was true before those requests: it starts once more, in place
            new.fiber = None;
            new.shared.has_started.set(false);
        }
        new.shared.queue.swap(&old.shared.queue);
        if old.queued {
            self.ready.retain(|i| *i != id);
            self.preempted.retain(|i| *i != id);
        }
        if new.fiber.is_none() || !new.shared.queue.borrow().is_empty() {
            new.queued = true;
            self.ready.push_back(id);
        }
        *old = successor.slot;
        Ok(None)
    }

    /// An instance that has not begun to start.
    fn slot(
        &self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
        state: Rc<RefCell<State>>,
        counters: Rc<Counters>,
    ) -> Result<Slot, StartError> {
        if !wasmtime::Engine::same(code.pre.module().engine(), self.linker.engine()) {
            return Err(StartError::ForeignCode(id));
        }
        if code.memory_bytes_min > spec.memory_bytes_max {
            return Err(StartError::Memory {
                service: spec.name,
                minimum: code.memory_bytes_min,
                maximum: spec.memory_bytes_max,
            });
        }
        Ok(Slot {
            shared: Rc::new(Shared {
                id,
                spec,
                core: Rc::clone(&self.core),
                queue: RefCell::default(),
                phase: Cell::new(Phase::Suspended),
                resumed: Cell::new(Instant::now()),
                memory_bytes: Cell::new(0),
                has_started: Cell::new(false),
                has_read: Cell::new(false),
                is_within_request: Cell::new(false),
                pauses: Cell::new(false),
                counters,
            }),
            code: code.clone(),
            state,
            fiber: None,
            start_error: None,
            queued: false,
        })
    }

    /// Begins the start of an instance, or goes on with it, for a tick at most.
    fn poll_start(&self, slot: &mut Slot) -> Result<(), StartError> {
        let busy = self.config.ticker.busy(&self.watch);
        let polled = slot.poll(&self.shim, Instant::now());
        drop(busy);
        match polled {
            None => Ok(()),
            Some(ended) => Err(StartError::Failed {
                service: slot.shared.spec.name.clone(),
                error: ended.error,
            }),
        }
    }

    /// Drops an instance, its requests, and what of theirs has not been taken.
    pub fn stop(&mut self, id: InstanceId) {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::take);
        if slot.is_some() {
            self.ready.retain(|i| *i != id);
            self.preempted.retain(|i| *i != id);
            self.core
                .completions
                .borrow_mut()
                .retain(|(of, _)| *of != id);
        }
    }

    /// Queues an invocation. An instance handles its invocations strictly in order.
    pub fn submit(&mut self, id: InstanceId, invocation: Invocation) -> Result<(), Box<Failed>> {
        let refused = |error, invocation| Err(Box::new(Failed { error, invocation }));
        let Some(Some(slot)) = self.slots.get_mut(id.0 as usize) else {
            return refused(HandlerError::NotRunning, invocation);
        };
        let mut queue = slot.shared.queue.borrow_mut();
        if queue.len() >= QUEUE_LEN_MAX {
            return refused(HandlerError::QueueFull(QUEUE_LEN_MAX), invocation);
        }
        queue.push_back(invocation);
        if !slot.queued {
            slot.queued = true;
            self.ready.push_back(id);
        }
        Ok(())
    }

    /// Runs instances until there is nothing to do, or the time is up, or many completions wait.
    /// Returns whether there is more to do. A long handler holds it up by one tick at most.
    pub fn run(&mut self, max_wall: Duration) -> bool {
        let mut now = Instant::now();
        self.core.until.set(now + max_wall);
        if !self.has_work() {
            return false;
        }
        let watch = Arc::clone(&self.watch);
        let ticker = self.config.ticker.clone();
        let busy = ticker.busy(&watch);
        while let Some((id, was_preempted)) = self.pick() {
            self.resume(id, now);
            let then = std::mem::replace(&mut now, Instant::now());
            self.ready_served = match was_preempted {
                true => Duration::ZERO,
                false => self.ready_served + (now - then),
            };
            if now >= self.core.until.get()
                || self.core.completions.borrow().len() >= COMPLETIONS_MAX
            {
                break;
            }
        }
        drop(busy);
        self.has_work()
    }

    /// Whether [`Engine::run`] has something to do.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.preempted.is_empty()
    }

    /// The next instance to run, and whether it was preempted. Those that were preempted wait for
    /// the others, but get every second tick if the others never rest.
    fn pick(&mut self) -> Option<(InstanceId, bool)> {
        let turn = self.ready_served >= self.config.ticker.period();
        if (turn || self.ready.is_empty())
            && let Some(id) = self.preempted.pop_front()
        {
            return Some((id, true));
        }
        self.ready.pop_front().map(|id| (id, false))
    }

    /// Runs one instance until it has nothing to do, yields or fails.
    fn resume(&mut self, id: InstanceId, now: Instant) {
        let Some(Some(slot)) = self.slots.get_mut(id.0 as usize) else {
            return;
        };
        slot.queued = false;
        if let Some(ended) = slot.poll(&self.shim, now) {
            slot.on_end(ended);
        }
        if slot.is_suspended() {
            slot.queued = true;
            self.preempted.push_back(id);
        } else if !slot.shared.queue.borrow().is_empty() {
            slot.queued = true;
            self.ready.push_back(id);
        }
    }

    /// Takes what is finished, in the order of finishing.
    pub fn completions(&mut self) -> std::vec::Drain<'_, (InstanceId, Completion)> {
        self.done.append(&mut self.core.completions.borrow_mut());
        self.done.drain(..)
    }

    /// A buffer with this content, for a request; taken from those given back if there is one.
    pub fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        self.core.buffer_with(content)
    }

    /// Gives a buffer back for reuse, such as a reply's payload that was sent.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.core.recycle(buffer);
    }

    /// Counters of an instance.
    pub fn stats(&self, id: InstanceId) -> Option<Stats> {
        let slot = self.slots.get(id.0 as usize)?.as_ref()?;
        let counters = &slot.shared.counters;
        Some(Stats {
            service: slot.shared.spec.name.clone(),
            requests: counters.requests.get(),
            failures: counters.failures.get(),
            traps: counters.traps.get(),
            deadlines_exceeded: counters.deadlines_exceeded.get(),
            preemptions: counters.preemptions.get(),
            restarts: counters.restarts.get(),
            busy: counters.busy.get(),
            instructions: counters.instructions.get(),
            queue_len: slot.shared.queue.borrow().len(),
            memory_bytes: slot.shared.memory_bytes.get(),
            startup: slot.startup(),
        })
    }

    /// Instances that are started.
    pub fn instances(&self) -> u32 {
        self.slots.iter().flatten().count() as u32
    }
}

impl Slot {
    /// Whether it is within its start or a request.
    fn is_suspended(&self) -> bool {
        self.fiber.is_some() && self.shared.phase.get() == Phase::Suspended
    }

    fn startup(&self) -> Startup {
        match &self.start_error {
            _ if self.shared.has_started.get() => Startup::Started,
            Some(error) => Startup::Failed(error.clone()),
            // it worked before: the next request makes it again
            None if self.fiber.is_none() && !self.queued => Startup::Started,
            None => Startup::Starting,
        }
    }

    /// Resumes the fiber, which is made if there is none. How it ended, if it did.
    fn poll(&mut self, shim: &Rc<Shim>, now: Instant) -> Option<Ended> {
        self.shared.resumed.set(now);
        let mut context = Context::from_waker(Waker::noop());
        let mut fresh = false;
        loop {
            let fiber = self.fiber.get_or_insert_with(|| {
                fresh = true;
                let (code, state) = (self.code.clone(), Rc::clone(&self.state));
                fiber(Rc::clone(shim), code, Rc::clone(&self.shared), state, now)
            });
            if let Poll::Ready(ended) = fiber.as_mut().poll(&mut context) {
                self.fiber = None;
                return Some(ended);
            }
            // a fresh fiber first waits for requests: go on if there are some
            let idle = self.shared.phase.get() == Phase::Idle;
            let waiting = !self.shared.queue.borrow().is_empty();
            if !(std::mem::replace(&mut fresh, false) && idle && waiting) {
                return None;
            }
        }
    }

    /// The instance failed: its request did, or, if it could not even start, the next one.
    fn on_end(&mut self, ended: Ended) {
        bump(&self.shared.counters.restarts);
        self.shared.memory_bytes.set(0);
        self.shared.is_within_request.set(false);
        let was_start = !self.shared.has_started.replace(false);
        self.start_error = was_start.then(|| ended.error.clone());
        let next = || self.shared.queue.borrow_mut().pop_front();
        if let Some(invocation) = ended.invocation.or_else(next) {
            self.shared.fail(invocation, ended.error, ended.busy);
        }
    }
}
