//! Calls replicas and does what they ask for.

use super::{Hosted, Output, Worker};
use crate::app::{App, ReplicaId};
use crate::limits::RELEASED_INTERVAL;
use crate::links::Tag;
use crate::primary::Primary;
use crate::shard::{Context, Effect, Turn, World};
use crate::timers::Timer;
use e3_model::ShardKey;
use slab::Slab;

/// A replica, and the world around it.
pub(super) fn hosted<'a>(
    replicas: &'a mut Slab<Hosted>,
    world: &'a World,
    id: ReplicaId,
) -> Option<(&'a mut Hosted, Context<'a>)> {
    let hosted = replicas.get_mut(id.at())?;
    let cx = world.context(hosted.replica.shard.key.app)?;
    Some((hosted, cx))
}

impl Worker {
    pub(super) fn find(&self, key: ShardKey) -> Option<ReplicaId> {
        self.world.apps.get(&key.app)?.replica(key)
    }

    /// Runs a transition of a primary, does what it asks for, and sees that its messages go on.
    pub(super) fn primary(
        &mut self,
        id: ReplicaId,
        transition: impl FnOnce(&mut Primary, &mut Turn<'_>),
    ) {
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        let effects = &mut self.effects;
        let Some((primary, mut turn)) = hosted.replica.primary(&cx, effects) else {
            return;
        };
        transition(primary, &mut turn);
        self.route(id);
        self.make_ready(id);
    }

    /// Has a replica dispatched in this turn, if messages wait for it.
    pub(super) fn make_ready(&mut self, id: ReplicaId) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let (now, log) = (self.world.now, &hosted.replica.shard.log);
        let waits = |p: &Primary| p.has_waiting(now, log) || !hosted.inputs.is_empty();
        if !hosted.is_ready && hosted.replica.as_primary().is_some_and(waits) {
            hosted.is_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Something has changed that any primary may have waited for.
    pub(super) fn wake_all(&mut self) {
        let ids: Vec<ReplicaId> = self.world.apps.values().flat_map(App::replicas).collect();
        for id in ids {
            self.primary(id, |p, turn| p.advance(turn));
        }
    }

    /// Gives a primary messages and lets it hand them to the executor, as long as something moves.
    pub(super) fn dispatch(&mut self, id: ReplicaId) {
        let free_cores = self.free_cores();
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        let cx = Context { free_cores, ..cx };
        hosted.is_ready = false;
        let key = hosted.replica.shard.key;
        let Some((primary, mut turn)) = hosted.replica.primary(&cx, &mut self.effects) else {
            return;
        };
        loop {
            while primary.has_room()
                && let Some((delivery, body)) = self.links.pop(key, &mut hosted.inputs)
            {
                primary.on_message(&mut turn, delivery, &body);
            }
            let before = primary.has_room();
            primary.dispatch(&mut turn);
            if before || !primary.has_room() {
                break;
            }
        }
        self.route(id);
        self.wait_for_core(id);
    }

    /// Has a primary go on when a core is free, if none is and messages wait for it.
    fn wait_for_core(&mut self, id: ReplicaId) {
        if self.free_cores() > 0 {
            return;
        }
        self.make_ready(id);
        if let Some(last) = self.ready.pop_back_if(|last| *last == id) {
            self.waiting_for_core.push_back(last);
        }
    }

    /// Does what a replica asks for.
    pub(super) fn route(&mut self, id: ReplicaId) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.perform(id, effect);
        }
        self.effects = effects;
    }

    fn perform(&mut self, id: ReplicaId, effect: Effect) {
        let Some(hosted) = self.replicas.get_mut(id.at()) else {
            return;
        };
        let key = hosted.replica.shard.key;
        let Some(app) = self.world.apps.get(&key.app) else {
            return;
        };
        let (now, links) = (self.world.now, &mut self.links);
        match effect {
            Effect::Start(state) => self.outputs.push_back(Output::Start { key, state }),
            Effect::Run(invocation) => self.outputs.push_back(Output::Execute { key, invocation }),
            Effect::Complete { delivery, delay } => {
                links.complete(now, &mut self.timers, &delivery, delay);
            }
            Effect::ReplayDurable(request) => self.on_request_durable((key.app, request)),
            Effect::Send { link, to, body, op } => {
                let tag = op.map_or(Tag::None, |(op, at)| Tag::Output(id, op, at));
                links.send(app, link, to, body, tag);
            }
            Effect::BeginStream {
                link,
                backup,
                epoch,
                settles_at,
            } => links.begin(settles_at, app, link, backup, epoch),
            Effect::Replicate {
                link,
                backup,
                body,
                op,
            } => {
                let tag = op.map_or(Tag::None, |op| Tag::Replicated(id, backup, op));
                links.send(app, link, backup, body, tag);
            }
            Effect::EndStream(gone) => {
                links.drop_senders(|l| (l.app, l.ends) == (gone.app, gone.ends));
            }
            Effect::Reply {
                asked,
                request,
                reply,
            } => self.send_reply(key.app, asked, request, reply),
            Effect::Ask(ask) => self.passage.asks.push_back((key, *ask)),
            Effect::AskEnds(request) => self.end_ask(key, request),
            Effect::Answer { caller, answer } => self.send_call_answer(caller, &answer),
            Effect::WakeAt(at) => self.timers.set(at, Timer::Replica(id)),
            Effect::Released => {
                if !std::mem::replace(&mut hosted.has_released, true) {
                    if self.released.is_empty() {
                        self.timers.set(now + RELEASED_INTERVAL, Timer::Released);
                    }
                    self.released.push(id);
                }
            }
            Effect::Export {
                number,
                offset,
                bytes,
            } => self.outputs.push_back(Output::Export {
                key,
                number,
                offset,
                bytes,
            }),
            Effect::Journal(record, what) => {
                self.append_record(record);
                self.await_disk(id, what, None);
            }
            Effect::Await(what) => self.await_disk(id, what, None),
            Effect::Drop(reason) => self.drop_for(reason),
        }
    }

    /// Panics if an invariant is broken; called between two turns. Nothing that could go on waits,
    /// and whatever becomes due has a timer.
    pub fn validate(&self) {
        self.links.validate();
        self.validate_traffic();
        for (at, hosted) in &self.replicas {
            let key = hosted.replica.shard.key;
            assert_eq!(self.find(key).map(ReplicaId::at), Some(at), "{key}: place");
            let cx = self
                .world
                .context(key.app)
                .expect("its application is here");
            let free_cores = self.free_cores();
            let cx = Context { free_cores, ..cx };
            hosted.replica.validate(&cx, hosted.is_ready);
            let room = hosted.replica.as_primary().is_none_or(Primary::has_room);
            assert!(
                !room || hosted.inputs.is_empty(),
                "{key}: messages wait in the channels"
            );
        }
    }
}
