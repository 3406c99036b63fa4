//! What a handled message leaves: its log entry, and then outputs and reply, once when the entry is
//! durable and again for each retry that asks for them.

use crate::asked::Asked;
use crate::dedup::is_replay;
use crate::deliberate::{self, Fault};
use crate::limits::{ACK_DELAY, DEADLINE_AHEAD_MAX};
use crate::shard::{Context, Effect, Shard, Turn, Waiting};
use e3_invocation::Effects;
use e3_model::service_timer::shown_name;
use e3_model::timer::{TimerChange, When};
use e3_model::{DropReason, MessageId, Nanos, NodeId, RequestId, ShardKey, Slot, Timestamp, Via};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::{Entry, Outcome, Output, Reply};
use e3_wire::frame::{Ends, Link};
use e3_wire::limits::REASON_LEN_MAX;
use e3_wire::message::Message;

/// What became of a message.
pub(crate) enum Handled {
    /// The handler did this.
    Completed(Effects),
    /// It is a dead letter.
    GivenUp { outcome: Outcome, reason: String },
}

/// The log entry of a message that was handled at `now`.
pub(crate) fn entry(
    turn: &mut Turn<'_>,
    now: Timestamp,
    waiting: &Waiting,
    handled: Handled,
) -> Entry {
    let message = &waiting.message;
    let mut entry = Entry {
        op: turn.shard.log.op + 1,
        id: message.id,
        attempt: message.attempt,
        slot: message.slot,
        code_version: turn.cx.app.plan.code_version,
        now,
        sent: handler_now(turn, now, message),
        // A later one would be another node's wrong clock.
        deadline: message.deadline.min(now + DEADLINE_AHEAD_MAX),
        oldest_seq: message.oldest_seq,
        reply_to: message.reply_to,
        reply_to_incarnation: message.reply_to_incarnation,
        is_branch: message.is_branch,
        is_expiry: false,
        trace: message.trace,
        batch: Vec::new(),
        outputs: Vec::new(),
        reply: None,
        dead: None,
        replays: waiting.replays,
        fired: waiting.fired(),
        timers: Vec::new(),
        confirmed: Vec::new(),
    };
    match handled {
        Handled::Completed(effects) => fill(turn, &mut entry, message, effects),
        Handled::GivenUp {
            outcome,
            mut reason,
        } => {
            reason.truncate(reason.floor_char_boundary(REASON_LEN_MAX));
            entry.reply = is_awaited(message).then(|| Reply {
                outcome,
                status: 0,
                payload: reason.clone().into_bytes(),
            });
            entry.dead = Some(DeadLetter {
                at: now,
                outcome,
                reason,
                key: message.key.clone(),
                payload: message.payload.clone(),
                timer: waiting
                    .timer
                    .as_ref()
                    .map_or_else(String::new, |t| shown_name(&t.name).to_owned()),
                answer: waiting.answer,
                topic: message.topic.clone(),
            });
        }
    }
    entry
}

/// The handler's clock, when that of its shard shows `now`. A stateless service may handle a message twice, if
/// its first process was lost; both runs must send the same messages to the same shards.
pub(crate) fn handler_now(turn: &Turn<'_>, now: Timestamp, message: &Message) -> Timestamp {
    let is_stateful = turn.cx.app.service(turn.shard.key).stateful;
    if is_stateful || deliberate::is(Fault::OwnClock) {
        now
    } else {
        message.sent
    }
}

/// Whether a client waits for an answer: not to the request of a timer, unless it is a replay.
fn is_awaited(message: &Message) -> bool {
    message.reply_to != NodeId::NOBODY
}

/// Puts a handler's effects into the entry of its message.
fn fill(turn: &mut Turn<'_>, entry: &mut Entry, message: &Message, effects: Effects) {
    let app = turn.cx.app;
    // Nobody further downstream can answer the client: this is the end of its request.
    let begins = matches!(message.id.via, Via::Ingress | Via::Timer);
    let ends = begins && effects.outputs.is_empty();
    // A replay is over where the dead letter was, whoever answers the request itself.
    let replays = is_replay(entry.replays, message.id);
    let given = effects.reply.map(|r| (r.status, r.payload));
    let reply = given.or_else(|| (ends || replays).then(|| (0, Vec::new())));
    let reply = reply.filter(|_| is_awaited(message));
    entry.reply = reply.map(|(status, payload)| Reply {
        outcome: Outcome::Done,
        status,
        payload,
    });
    entry.batch = effects.writes.into_bytes();
    entry.timers = effects.timers;
    entry
        .timers
        .retain(|change| has_subscribers(turn.cx, change));
    let run = app.dag.run(message.id.via, message.id.index).unwrap_or(0);
    let channels = &app.channels[usize::from(turn.shard.key.service.0)];
    let mut counts = vec![0u32; channels.len()];
    entry.outputs.reserve(effects.outputs.len());
    for output in effects.outputs {
        let channel = usize::from(output.channel);
        // The executor bounds outputs by the manifest; this is the second lock.
        let place = channels.get(channel).and_then(|edge| {
            counts[channel] += 1;
            let index = app.dag.index(*edge, run, counts[channel] - 1)?;
            Some((*edge, index))
        });
        match place {
            Some((edge, index)) => entry.outputs.push(Output {
                edge,
                index,
                key: output.key,
                payload: output.payload,
            }),
            None => turn.effects.push(Effect::Drop(DropReason::Output)),
        }
    }
}

/// Whether anybody gets a publication; true of what is none.
fn has_subscribers(cx: &Context<'_>, change: &TimerChange) -> bool {
    match change.set.as_ref().map(|set| &set.when) {
        Some(When::Published(p)) => !cx.subscribers(p).is_empty(),
        _ => true,
    }
}

/// Sends an entry's outputs and reply once more.
pub(crate) fn emit_retry(turn: &mut Turn<'_>, entry: &Entry, asked: Asked) {
    if deliberate::is(Fault::RetryUnanswered) {
        return;
    }
    let dedup = &mut turn.shard.log.dedup;
    let Some(attempt) = dedup.next_attempt(entry.slot, &entry.id, asked.attempt) else {
        return;
    };
    let asked = Asked {
        attempt,
        // Further downstream a message may have expired that has time now.
        deadline: entry.deadline.max(asked.deadline),
        ..asked
    };
    // What is on its way will be answered at the ingress of the first attempt, or of the last one with an
    // idempotency key. A copy would only wait behind it.
    let first = turn.cx.peers.get(&entry.reply_to);
    let first_runs = first.is_some_and(|p| p.incarnation == entry.reply_to_incarnation);
    let outgoing = turn.shard.log.outgoing(entry.op);
    let open = outgoing.map_or_else(Vec::new, |outgoing| {
        let is_on_the_way = if entry.is_keyed() {
            outgoing.is_sent_for(&asked)
        } else {
            first_runs
        };
        outgoing.asked = asked;
        if is_on_the_way {
            outgoing.open()
        } else {
            Vec::new()
        }
    });
    emit(turn, entry, asked, None, &open);
}

/// Whether more than one message or answer follows from an entry that is lost with its node.
pub(crate) fn forks(cx: &Context<'_>, shard: &Shard, entry: &Entry) -> bool {
    let follows = entry.outputs.len() + usize::from(entry.reply.is_some());
    follows > 1 && !cx.app.service(shard.key).stateful
}

/// Sends an entry's outputs, but for those in `without`, and its reply. `op` is the entry that waits
/// until they are durable. What follows from a replay is answered to nobody: the client could hear that instead of
/// the answer of the service that kept the dead letter.
pub(crate) fn emit(
    turn: &mut Turn<'_>,
    entry: &Entry,
    asked: Asked,
    op: Option<u64>,
    without: &[u32],
) {
    let (app, key) = (turn.cx.app, turn.shard.key);
    let asked = Asked {
        is_branch: asked.is_branch || forks(turn.cx, turn.shard, entry),
        ..asked
    };
    let (reply_to, reply_to_incarnation) = if is_replay(entry.replays, entry.id) {
        (NodeId::NOBODY, 0)
    } else {
        (asked.reply_to, asked.reply_to_incarnation)
    };
    for (at, output) in (0..).zip(&entry.outputs) {
        if without.contains(&at) {
            continue;
        }
        let Some(service) = app.dag.receiver(output.edge) else {
            continue;
        };
        let slot = Slot::of(&output.key);
        let to = ShardKey {
            app: key.app,
            service,
            shard: slot.shard(app.plan.app.service(service).shards),
        };
        let message = Message {
            id: MessageId {
                request: entry.id.request,
                via: Via::Edge(output.edge),
                index: output.index,
            },
            attempt: asked.attempt,
            slot,
            reply_to,
            reply_to_incarnation,
            deadline: asked.deadline,
            sent: entry.sent,
            oldest_seq: entry.oldest_seq,
            trace: entry.trace,
            code_version: entry.code_version,
            is_branch: asked.is_branch,
            topic: None,
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
            from_incarnation: turn.shard.incarnation,
            to_incarnation: route.incarnation,
        };
        turn.effects.push(Effect::Send {
            link,
            to: route.primary,
            body: message.encode().into(),
            op: op.map(|op| (op, at)),
        });
    }
    if let Some(reply) = &entry.reply {
        turn.effects.push(Effect::Reply {
            asked,
            request: entry.id.request,
            reply: reply.clone(),
        });
    }
}

/// How long the sender of a message may wait for the acknowledgement: not at all if a client does.
pub(crate) fn ack_delay(turn: &Turn<'_>, entry: &Entry) -> Nanos {
    if entry.is_branch || forks(turn.cx, turn.shard, entry) {
        Nanos::ZERO
    } else {
        ACK_DELAY
    }
}

/// Answers a message with something that no entry has.
pub(crate) fn answer(turn: &mut Turn<'_>, asked: Asked, request: RequestId, reply: Reply) {
    turn.effects.push(Effect::Reply {
        asked,
        request,
        reply,
    });
}
