//! The host's side of an instance: the request under way, its buffered effects, and the loop by
//! which the fiber fetches requests.

use crate::types::{
    Completion, Failed, Failure, InstanceId, InstanceSpec, LogFn, Outcome, Output, Reply, Request,
};
use e3_collections::{State, Txn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use wasmtime::{Caller, Memory, ResourceLimiter};

/// Requests of one turn of an instance, so that the others get theirs.
const BATCH_MAX: usize = 64;

/// What the engine and the fiber of an instance share.
pub(crate) struct Shared {
    pub(crate) queue: VecDeque<Request>,
    /// The request that the handler runs on.
    pub(crate) current: Option<Request>,
    pub(crate) done: Vec<Completion>,
    /// Time on the core of the current request before this slice.
    pub(crate) busy_before: Duration,
    /// Begin of this slice.
    pub(crate) slice: Instant,
}

/// Data of an instance's store.
pub(crate) struct Host {
    pub(crate) id: InstanceId,
    pub(crate) spec: Rc<InstanceSpec>,
    pub(crate) shared: Rc<RefCell<Shared>>,
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) log: Option<LogFn>,
    pub(crate) txn: Txn,
    pub(crate) outputs: Vec<Output>,
    /// Messages of the current request, by channel.
    pub(crate) sent: Vec<u32>,
    pub(crate) reply: Option<Reply>,
    pub(crate) now_ns: u64,
    pub(crate) in_request: bool,
    pub(crate) memory: Option<Memory>,
    pub(crate) buffer: u32,
    pub(crate) capacity: u32,
    pub(crate) limiter: Limiter,
}

// SAFETY: stores, fibers and all that is in them are made, used and dropped by one `Engine`, which
// holds an `Rc` and so is neither `Send` nor `Sync`; no `Host` is ever reached from another thread.
// wasmtime asks for `Send` because futures in general may be polled anywhere; these are polled by
// `Engine` only.
unsafe impl Send for Host {}

/// Bounds linear memory and remembers what was refused.
pub(crate) struct Limiter {
    pub(crate) memory_bytes_max: usize,
    pub(crate) refused_bytes: Option<usize>,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let granted = desired <= self.memory_bytes_max;
        if !granted {
            self.refused_bytes = Some(desired);
        }
        Ok(granted)
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= crate::limits::TABLE_LEN_MAX)
    }
}

/// Result of a host function: an error ends the attempt.
pub(crate) type HostResult<T> = Result<T, wasmtime::Error>;

/// The guest's memory and the host's data. Only called once the memory is known.
pub(crate) fn parts<'a>(caller: &'a mut Caller<'_, Host>) -> (&'a mut [u8], &'a mut Host) {
    let memory = caller
        .data()
        .memory
        .expect("set before the guest first runs");
    memory.data_and_store_mut(caller)
}

/// A range of the guest's memory.
pub(crate) fn slice(memory: &[u8], ptr: i32, len: i32) -> HostResult<&[u8]> {
    let (ptr, len) = (ptr as u32, len as u32);
    let end = ptr as usize + len as usize;
    memory
        .get(ptr as usize..end)
        .ok_or_else(|| pointer(memory, ptr, len))
}

/// Copies to the guest if there is room for all of it; gives its length.
pub(crate) fn give(memory: &mut [u8], bytes: &[u8], out: i32, cap: i32) -> HostResult<i32> {
    let (ptr, cap) = (out as u32 as usize, cap as u32 as usize);
    if bytes.len() <= cap {
        match memory.get_mut(ptr..ptr + bytes.len()) {
            Some(to) => to.copy_from_slice(bytes),
            None => return Err(pointer(memory, out as u32, bytes.len() as u32)),
        }
    }
    Ok(bytes.len() as i32)
}

#[cold]
fn pointer(memory: &[u8], ptr: u32, len: u32) -> wasmtime::Error {
    wasmtime::Error::new(Failure::Pointer {
        ptr,
        len,
        memory: memory.len(),
    })
}

impl Host {
    /// Ends the request under way, if there is one.
    fn finish(&mut self, status: i32) -> HostResult<()> {
        if !self.in_request {
            return Ok(());
        }
        if status != 0 {
            return Err(wasmtime::Error::new(Failure::Code(status)));
        }
        let batch = self.txn.finish();
        if !batch.is_empty() {
            let applied = self.state.borrow_mut().apply(&batch);
            applied.map_err(|e| wasmtime::Error::new(Failure::State(e)))?;
        }
        self.in_request = false;
        let shared = &mut *self.shared.borrow_mut();
        let Some(request) = shared.current.take() else {
            return Ok(());
        };
        let now = Instant::now();
        let busy = shared.busy_before + (now - shared.slice);
        shared.busy_before = Duration::ZERO;
        shared.slice = now;
        shared.done.push(Completion {
            id: self.id,
            token: request.token,
            outcome: Outcome::Done {
                batch,
                outputs: std::mem::take(&mut self.outputs),
                reply: self.reply.take(),
            },
            busy,
        });
        Ok(())
    }

    /// Takes the next request; None if the fiber should end.
    fn begin(&mut self) -> Option<()> {
        let shared = &mut *self.shared.borrow_mut();
        if shared.done.len() >= BATCH_MAX {
            return None;
        }
        let request = shared.queue.pop_front()?;
        self.txn.begin(request.slot);
        self.outputs.clear();
        self.sent.fill(0);
        self.reply = None;
        self.now_ns = request.now_ns;
        self.in_request = true;
        shared.current = Some(request);
        Some(())
    }
}

/// The fiber's call: ends the request before with the handler's `status`, fetches the next into the
/// guest's buffer and gives its length; -1 ends the fiber.
pub(crate) fn next(mut caller: Caller<'_, Host>, status: i32) -> HostResult<i32> {
    let (memory, host) = parts(&mut caller);
    host.finish(status)?;
    if host.begin().is_none() {
        return Ok(-1);
    }
    let shared = host.shared.borrow();
    let payload = &shared.current.as_ref().expect("just begun").payload;
    if payload.len() > host.capacity as usize {
        let (len, capacity) = (payload.len(), host.capacity as usize);
        return Err(wasmtime::Error::new(Failure::RequestTooLong {
            len,
            capacity,
        }));
    }
    let at = host.buffer as usize;
    memory[at..at + payload.len()].copy_from_slice(payload);
    Ok(payload.len() as i32)
}

/// The request under way ends without success.
pub(crate) fn failed(
    id: InstanceId,
    request: Request,
    failure: Failure,
    busy: Duration,
) -> Completion {
    let token = request.token;
    let outcome = Outcome::Failed(Box::new(Failed { failure, request }));
    Completion {
        id,
        token,
        outcome,
        busy,
    }
}
