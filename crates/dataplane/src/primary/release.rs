//! Releases what is committed: outputs and replies leave when all backups have their entry.

use super::Primary;
use crate::asked::Asked;
use crate::dedup::is_replay;
use crate::emit::{ack_delay, answer, emit, emit_retry};
use crate::limits::ACK_DELAY;
use crate::shard::{Context, Effect, Shard, Turn};

impl Primary {
    /// Whether the oldest entry that waits may be released.
    pub(super) fn can_release(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        self.pending.front().is_some_and(|p| {
            let durable = self
                .streams
                .acked_by_all(shard.log.op)
                .min(shard.op_on_disk());
            p.release_at <= cx.now && p.entry.op <= durable
        })
    }

    /// Releases what all backups have and an emulated core is done with, and the answers to calls that
    /// waited for it; makes the outbound requests and publications that may be made.
    pub(crate) fn advance(&mut self, turn: &mut Turn<'_>) {
        self.release_entries(turn);
        self.release_answers(turn);
        self.ask(turn);
        self.publish(turn);
    }

    fn release_entries(&mut self, turn: &mut Turn<'_>) {
        if !self.can_release(turn.cx, turn.shard) || !self.may_serve(turn.cx, turn.shard) {
            return;
        }
        let stateful = turn.cx.app.service(turn.shard.key).stateful;
        while self.can_release(turn.cx, turn.shard)
            && let Some(pending) = self.pending.pop_front()
        {
            let entry = &pending.entry;
            self.commit = entry.op;
            self.progress_at = turn.cx.now;
            if stateful {
                let delay = ack_delay(turn, entry);
                turn.complete(pending.deliveries, delay);
            } else if let Some(outgoing) = turn.shard.log.outgoing(entry.op) {
                // There is no log here: the sender keeps the message until what follows from it
                // is durable elsewhere.
                outgoing.deliveries = pending.deliveries;
            }
            let asked = Asked::by_entry(entry);
            emit(turn, entry, asked, Some(entry.op), &[]);
            for asked in pending.retries {
                emit_retry(turn, entry, asked);
            }
        }
        while let Some(refused) = self.refusals.take_committed(self.commit) {
            answer(turn, refused.asked, refused.id.request, refused.reply);
            turn.complete(refused.delivery, ACK_DELAY);
        }
        self.trim(turn);
        if self.export.is_some() && self.frozen {
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// One output of an entry is durable at its receiver.
    pub(crate) fn on_output_durable(&mut self, turn: &mut Turn<'_>, op: u64, at: u32) {
        if let Some(outgoing) = turn.shard.log.outgoing(op) {
            outgoing.on_durable(at);
            self.trim(turn);
        }
    }

    /// Frees what is durable from the front of the outbox.
    pub(crate) fn trim(&mut self, turn: &mut Turn<'_>) {
        let before = turn.shard.log.released;
        let stateful = turn.cx.app.service(turn.shard.key).stateful;
        while let Some(first) = turn.shard.log.trim(self.commit) {
            let delay = ack_delay(turn, &first.entry);
            turn.complete(first.deliveries, delay);
            let id = first.entry.id;
            if is_replay(first.entry.replays, id) && !stateful {
                turn.effects.push(Effect::ReplayDurable(id.request));
            }
        }
        if turn.shard.log.released > before {
            turn.effects.push(Effect::Released);
        }
    }
}
