//! What clients ask of this node: requests to an application, and dead letters to be read or
//! replayed.

use super::{Output, Worker};
use crate::app::ReplicaId;
use crate::asked::Asked;
use crate::config::Config;
use crate::dedup::Lookup;
use crate::ingress::{
    Admission, Asker, Attempt, RequestEntry, ahead_max, check_request, is_too_late, sent_at,
};
use crate::limits::DATAGRAM_LEN_GOAL;
use crate::links::Tag;
use crate::primary::Primary;
use crate::reach::ClockCheck;
use crate::refusal::{refusal_of_replay, refuse};
use crate::shard::Shard;
use e3_model::{
    Address, AppId, DropReason, MessageId, Nanos, RequestId, ShardKey, Slot, Timestamp,
    TraceContext,
};
use e3_wire::client::{ClientFrame, DeadLetters, Replay, Request};
use e3_wire::codec::Reader;
use e3_wire::datagram::seal;
use e3_wire::entry::{Outcome, Reply};
use e3_wire::frame::{Ends, Frame, Link};
use e3_wire::message::Message;

impl Worker {
    pub(super) fn on_client(
        &mut self,
        from: Address,
        r: &mut Reader<'_>,
    ) -> Result<(), DropReason> {
        // A node that has just started knows of nothing; the client retries.
        if self.world.plan.version == 0 {
            return Err(DropReason::NoPlan);
        }
        // Nor can one whose clock is wrong, or unchecked, judge deadlines.
        if self.world.clock != ClockCheck::Right {
            return Err(DropReason::Clock);
        }
        while !r.is_empty() {
            match ClientFrame::decode(r).map_err(|_| DropReason::ClientFrame)? {
                ClientFrame::Request(request) => {
                    self.on_request(Asker::Client(from), RequestEntry::default(), request);
                }
                ClientFrame::ReadDeadLetters { shard, skip } => {
                    self.on_read_dead_letters(from, shard, skip);
                }
                ClientFrame::Replay(replay) => self.on_replay(from, replay),
                ClientFrame::Reply { .. } | ClientFrame::DeadLetters(_) => {
                    return Err(DropReason::ClientFrame);
                }
            }
        }
        Ok(())
    }

    /// Takes a request that this node's driver passes on for a client of another protocol. Each call
    /// is one more attempt. The answer is an [`Output::Answer`].
    pub fn handle_request(&mut self, now: Timestamp, mut request: Request) {
        self.world.now = now;
        let key = (request.app, request.id);
        request.attempt = self.ingress.next_attempt(key);
        if self.world.clock != ClockCheck::Right {
            let reply = refuse(Outcome::Overloaded, "");
            return self.answer(Asker::Driver, key, request.attempt, reply);
        }
        self.on_request(Asker::Driver, RequestEntry::default(), request);
    }

    /// Decides on a request.
    pub(super) fn on_request(&mut self, from: Asker, to: RequestEntry, q: Request) {
        let key = (q.app, q.id);
        let attempt = Attempt::of(from, &q);
        let (now, is_known) = (self.world.now, self.ingress.knows(key));
        if !is_known
            && !from.is_local()
            && let Some(reply) = self.ingress.refused(now, key, &attempt, q.oldest_seq)
        {
            return self.answer(from, key, q.attempt, reply);
        }
        if self.is_elsewhere(q.app) {
            return self.await_routes(from, to, &attempt, q);
        }
        let (admitted_max, checked) = match self.world.apps.get(&q.app) {
            Some(app) => {
                self.interest.note(now, q.app);
                let spec = &app.plan.app.spec;
                let checked = check_request(now, &q, is_known, ahead_max(spec));
                (spec.admitted_max, checked)
            }
            None => (
                0,
                Err("the application does not run in this cluster".into()),
            ),
        };
        if let Err(reason) = checked {
            let reply = refuse(Outcome::Rejected, &reason);
            return self.turn_away(&q, &attempt, reply);
        }
        let is_full = self.world.memory_full.is_some();
        let admitted_max = if is_full { 0 } else { admitted_max };
        match self.ingress.admit(key, &attempt, admitted_max) {
            Admission::Conflict => self.drop_for(DropReason::Request),
            Admission::Wait => {}
            Admission::Repeat(reply) => self.answer(from, key, q.attempt, reply),
            Admission::Overloaded => {
                self.turn_away(&q, &attempt, refuse(Outcome::Overloaded, ""));
            }
            Admission::Forward => self.forward(to, q),
        }
    }

    /// Tells a client that its attempt is refused, if no copy of it can be admitted later. Otherwise
    /// the client hears nothing, and retries.
    pub(super) fn turn_away(&mut self, q: &Request, attempt: &Attempt, reply: Reply) {
        let (now, key) = (self.world.now, (q.app, q.id));
        if attempt.from.is_local()
            || self
                .ingress
                .remember_refusal(now, key, attempt, q.oldest_seq, &reply)
        {
            self.answer(attempt.from, key, attempt.number, reply);
        }
    }

    /// Sends a request to the shard that owns its key.
    fn forward(&mut self, to: RequestEntry, q: Request) {
        let Some(app) = self.world.apps.get(&q.app) else {
            return;
        };
        let config = &self.world.config;
        let service = to.service.unwrap_or(app.dag.source());
        let slot = Slot::of(&q.key);
        let shard = slot.shard(app.plan.app.service(service).shards);
        let route = app.route(ShardKey {
            app: q.app,
            service,
            shard,
        });
        let link = Link {
            app: q.app,
            ends: Ends::Ingress {
                node: config.node,
                service,
                shard,
            },
            from_incarnation: config.incarnation,
            to_incarnation: route.incarnation,
        };
        let message = Message {
            id: MessageId::ingress(q.id),
            attempt: q.attempt,
            slot,
            reply_to: config.node,
            reply_to_incarnation: config.incarnation,
            deadline: q.deadline,
            sent: sent_at(&q, &app.plan.app.spec),
            oldest_seq: q.oldest_seq,
            trace: q.trace,
            code_version: 0,
            is_branch: false,
            topic: to.topic,
            key: q.key,
            payload: q.payload,
        };
        let body = message.encode().into();
        let tag = Tag::Request(q.app, q.id);
        let until = self.ingress.on_forwarded((q.app, q.id));
        if let Some(end) = self.links.sender(app, link, route.primary) {
            end.sender.push_until(self.world.now, until, body, tag);
        }
    }

    /// Sends a reply to the ingress that waits for it.
    pub(super) fn send_reply(
        &mut self,
        app: AppId,
        asked: Asked,
        request: RequestId,
        reply: Reply,
    ) {
        let (node, attempt, is_branch) = (asked.reply_to, asked.attempt, asked.is_branch);
        let peer = self.packer.peers.get(&node);
        if peer.is_none_or(|p| p.incarnation != asked.reply_to_incarnation) {
            // The ingress's process is gone: the client retries through another.
            return;
        }
        if node == self.world.config.node {
            let taken = self.on_reply(app, request, attempt, is_branch, reply);
            self.count(taken);
        } else {
            self.packer.frame(
                node,
                &Frame::Reply {
                    app,
                    request,
                    attempt,
                    is_branch,
                    reply,
                },
            );
        }
    }

    pub(super) fn on_reply(
        &mut self,
        app: AppId,
        id: RequestId,
        attempt: u16,
        is_branch: bool,
        reply: Reply,
    ) -> Result<(), DropReason> {
        let key = (app, id);
        let answer = self.ingress.on_reply(key, attempt, is_branch, &reply)?;
        if let Some((asker, attempt, reply)) = answer {
            self.answer(asker, key, attempt, reply);
        }
        Ok(())
    }

    /// A copy of a request is durable. Its answer may have waited for that.
    pub(super) fn on_request_durable(&mut self, key: (AppId, RequestId)) {
        if let Some((asker, attempt, reply)) = self.ingress.on_durable(self.world.now, key) {
            self.answer(asker, key, attempt, reply);
        }
    }

    fn answer(&mut self, to: Asker, (app, id): (AppId, RequestId), attempt: u16, reply: Reply) {
        let to = match to {
            Asker::Client(address) => address,
            Asker::Driver => {
                self.outputs.push_back(Output::Answer { app, id, reply });
                return;
            }
            Asker::Shard(shard) => return self.answer_ask(shard, (Some(app), id), reply),
            Asker::Former => return,
        };
        let buffer = self.client_open.entry(to).or_insert_with(|| {
            let mut buffer = self.packer.buffer();
            ClientFrame::start(&mut buffer);
            buffer
        });
        ClientFrame::Reply { id, attempt, reply }.encode(buffer);
        if buffer.len() > DATAGRAM_LEN_GOAL / 2
            && let Some(mut bytes) = self.client_open.remove(&to)
        {
            seal(self.world.config.client_format(), &mut bytes);
            self.outputs.push_back(Output::Send { to, bytes });
        }
    }

    /// The primary of a shard, if it is here and may act.
    fn serving(&self, shard: ShardKey) -> Option<(ReplicaId, &Primary, &Shard)> {
        let id = self.find(shard)?;
        let replica = &self.replicas.get(id.at())?.replica;
        let cx = self.world.context(shard.app)?;
        let primary = replica.as_primary()?;
        primary
            .may_serve(&cx, &replica.shard)
            .then_some((id, primary, &replica.shard))
    }

    fn on_read_dead_letters(&mut self, to: Address, shard: ShardKey, skip: u32) {
        let Some((_, primary, served)) = self.serving(shard) else {
            return;
        };
        // A successor may lack those that are not committed.
        let uncommitted = primary.uncommitted_letters();
        let committed = || {
            let letters = served.log.dead_letters.iter();
            letters.filter(|(id, _)| !uncommitted.contains(id))
        };
        let (total, rest) = (committed().count() as u32, committed().skip(skip as usize));
        let letters = DeadLetters::of(shard, skip, total, rest);
        let bytes =
            ClientFrame::DeadLetters(letters).to_datagram(self.world.config.client_format());
        self.outputs.push_back(Output::Send { to, bytes });
    }

    fn on_replay(&mut self, from: Address, replay: Replay) {
        let (shard, now) = (replay.shard, self.world.now);
        let key = (shard.app, replay.id);
        let is_late = is_too_late(now, replay.deadline) && !self.ingress.knows(key);
        let Some((id, primary, served)) = self.serving(shard) else {
            return;
        };
        let app = self.world.apps.get(&shard.app);
        let ahead_max = app.map_or(Nanos::ZERO, |app| ahead_max(&app.plan.app.spec));
        let is_valid = replay.deadline <= now + ahead_max && replay.id.seq > 0;
        if is_late || !is_valid || !primary.has_room() {
            return;
        }
        let is_stateful = app.is_some_and(|app| app.service(shard).stateful);
        let left = time_to_be_handled(now, served, &replay).filter(|_| !is_stateful);
        let (message, refused) = replay_message(now, served, &replay, &self.world.config);
        let admitted_max = app.map_or(0, |app| app.plan.app.spec.admitted_max);
        let from = Asker::Client(from);
        let attempt = Attempt {
            from,
            number: replay.attempt,
            deadline: replay.deadline,
            fingerprint: replay.fingerprint(),
            keyed: false,
            is_replay: true,
        };
        match self.ingress.admit(key, &attempt, admitted_max) {
            Admission::Forward => {}
            Admission::Repeat(reply) => return self.answer(from, key, replay.attempt, reply),
            Admission::Conflict => return self.drop_for(DropReason::Request),
            // The client retries.
            Admission::Wait | Admission::Overloaded => return,
        }
        if let Some(left) = left {
            let refused = refuse(Outcome::Rejected, &too_early(left));
            let taken = self.on_reply(shard.app, replay.id, replay.attempt, false, refused);
            return self.count(taken);
        }
        if let Some(refused) = refused {
            // It may never be answered: another primary may take over before.
            self.ingress.release(key);
            return self.primary(id, |p, turn| p.refuse_replay(turn, &message, refused));
        }
        if is_stateful {
            self.on_request_durable(key);
        } else {
            // Nothing but the dead letter keeps it until what follows from it is durable elsewhere.
            self.ingress.on_replay_forwarded(key);
        }
        self.primary(id, |p, turn| p.on_replay(turn, replay.letter, message));
    }
}

/// How long copies of the message of a dead letter may still come. Another process of a stateless
/// service could handle one of them beside the replay.
fn time_to_be_handled(now: Timestamp, shard: &Shard, replay: &Replay) -> Option<Nanos> {
    let until = shard.log.dead_letters.copies_until(&replay.letter)?;
    (now < until).then(|| now.until(until))
}

fn too_early(left: Nanos) -> String {
    format!(
        "the service is stateless, and another process of it may still handle the request: replay it in {} s",
        left.as_secs() + 1
    )
}

/// The message of a dead letter under a new identity, and why it is not replayed, if it is not.
fn replay_message(
    now: Timestamp,
    shard: &Shard,
    replay: &Replay,
    ingress: &Config,
) -> (Message, Option<Reply>) {
    let id = MessageId {
        request: replay.id,
        ..replay.letter
    };
    let letters = &shard.log.dead_letters;
    let topic = letters.get(&replay.letter).and_then(|l| l.topic.clone());
    let letter = letters.get(&replay.letter);
    let is_new = matches!(shard.log.dedup.look_up(replay.slot, &id), Lookup::New);
    let refused = refusal_of_replay(letter).filter(|_| is_new);
    let (slot, key, payload) = match letter {
        Some(l) => (Slot::of(&l.key), l.key.clone(), l.payload.clone()),
        // Done already, under another primary: what it was is not needed to repeat the answer.
        None => (replay.slot, Vec::new(), Vec::new()),
    };
    let message = Message {
        id,
        attempt: replay.attempt,
        slot,
        reply_to: ingress.node,
        reply_to_incarnation: ingress.incarnation,
        deadline: replay.deadline,
        // The process that has the letter is the only one that can handle it.
        sent: now,
        // Replays are numbered from 1; none of them is answered for certain.
        oldest_seq: 1,
        trace: TraceContext::default(),
        code_version: 0,
        is_branch: false,
        topic,
        key,
        payload,
    };
    (message, refused)
}
