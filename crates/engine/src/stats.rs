//! Counters of an instance, and how far its start is.

use e3_invocation::HandlerError;
use std::cell::Cell;
use std::time::Duration;

/// Figures of an instance, since its start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Name of the service.
    pub service: String,
    /// Requests that ended, completed or failed.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Failures by a trap or by a pointer out of range.
    pub traps: u64,
    /// Failures by the deadline.
    pub deadlines_exceeded: u64,
    /// How often it was preempted.
    pub preemptions: u64,
    /// How often it got a new memory after a failure.
    pub restarts: u64,
    /// Processor time.
    pub busy: Duration,
    /// Requests in its queue.
    pub queue_len: usize,
    /// Bytes of its linear memory.
    pub memory_bytes: usize,
    /// WebAssembly instructions since its last restart, if they are counted.
    pub instructions: u64,
    /// How far its start is.
    pub startup: Startup,
}

/// How far the start of an instance is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Startup {
    /// It has not finished its `e3_init`.
    #[default]
    Starting,
    /// It failed; the next request makes it try again.
    Failed(HandlerError),
    /// It is ready for requests.
    Started,
}

/// Counters, as cells that the host functions of a running instance can change.
#[derive(Default)]
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

impl Counters {
    /// Counts a request that ended.
    pub(crate) fn on_request(&self, busy: Duration) {
        bump(&self.requests);
        self.busy.set(self.busy.get() + busy);
    }

    /// Counts a failure.
    pub(crate) fn on_failure(&self, error: &HandlerError) {
        bump(&self.failures);
        match error {
            HandlerError::Trap(_)
            | HandlerError::Pointer { .. }
            | HandlerError::MemoryLimit { .. } => bump(&self.traps),
            HandlerError::DeadlineExceeded { .. } => bump(&self.deadlines_exceeded),
            _ => {}
        }
    }
}

pub(crate) fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}
