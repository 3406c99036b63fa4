//! Services as plain functions, in place of WebAssembly.

use crate::asks::{self, Ask};
use crate::layout::{FILL, FIRED, TAG_LEN, key_after};
use crate::ledger::Ledger;
use crate::ticks;
use crate::topics::{self, Publishes};
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_collections::{State, Txn, WriteBatch};
use e3_invocation::{
    Completion, Effects, Failed, HandlerError, Invocation, Outcome, Output, Reply,
};
use e3_model::limits::SLOTS;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ShardKey, Timestamp};
use e3_random::Random;

/// Name of the modules of a version whose handlers fail.
pub(crate) const FAILING: &str = "failing";

/// A service of the simulated applications.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Service {
    /// Counts each request id in the counter collection 0 and sends the message on along all channels;
    /// without channels it replies with the new count.
    Chain {
        /// The number of its channels.
        channels: u16,
    },
    /// Fails every attempt.
    Failing,
    /// A service of a scenario's graph: counts the place that the message has reached and sends it on.
    Graph {
        /// Whether it has state.
        stateful: bool,
        /// Whether the keys of its messages depend on the clock; not if it has state.
        draws_keys: bool,
        /// By channel: how many messages it sends.
        messages: Vec<u8>,
        /// Service time.
        time: Nanos,
        /// Handler runs that fail, of 1000.
        fails_permille: u64,
        /// Bytes that it writes beside the count.
        fill_len: usize,
        /// How long the marks live that it makes, if it does.
        ttl: Option<Nanos>,
        /// How long after each message a timer of it fires; none if zero. Only with state.
        timer: Nanos,
        /// The collection of its timers that repeat, if it sets any. Only with state.
        ticks: Option<u16>,
        /// What it asks for each message; only with state.
        ask: Option<Ask>,
        /// What it publishes; only with state.
        publishes: Option<Publishes>,
        /// Which service its handlers call, if they do.
        calls: Option<Calls>,
    },
}

/// Which service handlers call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calls {
    /// Its index; it has state.
    pub service: usize,
    /// How many first messages on first channels lead to it, if their keys are those of the requests.
    pub steps: Option<usize>,
}

/// Handler runs of such a service that make a call, of 1000.
pub(crate) const CALL_PERMILLE: u64 = 500;

impl Service {
    /// Runs the handler, applies its writes to the state and records each effect in the ledger.
    pub fn handle(
        &self,
        key: ShardKey,
        invocation: Invocation,
        state: &mut State,
        random: &mut Random,
        ledger: &mut Ledger,
    ) -> Completion {
        let token = invocation.token;
        let fails = match self {
            Service::Failing => true,
            Service::Graph { fails_permille, .. } => random.chance(*fails_permille),
            Service::Chain { .. } => false,
        };
        let outcome = if fails {
            let error = HandlerError::Code(1);
            Outcome::Failed(Box::new(Failed { error, invocation }))
        } else {
            Outcome::Completed(self.effects(key, invocation, state, ledger))
        };
        Completion {
            token,
            outcome,
            busy: self.service_time(),
        }
    }

    /// What a handler does that does not fail.
    fn effects(
        &self,
        key: ShardKey,
        invocation: Invocation,
        state: &mut State,
        ledger: &mut Ledger,
    ) -> Effects {
        match self {
            Service::Graph { .. } if invocation.is_call => answer(&invocation, state),
            Service::Graph { ticks, ask, .. } if invocation.timer.is_some() => {
                let is_tick = invocation.timer.as_deref() == Some(ticks::NAME);
                match (ask, invocation.answer, ticks) {
                    (Some(ask), Some(answer), _) => {
                        ask.count_answer(key, &invocation, answer, state, ledger)
                    }
                    (_, _, Some(collection)) if is_tick => {
                        ticks::on_fired(key, *collection, &invocation, state, ledger)
                    }
                    _ => count_fired(key, &invocation, state, ledger),
                }
            }
            Service::Graph { messages, .. } if asks::is_asked(&invocation.payload) => {
                asks::serve(&invocation, state, messages.len())
            }
            Service::Graph { messages, .. } if topics::is_publication(&invocation.payload) => {
                topics::serve(key, &invocation, state, messages.len(), ledger)
            }
            Service::Graph {
                stateful,
                draws_keys,
                messages,
                ..
            } => {
                let (writes, timers) = if *stateful {
                    self.count_message(key, &invocation, state, ledger)
                } else {
                    Default::default()
                };
                let mut effects = forward(messages, &invocation, writes);
                if *draws_keys {
                    draw_keys(&mut effects, &invocation);
                }
                effects.timers = timers;
                effects
            }
            Service::Chain { channels } => count_and_forward(*channels, &invocation, state),
            Service::Failing => Effects::default(),
        }
    }

    /// Counts the place that a message has reached; the writes and timers of that.
    fn count_message(
        &self,
        key: ShardKey,
        invocation: &Invocation,
        state: &mut State,
        ledger: &mut Ledger,
    ) -> (WriteBatch, Vec<TimerChange>) {
        let Service::Graph {
            fill_len,
            ttl,
            timer,
            ticks,
            ask,
            publishes,
            ..
        } = self
        else {
            return Default::default();
        };
        let effect = &invocation.payload;
        let (mut number, mut tick) = (None, None);
        let beside = |txn: &mut Txn, state: &State| {
            if let Some(collection) = ticks {
                tick = ticks::set(txn, state, *collection, invocation);
            }
            fill(txn, state, effect, *fill_len);
            if let Some(wrong) = ttl.and_then(|ttl| mark(txn, state, invocation, ttl)) {
                ledger.violation(format!("{key}: {wrong}"));
            }
            number = publishes.and_then(|p| p.number(txn, state, invocation));
        };
        let (count, writes) = count(invocation, effect, state, beside);
        if count != 1 {
            ledger.on_repeated(key, effect);
        }
        ledger.on_effect(key, &invocation.key, effect);
        let mut timers = Vec::new();
        if *timer > Nanos::ZERO {
            timers.push(timer_for(invocation, *timer));
        }
        timers.extend(tick);
        timers.extend(ask.as_ref().map(|ask| ask.change(key, invocation)));
        timers.extend(number.map(|n| topics::publication(key, invocation, n)));
        (writes, timers)
    }

    /// Which service its handlers call.
    pub(crate) fn calls(&self) -> Option<Calls> {
        match self {
            Service::Graph { calls, .. } => *calls,
            Service::Chain { .. } | Service::Failing => None,
        }
    }

    /// Simulated service time.
    pub fn service_time(&self) -> Nanos {
        match self {
            Service::Graph { time, .. } => *time,
            Service::Chain { .. } | Service::Failing => Nanos::from_micros(5),
        }
    }
}

/// Every so many slots one has a mark.
const MARK_SLOTS: u16 = 32;

/// How long a mark lives: as long as its collection says, or as its write says.
fn mark_ttl(mark: u16, ttl: Nanos) -> Nanos {
    match mark / MARK_SLOTS % 2 {
        0 => ttl,
        _ => Nanos(ttl.0 / 2),
    }
}

/// Checks that each mark lives exactly as long as it must, then makes that of the slot again, if it
/// has one. Collection 3 has the marks, which expire, collection 4 when each was made. Returns what is
/// wrong.
fn mark(txn: &mut Txn, state: &State, invocation: &Invocation, ttl: Nanos) -> Option<String> {
    let now = invocation.now;
    if state.now() != now {
        return Some(format!(
            "the clock went back from {:?} to {now:?}",
            state.now()
        ));
    }
    let mut scanned = Vec::new();
    let visit = |key: &[u8], made: &[u8]| {
        scanned.push((key.to_vec(), made.to_vec()));
        true
    };
    txn.scan(state, 3, b"", b"", false, visit)
        .expect("collection 3 is an ordered map");
    let mut living = Vec::new();
    for mark in (0..SLOTS).step_by(usize::from(MARK_SLOTS)) {
        let key = mark.to_be_bytes();
        let made = txn.get(state, 4, &key).expect("collection 4 is a map");
        let made = made.and_then(|bytes| bytes.try_into().ok());
        let made = made.map(|bytes| Timestamp(u64::from_be_bytes(bytes)));
        if let Some(made) = made.filter(|made| *made + mark_ttl(mark, ttl) > now) {
            living.push((key.to_vec(), made.0.to_be_bytes().to_vec()));
        }
    }
    // A mark is of one slot, so that it stays whole when shards are split and merged.
    let mark = invocation.slot.0;
    if mark.is_multiple_of(MARK_SLOTS) {
        let (key, at) = (mark.to_be_bytes(), now.0.to_be_bytes());
        let made = match mark / MARK_SLOTS % 2 {
            0 => txn.put(state, 3, &key, &at),
            _ => txn.put_for(state, 3, &key, &at, mark_ttl(mark, ttl)),
        };
        made.expect("collection 3 is a map");
        txn.put(state, 4, &key, &at).expect("collection 4 is a map");
    }
    (scanned != living).then(|| format!("marks {scanned:?} live at {now:?}, must be {living:?}"))
}

/// Writes so many bytes.
fn fill(txn: &mut Txn, state: &State, effect: &[u8], fill_len: usize) {
    if fill_len > 0 {
        txn.put(state, FILL, effect, &vec![7; fill_len])
            .expect("collection 1 is a map");
    }
}

/// Counts an effect; returns the new count. `beside` makes further writes.
fn count(
    invocation: &Invocation,
    effect: &[u8],
    state: &mut State,
    beside: impl FnOnce(&mut Txn, &State),
) -> (i64, WriteBatch) {
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    state.advance(invocation.now);
    let before = txn
        .counter_add(state, 0, effect, 1)
        .expect("collection 0 is a counter");
    beside(&mut txn, state);
    let mut writes = txn.finish();
    state
        .commit(&mut writes, invocation.slot.0, u64::MAX, EXPIRED_LEN_MAX)
        .expect("made against this state");
    (before + 1, writes)
}

/// Answers a call: how often the effect took place.
fn answer(invocation: &Invocation, state: &mut State) -> Effects {
    state.advance(invocation.now);
    let count = state.counter_get(0, &invocation.payload);
    Effects {
        reply: Some(Reply {
            status: 0,
            payload: count.to_le_bytes().to_vec(),
        }),
        ..Effects::default()
    }
}

/// A timer that bears witness to a message: its time and its effect.
fn timer_for(invocation: &Invocation, after: Nanos) -> TimerChange {
    let (effect, at) = (&invocation.payload, invocation.now + after);
    TimerChange {
        name: effect.iter().map(|byte| format!("{byte:02x}")).collect(),
        key: invocation.key.clone(),
        set: Some(TimerSet {
            when: When::At(at),
            payload: [at.0.to_le_bytes().as_slice(), effect].concat(),
        }),
    }
}

/// Counts the effect of a timer's request in collection 2.
fn count_fired(
    key: ShardKey,
    invocation: &Invocation,
    state: &mut State,
    ledger: &mut Ledger,
) -> Effects {
    let (at, effect) = invocation
        .payload
        .split_first_chunk()
        .expect("set by this service");
    ledger.on_fired(key, Timestamp(u64::from_le_bytes(*at)), invocation.now);
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    let before = txn
        .counter_add(state, FIRED, effect, 1)
        .expect("it is a counter");
    if before != 0 {
        ledger.on_repeated(key, effect);
    }
    let writes = txn.finish();
    state.apply(&writes).expect("made against this state");
    Effects {
        writes,
        ..Effects::default()
    }
}

/// Counts the request, sends the message along the channels, replies if there are none.
fn count_and_forward(channels: u16, invocation: &Invocation, state: &mut State) -> Effects {
    let request = invocation.id.request;
    let id = [request.client.to_le_bytes(), request.seq.to_le_bytes()].concat();
    let (count, writes) = count(invocation, &id, state, |_, _| {});
    let output = |channel| Output {
        channel,
        key: invocation.key.clone(),
        payload: invocation.payload.clone(),
    };
    let reply = (channels == 0).then(|| Reply {
        status: 0,
        payload: count.to_le_bytes().to_vec(),
    });
    Effects {
        writes,
        outputs: (0..channels).map(output).collect(),
        reply,
        timers: Vec::new(),
    }
}

/// Sends the message along all channels and adds the step to its path. The service at the end of the
/// path of first messages on first channels answers the client with the identity of its request.
fn forward(messages: &[u8], invocation: &Invocation, writes: WriteBatch) -> Effects {
    let payload = &invocation.payload;
    let mut outputs = Vec::new();
    for (channel, count) in messages.iter().enumerate() {
        for number in 0..*count {
            let step = [channel as u8, number];
            outputs.push(Output {
                channel: channel as u16,
                key: key_after(&invocation.key, step),
                payload: [payload.as_slice(), &step].concat(),
            });
        }
    }
    let is_main = payload[TAG_LEN..].iter().all(|step| *step == 0);
    let reply = (messages.is_empty() && is_main).then(|| Reply {
        status: 0,
        payload: payload[..TAG_LEN].to_vec(),
    });
    Effects {
        writes,
        outputs,
        reply,
        timers: Vec::new(),
    }
}

/// Makes the keys of all messages depend on the handler's clock.
fn draw_keys(effects: &mut Effects, invocation: &Invocation) {
    let drawn = Random::new(invocation.now.0).next_u64().to_le_bytes();
    for output in &mut effects.outputs {
        output.key.extend(drawn);
    }
}
