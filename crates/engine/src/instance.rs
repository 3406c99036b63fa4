//! One instance: its store and fiber, made anew after a failure.

use crate::code::Code;
use crate::host::{Host, Limiter, Shared, failed};
use crate::types::{Completion, Failure, InstanceId, InstanceSpec, LogFn, StartError, Stats};
use e3_collections::{State, Txn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wasmtime::{Engine, Func, InstancePre, Module, Store, TypedFunc};

/// A store ready to run.
struct Live {
    store: Store<Host>,
    run: TypedFunc<(), ()>,
}

type Running = Pin<Box<dyn Future<Output = (Box<Live>, wasmtime::Result<()>)>>>;

enum Fiber {
    /// No request under way.
    Idle(Box<Live>),
    /// Set aside in the middle of a request.
    Running(Running),
    /// After a failure: made anew when it is needed.
    Gone,
}

pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) code: Code,
    pub(crate) spec: Rc<InstanceSpec>,
    pub(crate) shared: Rc<RefCell<Shared>>,
    state: Rc<RefCell<State>>,
    log: Option<LogFn>,
    fiber: Fiber,
    pub(crate) stats: Stats,
    /// It is in the engine's queue of those that have something to do.
    pub(crate) ready: bool,
}

/// What instances are made with.
pub(crate) struct Ground<'a> {
    pub(crate) engine: &'a Engine,
    /// The loop that fetches requests and calls the handler.
    pub(crate) shim: &'a Module,
}

/// Polls a future to its end; gives up when it has been on the core for too long.
fn finish<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    deadline: Duration,
) -> Result<T, Failure> {
    let start = Instant::now();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(value);
        }
        if start.elapsed() > deadline {
            return Err(deadline_exceeded(start.elapsed(), deadline));
        }
    }
}

fn deadline_exceeded(busy: Duration, deadline: Duration) -> Failure {
    let us = |d: Duration| d.as_micros() as u64;
    Failure::DeadlineExceeded {
        busy_us: us(busy),
        deadline_us: us(deadline),
    }
}

impl Instance {
    pub(crate) fn start(
        ground: &Ground<'_>,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
        state: Rc<RefCell<State>>,
        log: Option<LogFn>,
    ) -> Result<Instance, StartError> {
        let service = spec.name.clone();
        if code.memory_bytes_min > spec.memory_bytes_max {
            let (minimum, maximum) = (code.memory_bytes_min, spec.memory_bytes_max);
            return Err(StartError::Memory {
                service,
                minimum,
                maximum,
            });
        }
        let shared = Shared {
            queue: VecDeque::new(),
            current: None,
            done: Vec::new(),
            busy_before: Duration::ZERO,
            slice: Instant::now(),
        };
        let mut instance = Instance {
            id,
            code: code.clone(),
            spec: Rc::new(spec),
            shared: Rc::new(RefCell::new(shared)),
            state,
            log,
            fiber: Fiber::Gone,
            stats: Stats {
                service: service.clone(),
                ..Stats::default()
            },
            ready: false,
        };
        match instance.make(ground) {
            Ok(live) => instance.fiber = Fiber::Idle(live),
            Err(failure) => return Err(StartError::Failed { service, failure }),
        }
        Ok(instance)
    }

    /// A store with fresh memory.
    fn make(&self, ground: &Ground<'_>) -> Result<Box<Live>, Failure> {
        let host = Host {
            id: self.id,
            spec: self.spec.clone(),
            shared: self.shared.clone(),
            state: self.state.clone(),
            log: self.log.clone(),
            txn: Txn::new(),
            outputs: Vec::new(),
            sent: vec![0; self.spec.channels.len()],
            reply: None,
            now_ns: 0,
            in_request: false,
            memory: None,
            buffer: 0,
            capacity: 0,
            limiter: Limiter {
                memory_bytes_max: self.spec.memory_bytes_max,
                refused_bytes: None,
            },
        };
        let mut store = Store::new(ground.engine, host);
        store.limiter(|host| &mut host.limiter);
        store.set_epoch_deadline(1);
        store.epoch_deadline_async_yield_and_update(1);
        let made = {
            let future = set_up(&mut store, &self.code.pre, ground.shim);
            finish(std::pin::pin!(future), self.spec.deadline)?
        };
        match made {
            Ok(run) => Ok(Box::new(Live { store, run })),
            Err(error) => Err(failure_of(&mut store, error)),
        }
    }

    /// Gives the instance a turn. True if it was set aside in the middle of a request.
    pub(crate) fn turn(&mut self, ground: &Ground<'_>, done: &mut Vec<Completion>) -> bool {
        let mut running = match std::mem::replace(&mut self.fiber, Fiber::Gone) {
            Fiber::Running(running) => running,
            Fiber::Idle(live) => enter(live),
            Fiber::Gone => match self.make(ground) {
                Ok(live) => {
                    self.stats.restarts += 1;
                    enter(live)
                }
                Err(failure) => {
                    let request = self.shared.borrow_mut().queue.pop_front();
                    if let Some(request) = request {
                        self.stats.failures += 1;
                        self.stats.requests += 1;
                        done.push(failed(self.id, request, failure, Duration::ZERO));
                    }
                    return false;
                }
            },
        };
        self.shared.borrow_mut().slice = Instant::now();
        let polled = running
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        let set_aside = match polled {
            Poll::Ready((live, Ok(()))) => {
                self.fiber = Fiber::Idle(live);
                false
            }
            Poll::Ready((mut live, Err(error))) => {
                let failure = failure_of(&mut live.store, error);
                self.fail(failure, done);
                false
            }
            Poll::Pending => {
                self.stats.preemptions += 1;
                let late = {
                    let shared = &mut *self.shared.borrow_mut();
                    shared.busy_before += shared.slice.elapsed();
                    (shared.busy_before > self.spec.deadline).then_some(shared.busy_before)
                };
                match late {
                    Some(busy) => {
                        // All it did is buffered; dropping the fiber loses nothing else.
                        drop(running);
                        self.stats.deadline_stops += 1;
                        self.fail(deadline_exceeded(busy, self.spec.deadline), done);
                        false
                    }
                    None => {
                        self.fiber = Fiber::Running(running);
                        true
                    }
                }
            }
        };
        let finished = std::mem::take(&mut self.shared.borrow_mut().done);
        for completion in &finished {
            self.stats.requests += 1;
            self.stats.busy += completion.busy;
        }
        done.extend(finished);
        set_aside
    }

    fn fail(&mut self, failure: Failure, done: &mut Vec<Completion>) {
        let shared = &mut *self.shared.borrow_mut();
        // What ended well before comes first.
        done.append(&mut shared.done);
        let busy = shared.busy_before + shared.slice.elapsed();
        shared.busy_before = Duration::ZERO;
        self.stats.requests += 1;
        self.stats.failures += 1;
        if matches!(
            failure,
            Failure::Trap(_) | Failure::Pointer { .. } | Failure::MemoryLimit { .. }
        ) {
            self.stats.traps += 1;
        }
        if let Some(request) = shared.current.take() {
            done.push(failed(self.id, request, failure, busy));
        }
    }

    /// True if there is a request to begin or to go on with.
    pub(crate) fn has_work(&self) -> bool {
        matches!(self.fiber, Fiber::Running(_)) || !self.shared.borrow().queue.is_empty()
    }
}

fn enter(mut live: Box<Live>) -> Running {
    Box::pin(async move {
        let result = live.run.call_async(&mut live.store, ()).await;
        (live, result)
    })
}

/// Instantiates the guest and the loop around its handler, and asks what must be known of it.
async fn set_up(
    store: &mut Store<Host>,
    guest: &InstancePre<Host>,
    shim: &Module,
) -> wasmtime::Result<TypedFunc<(), ()>> {
    let instance = guest.instantiate_async(&mut *store).await?;
    let memory = instance
        .get_memory(&mut *store, "memory")
        .expect("checked when loaded");
    store.data_mut().memory = Some(memory);
    let mut values = [0; 3];
    let names = ["e3_abi_version", "e3_request_buffer", "e3_request_capacity"];
    for (value, name) in values.iter_mut().zip(names) {
        let function = instance.get_typed_func::<(), i32>(&mut *store, name)?;
        *value = function.call_async(&mut *store, ()).await?;
    }
    let [version, buffer, capacity] = values;
    if version != 1 {
        return Err(wasmtime::Error::new(Failure::AbiVersion(version)));
    }
    let (address, capacity) = (buffer as u32, capacity as u32);
    if let Ok(init) = instance.get_typed_func::<(), i32>(&mut *store, "e3_init") {
        let code = init.call_async(&mut *store, ()).await?;
        if code != 0 {
            return Err(wasmtime::Error::new(Failure::Init(code)));
        }
    }
    let len = memory.data_size(&*store);
    if address as usize + capacity as usize > len {
        let failure = Failure::RequestBuffer {
            address,
            capacity,
            memory: len,
        };
        return Err(wasmtime::Error::new(failure));
    }
    store.data_mut().buffer = address;
    store.data_mut().capacity = capacity;
    let handle = instance
        .get_func(&mut *store, "e3_handle")
        .expect("checked when loaded");
    let next = Func::wrap(&mut *store, crate::host::next);
    let imports = [next.into(), handle.into()];
    let shim = wasmtime::Instance::new_async(&mut *store, shim, &imports).await?;
    shim.get_typed_func::<(), ()>(&mut *store, "run")
}

fn failure_of(store: &mut Store<Host>, error: wasmtime::Error) -> Failure {
    let maximum = store.data().limiter.memory_bytes_max;
    match error.downcast::<Failure>() {
        Ok(failure) => failure,
        Err(error) => match store.data_mut().limiter.refused_bytes.take() {
            Some(asked) => Failure::MemoryLimit { asked, maximum },
            None => Failure::Trap(format!("{error:#}")),
        },
    }
}
