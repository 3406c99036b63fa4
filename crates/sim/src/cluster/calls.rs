//! Calls that simulated handlers make, and what their answers must say.
//!
//! A handler asks another service how often an effect took place there. An effect is there if its request was
//! answered before the call, or if an earlier call saw it.

use super::nodes::{Calling, HandlerRun};
use super::{Cluster, Event};
use crate::effects::Effect;
use crate::service::{CALL_PERMILLE, Calls};
use e3_invocation::{Call, CallAnswer};
use e3_model::{AppId, ServiceId, ShardKey};
use e3_wire::entry::Outcome;

impl Cluster {
    /// Makes the call of a run, if it makes one; otherwise gives the run back.
    pub(super) fn begin_call(&mut self, id: u32, mut run: HandlerRun) -> Option<HandlerRun> {
        let (app, service) = (run.key.app, usize::from(run.key.service.0));
        let calls = self.services[usize::from(app.0) - 1][service].calls();
        let invocation = &run.invocation;
        let may_call = !run.has_called && !invocation.is_call && invocation.timer.is_none();
        let Some(calls) = calls.filter(|_| may_call) else {
            return Some(run);
        };
        run.has_called = true;
        let asks = self.random.chance(CALL_PERMILLE);
        let picked = self.pick(app, calls);
        let Some((effect, is_certain)) = picked.filter(|_| asks) else {
            return Some(run);
        };
        let call = Call {
            token: run.invocation.token,
            index: 0,
            service: format!("svc{}", calls.service),
            key: effect.0.clone(),
            payload: effect.1.clone(),
        };
        let node = self.nodes.get_mut(&id)?;
        let (key, now) = (run.key, node.clock.shown(self.now));
        let calling = Calling {
            run,
            service: (app, ServiceId(calls.service as u16)),
            effect,
            is_certain,
        };
        node.calling.insert((key, call.token), calling);
        node.worker.handle_call(now, key, call);
        None
    }

    /// An effect to ask for, and whether it must be there.
    fn pick(&mut self, app: AppId, calls: Calls) -> Option<(Effect, bool)> {
        let service = (app, ServiceId(calls.service as u16));
        let (effects, random) = (&mut self.ledger.effects, &mut self.random);
        match random.below(3) {
            0 => Some((effects.recent(service, random)?, false)),
            1 => Some((effects.seen(service, random)?, true)),
            _ => {
                let is_certain = calls.steps.is_some();
                let steps = calls.steps.unwrap_or_default();
                Some((self.answered(app, steps)?, is_certain))
            }
        }
    }

    /// An effect of a request that was answered, at the service that its first messages on first
    /// channels reach in so many steps.
    fn answered(&mut self, app: AppId, steps: usize) -> Option<Effect> {
        let clients = self.clients.iter().filter(|c| c.app() == app);
        let clients: Vec<_> = clients.filter(|c| !c.outcomes.is_empty()).collect();
        let client = *clients.get(self.random.index(clients.len().max(1)))?;
        let from = 1 + self.random.below(client.sent());
        let mut done = client.outcomes.range(from..);
        let (number, _) = done.find(|(_, reply)| reply.outcome == Outcome::Done)?;
        // The client of an operator has replays instead of requests.
        let key = client.history.get(*number as usize - 1)?.key.clone();
        let effect = [client.tag(*number).as_slice(), &vec![0; 2 * steps]].concat();
        Some((key, effect))
    }

    /// An answer has come: the run goes on, and those of its instance that waited for it.
    pub(super) fn on_call_answer(
        &mut self,
        id: u32,
        (key, token): (ShardKey, u64),
        answer: CallAnswer,
    ) {
        let node = self.nodes.get_mut(&id);
        let Some(calling) = node.and_then(|n| n.calling.remove(&(key, token))) else {
            return;
        };
        self.check_answer(&calling, answer);
        let mut next = Some(calling.run);
        while let Some(run) = next {
            self.complete(id, run);
            let node = self.nodes.get_mut(&id);
            next = node.and_then(|node| node.unblock(key));
        }
    }

    fn check_answer(&mut self, calling: &Calling, answer: CallAnswer) {
        let Ok(reply) = answer else { return };
        let count = reply.payload.as_slice().try_into().ok();
        let count = count.map(i64::from_le_bytes);
        let ((app, service), (key, effect)) = (calling.service, &calling.effect);
        // What the scenario destroyed may be gone.
        let mut forfeited = self.ledger.forfeited.keys();
        let is_whole = !forfeited.any(|(shard, _)| (shard.app, shard.service) == (app, service));
        match count {
            Some(0) if calling.is_certain && is_whole => self.ledger.violation(format!(
                "a call of {app}/{service} with key {key:?} does not see effect {effect:?}"
            )),
            Some(0 | 1) => {}
            Some(_) if self.ledger.may_repeat(effect) => {}
            _ => self.ledger.violation(format!(
                "a call of {app}/{service} brings {:?} for effect {effect:?}",
                reply.payload
            )),
        }
        if count == Some(1) && !calling.is_certain {
            let effect = calling.effect.clone();
            self.ledger.effects.on_seen((app, service), effect);
        }
    }

    /// The handler that a node ran returns, or calls.
    pub(super) fn on_handler_end(&mut self, id: u32, incarnation: u32) {
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let Some(run) = node.runs.pop_front() else {
            return;
        };
        let next_ends = node.run_ends(self.now);
        // An instance has one run at a time.
        let run = if node.is_calling(run.key) {
            node.blocked.push_back(run);
            None
        } else {
            Some(run)
        };
        if let Some(at) = next_ends {
            let node = id;
            self.push(at, Event::HandlerEnds { node, incarnation });
        }
        if let Some(run) = run {
            self.complete(id, run);
        }
    }
}
