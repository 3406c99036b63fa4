//! Calls of this shard: handlers elsewhere ask and wait, and the handler here only reads and replies.
//!
//! A call has no log entry, and may run any number of times. It is a linearizable read: the handler
//! runs on the primary, and its answer leaves when all entries that it could have read are committed,
//! if the primary still holds its leases then.

use super::Primary;
use crate::cores::Occupied;
use crate::deliberate::{self, Fault};
use crate::limits::{CALLS_MAX, IN_FLIGHT_MAX};
use crate::refusal::state_bytes_max;
use crate::shard::{Caller, Context, Effect, Shard, Turn};
use e3_invocation::{CallAnswer, CallError, Completion, Invocation, Outcome};
use e3_model::{DropReason, MessageId, RequestId, Slot, Timestamp};
use e3_wire::call::Call;
use std::collections::{BTreeSet, VecDeque};

/// A call that has arrived.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) caller: Caller,
    request: RequestId,
    sent: Timestamp,
    deadline: Timestamp,
    slot: Slot,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// A call that the executor has.
#[derive(Debug)]
struct Running {
    token: u64,
    caller: Caller,
    request: RequestId,
    now: Timestamp,
    deadline: Timestamp,
}

/// An answer that has not left.
#[derive(Debug)]
struct Answer {
    caller: Caller,
    /// The last entry that the handler could have read.
    op: u64,
    /// An emulated core is done with it then.
    release_at: Timestamp,
    answer: CallAnswer,
}

/// Calls of a shard that have not been answered.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// All callers below: what they repeat is dropped.
    callers: BTreeSet<Caller>,
    queue: VecDeque<Called>,
    running: VecDeque<Running>,
    answers: VecDeque<Answer>,
    /// It is the turn of a call.
    is_next: bool,
}

/// What a run that calls another service passes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) request: RequestId,
    /// Its handler's clock.
    pub(crate) now: Timestamp,
    pub(crate) deadline: Timestamp,
}

impl Called {
    pub(crate) fn new(caller: Caller, call: &Call<'_>) -> Called {
        Called {
            caller,
            request: call.request,
            sent: call.sent,
            deadline: call.deadline,
            slot: Slot::of(call.key),
            key: call.key.to_vec(),
            payload: call.payload.to_vec(),
        }
    }
}

impl Calls {
    /// With the executor.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether none is being handled and no answer waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.answers.is_empty()
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Calls that wait or are being handled.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.running.len()
    }

    /// A message was handed to the executor.
    pub(super) fn on_message(&mut self) {
        self.is_next = true;
    }
}

impl Primary {
    /// A call has arrived. A repeat of one that is here is dropped, as is one for which there is no room:
    /// its caller repeats it.
    pub(crate) fn on_call(&mut self, turn: &mut Turn<'_>, called: Called) {
        let calls = &mut self.calls;
        if calls.callers.contains(&called.caller) {
            return;
        }
        if calls.callers.len() >= CALLS_MAX {
            return turn.effects.push(Effect::Drop(DropReason::Call));
        }
        calls.callers.insert(called.caller);
        calls.queue.push_back(called);
    }

    /// Whether a call waits that may be handled now. Also while a backup is taken: handlers elsewhere wait
    /// for it, and must end before their shards stand still. What has expired is not removed meanwhile.
    fn can_run_call(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        self.calls.is_waiting()
            && !self.hands_over
            && (self.frozen || !self.expiry.is_first)
            && self.has_executor(cx, shard)
            && self.may_answer(cx, shard)
    }

    fn may_answer(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        self.may_serve(cx, shard) || deliberate::is(Fault::CallWithoutLease)
    }

    /// Whether a call goes before what else waits: they take turns.
    pub(super) fn is_call_next(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let others = || self.can_fire(cx, shard) || self.can_dispatch(cx, shard);
        self.can_run_call(cx, shard) && (self.calls.is_next || !others())
    }

    /// Hands the call that waits longest to the executor, unless nobody waits for it any more.
    pub(super) fn run_call(&mut self, turn: &mut Turn<'_>) {
        let Some(called) = self.calls.queue.pop_front() else {
            return;
        };
        if called.deadline < turn.cx.now {
            self.calls.callers.remove(&called.caller);
            return;
        }
        self.calls.is_next = false;
        let token = self.next_token;
        self.next_token += 1;
        let now = if turn.cx.app.service(turn.shard.key).stateful {
            turn.shard.log.time(turn.cx.now)
        } else {
            called.sent
        };
        self.calls.running.push_back(Running {
            token,
            caller: called.caller,
            request: called.request,
            now,
            deadline: called.deadline,
        });
        turn.effects.push(Effect::Run(Invocation {
            token,
            id: MessageId::ingress(called.request),
            now,
            state_bytes_max: state_bytes_max(turn),
            slot: called.slot,
            key: called.key,
            payload: called.payload,
            timer: None,
            answer: None,
            topic: None,
            is_call: true,
        }));
    }

    /// The executor has run the handler of a call.
    pub(super) fn on_called(&mut self, turn: &mut Turn<'_>, done: Completion, occupied: Occupied) {
        let running = &mut self.calls.running;
        let at = running.iter().position(|r| r.token == done.token);
        let Some(Running { caller, .. }) = at.and_then(|at| running.remove(at)) else {
            return;
        };
        turn.shard.counts.calls += 1;
        self.occupy(turn, occupied);
        let answer = match done.outcome {
            Outcome::Completed(effects) => effects.reply.ok_or_else(|| {
                CallError::Failed(e3_invocation::HandlerError::CallUnanswered.to_string())
            }),
            Outcome::Failed(failed) => {
                let reason = failed.error.to_string();
                turn.shard.counts.last_failure = Some(reason.clone());
                Err(CallError::Failed(reason))
            }
        };
        self.calls.answers.push_back(Answer {
            caller,
            op: turn.shard.log.op,
            release_at: self.done_at,
            answer,
        });
        self.release_answers(turn);
        self.plan_expiry(turn);
    }

    /// Whether the oldest answer may leave.
    fn can_release_answer(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let is_durable = |op| op <= self.commit || deliberate::is(Fault::CallOfUncommitted);
        let front = self.calls.answers.front();
        front.is_some_and(|a| is_durable(a.op) && a.release_at <= cx.now)
            && self.may_answer(cx, shard)
    }

    /// Sends the answers that may leave.
    pub(super) fn release_answers(&mut self, turn: &mut Turn<'_>) {
        while self.can_release_answer(turn.cx, turn.shard)
            && let Some(Answer { caller, answer, .. }) = self.calls.answers.pop_front()
        {
            self.calls.callers.remove(&caller);
            turn.effects.push(Effect::Answer { caller, answer });
        }
    }

    /// The run of that token, if the executor has it.
    pub(crate) fn run_of(&self, token: u64) -> Option<Run> {
        let calls = self.calls.running.iter();
        let mut calls = calls.map(|r| (r.token, r.request, r.now, r.deadline));
        let messages = self.in_flight.iter().map(|f| {
            let message = &f.waiting.message;
            (f.token, message.id.request, f.handler_now, message.deadline)
        });
        let mut all = messages.chain(&mut calls);
        let (_, request, now, deadline) = all.find(|(of, ..)| *of == token)?;
        Some(Run {
            request,
            now,
            deadline,
        })
    }

    /// Panics if an invariant is broken.
    pub(super) fn validate_calls(&self, cx: &Context<'_>, shard: &Shard, is_ready: bool) {
        let calls = &self.calls;
        let all = calls.len() + calls.answers.len();
        assert!(calls.callers.len() == all && all <= CALLS_MAX, "callers");
        assert!(self.in_flight.len() + calls.running.len() <= IN_FLIGHT_MAX);
        assert!(
            is_ready || !self.can_run_call(cx, shard),
            "a call waits that could be handled"
        );
        assert!(
            !self.can_release_answer(cx, shard),
            "an answer waits that could leave"
        );
    }
}
