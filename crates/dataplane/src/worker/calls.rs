//! Calls of handlers on this node: where they go, when they are repeated, when they are given up.

use super::{Output, Worker};
use crate::app::App;
use crate::limits::{CALL_INTERVAL, CALL_INTERVAL_MAX, CALL_WAIT_MAX};
use crate::primary::{CallRun, Called};
use crate::shard::Caller;
use crate::timers::Timer;
use e3_invocation::{Call, CallAnswer, CallError, Reply};
use e3_model::{DropReason, Nanos, NodeId, ServiceId, ShardKey, Slot, Timestamp};
use e3_wire::call::{self, CallResult};
use e3_wire::datagram::Header;
use e3_wire::frame::Frame;
use e3_wire::limits::REASON_LEN_MAX;
use std::collections::{BTreeMap, BTreeSet};

/// A call that a handler here waits for.
#[derive(Debug)]
struct Asking {
    /// The shard whose handler waits.
    key: ShardKey,
    call: Call,
    to: ServiceId,
    run: CallRun,
    /// When it is given up.
    until: Timestamp,
    /// Until it is repeated.
    interval: Nanos,
    /// Who was asked last.
    asked: Option<NodeId>,
}

impl Asking {
    /// The node that serves the shard.
    fn primary(&self, app: &App) -> NodeId {
        let shards = app.plan.app.service(self.to).shards;
        let shard = Slot::of(&self.call.key).shard(shards);
        let key = ShardKey {
            app: self.key.app,
            service: self.to,
            shard,
        };
        app.route(key).primary
    }
}

/// All calls that handlers here wait for.
#[derive(Debug, Default)]
pub(super) struct Calls {
    made: u64,
    /// By token.
    asking: BTreeMap<u64, Asking>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.asking.len()
    }

    /// Shards whose handlers wait.
    pub(super) fn asking_shards(&self) -> BTreeSet<ShardKey> {
        self.asking.values().map(|asking| asking.key).collect()
    }

    /// A name that no other call of this process has. Names of calls at the same time are far apart, so
    /// that no name becomes another by a small change.
    fn name(&mut self) -> u64 {
        self.made += 1;
        self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Worker {
    /// Takes a call that a handler of the shard makes. [`Output::CallAnswer`] has what it brings.
    pub fn handle_call(&mut self, now: Timestamp, key: ShardKey, call: Call) {
        self.world.now = now;
        let Some(run) = self.run_of(key, call.token) else {
            return;
        };
        let until = run.deadline.min(now + CALL_WAIT_MAX);
        let app = self.world.apps.get(&key.app);
        let to = app.and_then(|app| app.plan.app.service_named(&call.service));
        let Some((to, _)) = to.filter(|_| until > now) else {
            let error = match to {
                Some(_) => CallError::TimedOut,
                None => CallError::Unavailable,
            };
            return self.give_answer(key, &call, Err(error));
        };
        let token = self.calls.name();
        let asking = Asking {
            key,
            call,
            to,
            run,
            until,
            interval: CALL_INTERVAL,
            asked: None,
        };
        self.calls.asking.insert(token, asking);
        self.send_call(token);
    }

    fn run_of(&self, key: ShardKey, token: u64) -> Option<CallRun> {
        let hosted = self.replicas.get(self.find(key)?.at())?;
        hosted.replica.as_primary()?.run_of(token)
    }

    fn give_answer(&mut self, key: ShardKey, call: &Call, answer: CallAnswer) {
        self.outputs.push_back(Output::CallAnswer {
            key,
            awaited: (call.token, call.index),
            answer,
        });
    }

    /// Sends a call to the primary of its shard, and sees that it is repeated.
    fn send_call(&mut self, token: u64) {
        let now = self.world.now;
        let Some(asking) = self.calls.asking.get_mut(&token) else {
            return;
        };
        let next = asking.until.min(now + asking.interval);
        asking.interval = Nanos(asking.interval.0 * 2).min(CALL_INTERVAL_MAX);
        self.timers.set(next, Timer::Call(token));
        let Some(app) = self.world.apps.get(&asking.key.app) else {
            return;
        };
        let (call, run) = (&asking.call, &asking.run);
        let node = asking.primary(app);
        asking.asked = Some(node);
        let frame = Frame::Call(call::Call {
            token,
            app: asking.key.app,
            service: asking.to,
            request: run.request,
            sent: run.now,
            deadline: asking.until,
            key: &call.key,
            payload: &call.payload,
        });
        self.packer.frame(node, &frame);
    }

    /// Repeats a call, or gives it up if its time has passed or its handler is gone.
    pub(super) fn on_call_timer(&mut self, token: u64) {
        let Some(Asking { key, call, .. }) = self.calls.asking.get(&token) else {
            return;
        };
        let runs = self.run_of(*key, call.token).is_some();
        let asking = self.calls.asking.get(&token);
        if runs && asking.is_some_and(|a| a.until > self.world.now) {
            return self.send_call(token);
        }
        let Some(asking) = self.calls.asking.remove(&token) else {
            return;
        };
        let peers = &self.world.plan.peers;
        let error = match asking.asked {
            Some(node) if peers.contains_key(&node) => CallError::TimedOut,
            _ => CallError::Unavailable,
        };
        if runs {
            self.give_answer(asking.key, &asking.call, Err(error));
        }
    }

    /// The plan has changed: asks those who serve the shards now.
    pub(super) fn ask_again(&mut self) {
        let moved = |asking: &Asking| {
            let app = self.world.apps.get(&asking.key.app);
            app.is_some_and(|app| Some(asking.primary(app)) != asking.asked)
        };
        let all = self.calls.asking.iter();
        let moved = all.filter(|(_, asking)| moved(asking));
        let moved: Vec<u64> = moved.map(|(token, _)| *token).collect();
        for token in moved {
            self.send_call(token);
        }
    }

    /// A handler elsewhere calls a service here.
    pub(super) fn on_call(&mut self, h: &Header, call: &call::Call<'_>) -> Result<(), DropReason> {
        let app = self.world.apps.get(&call.app).ok_or(DropReason::Link)?;
        let services = &app.plan.app.spec.services;
        let service = services.get(usize::from(call.service.0));
        let service = service.filter(|_| !call.key.is_empty());
        let shards = service.ok_or(DropReason::Link)?.shards;
        let key = ShardKey {
            app: call.app,
            service: call.service,
            shard: Slot::of(call.key).shard(shards),
        };
        let id = app.replica(key).ok_or(DropReason::View)?;
        let hosted = self.replicas.get(id.at());
        if hosted.is_none_or(|h| h.replica.as_primary().is_none()) {
            return Err(DropReason::View);
        }
        let caller = Caller {
            node: h.from,
            incarnation: h.incarnation,
            token: call.token,
        };
        let called = Called::new(caller, call);
        self.primary(id, |p, turn| p.on_call(turn, called));
        Ok(())
    }

    /// An answer has come. One that nobody waits for is late, or has come twice.
    pub(super) fn on_call_answer(
        &mut self,
        from: NodeId,
        answer: &call::CallAnswer<'_>,
    ) -> Result<(), DropReason> {
        let asking = self.calls.asking.get(&answer.token);
        if asking.is_some_and(|asking| asking.asked != Some(from)) {
            return Err(DropReason::View);
        }
        let Some(Asking { key, call, .. }) = self.calls.asking.remove(&answer.token) else {
            return Ok(());
        };
        let answer = match answer.result {
            CallResult::Replied { status, payload } => Ok(Reply {
                status,
                payload: payload.to_vec(),
            }),
            CallResult::Failed(reason) => Err(CallError::Failed(reason.to_string())),
        };
        self.give_answer(key, &call, answer);
        Ok(())
    }

    /// Sends an answer to the process that asked, if it is the one that runs.
    pub(super) fn send_call_answer(&mut self, caller: Caller, answer: &CallAnswer) {
        let peer = self.world.plan.peers.get(&caller.node);
        if peer.is_none_or(|peer| peer.incarnation != caller.incarnation) {
            return;
        }
        let reason;
        let result = match answer {
            Ok(reply) => CallResult::Replied {
                status: reply.status,
                payload: &reply.payload,
            },
            Err(error) => {
                reason = error.to_string();
                let end = reason.floor_char_boundary(REASON_LEN_MAX);
                CallResult::Failed(&reason[..end])
            }
        };
        let token = caller.token;
        let frame = Frame::CallAnswer(call::CallAnswer { token, result });
        self.packer.frame(caller.node, &frame);
    }
}
