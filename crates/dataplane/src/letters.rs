//! Dead letters: messages that failed for good, kept by their shard to be read and handled once more.
//!
//! They are a function of the log like all else of a shard, so its backups have them too. A replay
//! is a message under a new identity, at the place in the graph where the first one failed;
//! its entry names the letter, which is gone with it. So a replay takes effect once, however often
//! the client asks and wherever the primary moves.

use crate::ingress::{Admission, Asker};
use crate::limits::{DEAD_LETTERS_MAX, DEADLINE_AHEAD_MAX, LATE_MAX, QUEUE_MAX};
use crate::replica::Waiting;
use crate::seen::Known;
use crate::worker::{Output, Worker};
use e3_model::{Address, MessageId, ShardKey, Slot, Timestamp, TraceContext};
use e3_wire::client::{self, ClientFrame, Replay};
use e3_wire::entry::{DeadLetter, Outcome, Reply};
use e3_wire::message::Message;
use std::collections::VecDeque;

/// Dead letters of a shard, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Letters {
    kept: VecDeque<(MessageId, DeadLetter)>,
    /// Those that made room.
    dropped: u64,
}

impl Letters {
    pub(crate) fn keep(&mut self, id: MessageId, letter: DeadLetter) {
        self.kept.push_back((id, letter));
        if self.kept.len() > DEAD_LETTERS_MAX {
            self.kept.pop_front();
            self.dropped += 1;
        }
    }

    pub(crate) fn remove(&mut self, id: &MessageId) {
        self.kept.retain(|(i, _)| i != id);
    }

    pub(crate) fn get(&self, id: &MessageId) -> Option<&DeadLetter> {
        self.kept.iter().find(|(i, _)| i == id).map(|(_, l)| l)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(MessageId, DeadLetter)> {
        self.kept.iter()
    }

    /// Dead letters that have not been replayed since.
    pub(crate) fn count(&self) -> u64 {
        self.kept.len() as u64 + self.dropped
    }
}

/// Answer to the replay of a letter that is not there (any more).
pub(crate) fn no_letter() -> Reply {
    Reply {
        outcome: Outcome::Rejected,
        status: 0,
        payload: b"the shard has no such dead letter".to_vec(),
    }
}

impl Worker {
    fn serves(&self, shard: ShardKey, now: Timestamp) -> bool {
        self.replicas.contains_key(&shard) && self.may_serve(shard, now)
    }

    pub(crate) fn on_read_letters(
        &mut self,
        now: Timestamp,
        to: Address,
        shard: ShardKey,
        skip: u32,
    ) {
        if !self.serves(shard, now) {
            return;
        }
        let kept = &self.replicas[&shard].log.letters.kept;
        let total = kept.len() as u32;
        let rest = kept.iter().skip(skip as usize);
        let letters = client::Letters::of(shard, skip, total, rest);
        let bytes = ClientFrame::Letters(letters).to_datagram();
        self.outputs.push_back(Output::Send { to, bytes });
    }

    pub(crate) fn on_replay(&mut self, now: Timestamp, from: Address, replay: Replay) {
        let shard = replay.shard;
        let key = (shard.app, replay.id);
        let late = replay.deadline + LATE_MAX < now;
        if !self.serves(shard, now)
            || replay.deadline > now + DEADLINE_AHEAD_MAX
            || replay.id.seq == 0
            || (late && !self.ingress.knows(key))
        {
            return;
        }
        let replica = self.replicas.get_mut(&shard).expect("it serves the shard");
        if replica.primary.queue.len() >= QUEUE_MAX {
            return;
        }
        let app = &self.apps[&shard.app].plan.app;
        let attempt = (replay.attempt, replay.deadline);
        let (fingerprint, admitted_max) = (replay.fingerprint(), app.spec.admitted_max);
        let from = Asker::Client(from);
        match self
            .ingress
            .admit(from, key, attempt, fingerprint, admitted_max, false)
        {
            Admission::Forward => {}
            Admission::Repeat(reply) => {
                return self.answer(from, shard.app, replay.id, replay.attempt, reply);
            }
            Admission::Conflict => return self.drop_for("request"),
            // The client asks again.
            Admission::Wait | Admission::Overloaded => return,
        }
        let id = MessageId {
            request: replay.id,
            ..replay.letter
        };
        let (slot, key, payload) = match replica.log.letters.get(&replay.letter) {
            Some(l) => (Slot::of(&l.key), l.key.clone(), l.payload.clone()),
            // Done already, under another primary: what it was is not needed to repeat the answer.
            None if !matches!(replica.log.seen.look_up(replay.slot, &id), Known::New) => {
                (replay.slot, Vec::new(), Vec::new())
            }
            None => return self.on_reply(shard.app, replay.id, replay.attempt, no_letter()),
        };
        let message = Message {
            id,
            attempt: replay.attempt,
            slot,
            reply_to: self.config.node,
            reply_to_incarnation: self.config.incarnation,
            deadline: replay.deadline,
            // Replays are numbered from 1; none of them is answered for certain.
            oldest_seq: 1,
            trace: TraceContext::default(),
            code_version: 0,
            key,
            payload,
        };
        replica.primary.queue.push_back(Waiting {
            copy: None,
            replays: Some(replay.letter),
            message,
            now,
            failures: 0,
        });
    }
}
