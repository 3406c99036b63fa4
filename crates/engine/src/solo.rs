//! One service without a cluster: to try it, to profile it, to measure it.

use crate::code::LoadError;
use crate::config::{EngineConfig, EngineError};
use crate::engine::Engine;
use crate::limits::{MEMORY_LEN_MAX, TICK_ALONE, TURN_ALONE};
use crate::spec::{InstanceId, InstanceSpec, StartError};
use crate::stats::{Startup, Stats};
use crate::ticker::Ticker;
use e3_collections::State;
use e3_invocation::{Call, CallAnswer, CallError, Completion, Failed, Invocation};
use std::cell::RefCell;
use std::rc::Rc;
use thiserror::Error;

const ID: InstanceId = InstanceId(0);

/// Why a service does not run alone.
#[derive(Debug, Error)]
pub enum SoloError {
    /// The engine cannot be made.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// The module does not load.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The service does not start.
    #[error("{0}")]
    Start(#[from] StartError),
    /// A request was refused.
    #[error("{0}")]
    Submit(#[from] Box<Failed>),
    /// The thread that preempts cannot be started.
    #[error("ticker: {0}")]
    Ticker(#[from] std::io::Error),
}

/// A service with its own engine and its collections.
pub struct Solo {
    engine: Engine,
    state: Rc<RefCell<State>>,
    /// Answers the calls of the service.
    answers: Box<dyn FnMut(&Call) -> CallAnswer>,
}

impl Solo {
    /// Starts a service on empty collections, with all accelerators.
    pub fn start(wasm: &[u8], spec: InstanceSpec) -> Result<Solo, SoloError> {
        Solo::start_with(wasm, spec, |_| {})
    }

    /// Starts a service on empty collections, on an engine whose settings `set` may change.
    pub fn start_with(
        wasm: &[u8],
        spec: InstanceSpec,
        set: impl FnOnce(&mut EngineConfig),
    ) -> Result<Solo, SoloError> {
        let mut config = EngineConfig::new(Ticker::new(TICK_ALONE)?);
        config.instances_max = 1;
        config.instance_memory_bytes_max = spec.memory_bytes_max.min(MEMORY_LEN_MAX);
        set(&mut config);
        let mut engine = Engine::new(config)?;
        let code = engine.load(wasm)?;
        let state = Rc::new(RefCell::new(State::new(&spec.collections)));
        let service = spec.name.clone();
        engine.start(ID, &code, spec, Rc::clone(&state))?;
        // A start that takes longer than a tick goes on in turns.
        loop {
            match engine.stats(ID).unwrap_or_default().startup {
                Startup::Started => {
                    return Ok(Solo {
                        engine,
                        state,
                        answers: Box::new(|_| Err(CallError::Unavailable)),
                    });
                }
                Startup::Failed(error) => {
                    return Err(StartError::Failed { service, error }.into());
                }
                Startup::Starting => engine.run(TURN_ALONE),
            };
        }
    }

    /// Has `answers` answer the calls of the service. Before that nobody serves what it calls.
    pub fn answer_calls(&mut self, answers: impl FnMut(&Call) -> CallAnswer + 'static) {
        self.answers = Box::new(answers);
    }

    /// Handles requests one after the other; adds their completions to `ended`, in order.
    pub fn call_all(
        &mut self,
        requests: impl IntoIterator<Item = Invocation>,
        ended: &mut Vec<Completion>,
    ) -> Result<(), SoloError> {
        for request in requests {
            self.engine.submit(ID, request)?;
        }
        loop {
            let mut more = self.engine.run(TURN_ALONE);
            for (id, call) in self.engine.calls() {
                let answer = (self.answers)(&call);
                self.engine.answer(id, (call.token, call.index), answer);
                more = true;
            }
            ended.extend(self.engine.completions().map(|(_, completion)| completion));
            if !more {
                return Ok(());
            }
        }
    }

    /// Handles one request.
    pub fn call(&mut self, request: Invocation) -> Result<Completion, SoloError> {
        let mut ended = Vec::with_capacity(1);
        self.call_all([request], &mut ended)?;
        Ok(ended.pop().expect("a request that was taken ends"))
    }

    /// Takes a buffer back for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.engine.recycle(buffer);
    }

    /// A buffer with this content.
    pub fn buffer(&mut self, content: &[u8]) -> Vec<u8> {
        self.engine.buffer(content)
    }

    /// Bytes of the collections, as they are accounted.
    pub fn state_bytes(&self) -> usize {
        self.state.borrow().memory_bytes()
    }

    /// Figures of the service.
    pub fn stats(&self) -> Stats {
        self.engine.stats(ID).unwrap_or_default()
    }
}
