//! One instance: its fiber, which is replaced after a failure, and how far its start is.

use crate::fiber::{Ended, Fiber, Parts, fiber};
use crate::shared::{Phase, Shared};
use crate::stats::{Startup, Stats, bump};
use e3_invocation::{CallAnswer, HandlerError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// An instance.
pub(crate) struct Instance {
    pub(crate) parts: Parts,
    /// None after a failure; the next request makes a new one.
    fiber: Option<Fiber>,
    /// Why its last start failed.
    start_error: Option<HandlerError>,
    /// Whether it is in one of the engine's two queues.
    pub(crate) is_queued: bool,
}

impl Instance {
    /// An instance that has not begun to start.
    pub(crate) fn new(parts: Parts) -> Instance {
        Instance {
            parts,
            fiber: None,
            start_error: None,
            is_queued: false,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.parts.shared
    }

    pub(crate) fn has_fiber(&self) -> bool {
        self.fiber.is_some()
    }

    /// Drops its memory: the next poll starts it again.
    pub(crate) fn restart(&mut self) {
        self.fiber = None;
        self.parts.shared.has_started.set(false);
    }

    /// Whether it was preempted within its start or a request.
    pub(crate) fn is_suspended(&self) -> bool {
        self.fiber.is_some() && self.parts.shared.phase.get() == Phase::Suspended
    }

    /// Whether its handler waits for the answer to a call.
    pub(crate) fn is_waiting(&self) -> bool {
        self.fiber.is_some() && self.parts.shared.phase.get() == Phase::Waiting
    }

    /// Takes the answer to a call. False if its handler does not wait for that one.
    pub(crate) fn take_answer(&self, awaited: (u64, u32), answer: CallAnswer) -> bool {
        let shared = &self.parts.shared;
        if !self.is_waiting() || shared.awaited.get() != Some(awaited) {
            return false;
        }
        shared.awaited.set(None);
        shared.answer.set(Some(answer));
        shared.phase.set(Phase::Suspended);
        true
    }

    /// How far its start is.
    pub(crate) fn startup(&self) -> Startup {
        match &self.start_error {
            _ if self.parts.shared.has_started.get() => Startup::Started,
            Some(error) => Startup::Failed(error.clone()),
            // it worked before: the next request makes a new fiber
            None if self.fiber.is_none() && !self.is_queued => Startup::Started,
            None => Startup::Starting,
        }
    }

    /// Resumes the fiber, or makes a new one if there is none. How it ended, if it did.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Ended> {
        self.parts.shared.resumed.set(now);
        let mut context = Context::from_waker(Waker::noop());
        let mut fresh = false;
        loop {
            let fiber = self.fiber.get_or_insert_with(|| {
                fresh = true;
                fiber(self.parts.clone(), now)
            });
            if let Poll::Ready(ended) = fiber.as_mut().poll(&mut context) {
                self.fiber = None;
                return Some(ended);
            }
            // a fresh fiber first becomes idle: go on if requests wait
            let idle = self.parts.shared.phase.get() == Phase::Idle;
            let waiting = !self.parts.shared.queue.borrow().is_empty();
            if !(std::mem::replace(&mut fresh, false) && idle && waiting) {
                return None;
            }
        }
    }

    /// After a failure: the request in progress fails, or the next one if there was none.
    pub(crate) fn on_end(&mut self, ended: Ended) {
        bump(&self.parts.shared.counters.restarts);
        self.parts.shared.memory_bytes.set(0);
        self.parts.shared.is_within_request.set(false);
        let was_start = !self.parts.shared.has_started.replace(false);
        self.start_error = was_start.then(|| ended.error.clone());
        let next = || self.parts.shared.queue.borrow_mut().pop_front();
        if let Some(invocation) = ended.invocation.or_else(next) {
            self.parts.shared.fail(invocation, ended.error, ended.busy);
        }
    }

    /// Figures since the start.
    pub(crate) fn stats(&self) -> Stats {
        let shared = self.shared();
        let counters = &shared.counters;
        Stats {
            service: shared.spec.name.clone(),
            requests: counters.requests.get(),
            failures: counters.failures.get(),
            traps: counters.traps.get(),
            deadlines_exceeded: counters.deadlines_exceeded.get(),
            preemptions: counters.preemptions.get(),
            restarts: counters.restarts.get(),
            busy: counters.busy.get(),
            instructions: counters.instructions.get(),
            queue_len: shared.queue.borrow().len(),
            memory_bytes: shared.memory_bytes.get(),
            startup: self.startup(),
        }
    }
}
