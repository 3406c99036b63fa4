//! Calls that a handler makes of other services, and what it may do when it is called itself.

use super::{Ctx, busy};
use crate::codes::{BOUND, FAILED, NO_HANDLE, TIMED_OUT, UNAVAILABLE};
use crate::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use crate::shared::Phase;
use e3_invocation::{Call, CallAnswer, CallError, HandlerError, Reply};
use e3_model::limits::REQUEST_CALLS_MAX;
use std::time::Instant;

/// Level of log lines that say why a call brought no reply.
const WARN: i32 = 2;

/// Calls of the request in progress.
#[derive(Default)]
pub(super) struct Calls {
    /// How many were made.
    made: u32,
    /// The service that was called last.
    service: String,
    /// What the last one brought.
    answer: Option<Reply>,
}

impl Ctx {
    /// Hands a call to the caller of `run`, who has the fiber resumed with the answer. Otherwise the
    /// code that says why not.
    pub(crate) fn begin_call(&mut self, service: &[u8], key: &[u8], payload: &[u8]) -> Option<i32> {
        self.calls.answer = None;
        let mut known = self.shared.spec.calls.iter();
        let service = known.find(|name| name.as_bytes() == service).cloned();
        let (Some(service), Some(invocation)) = (service, &self.invocation) else {
            return Some(NO_HANDLE);
        };
        let fits = (1..=KEY_LEN_MAX).contains(&key.len()) && payload.len() <= PAYLOAD_LEN_MAX;
        if !fits || self.calls.made as usize >= REQUEST_CALLS_MAX {
            return Some(BOUND);
        }
        let call = Call {
            token: invocation.token,
            index: self.calls.made,
            service,
            key: key.to_vec(),
            payload: payload.to_vec(),
        };
        self.calls.made += 1;
        self.calls.service.clone_from(&call.service);
        // The time until the answer is not the handler's.
        self.busy_before = busy(self, Instant::now());
        let shared = &self.shared;
        shared.awaited.set(Some((call.token, call.index)));
        shared.phase.set(Phase::Waiting);
        shared.core.calls.borrow_mut().push((shared.id, call));
        None
    }

    /// Takes what a call brought: the length of its answer, or the code that says why there is none.
    pub(crate) fn end_call(&mut self, answer: CallAnswer) -> i32 {
        let error = match answer {
            Ok(reply) => {
                let len = reply.payload.len();
                self.calls.answer = Some(reply);
                return len as i32;
            }
            Err(error) => error,
        };
        let text = format!("call of {:?}: {error}", self.calls.service);
        self.log(WARN, text.as_bytes());
        match error {
            CallError::Unavailable => UNAVAILABLE,
            CallError::TimedOut => TIMED_OUT,
            CallError::Failed(_) => FAILED,
        }
    }

    /// Status of the last answer; -1 if there is none.
    pub(crate) fn call_status(&self) -> i32 {
        let answer = self.calls.answer.as_ref();
        answer.map_or(NO_HANDLE, |reply| reply.status as i32)
    }

    /// Payload of the last answer.
    pub(crate) fn call_answer(&self) -> Option<&[u8]> {
        self.calls.answer.as_ref().map(|reply| &*reply.payload)
    }

    /// A called handler reads and replies: it may run any number of times, and nothing is logged of it.
    pub(super) fn check_called(&self) -> Result<(), HandlerError> {
        if !self.invocation.as_ref().is_some_and(|i| i.is_call) {
            return Ok(());
        }
        let effect = match &self.effects {
            _ if self.txn.writes() > 0 => "a write",
            effects if !effects.outputs.is_empty() => "a message",
            effects if !effects.timers.is_empty() => "a change of a timer",
            effects if effects.reply.is_none() => return Err(HandlerError::CallUnanswered),
            _ => return Ok(()),
        };
        Err(HandlerError::CallEffect(effect))
    }
}
