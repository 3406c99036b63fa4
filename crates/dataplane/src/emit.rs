//! What leaves a primary for an entry: outputs and reply, once when the entry is durable, and again
//! for each repeat that asks for them.

use crate::links::Tag;
use crate::replica::{Repeat, Waiting};
use crate::worker::Worker;
use e3_model::{MessageId, NodeId, RequestId, ShardKey, Slot, Via};
use e3_wire::entry::{Entry, Reply};
use e3_wire::frame::{Ends, Frame, Link};
use e3_wire::message::Message;
use std::rc::Rc;

impl Worker {
    /// A message that was handled before. A repeat by the client gets again what the first got, as
    /// soon as that is durable.
    pub(crate) fn on_copy(&mut self, key: ShardKey, copy: Waiting, entry: &Rc<Entry>) {
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        let repeat = Repeat {
            attempt: copy.message.attempt,
            deadline: copy.message.deadline,
            reply_to: copy.message.reply_to,
            reply_to_incarnation: copy.message.reply_to_incarnation,
        };
        if entry.op > replica.primary.commit {
            let first = replica.primary.commit + 1;
            let pending = &mut replica.primary.pending[(entry.op - first) as usize];
            pending.copies.extend(copy.copy);
            let to = (repeat.reply_to, repeat.reply_to_incarnation);
            let same = to == (entry.reply_to, entry.reply_to_incarnation);
            if !same || repeat.deadline > entry.deadline {
                pending.repeats.push(repeat);
            }
            return;
        }
        self.complete(copy.copy);
        self.emit_again(key, entry, repeat);
    }

    /// Sends an entry's outputs and reply once more.
    pub(crate) fn emit_again(&mut self, key: ShardKey, entry: &Entry, repeat: Repeat) {
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        let seen = &mut replica.log.seen;
        let Some(attempt) = seen.next_attempt(entry.slot, &entry.id, repeat.attempt) else {
            return;
        };
        let mut again = entry.clone();
        again.attempt = attempt;
        // Further down a message may have expired that has time now.
        again.deadline = again.deadline.max(repeat.deadline);
        again.reply_to = repeat.reply_to;
        again.reply_to_incarnation = repeat.reply_to_incarnation;
        // Op 0 is no entry: the outbox does not wait for these.
        again.op = 0;
        self.emit(key, &again);
    }

    /// Sends an entry's outputs and reply.
    pub(crate) fn emit(&mut self, key: ShardKey, entry: &Entry) {
        let incarnation = self.replicas[&key].incarnation;
        for output in &entry.outputs {
            let app = &self.apps[&key.app];
            let Some(service) = app.dag.receiver(output.edge) else {
                continue;
            };
            let slot = Slot::of(&output.key);
            let shards = app.plan.app.service(service).shards;
            let to = ShardKey {
                app: key.app,
                service,
                shard: slot.shard(shards),
            };
            let message = Message {
                id: MessageId {
                    request: entry.id.request,
                    via: Via::Edge(output.edge),
                    index: output.index,
                },
                attempt: entry.attempt,
                slot,
                reply_to: entry.reply_to,
                reply_to_incarnation: entry.reply_to_incarnation,
                deadline: entry.deadline,
                oldest_seq: entry.oldest_seq,
                trace: entry.trace,
                code_version: entry.code_version,
                key: output.key.clone(),
                payload: output.payload.clone(),
            };
            let ends = Ends::Edge {
                edge: output.edge,
                from: key.shard,
                to: to.shard,
            };
            let route = app.route(to);
            let link = Link {
                app: key.app,
                ends,
                from_incarnation: incarnation,
                to_incarnation: route.incarnation,
            };
            self.links.send(
                link,
                route.primary,
                message.encode().into(),
                Tag::Output(key, entry.op),
            );
        }
        if let Some(reply) = &entry.reply {
            let to = (entry.reply_to, entry.reply_to_incarnation);
            let asked = (entry.id.request, entry.attempt);
            self.send_reply(key, to, asked, reply.clone());
        }
    }

    pub(crate) fn send_reply(
        &mut self,
        key: ShardKey,
        (node, process): (NodeId, u32),
        (request, attempt): (RequestId, u16),
        reply: Reply,
    ) {
        // The ingress's process is gone: the client asks again through another.
        let incarnation = self.links.packer.peers.get(&node).map(|p| p.incarnation);
        if incarnation != Some(process) {
            return;
        }
        if node == self.config.node {
            self.on_reply(key.app, request, attempt, reply);
        } else {
            self.links.packer.frame(
                node,
                &Frame::Reply {
                    app: key.app,
                    request,
                    attempt,
                    reply,
                },
            );
        }
    }
}
