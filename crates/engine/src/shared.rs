//! What an engine, its instances and their fibers share. All of them are on one thread.

use crate::config::{EngineConfig, LogFn, RandomFn};
use crate::limits::{BUFFER_LEN_MAX, BUFFERS_MAX};
use crate::log_rate::LogRate;
use crate::spec::{InstanceId, InstanceSpec};
use crate::stats::Counters;
use e3_invocation::{Call, CallAnswer, Completion, Failed, HandlerError, Invocation, Outcome};
use e3_model::Accelerators;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What all instances of an engine share.
pub(crate) struct Core {
    pub(crate) completions: RefCell<Vec<(InstanceId, Completion)>>,
    /// Calls that handlers made and wait for.
    pub(crate) calls: RefCell<Vec<(InstanceId, Call)>>,
    /// Used buffers, for reuse.
    buffers: RefCell<Vec<Vec<u8>>>,
    /// When the caller of `run` wants the core back.
    pub(crate) run_until: Cell<Instant>,
    pub(crate) log: Option<LogFn>,
    pub(crate) accelerators: Accelerators,
    pub(crate) random: RandomFn,
    pub(crate) count_instructions: bool,
    /// Of the ticker.
    pub(crate) period: Duration,
    /// A handler has run for a period.
    pub(crate) has_long: Cell<bool>,
}

impl Core {
    pub(crate) fn new(config: &EngineConfig, now: Instant) -> Core {
        Core {
            completions: RefCell::default(),
            calls: RefCell::default(),
            buffers: RefCell::default(),
            run_until: Cell::new(now),
            log: config.log.clone(),
            accelerators: config.accelerators,
            random: Rc::clone(&config.random),
            count_instructions: config.count_instructions,
            period: config.ticker.period(),
            has_long: Cell::new(false),
        }
    }

    /// A buffer with this content: a used one, or a new one if there is none.
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

/// Why a fiber is not running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It has not begun, or it was preempted within its start or a request.
    Suspended,
    /// It waits for requests.
    Idle,
    /// Its handler waits for the answer to a call.
    Waiting,
}

/// What an instance and its fiber share. It outlives the fiber.
pub(crate) struct Shared {
    pub(crate) id: InstanceId,
    pub(crate) spec: InstanceSpec,
    pub(crate) core: Rc<Core>,
    pub(crate) queue: RefCell<VecDeque<Invocation>>,
    pub(crate) phase: Cell<Phase>,
    /// Token and index of the call that the handler waits for.
    pub(crate) awaited: Cell<Option<(u64, u32)>>,
    /// Its answer, until the fiber takes it.
    pub(crate) answer: Cell<Option<CallAnswer>>,
    /// When the fiber was last resumed.
    pub(crate) resumed: Cell<Instant>,
    pub(crate) memory_bytes: Cell<usize>,
    /// Whether the fiber finished its start.
    pub(crate) has_started: Cell<bool>,
    /// Whether its start read the collections.
    pub(crate) has_read: Cell<bool>,
    /// Whether a request is in progress, even if the fiber is suspended.
    pub(crate) is_within_request: Cell<bool>,
    /// Whether the caller of `run` wants the core back when the request in progress ends.
    pub(crate) pauses: Cell<bool>,
    pub(crate) log_rate: LogRate,
    pub(crate) counters: Rc<Counters>,
}

impl Shared {
    /// For an instance that has not begun to start.
    pub(crate) fn new(
        id: InstanceId,
        spec: InstanceSpec,
        core: Rc<Core>,
        counters: Rc<Counters>,
    ) -> Shared {
        Shared {
            id,
            spec,
            core,
            queue: RefCell::default(),
            phase: Cell::new(Phase::Suspended),
            awaited: Cell::new(None),
            answer: Cell::new(None),
            resumed: Cell::new(Instant::now()),
            memory_bytes: Cell::new(0),
            has_started: Cell::new(false),
            has_read: Cell::new(false),
            is_within_request: Cell::new(false),
            pauses: Cell::new(false),
            log_rate: LogRate::default(),
            counters,
        }
    }

    /// Accelerators that the instance can use.
    pub(crate) fn accelerators(&self) -> Accelerators {
        self.core.accelerators.and(self.spec.accelerators)
    }

    /// Reports an invocation that failed, and counts it.
    pub(crate) fn fail(&self, invocation: Invocation, error: HandlerError, busy: Duration) {
        self.counters.on_request(busy);
        self.counters.on_failure(&error);
        let completion = Completion {
            token: invocation.token,
            outcome: Outcome::Failed(Box::new(Failed { error, invocation })),
            busy: busy.into(),
        };
        let mut completions = self.core.completions.borrow_mut();
        completions.push((self.id, completion));
    }
}
