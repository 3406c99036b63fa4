//! The fiber of an instance: it starts the instance, then handles its requests in a loop.
//!
//! A small WebAssembly shim in the instance's store calls `next` of the host, then the handler, and
//! so on until `next` has nothing more. So one call into WebAssembly serves a whole batch, and a
//! request costs one call of the host and one call between two modules, but neither a switch of
//! fibers nor an entry into WebAssembly. An epoch tick suspends the fiber wherever it is, and a
//! later poll resumes it.

use crate::code::{Code, Exports, one_line};
use crate::context::{Ctx, RequestPlace, busy};
use crate::limits::REQUEST_HEAD_LEN;
use crate::memory::parts;
use crate::shared::{Phase, Shared};
use crate::stats::bump;
use e3_collections::State;
use e3_invocation::{HandlerError, Invocation};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use wasmtime::{
    Caller, Func, Instance, Linker, Memory, Module, ModuleExport, Result, Store, StoreContextMut,
    Trap, TypedFunc, UpdateDeadline,
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

/// How a fiber ended: why, the invocation in progress, and how long that ran.
pub(crate) struct Ended {
    pub(crate) error: HandlerError,
    pub(crate) invocation: Option<Invocation>,
    pub(crate) busy: Duration,
}

/// A fiber: ends only by failure.
pub(crate) type Fiber = Pin<Box<dyn Future<Output = Ended>>>;

/// The compiled shim, for all fibers of an engine.
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

/// What a fiber is made of; another one is made of the same after a failure.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) shim: Rc<Shim>,
    pub(crate) code: Code,
    pub(crate) shared: Rc<Shared>,
    pub(crate) state: Rc<RefCell<State>>,
}

/// Makes a fiber that starts an instance, then handles its requests.
pub(crate) fn fiber(parts: Parts, now: Instant) -> Fiber {
    let Parts {
        shim,
        code,
        shared,
        state,
    } = parts;
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

/// Runs when a tick finds the instance running: it is preempted, or fails if its deadline passed.
fn on_tick(mut store: StoreContextMut<'_, Ctx>) -> Result<UpdateDeadline> {
    let ctx = store.data_mut();
    let busy = busy(ctx, Instant::now());
    let deadline = ctx.shared.spec.deadline;
    if busy > deadline {
        return Err(HandlerError::DeadlineExceeded {
            ran: busy.into(),
            deadline: deadline.into(),
        }
        .into());
    }
    let core = &ctx.shared.core;
    if busy >= core.period {
        core.has_long.set(true);
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

/// Starts an instance, so that it is ready for requests; its handler.
async fn prepare(code: &Code, instance: &Instance, store: &mut Store<Ctx>) -> Result<Func> {
    let exports = &code.exports;
    let memory: Memory = instance
        .get_module_export(&mut *store, &exports.memory)
        .and_then(|e| e.into_memory())
        .ok_or_else(missing)?;
    let memory_len = memory.data_size(&*store);
    store.data_mut().memory = Some(memory);
    store.data().shared.memory_bytes.set(memory_len);
    let version = ask(instance, store, &exports.abi_version).await?;
    let buffer = ask(instance, store, &exports.request_buffer).await?;
    let capacity = ask(instance, store, &exports.request_capacity).await?;
    let head = match &exports.request_head {
        Some(head) => Some(ask(instance, store, head).await?),
        None => None,
    };
    if version != 1 {
        return Err(HandlerError::AbiVersion(version).into());
    }
    init(exports, instance, store).await?;
    let memory_len = memory.data_size(&*store);
    store.data_mut().place = request_place(buffer as u32, capacity as u32, head, memory_len)?;
    func(instance, store, &exports.handle)
}

/// An export that was there when the module was loaded.
fn missing() -> wasmtime::Error {
    wasmtime::Error::msg("an export is missing")
}

fn func(instance: &Instance, store: &mut Store<Ctx>, at: &ModuleExport) -> Result<Func> {
    let export = instance.get_module_export(store, at);
    export.and_then(|e| e.into_func()).ok_or_else(missing)
}

/// Calls an export without parameters.
async fn ask(instance: &Instance, store: &mut Store<Ctx>, at: &ModuleExport) -> Result<i32> {
    let f: TypedFunc<(), i32> = func(instance, store, at)?.typed(&*store)?;
    f.call_async(&mut *store, ()).await
}

/// Calls `e3_init` if the module has it.
async fn init(exports: &Exports, instance: &Instance, store: &mut Store<Ctx>) -> Result<()> {
    let Some(init) = &exports.init else {
        return Ok(());
    };
    match ask(instance, store, init).await? {
        0 => Ok(()),
        code => {
            let said = store.data_mut().said.take();
            Err(HandlerError::Init { code, said }.into())
        }
    }
}

/// Checks that buffer and head are within the memory of `memory` bytes.
fn request_place(
    buffer: u32,
    capacity: u32,
    head: Option<i32>,
    memory: usize,
) -> Result<RequestPlace, HandlerError> {
    if u64::from(buffer) + u64::from(capacity) > memory as u64 {
        return Err(HandlerError::RequestBuffer {
            address: buffer,
            capacity,
            memory,
        });
    }
    let head = head.map(|head| head as u32);
    if let Some(address) = head
        && u64::from(address) + REQUEST_HEAD_LEN as u64 > memory as u64
    {
        return Err(HandlerError::RequestHead { address, memory });
    }
    Ok(RequestPlace {
        buffer: buffer as usize,
        capacity: capacity as usize,
        head: head.map(|address| address as usize),
    })
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
    let RequestPlace {
        buffer,
        capacity,
        head,
    } = ctx.place;
    let Some(payload) = ctx.turn(now, status)? else {
        return Ok(-1);
    };
    let len = payload.len();
    if len > capacity {
        return Err(HandlerError::RequestTooLong { len, capacity }.into());
    }
    memory[buffer..buffer + len].copy_from_slice(payload);
    if let Some(head) = head
        && let Some(out) = memory[head..].first_chunk_mut()
    {
        ctx.write_head(out);
    }
    Ok(len as i32)
}

/// What an error out of WebAssembly means.
fn error_of(e: &wasmtime::Error, ctx: &Ctx) -> HandlerError {
    if let Some(error) = e.downcast_ref::<HandlerError>() {
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
