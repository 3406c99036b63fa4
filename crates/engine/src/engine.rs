//! The engine of one worker core: its instances, and whose turn it is.

use crate::code::{self, Code};
use crate::host::Host;
use crate::instance::{Ground, Instance};
use crate::limits::*;
use crate::ticker::Watch;
use crate::types::{
    Completion, EngineConfig, EngineError, InstanceId, InstanceSpec, LoadError, Request,
    StartError, Stats, SubmitError,
};
use crate::{imports, types::check_bound};
use e3_collections::State;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::{
    Config, InstanceAllocationStrategy, Linker, Module, OptLevel, PoolingAllocationConfig,
    WasmBacktraceDetails,
};

/// The loop around a handler: fetches requests and calls it, all inside WebAssembly, so that a batch
/// is entered once.
const SHIM: &str = r#"(module
  (import "shim" "next" (func $next (param i32) (result i32)))
  (import "guest" "handle" (func $handle (param i32) (result i32)))
  (func (export "run") (local $n i32)
    (local.set $n (call $next (i32.const 0)))
    (loop $again
      (if (i32.ge_s (local.get $n) (i32.const 0))
        (then
          (local.set $n (call $next (call $handle (local.get $n))))
          (br $again))))))"#;

/// Runs services on one core. Never leaves its thread.
pub struct Engine {
    config: EngineConfig,
    engine: wasmtime::Engine,
    linker: Linker<Host>,
    shim: Module,
    watch: Arc<Watch>,
    instances: Vec<Option<Instance>>,
    count: u32,
    /// Instances with something to do, in the order of their turns.
    ready: VecDeque<InstanceId>,
    done: Vec<Completion>,
    /// Keeps the engine on its thread.
    _here: Rc<()>,
}

impl Engine {
    /// An engine without instances.
    pub fn new(config: EngineConfig) -> Result<Engine, EngineError> {
        config.validate()?;
        let machine = |e: wasmtime::Error| EngineError::Machine(format!("{e:#}"));
        let n = config.instances_max;
        check_bound("instances_max", u64::from(n), u64::from(INSTANCES_MAX))?;
        let mut pool = PoolingAllocationConfig::default();
        pool.total_memories(n)
            .total_tables(n)
            .total_stacks(n)
            // The guest and the loop around it.
            .total_core_instances(2 * n)
            .max_unused_warm_slots(n)
            .max_memory_size(config.instance_memory_bytes_max)
            .table_elements(TABLE_LEN_MAX)
            .linear_memory_keep_resident(64 << 10)
            .async_stack_keep_resident(16 << 10);
        let mut settings = Config::new();
        settings
            .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
            .epoch_interruption(true)
            .concurrency_support(false)
            .cranelift_opt_level(OptLevel::Speed)
            .max_wasm_stack(WASM_STACK_LEN_MAX)
            .async_stack_size(FIBER_STACK_LEN)
            .wasm_backtrace_max_frames(None)
            .wasm_backtrace_details(WasmBacktraceDetails::Disable);
        let engine = wasmtime::Engine::new(&settings).map_err(machine)?;
        let mut linker = Linker::new(&engine);
        imports::define(&mut linker).map_err(machine)?;
        let shim = wat::parse_str(SHIM).expect("a constant");
        let shim = Module::new(&engine, shim).map_err(machine)?;
        let watch = config.ticker.watch(engine.clone());
        Ok(Engine {
            config,
            engine,
            linker,
            shim,
            watch,
            instances: Vec::new(),
            count: 0,
            ready: VecDeque::new(),
            done: Vec::new(),
            _here: Rc::new(()),
        })
    }

    /// Loads a module: checked, compiled or taken from the cache.
    pub fn load(&self, wasm: &[u8]) -> Result<Code, LoadError> {
        let cache = self.config.cache_dir.as_deref();
        code::load(
            &self.engine,
            &self.linker,
            cache,
            self.config.instance_memory_bytes_max,
            wasm,
        )
    }

    /// Makes an instance ready for requests. `state` holds its collections.
    pub fn start(
        &mut self,
        id: InstanceId,
        code: &Code,
        spec: InstanceSpec,
        state: Rc<RefCell<State>>,
    ) -> Result<(), StartError> {
        let at = id.0 as usize;
        if id.0 >= INSTANCE_IDS_MAX || self.instance(id).is_some() {
            return Err(StartError::Id(id));
        }
        if !wasmtime::Engine::same(&self.engine, code.pre.module().engine()) {
            return Err(StartError::ForeignCode(id));
        }
        let ground = Ground {
            engine: &self.engine,
            shim: &self.shim,
        };
        // Even the first steps of a guest may not end.
        let busy = self.config.ticker.busy(&self.watch);
        let log = self.config.log.clone();
        let instance = Instance::start(&ground, id, code, spec, state, log)?;
        drop(busy);
        if self.instances.len() <= at {
            self.instances.resize_with(at + 1, || None);
        }
        self.instances[at] = Some(instance);
        self.count += 1;
        Ok(())
    }

    /// Drops an instance, its requests, and what of theirs has not been taken.
    pub fn stop(&mut self, id: InstanceId) {
        if let Some(slot) = self.instances.get_mut(id.0 as usize)
            && slot.take().is_some()
        {
            self.count -= 1;
            self.ready.retain(|i| *i != id);
            self.done.retain(|c| c.id != id);
        }
    }

    /// Queues a request. An instance handles its requests strictly in order.
    pub fn submit(&mut self, id: InstanceId, request: Request) -> Result<(), SubmitError> {
        let slot = self
            .instances
            .get_mut(id.0 as usize)
            .and_then(Option::as_mut);
        let instance = slot.ok_or(SubmitError::NoInstance(id))?;
        let shared = &mut *instance.shared.borrow_mut();
        if shared.queue.len() >= QUEUE_LEN_MAX {
            return Err(SubmitError::Full(id));
        }
        shared.queue.push_back(request);
        if !instance.ready {
            instance.ready = true;
            self.ready.push_back(id);
        }
        Ok(())
    }

    /// Gives turns until nothing is left to do, `max` is over, or enough is finished. True if there
    /// is more to do.
    pub fn run(&mut self, max: Duration) -> bool {
        if self.ready.is_empty() {
            return false;
        }
        let start = Instant::now();
        let _busy = self.config.ticker.busy(&self.watch);
        let ground = Ground {
            engine: &self.engine,
            shim: &self.shim,
        };
        while let Some(id) = self.ready.pop_front() {
            let Some(instance) = self.instances[id.0 as usize].as_mut() else {
                continue;
            };
            instance.turn(&ground, &mut self.done);
            instance.ready = instance.has_work();
            if instance.ready {
                self.ready.push_back(id);
            }
            if self.done.len() >= COMPLETIONS_MAX || start.elapsed() >= max {
                break;
            }
        }
        !self.ready.is_empty()
    }

    /// Takes what is finished, in the order of finishing.
    pub fn completions(&mut self) -> std::vec::Drain<'_, Completion> {
        self.done.drain(..)
    }

    /// Counters of an instance.
    pub fn stats(&self, id: InstanceId) -> Option<Stats> {
        let instance = self.instance(id)?;
        let queue_len = instance.shared.borrow().queue.len();
        Some(Stats {
            queue_len,
            ..instance.stats.clone()
        })
    }

    /// Instances that are started.
    pub fn instances(&self) -> u32 {
        self.count
    }

    fn instance(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.get(id.0 as usize)?.as_ref()
    }
}
