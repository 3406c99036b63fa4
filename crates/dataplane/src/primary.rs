//! The primary's part: hand messages to the executor, log what comes of them, release outputs when
//! the backups have them.

use crate::check::check_message;
use crate::letters::no_letter;
use crate::limits::*;
use crate::links::Tag;
use crate::replica::{Pending, Waiting};
use crate::seen::{Known, revives};
use crate::worker::{Output, Worker};
use e3_channel::Number;
use e3_invocation::{self as invocation, Completion, Invocation};
use e3_model::application::WhenAlone;
use e3_model::plan::Role;
use e3_model::{Nanos, ShardKey, Timestamp, Via};
use e3_wire::entry::{
    DeadLetter, Entry, Outcome, Output as EntryOutput, REASON_LEN_MAX, Replicated, Reply,
};
use e3_wire::frame::Link;
use e3_wire::message::Message;
use std::rc::Rc;

/// Whether two requests have the same idempotency key: what becomes of one decides about the other.
fn share_key(a: &Message, b: &Message) -> bool {
    let of_client = |m: &Message| m.is_keyed() && m.id.via == Via::Ingress;
    of_client(a) && of_client(b) && a.id.request.client == b.id.request.client
}

/// Answer to a request whose idempotency key belongs to another one.
fn key_reused() -> Reply {
    Reply {
        outcome: Outcome::Conflict,
        status: 0,
        payload: b"the idempotency key was used for another request".to_vec(),
    }
}

impl Worker {
    /// Whether the primary may act for the shard now: handle, answer, send.
    pub(crate) fn may_serve(&self, key: ShardKey, now: Timestamp) -> bool {
        let replica = &self.replicas[&key];
        let Some(app) = self.apps.get(&key.app) else {
            return false;
        };
        let service = app.service(key);
        let primary = &replica.primary;
        let mut backups = primary
            .backups
            .iter()
            .filter(|(_, b)| b.required)
            .map(|(n, _)| *n);
        let alone = service.replicas > 1 && backups.clone().next().is_none();
        replica.role == Role::Primary
            && now >= primary.serve_at
            && backups.all(|b| self.leases.holds(now, b))
            && !(alone && service.when_alone == WhenAlone::Refuse)
    }

    /// Gives the executor as much as it may have.
    pub(crate) fn dispatch(&mut self, now: Timestamp) {
        let keys: Vec<ShardKey> = self
            .replicas
            .iter()
            .filter(|(_, r)| r.role == Role::Primary)
            .map(|(k, _)| *k)
            .collect();
        for key in keys {
            self.fill_queue(key);
            while self.dispatch_one(key, now) {}
        }
    }

    /// Takes messages from the channels while there is room; the rest waits at the senders.
    fn fill_queue(&mut self, key: ShardKey) {
        let replica = self.replicas.get_mut(&key).expect("listed");
        let Some(inputs) = self.inputs.get_mut(&key) else {
            return;
        };
        while replica.primary.queue.len() < QUEUE_MAX
            && let Some(link_key) = inputs.first().copied()
        {
            let Some((link, number, body)) = self.links.pop(&link_key) else {
                inputs.remove(&link_key);
                continue;
            };
            let (app, now) = (&self.apps[&key.app], self.now);
            match Message::decode(&body) {
                Ok(message) if check_message(app, now, key, &link, &message) => {
                    let now = Timestamp::ZERO;
                    let waiting = Waiting {
                        copy: Some((link, number)),
                        replays: None,
                        message,
                        now,
                        failures: 0,
                    };
                    replica.primary.queue.push_back(waiting);
                }
                _ => {
                    *self.dropped.entry("message").or_default() += 1;
                    // Nothing can be made of it, ever: do not let it block the channel.
                    self.links.complete(self.now, link, number, Nanos::ZERO);
                }
            }
        }
    }

    /// Hands over the message at the head of the queue. False if nothing more can be done now.
    fn dispatch_one(&mut self, key: ShardKey, now: Timestamp) -> bool {
        if !self.may_serve(key, now) {
            return false;
        }
        let replica = self.replicas.get_mut(&key).expect("listed");
        let memory_max = self.apps[&key.app].service(key).resources.memory;
        let over = replica.is_over(memory_max);
        let primary = &mut replica.primary;
        if primary.frozen
            || primary.idle_at > now
            || primary.in_flight.len() >= IN_FLIGHT_MAX
            || replica.log.outbox.len() >= OUTBOX_MAX
        {
            return false;
        }
        let Some(head) = primary.queue.front() else {
            return false;
        };
        let id = head.message.id;
        let same = |w: &Waiting| {
            w.message.id == id
                || (w.replays.is_some() && w.replays == head.replays)
                || w.replays == Some(id)
                || share_key(&w.message, &head.message)
        };
        if primary.in_flight.values().any(same) {
            // Another copy is being handled; what becomes of it decides about this one.
            return false;
        }
        let mut waiting = primary.queue.pop_front().expect("looked at");
        match replica.log.seen.look_up(waiting.message.slot, &id) {
            Known::New => {
                let message = &waiting.message;
                if message.is_keyed()
                    && id.via == Via::Ingress
                    && replica.log.seen.has_other(message.slot, id.request)
                {
                    let to = (message.reply_to, message.reply_to_incarnation);
                    let asked = (id.request, message.attempt);
                    self.complete(waiting.copy);
                    self.send_reply(key, to, asked, key_reused());
                    return true;
                }
            }
            Known::Stale => {
                self.complete(waiting.copy);
                return true;
            }
            Known::Handled(entry)
                if revives(&entry, &waiting.message, now)
                    && replica.log.letters.get(&id).is_some() =>
            {
                waiting.replays = Some(id);
            }
            Known::Handled(entry) => {
                self.on_copy(key, waiting, &entry);
                return true;
            }
        }
        if waiting
            .replays
            .is_some_and(|letter| replica.log.letters.get(&letter).is_none())
        {
            let attempt = waiting.message.attempt;
            self.on_reply(key.app, id.request, attempt, no_letter());
            return true;
        }
        waiting.now = replica.log.now.max(now);
        let gone = if waiting.message.deadline < now {
            Some((
                Outcome::Expired,
                "deadline passed before it was handled".to_string(),
            ))
        } else if let Some(error) = &replica.error {
            Some((Outcome::Failed, error.clone()))
        } else if over {
            let reason = format!("collections exceed the service's memory of {memory_max}");
            Some((Outcome::Failed, reason))
        } else {
            let full = self.memory_full.as_ref();
            full.map(|reason| (Outcome::Failed, reason.clone()))
        };
        if let Some((outcome, reason)) = gone {
            let replica = self.replicas.get_mut(&key).expect("listed");
            if outcome == Outcome::Failed {
                replica.counts.failed += 1;
                replica.counts.last_failure = Some(reason.clone());
            }
            self.give_up(key, now, waiting, outcome, reason);
            return true;
        }
        let token = self.next_token;
        self.next_token += 1;
        let invocation = Invocation {
            token,
            request: id.request,
            via: id.via,
            now: waiting.now,
            slot: waiting.message.slot,
            key: waiting.message.key.clone(),
            payload: waiting.message.payload.clone(),
        };
        primary.in_flight.insert(token, waiting);
        self.outputs.push_back(Output::Execute { key, invocation });
        true
    }

    /// Takes what came of an invocation for this shard.
    pub fn handle_completion(&mut self, now: Timestamp, key: ShardKey, done: Completion) {
        self.now = now;
        let Some(replica) = self.replicas.get_mut(&key) else {
            return;
        };
        let Some(mut waiting) = replica.primary.in_flight.remove(&done.token) else {
            return;
        };
        replica.counts.busy += done.busy;
        let app = &self.apps[&key.app];
        let slowdown = app.slowdown(key, self.config.kind, self.config.slowed);
        if slowdown > 1.0 {
            let idle = Nanos((done.busy.0 as f64 * (slowdown - 1.0)) as u64);
            replica.primary.idle_at = replica.primary.idle_at.max(now) + idle;
        }
        match done.outcome {
            invocation::Outcome::Completed(effects) => {
                // Nobody further down can answer the client: this is the end of its request.
                let ends = waiting.message.id.via == Via::Ingress && effects.outputs.is_empty();
                let nothing = || invocation::Reply {
                    status: 0,
                    payload: Vec::new(),
                };
                let reply = effects.reply.or_else(|| ends.then(nothing));
                let reply = reply.map(|reply| Reply {
                    outcome: Outcome::Done,
                    status: reply.status,
                    payload: reply.payload,
                });
                let batch = effects.writes.into_bytes();
                let entry = self.entry(key, &waiting, batch, effects.outputs, reply, None);
                self.commit(key, now, entry, waiting.copy);
            }
            invocation::Outcome::Failed(failed) => {
                let reason = failed.error.to_string();
                replica.counts.failed += 1;
                replica.counts.last_failure = Some(reason.clone());
                waiting.failures += 1;
                if waiting.failures >= app.plan.app.spec.attempts {
                    self.give_up(key, now, waiting, Outcome::Failed, reason);
                } else {
                    replica.primary.queue.push_front(waiting);
                }
            }
        }
    }

    /// Commits a message without effects, answers its client, keeps it as a dead letter.
    fn give_up(
        &mut self,
        key: ShardKey,
        now: Timestamp,
        waiting: Waiting,
        outcome: Outcome,
        reason: String,
    ) {
        let counts = &mut self
            .replicas
            .get_mut(&key)
            .expect("its caller has it")
            .counts;
        counts.dead_lettered += 1;
        counts.expired += u64::from(outcome == Outcome::Expired);
        let mut reason = reason;
        reason.truncate(reason.floor_char_boundary(REASON_LEN_MAX));
        let reply = Reply {
            outcome,
            status: 0,
            payload: reason.clone().into_bytes(),
        };
        let dead = DeadLetter {
            at: waiting.now,
            reason,
            key: waiting.message.key.clone(),
            payload: waiting.message.payload.clone(),
        };
        let entry = self.entry(
            key,
            &waiting,
            Vec::new(),
            Vec::new(),
            Some(reply),
            Some(dead),
        );
        self.commit(key, now, entry, waiting.copy);
    }

    fn entry(
        &mut self,
        key: ShardKey,
        waiting: &Waiting,
        batch: Vec<u8>,
        sent: Vec<invocation::Output>,
        reply: Option<Reply>,
        dead: Option<DeadLetter>,
    ) -> Entry {
        let app = &self.apps[&key.app];
        let message = &waiting.message;
        let run = app.dag.run(message.id.via, message.id.index).unwrap_or(0);
        let channels = &app.channels[usize::from(key.service.0)];
        let mut counts = vec![0u32; channels.len()];
        let mut outputs = Vec::with_capacity(sent.len());
        for output in sent {
            let at = usize::from(output.channel);
            let edge = channels[at];
            match app.dag.index(edge, run, counts[at]) {
                Some(index) => outputs.push(EntryOutput {
                    edge,
                    index,
                    key: output.key,
                    payload: output.payload,
                }),
                // The executor bounds outputs by the manifest; this is the second lock.
                None => *self.dropped.entry("output").or_default() += 1,
            }
            counts[at] += 1;
        }
        Entry {
            op: self.replicas[&key].log.op + 1,
            id: message.id,
            attempt: message.attempt,
            slot: message.slot,
            code_version: app.plan.code_version,
            now: waiting.now,
            deadline: message.deadline,
            oldest_seq: message.oldest_seq,
            reply_to: message.reply_to,
            reply_to_incarnation: message.reply_to_incarnation,
            trace: message.trace,
            batch,
            outputs,
            reply,
            dead,
            replays: waiting.replays,
        }
    }

    /// Appends an entry to the log and sends it to the backups.
    fn commit(
        &mut self,
        key: ShardKey,
        now: Timestamp,
        mut entry: Entry,
        copy: Option<(Link, Number)>,
    ) {
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        replica.counts.handled += 1;
        if !replica.primary.backups.is_empty() {
            let body: Rc<[u8]> = Replicated::encode_entry(&entry).into();
            for (node, backup) in &replica.primary.backups {
                let tag = Tag::Replicated(key, *node, entry.op);
                self.links.send(backup.link, *node, body.clone(), tag);
            }
        }
        // Applied and sent: nobody reads the writes again.
        entry.batch = Vec::new();
        let entry = Rc::new(entry);
        if replica.primary.pending.is_empty() {
            replica.primary.progress_at = now;
        }
        replica.primary.pending.push_back(Pending {
            entry: entry.clone(),
            copies: copy.into_iter().collect(),
            release_at: replica.primary.idle_at,
            repeats: Vec::new(),
        });
        replica.log.record(entry);
        self.advance(key, now);
    }

    /// Releases what all backups have and an emulated core is done with.
    pub(crate) fn advance(&mut self, key: ShardKey, now: Timestamp) {
        if !self.may_serve(key, now) {
            return;
        }
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        let acked = replica.acked_by_all();
        let mut released = Vec::new();
        while replica
            .primary
            .pending
            .front()
            .is_some_and(|p| p.entry.op <= acked && p.release_at <= now)
        {
            let pending = replica.primary.pending.pop_front().expect("looked at");
            replica.primary.commit = pending.entry.op;
            released.push(pending);
        }
        if !released.is_empty() {
            replica.primary.progress_at = now;
        }
        let stateful = self.apps[&key.app].service(key).stateful;
        for pending in released {
            if stateful {
                self.complete(pending.copies);
            } else if let Some(outgoing) = self
                .replicas
                .get_mut(&key)
                .and_then(|r| r.log.outgoing(pending.entry.op))
            {
                // There is no log here: the sender keeps the message until what follows from it
                // is durable elsewhere.
                outgoing.copies = pending.copies;
            }
            self.emit(key, &pending.entry);
            for repeat in pending.repeats {
                self.emit_again(key, &pending.entry, repeat);
            }
        }
        self.trim(key);
    }

    /// Frees what is durable from the front of the outbox.
    pub(crate) fn trim(&mut self, key: ShardKey) {
        let Some(replica) = self.replicas.get_mut(&key) else {
            return;
        };
        let durable = replica.log.trim(replica.primary.commit);
        self.complete(durable);
    }

    /// Says that copies of a message are durable: their senders may forget them.
    pub(crate) fn complete(&mut self, copies: impl IntoIterator<Item = (Link, Number)>) {
        for (link, number) in copies {
            self.links.complete(self.now, link, number, ACK_DELAY);
        }
    }
}
