//! Handlers that call another service and wait: what the executor of a node keeps of them.

use super::ShardKey;
use e3_dataplane::Worker;
use e3_invocation::{Call, CallAnswer, Invocation};
use e3_model::{RequestId, ServiceId, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The call that a handler makes before all else, if it makes one.
pub type Caller = Box<dyn FnMut(ServiceId, &Invocation) -> Option<Call>>;

/// What calls brought, by the request of the calling handler.
pub type Answers = Rc<RefCell<BTreeMap<RequestId, CallAnswer>>>;

/// Runs of a node that wait for an answer, or have it.
#[derive(Default)]
pub struct Calling {
    waiting: BTreeMap<(ShardKey, u64), Invocation>,
    answered: BTreeMap<(ShardKey, u64), Invocation>,
}

/// A call of another service.
pub fn call(invocation: &Invocation, service: &str, payload: &[u8]) -> Call {
    Call {
        token: invocation.token,
        index: 0,
        service: service.into(),
        key: invocation.key.clone(),
        payload: payload.to_vec(),
    }
}

impl Calling {
    /// Makes the call of a run that begins. The run, if it waits for none.
    pub fn begin(
        &mut self,
        worker: &mut Worker,
        (now, key): (Timestamp, ShardKey),
        invocation: Invocation,
        caller: &mut Caller,
    ) -> Option<Invocation> {
        let Some(call) = caller(key.service, &invocation) else {
            return Some(invocation);
        };
        let at = (key, invocation.token);
        if self.answered.remove(&at).is_some() {
            return Some(invocation);
        }
        self.waiting.insert(at, invocation);
        worker.handle_call(now, key, call);
        None
    }

    /// An answer has come: the run that goes on.
    pub fn on_answer(
        &mut self,
        key: ShardKey,
        (token, _): (u64, u32),
        answer: CallAnswer,
        answers: &Answers,
    ) -> Option<(ShardKey, Invocation)> {
        let invocation = self.waiting.remove(&(key, token))?;
        let request = invocation.id.request;
        answers.borrow_mut().insert(request, answer);
        self.answered.insert((key, token), invocation.clone());
        Some((key, invocation))
    }

    /// The instance is gone.
    pub fn stop(&mut self, key: ShardKey) {
        self.waiting.retain(|(of, _), _| *of != key);
        self.answered.retain(|(of, _), _| *of != key);
    }

    /// Runs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
