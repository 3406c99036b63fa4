//! The primary: hands messages to the executor, logs what comes of them, and releases outputs when
//! the backups have them.

mod calls;
mod declared;
mod duplicates;
mod export;
mod outbound;
mod pending;
mod publications;
mod release;
mod timers;
mod uncommitted;

use crate::asked::Asked;
use crate::check::check_message;
use crate::cores::Occupied;
use crate::declared::Declared;
use crate::deliberate::{self, Fault};
use crate::emit::{Handled, emit, entry, handler_now};
use crate::expiry::Expiry;
use crate::export::Export;
use crate::limits::*;
use crate::links::Delivery;
use crate::log::{Log, Outgoing};
use crate::outbound::Outbounds;
use crate::publications::Publications;
use crate::reach::ClockCheck;
use crate::refusal::{Refusal, full, refusal, state_bytes_max};
use crate::shard::{Context, Effect, Shard, Turn, Waiting};
use crate::streams::Streams;
use e3_invocation::{Completion, HandlerError, Invocation, Outcome as Run};
use e3_model::application::WhenAlone;
use e3_model::service_timer::shown_name;
use e3_model::{DropReason, Nanos, Timestamp};
use e3_wire::entry::{Entry, Outcome};
use e3_wire::message::Message;
use std::collections::VecDeque;

pub(crate) use calls::{Called, Run as CallRun};
pub(crate) use uncommitted::Pending;
use uncommitted::Refusals;

/// What only a primary needs. Nothing here survives it.
#[derive(Debug)]
pub(crate) struct Primary {
    /// Last entry that was released: all backups have it, its outputs and reply have left.
    pub(crate) commit: u64,
    /// Entries after `commit`, in order.
    pub(crate) pending: VecDeque<Pending>,
    refusals: Refusals,
    /// Arrived, not begun.
    queue: VecDeque<Waiting>,
    /// The request of a timer that is due, after an attempt that failed.
    timer: Option<Waiting>,
    outbounds: Outbounds,
    publications: Publications,
    declared: Declared,
    /// When it is woken next for a timer or an outbound request, if that is ahead.
    armed: Timestamp,
    /// With the executor, in the order in which they went there.
    in_flight: VecDeque<InFlight>,
    calls: calls::Calls,
    pub(crate) streams: Streams,
    /// Leases of the predecessor run out.
    pub(crate) serve_at: Timestamp,
    /// The core that its handlers share is occupied until then, where service times are emulated.
    idle_at: Timestamp,
    /// When the latest handler run left its core, or leaves it.
    done_at: Timestamp,
    /// It handles no messages: a backup is taken, or what follows.
    pub(crate) frozen: bool,
    /// Another primary or other shards take over, or it has no state yet. It answers no calls either.
    pub(crate) hands_over: bool,
    /// Its part of a backup that is being taken of the application.
    pub(crate) export: Option<Export>,
    /// What its service needs to run is here.
    pub(crate) is_startable: bool,
    /// When an entry was committed last, or the oldest that waits was appended.
    progress_at: Timestamp,
    pub(crate) expiry: Expiry,
    next_token: u64,
}

/// A message that the executor has; key and payload are in its invocation.
#[derive(Debug)]
struct InFlight {
    token: u64,
    now: Timestamp,
    /// The clock that its handler sees.
    handler_now: Timestamp,
    waiting: Waiting,
}

impl Primary {
    /// A primary that goes on with what the log has. What its predecessor may not have sent waits,
    /// like anything new, until the backups of this view have it. No two primaries of a process
    /// share a `generation`.
    pub(crate) fn new(now: Timestamp, log: &Log, serve_at: Timestamp, generation: u32) -> Primary {
        let pending = |o: &Outgoing| Pending {
            entry: o.entry.clone(),
            deliveries: Vec::new(),
            release_at: now,
            retries: Vec::new(),
        };
        Primary {
            commit: log.released,
            pending: log.outbox.iter().map(pending).collect(),
            refusals: Refusals::default(),
            queue: VecDeque::new(),
            timer: None,
            outbounds: Outbounds::new(log.op),
            publications: Publications::new(&log.timers, log.op),
            declared: Declared::default(),
            armed: Timestamp::MAX,
            in_flight: VecDeque::new(),
            calls: calls::Calls::default(),
            streams: Streams::new(log.released),
            serve_at,
            idle_at: now,
            done_at: now,
            frozen: false,
            hands_over: false,
            export: None,
            is_startable: true,
            progress_at: now,
            expiry: Expiry::default(),
            next_token: u64::from(generation) << 32,
        }
    }

    /// Whether the primary may act for the shard now: handle, answer, send.
    pub(crate) fn may_serve(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let service = cx.app.service(shard.key);
        let alone = service.replicas > 1 && self.streams.required().next().is_none();
        (cx.now >= self.serve_at || deliberate::is(Fault::ServeAtIgnored))
            && cx.clock == ClockCheck::Right
            && !self.streams.has_unheard()
            && self
                .streams
                .required()
                .all(|node| cx.leases.holds(cx.now, node) || deliberate::is(Fault::NoLeases))
            && !(alone && service.when_alone == WhenAlone::Refuse)
    }

    /// Messages and calls that wait or are being handled.
    pub(crate) fn queue_len(&self) -> usize {
        let messages = self.queue.len() + self.in_flight.len() + usize::from(self.timer.is_some());
        messages + self.calls.len()
    }

    /// Whether a handler runs, or is to run next.
    pub(crate) fn is_handling(&self) -> bool {
        !self.in_flight.is_empty() || self.calls.running() > 0
    }

    /// Whether a message or a call waits, or a timer is due.
    pub(crate) fn has_waiting(&self, now: Timestamp, log: &Log) -> bool {
        !self.queue.is_empty() || self.calls.is_waiting() || self.is_timer_due(now, log)
    }

    /// Whether it takes messages from its channels; otherwise they wait at their senders.
    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() < QUEUE_MAX
    }

    /// Whether nothing is being handled, everything is committed, and no answer waits that a successor
    /// could make wrong.
    pub(crate) fn is_at_rest(&self, log: &Log) -> bool {
        self.writes_nothing(log) && self.calls.is_quiet()
    }

    /// Whether no message is being handled, and everything is committed.
    pub(crate) fn writes_nothing(&self, log: &Log) -> bool {
        self.in_flight.is_empty() && self.commit == log.op
    }

    /// How long entries have waited without any commit; zero if that is not too long.
    pub(crate) fn stalled(&self, now: Timestamp) -> Nanos {
        let span = now.since(self.progress_at);
        if self.pending.is_empty() || span < STALLED_AFTER {
            Nanos::ZERO
        } else {
            span
        }
    }

    /// A message has come by a channel.
    pub(crate) fn on_message(&mut self, turn: &mut Turn<'_>, delivery: Delivery, body: &[u8]) {
        let (cx, key) = (turn.cx, turn.shard.key);
        let message = Message::decode(body).ok();
        let message = message.filter(|m| check_message(cx.app, key, &delivery.link, m));
        match message {
            Some(message) => self.queue.push_back(Waiting {
                delivery: Some(delivery),
                replays: None,
                message,
                timer: None,
                answer: None,
                failures: 0,
            }),
            None => {
                turn.effects.push(Effect::Drop(DropReason::Message));
                // Nothing can be made of it, ever: do not let it block the channel.
                turn.complete([delivery], Nanos::ZERO);
            }
        }
    }

    /// Gives the executor as much as it may have.
    pub(crate) fn dispatch(&mut self, turn: &mut Turn<'_>) {
        let running = self.running();
        loop {
            let begun = self.running().saturating_sub(running);
            let cx = Context {
                free_cores: turn.cx.free_cores.saturating_sub(begun),
                ..*turn.cx
            };
            let turn = &mut Turn {
                cx: &cx,
                shard: &mut *turn.shard,
                effects: &mut *turn.effects,
            };
            if self.is_call_next(turn.cx, turn.shard) {
                self.run_call(turn);
            } else if self.can_fire(turn.cx, turn.shard) {
                self.fire(turn);
            } else if self.can_dispatch(turn.cx, turn.shard)
                && let Some(mut waiting) = self.queue.pop_front()
            {
                self.take_later_copy(turn, &mut waiting);
                if let Some(waiting) = self.deduplicate(turn, waiting) {
                    self.run(turn, waiting);
                }
            } else {
                return;
            }
        }
    }

    /// Whether the message at the head of the queue may be handled now.
    pub(crate) fn can_dispatch(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let Some(head) = self.queue.front() else {
            return false;
        };
        !self.is_in_flight(head)
            && !self.waits_for_timer(cx.now, &shard.log)
            && self.may_handle(cx, shard)
    }

    /// Whether anything may be handled now.
    fn may_handle(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        !self.frozen
            && !self.expiry.is_first
            && !self.streams.are_behind(cx.now)
            && shard.log.outbox.len() < OUTBOX_MAX
            && self.has_executor(cx, shard)
            && self.may_serve(cx, shard)
    }

    /// Whether the executor can take anything now.
    fn has_executor(&self, cx: &Context<'_>, shard: &Shard) -> bool {
        let in_flight_max = match cx.config.emulated {
            // One run a core.
            Some(_) if cx.app.service(shard.key).stateful => 1,
            _ => IN_FLIGHT_MAX,
        };
        self.is_startable
            && self.idle_at <= cx.now
            && cx.free_cores > 0
            && self.in_flight.len() + self.calls.running() < in_flight_max
    }

    /// Handlers that the executor has.
    pub(crate) fn running(&self) -> usize {
        self.in_flight.len() + self.calls.running()
    }

    /// Hands a message to the executor, or ends it if it cannot be handled.
    fn run(&mut self, turn: &mut Turn<'_>, mut waiting: Waiting) {
        // One time for what is refused as expired and for what is forgotten: whatever the clocks of
        // primaries said, nothing that was forgotten is handled again.
        let now = turn.shard.log.time(turn.cx.now);
        if let Some(refusal) = refusal(turn, now, &waiting.message) {
            if refusal.outcome == Outcome::Failed {
                turn.shard.counts.failed += 1;
                turn.shard.counts.last_failure = Some(refusal.reason.clone());
            }
            return self.give_up(turn, now, waiting, refusal);
        }
        let token = self.next_token;
        self.next_token += 1;
        let handler_now = handler_now(turn, now, &waiting.message);
        let message = &mut waiting.message;
        let invocation = Invocation {
            token,
            id: message.id,
            now: handler_now,
            state_bytes_max: state_bytes_max(turn),
            slot: message.slot,
            key: std::mem::take(&mut message.key),
            payload: std::mem::take(&mut message.payload),
            timer: waiting
                .timer
                .as_ref()
                .map(|timer| shown_name(&timer.name).to_owned()),
            answer: waiting.answer,
            topic: message.topic.clone(),
            is_call: false,
        };
        turn.effects.push(Effect::Run(invocation));
        self.calls.on_message();
        self.in_flight.push_back(InFlight {
            token,
            now,
            handler_now,
            waiting,
        });
    }

    /// The executor has run a message's handler.
    pub(crate) fn on_completion(
        &mut self,
        turn: &mut Turn<'_>,
        done: Completion,
        occupied: Occupied,
    ) {
        let at = self.in_flight.iter().position(|f| f.token == done.token);
        let Some(InFlight { now, waiting, .. }) = at.and_then(|at| self.in_flight.remove(at))
        else {
            return self.on_called(turn, done, occupied);
        };
        self.occupy(turn, occupied);
        match done.outcome {
            Run::Completed(effects) => {
                let delivery = waiting.delivery;
                turn.shard.counts.handled += 1;
                let entry = entry(turn, now, &waiting, Handled::Completed(effects));
                self.append(turn, entry, delivery);
            }
            Run::Failed(failed) => self.on_failure(turn, now, waiting, *failed),
        }
        self.plan_expiry(turn);
        if self.export.is_some() && self.frozen {
            // It may stand still now.
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// A handler run occupies its core for longer than the handler took.
    fn occupy(&mut self, turn: &mut Turn<'_>, occupied: Occupied) {
        let (now, shard) = (turn.cx.now, &mut *turn.shard);
        shard.counts.busy += occupied.time;
        // Without emulated cores each shard has one.
        // A run that is not slowed leaves it as it is: a clock that was ahead holds nothing up.
        let own = || match occupied.rest {
            Nanos::ZERO => self.idle_at,
            rest => self.idle_at.max(now) + rest,
        };
        self.done_at = occupied.until.unwrap_or_else(own);
        if occupied.until.is_none() || turn.cx.app.service(shard.key).stateful {
            self.idle_at = self.done_at.max(self.idle_at);
        }
        if self.done_at > now {
            turn.effects.push(Effect::WakeAt(self.done_at));
        }
    }

    fn on_failure(
        &mut self,
        turn: &mut Turn<'_>,
        now: Timestamp,
        mut waiting: Waiting,
        failed: e3_invocation::Failed,
    ) {
        waiting.message.key = failed.invocation.key;
        waiting.message.payload = failed.invocation.payload;
        let full = match failed.error {
            HandlerError::Full { used, growth, max } => Some(full(turn, used, growth, max)),
            _ => None,
        };
        if full.is_some() && self.expires_for_room(turn.shard) {
            return self.run_again(waiting);
        }
        let is_full = full.is_some();
        let reason = full.unwrap_or_else(|| failed.error.to_string());
        waiting.failures += 1;
        turn.shard.counts.failed += 1;
        turn.shard.counts.last_failure = Some(reason.clone());
        if is_full || waiting.failures >= turn.cx.app.plan.app.spec.attempts {
            let outcome = Outcome::Failed;
            self.give_up(turn, now, waiting, Refusal { outcome, reason });
        } else {
            self.run_again(waiting);
        }
    }

    /// A message is handled again, before those that came after it.
    fn run_again(&mut self, waiting: Waiting) {
        match waiting.fired() {
            Some(_) => self.timer = Some(waiting),
            None => self.queue.push_front(waiting),
        }
    }

    /// Commits a message without effects, answers its client, keeps it as a dead letter.
    fn give_up(&mut self, turn: &mut Turn<'_>, now: Timestamp, waiting: Waiting, refusal: Refusal) {
        let why = refusal.outcome;
        let Refusal { outcome, reason } = match waiting.fired() {
            // It was not handled before: it would not be there.
            Some(_) => refusal,
            None => refusal.of(turn, &waiting.message),
        };
        let counts = &mut turn.shard.counts;
        counts.handled += 1;
        counts.dead_lettered += 1;
        counts.expired += u64::from(outcome == Outcome::Expired);
        let delivery = waiting.delivery;
        let mut entry = entry(turn, now, &waiting, Handled::GivenUp { outcome, reason });
        let stateful = turn.cx.app.service(turn.shard.key).stateful;
        // If it was handled before, what followed from it is known further downstream. So it may come
        // again; but it must not be replayed.
        if !stateful && waiting.message.topic.is_some() && waiting.replays.is_none() {
            entry.reply.iter_mut().for_each(|reply| reply.outcome = why);
        }
        self.append(turn, entry, delivery);
    }

    /// Appends an entry to the log and sends it to the backups.
    pub(crate) fn append(
        &mut self,
        turn: &mut Turn<'_>,
        mut entry: Entry,
        delivery: Option<Delivery>,
    ) {
        let mut delivery = delivery;
        if deliberate::is(Fault::DurableBeforeCommit) {
            turn.complete(delivery.take(), ACK_DELAY);
        }
        if deliberate::is(Fault::ReleaseBeforeCommit) {
            emit(turn, &entry, Asked::by_entry(&entry), None, &[]);
        }
        self.end_outbound(turn, &entry);
        self.note_fired(&entry);
        self.streams.replicate(turn, &entry);
        self.export_entry(turn.effects, &entry);
        // Applied and sent: nobody reads the writes again.
        entry.batch = Vec::new();
        let entry = turn.shard.log.record(entry);
        if self.pending.is_empty() {
            self.progress_at = turn.cx.now;
        }
        self.pending.push_back(Pending {
            entry,
            deliveries: delivery.into_iter().collect(),
            release_at: self.done_at,
            retries: Vec::new(),
        });
        self.plan_declared(turn);
        self.arm(turn);
        self.advance(turn);
    }

    /// Panics if an invariant is broken. `is_ready`: the worker is about to call it.
    pub(crate) fn validate(&self, cx: &Context<'_>, shard: &Shard, is_ready: bool) {
        let log = &shard.log;
        assert!(
            self.commit <= log.op && self.commit >= log.released,
            "commit"
        );
        assert_eq!(
            self.commit + self.pending.len() as u64,
            log.op,
            "pending has a gap"
        );
        self.streams.validate(self.commit, log.op);
        assert!(
            is_ready || !self.can_dispatch(cx, shard),
            "a message waits that could be handled"
        );
        self.validate_timers(cx, shard, is_ready);
        self.validate_outbound(cx, shard);
        self.validate_publications(cx, shard);
        self.validate_declared();
        self.validate_calls(cx, shard, is_ready);
        assert!(
            !self.can_release(cx, shard) || !self.may_serve(cx, shard),
            "an entry waits that could be released"
        );
    }
}
