//! One instance: its queue, its fiber, and the loop on it that handles requests.
//!
//! A tiny WebAssembly shim in the instance's store calls `next` of the host, then the handler, and
//! so on until `next` has nothing more. So one call into WebAssembly serves a whole batch, and a
//! request costs one host call and one call between two modules; neither a fiber switch nor a
//! fresh entry. An epoch tick suspends the fiber wherever it is, and a later poll resumes it.

use crate::code::{Code, one_line};
use crate::host::{Ctx, HostError, edge, id_bytes, parts};
use crate::limits::{BUFFER_LEN_MAX, BUFFERS_MAX, COMPLETIONS_MAX, REQUEST_HEAD_LEN};
use crate::types::{EngineConfig, InstanceId, InstanceSpec, LogFn, RandomFn};
use e3_collections::State;
use e3_invocation::{Completion, EFFECTS_LEN_MAX, Failed, HandlerError, Invocation, Outcome};
use e3_model::Accelerators;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{
    Caller, Func, Instance, Linker, Memory, Module, Result, Store, StoreContextMut, Trap,
    TypedFunc, UpdateDeadline,
};

/// The loop on the fiber.
const SHIM: &str = r#"(module
  (import "loop" "next" (func $next (param i32) (result i32)))
  (import "service" "handle" (func $handle (param i32) (result i32)))
  (func (export "run") (local $n i32)
    (local.set $n (call $next (i32.const 0)))
    (loop $again
      (if (i32.ge_s (local.get $n) (i32.const 0)) (then
        (local.set $n (call $next (call $handle (local.get $n))))
        (br $again))))))"#;

/// What all instances of an engine share.
pub(crate) struct Core {
    pub(crate) completions: RefCell<Vec<(InstanceId, Completion)>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    /// When the caller of `run` wants the core back.
    pub(crate) until: Cell<Instant>,
    pub(crate) log: Option<LogFn>,
    pub(crate) accelerators: Accelerators,
    pub(crate) random: RandomFn,
    pub(crate) count_instructions: bool,
}

impl Core {
    pub(crate) fn new(config: &EngineConfig, now: Instant) -> Core {
        Core {
            completions: RefCell::default(),
            buffers: RefCell::default(),
            until: Cell::new(now),
            log: config.log.clone(),
            accelerators: config.accelerators,
            random: Rc::clone(&config.random),
            count_instructions: config.count_instructions,
        }
    }

    /// A used buffer, or a new one, with this content.
    #[inline]
    pub(crate) fn buffer_with(&self, content: &[u8]) -> Vec<u8> {
        match self.buffers.borrow_mut().pop() {
            Some(mut buffer) => {
                buffer.extend_from_slice(content);
                buffer
            }
            None => content.to_vec(),
        }
    }

    #[inline]
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        let keep = (1..=BUFFER_LEN_MAX).contains(&buffer.capacity());
        if keep && buffers.len() < BUFFERS_MAX {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

/// Why the fiber is not running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It has not begun, or is within its start or a request: resume it when its turn comes.
    Suspended,
    /// It waits for requests.
    Idle,
}

/// Counters, as cells.
#[derive(Clone, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Cell<u64>,
    pub(crate) failures: Cell<u64>,
    pub(crate) traps: Cell<u64>,
    pub(crate) deadlines_exceeded: Cell<u64>,
    pub(crate) preemptions: Cell<u64>,
    pub(crate) restarts: Cell<u64>,
    pub(crate) busy: Cell<Duration>,
    pub(crate) instructions: Cell<u64>,
}

pub(crate) fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

/// What an instance and its fiber share. It outlives the fiber.
pub(crate) struct Shared {
    pub(crate) id: InstanceId,
    pub(crate) spec: InstanceSpec,
    pub(crate) core: Rc<Core>,
    pub(crate) queue: RefCell<VecDeque<Invocation>>,
    pub(crate) phase: Cell<Phase>,
    /// When the fiber was last resumed.
    pub(crate) resumed: Cell<Instant>,
    pub(crate) memory_bytes: Cell<usize>,
    /// Whether the fiber got to its first request.
    pub(crate) has_started: Cell<bool>,
    /// Whether its start looked into the collections.
    pub(crate) has_read: Cell<bool>,
    /// Whether a request is in progress, even if its fiber is suspended.
    pub(crate) is_within_request: Cell<bool>,
    /// Whether the caller of `run` wants the core back when the request in progress ends.
    pub(crate) pauses: Cell<bool>,
    pub(crate) counters: Rc<Counters>,
}

/// How a fiber ended: why, the invocation that it was at, and how long it was at it.
pub(crate) struct Ended {
    pub(crate) error: HandlerError,
    pub(crate) invocation: Option<Invocation>,
    pub(crate) busy: Duration,
}

/// A fiber: ends only by failure.
pub(crate) type Fiber = Pin<Box<dyn Future<Output = Ended>>>;

/// What makes fibers.
pub(crate) struct Shim {
    module: Module,
    linker: Linker<Ctx>,
}

impl Shim {
    pub(crate) fn new(engine: &wasmtime::Engine) -> Result<Shim> {
        let module = Module::from_binary(engine, &wat::parse_str(SHIM)?)?;
        let mut linker = Linker::new(engine);
        linker.func_wrap("loop", "next", next)?;
        Ok(Shim { module, linker })
    }
}

/// Makes a fiber that starts an instance, then handles its requests.
pub(crate) fn fiber(
    shim: Rc<Shim>,
    code: Code,
    shared: Rc<Shared>,
    state: Rc<RefCell<State>>,
    now: Instant,
) -> Fiber {
    shared.phase.set(Phase::Suspended);
    Box::pin(async move {
        let engine = code.pre.module().engine().clone();
        let ctx = Ctx::new(shared, state, now);
        let mut store = Store::new(&engine, ctx);
        store.limiter(|ctx| ctx);
        store.epoch_deadline_callback(on_tick);
        if store.data().shared.core.count_instructions {
            // cannot fail: the engine counts
            let _ = store.set_fuel(u64::MAX);
        }
        store.set_epoch_deadline(1);
        let error = match serve(&shim, &code, &mut store).await {
            Ok(never) => match never {},
            Err(e) => error_of(&e, store.data()),
        };
        let busy = busy(store.data(), Instant::now());
        let invocation = store.data_mut().invocation.take();
        Ended {
            error,
            invocation,
            busy,
        }
    })
}

/// How long the instance has been at its request.
fn busy(ctx: &Ctx, now: Instant) -> Duration {
    let since = ctx.started.max(ctx.shared.resumed.get());
    ctx.busy_before + now.saturating_duration_since(since)
}

/// Runs when a tick finds the instance running: give up the core, or the request if its time is up.
fn on_tick(mut store: StoreContextMut<'_, Ctx>) -> Result<UpdateDeadline> {
    let ctx = store.data_mut();
    let busy = busy(ctx, Instant::now());
    let deadline = ctx.shared.spec.deadline;
    if busy > deadline {
        return Err(HostError(HandlerError::DeadlineExceeded {
            ran: busy.into(),
            deadline: deadline.into(),
        })
        .into());
    }
    ctx.busy_before = busy;
    ctx.shared.phase.set(Phase::Suspended);
    bump(&ctx.shared.counters.preemptions);
    Ok(UpdateDeadline::Yield(1))
}

enum Never {}

async fn serve(shim: &Shim, code: &Code, store: &mut Store<Ctx>) -> Result<Never> {
    let instance = code.pre.instantiate_async(&mut *store).await?;
    let handle = prepare(code, &instance, store).await?;
    let next = shim.linker.get(&mut *store, "loop", "next")?;
    let shim = Instance::new_async(&mut *store, &shim.module, &[next, handle.into()]).await?;
    let run: TypedFunc<(), ()> = shim.get_typed_func(&mut *store, "run")?;
    loop {
        idle(store).await;
        // other instances' ticks have passed meanwhile
        store.set_epoch_deadline(1);
        run.call_async(&mut *store, ()).await?;
    }
}

/// Waits for requests: the engine polls again when there are some.
async fn idle(store: &mut Store<Ctx>) {
    let mut polled = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        let shared = &store.data().shared;
        shared.phase.set(Phase::Idle);
        shared.has_started.set(true);
        Poll::Pending
    })
    .await;
}

/// Readies an instance for requests; its handler.
async fn prepare(code: &Code, instance: &Instance, store: &mut Store<Ctx>) -> Result<Func> {
    let exports = &code.exports;
    let missing = || wasmtime::Error::msg("an export is missing"); // checked when loaded
    let memory: Memory = instance
        .get_module_export(&mut *store, &exports.memory)
        .and_then(|e| e.into_memory())
        .ok_or_else(missing)?;
    let memory_len = memory.data_size(&*store);
    store.data_mut().memory = Some(memory);
    store.data().shared.memory_bytes.set(memory_len);
    let func = |store: &mut Store<Ctx>, at| {
        instance
            .get_module_export(store, at)
            .and_then(|e| e.into_func())
            .ok_or_else(missing)
    };
    let mut asked = [0; 4];
    for (at, answer) in [
        Some(&exports.abi_version),
        Some(&exports.request_buffer),
        Some(&exports.request_capacity),
        exports.request_head.as_ref(),
    ]
    .into_iter()
    .zip(&mut asked)
    {
        if let Some(at) = at {
            let f: TypedFunc<(), i32> = func(store, at)?.typed(&*store)?;
            *answer = f.call_async(&mut *store, ()).await?;
        }
    }
    let [version, address, capacity, head] = asked;
    if version != 1 {
        return Err(HostError(HandlerError::AbiVersion(version)).into());
    }
    if let Some(init) = &exports.init {
        let f: TypedFunc<(), i32> = func(store, init)?.typed(&*store)?;
        match f.call_async(&mut *store, ()).await? {
            0 => {}
            code => {
                let said = store.data_mut().said.take();
                return Err(HostError(HandlerError::Init { code, said }).into());
            }
        }
    }
    let memory_len = memory.data_size(&*store);
    let (address, capacity) = (address as u32, capacity as u32);
    if u64::from(address) + u64::from(capacity) > memory_len as u64 {
        return Err(HostError(HandlerError::RequestBuffer {
            address,
            capacity,
            memory: memory_len,
        })
        .into());
    }
    let head_end = u64::from(head as u32) + REQUEST_HEAD_LEN as u64;
    if exports.request_head.is_some() && head_end > memory_len as u64 {
        return Err(HostError(HandlerError::RequestHead {
            address: head as u32,
            memory: memory_len,
        })
        .into());
    }
    let ctx = store.data_mut();
    ctx.head_at = exports.request_head.map(|_| head as u32 as usize);
    ctx.buffer_at = address as usize;
    ctx.buffer_len = capacity as usize;
    func(store, &exports.handle)
}

/// The host's half of the loop: ends the request that was handled with `status`, and puts the
/// next one in the buffer. Its length, or -1 when the fiber should stop here.
fn next(mut caller: Caller<'_, Ctx>, status: i32) -> Result<i32> {
    let now = Instant::now();
    if caller.data().shared.core.count_instructions {
        let used = u64::MAX - caller.get_fuel()?;
        caller.data().shared.counters.instructions.set(used);
    }
    let (memory, ctx) = parts(&mut caller)?;
    let (at, capacity) = (ctx.buffer_at, ctx.buffer_len);
    let Some(payload) = ctx.turn(now, status)? else {
        return Ok(-1);
    };
    let len = payload.len();
    if len > capacity {
        return Err(HostError(HandlerError::RequestTooLong { len, capacity }).into());
    }
    memory[at..at + len].copy_from_slice(payload);
    if let (Some(at), Some(invocation)) = (ctx.head_at, &ctx.invocation) {
        write_head(invocation, &mut memory[at..at + REQUEST_HEAD_LEN]);
    }
    Ok(len as i32)
}

/// What a request is beside its payload: here it costs less than a call for each of its parts.
fn write_head(invocation: &Invocation, out: &mut [u8]) {
    let key = &*invocation.key;
    out[..16].copy_from_slice(&id_bytes(invocation.request));
    out[16..24].copy_from_slice(&invocation.now.0.to_le_bytes());
    out[24..28].copy_from_slice(&edge(invocation.via).to_le_bytes());
    out[28..30].copy_from_slice(&invocation.slot.0.to_le_bytes());
    out[30..32].copy_from_slice(&(key.len() as u16).to_le_bytes());
    // a longer one is asked for
    if let Some(room) = out[32..].get_mut(..key.len()) {
        room.copy_from_slice(key);
    }
}

impl Ctx {
    /// Ends the request that was handled with `status`, and takes the next one: its payload. None
    /// when the caller of `run` wants the core back, or there is no other.
    #[inline]
    pub(crate) fn turn(
        &mut self,
        now: Instant,
        status: i32,
    ) -> std::result::Result<Option<&mut Vec<u8>>, HostError> {
        if self.invocation.is_some() {
            if status != 0 {
                return Err(HostError(HandlerError::Code(status)));
            }
            commit(self, now)?;
            self.shared.is_within_request.set(false);
            // checked only now, so that every turn gets somewhere
            let core = &self.shared.core;
            if self.shared.pauses.take() {
                core.until.set(now);
            }
            if now >= core.until.get() || core.completions.borrow().len() >= COMPLETIONS_MAX {
                return Ok(None);
            }
        }
        let mut queue = self.shared.queue.borrow_mut();
        self.warm.next(&queue, &self.state.borrow());
        let Some(invocation) = queue.pop_front() else {
            return Ok(None);
        };
        drop(queue);
        self.shared.is_within_request.set(true);
        self.started = now;
        self.busy_before = Duration::ZERO;
        self.growth_refused = None;
        self.txn.begin(invocation.slot.0);
        Ok(Some(&mut self.invocation.insert(invocation).payload))
    }
}

/// Applies the writes of a handled request and reports its completion.
fn commit(ctx: &mut Ctx, now: Instant) -> std::result::Result<(), HandlerError> {
    if ctx.txn.writes() > 0 {
        ctx.effects.writes = ctx.txn.finish_in(ctx.shared.core.buffer_with(&[]));
    }
    let len = ctx.effects.bytes();
    if len > EFFECTS_LEN_MAX {
        return Err(HandlerError::EffectsTooLong { len });
    }
    if !ctx.effects.writes.is_empty() {
        ctx.state.borrow_mut().apply(&ctx.effects.writes)?;
    }
    let Some(invocation) = ctx.invocation.take() else {
        return Ok(());
    };
    if !ctx.effects.outputs.is_empty() {
        ctx.sent.fill(0);
    }
    let busy = busy(ctx, now);
    let shared = &*ctx.shared;
    let counters = &shared.counters;
    bump(&counters.requests);
    counters.busy.set(counters.busy.get() + busy);
    let completion = Completion {
        token: invocation.token,
        outcome: Outcome::Completed(std::mem::take(&mut ctx.effects)),
        busy: busy.into(),
    };
    let mut completions = shared.core.completions.borrow_mut();
    completions.push((shared.id, completion));
    shared.core.recycle(invocation.payload);
    shared.core.recycle(invocation.key);
    Ok(())
}

impl Shared {
    /// Accelerators that the instance finds.
    pub(crate) fn accelerators(&self) -> Accelerators {
        self.core.accelerators.and(self.spec.accelerators)
    }

    /// Reports an invocation that failed, and counts it.
    pub(crate) fn fail(&self, invocation: Invocation, error: HandlerError, busy: Duration) {
        let counters = &self.counters;
        bump(&counters.requests);
        bump(&counters.failures);
        counters.busy.set(counters.busy.get() + busy);
        match error {
            HandlerError::Trap(_)
            | HandlerError::Pointer { .. }
            | HandlerError::MemoryLimit { .. } => bump(&counters.traps),
            HandlerError::DeadlineExceeded { .. } => bump(&counters.deadlines_exceeded),
            _ => {}
        }
        let completion = Completion {
            token: invocation.token,
            outcome: Outcome::Failed(Box::new(Failed { error, invocation })),
            busy: busy.into(),
        };
        self.core
            .completions
            .borrow_mut()
            .push((self.id, completion));
    }
}

/// What an error out of WebAssembly means.
fn error_of(e: &wasmtime::Error, ctx: &Ctx) -> HandlerError {
    if let Some(HostError(error)) = e.downcast_ref() {
        return error.clone();
    }
    if let Some(asked) = ctx.growth_refused {
        return HandlerError::MemoryLimit {
            asked,
            maximum: ctx.shared.spec.memory_bytes_max,
        };
    }
    match e.downcast_ref::<Trap>() {
        Some(trap) => HandlerError::Trap(trap.to_string()),
        None => HandlerError::OutOfMemory(one_line(e)),
    }
}
