//! Outbound requests of the simulated services. A service asks another one, another application or an
//! HTTP server for each message that it handles. Who is asked counts that, and so does every service
//! behind it along its first channel; the one that asks counts the answer by its outcome.

use crate::layout::FIRED;
use crate::ledger::Ledger;
use crate::scenario::{AskShape, AskTarget, Scenario, app_id};
use e3_collections::{State, Txn, WriteBatch};
use e3_invocation::{Effects, Invocation, Output, Reply};
use e3_model::Outcome;
use e3_model::outbound::{Answer, Destination, HttpMethod, HttpRequest, Outbound};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{AppId, Nanos, ServiceId, ShardKey};
use std::collections::BTreeMap;

/// What the payload of an outbound request begins with; no client has this number.
const MARK: [u8; 8] = [0xff; 8];

/// All outcomes that an answer may have.
pub(crate) const OUTCOMES: [Outcome; 7] = [
    Outcome::Done,
    Outcome::Overloaded,
    Outcome::Expired,
    Outcome::Failed,
    Outcome::Rejected,
    Outcome::Conflict,
    Outcome::Unknown,
];

/// What a service asks for each message that it handles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The application of the scenario, also where another began with its backup.
    app: AppId,
    to: AskTarget,
    deadline: Nanos,
}

impl Ask {
    /// What this service asks in a scenario.
    pub fn of(scenario: &Scenario, app: usize, service: usize) -> Option<Ask> {
        let mut asks = scenario.asks.iter();
        let shape = asks.find(|ask| (ask.app, ask.service) == (app, service))?;
        Some(Ask {
            app: app_id(app),
            to: shape.to.clone(),
            deadline: Nanos::from_millis(shape.deadline_ms),
        })
    }

    /// The request that a message causes.
    pub(crate) fn change(&self, key: ShardKey, invocation: &Invocation) -> TimerChange {
        let effect = &invocation.payload;
        let name: String = effect.iter().map(|byte| format!("{byte:02x}")).collect();
        let asked = invocation.key.clone();
        let to = match self.to {
            AskTarget::Service(at) => Destination::Service {
                service: format!("svc{at}"),
                key: asked,
            },
            AskTarget::App(at) => Destination::Application {
                application: format!("app{at}"),
                key: asked,
            },
            AskTarget::Http => Destination::Http(HttpRequest {
                method: HttpMethod::Post,
                url: "https://server.example/".into(),
                headers: Vec::new(),
            }),
        };
        let deadline = invocation.now + self.deadline;
        TimerChange {
            name: format!("ask {name}"),
            key: invocation.key.clone(),
            set: Some(TimerSet {
                when: When::Answered(Box::new(Outbound { to, deadline })),
                payload: payload(self.asker(key), effect),
            }),
        }
    }

    fn asker(&self, key: ShardKey) -> ShardKey {
        ShardKey {
            app: self.app,
            ..key
        }
    }

    /// Counts an answer.
    pub(crate) fn count_answer(
        &self,
        key: ShardKey,
        invocation: &Invocation,
        answer: Answer,
        state: &mut State,
        ledger: &mut Ledger,
    ) -> Effects {
        let name = invocation.timer.as_deref().unwrap_or_default();
        let effect = effect_of(name);
        let asked = payload(self.asker(key), &effect);
        if answer.outcome == Outcome::Done && invocation.payload != asked {
            let content = &invocation.payload;
            ledger.violation(format!("{key}: the answer to {name:?} is {content:?}"));
        }
        let before = |outcome: &Outcome| state.counter_get(FIRED, &answered_key(&effect, *outcome));
        let is_repeated = OUTCOMES.iter().any(|outcome| before(outcome) != 0);
        if is_repeated && !ledger.may_repeat(&effect) {
            ledger.violation(format!("{key}: {name:?} is answered twice"));
        }
        let counted = answered_key(&effect, answer.outcome);
        let (_, writes) = count_in_fired(invocation, state, &counted, |_, _| {});
        Effects {
            writes,
            ..Effects::default()
        }
    }
}

/// Whether a message is part of an outbound request.
pub(crate) fn is_asked(payload: &[u8]) -> bool {
    payload.starts_with(&MARK)
}

/// The payload of the request that a service makes for an effect.
pub(crate) fn payload(asker: ShardKey, effect: &[u8]) -> Vec<u8> {
    let asker = [asker.app.0 as u8, asker.service.0 as u8];
    [MARK.as_slice(), &asker, effect].concat()
}

/// The key under which an answer is counted.
pub(crate) fn answered_key(effect: &[u8], outcome: Outcome) -> Vec<u8> {
    [b"answered".as_slice(), &[outcome.code()], effect].concat()
}

/// Counts what is asked, if the service has state, and sends it on, or answers.
pub(crate) fn serve(invocation: &Invocation, state: &mut State, channels: usize) -> Effects {
    let payload = &invocation.payload;
    let is_stateful = !state.specs().is_empty();
    let writes = is_stateful.then(|| count_in_fired(invocation, state, payload, |_, _| {}).1);
    let output = Output {
        channel: 0,
        key: invocation.key.clone(),
        payload: payload.clone(),
    };
    let reply = Reply {
        status: 0,
        payload: payload.clone(),
    };
    Effects {
        writes: writes.unwrap_or_default(),
        outputs: Vec::from_iter((channels > 0).then_some(output)),
        reply: (channels == 0).then_some(reply),
        timers: Vec::new(),
    }
}

/// The effect that a name was made of.
fn effect_of(name: &str) -> Vec<u8> {
    let digits = name.strip_prefix("ask ").unwrap_or_default();
    let pairs = (0..digits.len()).step_by(2);
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    pairs.filter_map(byte).collect()
}

/// Counts something that is not the effect of a request; returns the count before. `beside` makes
/// further writes.
pub(crate) fn count_in_fired(
    invocation: &Invocation,
    state: &mut State,
    key: &[u8],
    beside: impl FnOnce(&mut Txn, &State),
) -> (i64, WriteBatch) {
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    let before = txn
        .counter_add(state, FIRED, key, 1)
        .expect("it is a counter");
    beside(&mut txn, state);
    let writes = txn.finish();
    state.apply(&writes).expect("made against this state");
    (before, writes)
}

impl Scenario {
    /// The services that handle an outbound request, first the one that is asked; none if there is no
    /// such service.
    pub(crate) fn asked_by(&self, ask: &AskShape) -> Vec<(usize, ServiceId)> {
        match ask.to {
            AskTarget::Service(service) => self.services_behind(ask.app, service),
            AskTarget::App(app) => self.services_behind(app, 0),
            AskTarget::Http => Vec::new(),
        }
    }

    /// A service and those behind it along first channels.
    pub(crate) fn services_behind(
        &self,
        app: usize,
        mut service: usize,
    ) -> Vec<(usize, ServiceId)> {
        let mut on_way = Vec::new();
        while let Some(shape) = self.apps.get(app)
            && service < shape.services.len()
        {
            on_way.push((app, ServiceId(service as u16)));
            match shape.channels_of(service).first() {
                Some((next, _)) => service = *next,
                None => break,
            }
        }
        on_way
    }

    /// The longest time that an outbound request is open.
    pub(crate) fn longest_ask(&self) -> Nanos {
        let longest = self.asks.iter().map(|ask| ask.deadline_ms).max();
        longest.map_or(Nanos::ZERO, |ms| Nanos::from_millis(ms + 1_000))
    }

    /// The time that handlers take for what one message of a service asks.
    pub(crate) fn work_of_ask(&self, app: usize, service: usize) -> u64 {
        let mut asks = self.asks.iter();
        let Some(ask) = asks.find(|ask| (ask.app, ask.service) == (app, service)) else {
            return 0;
        };
        let on_way = self.asked_by(ask).into_iter();
        let asked = on_way.map(|(app, service)| (app, usize::from(service.0)));
        let all = asked.chain([(app, service)]);
        all.map(|(app, service)| {
            let shape = &self.apps[app];
            shape.services[service].service_us * u64::from(shape.attempts)
        })
        .sum()
    }

    /// The shape of what a service asks.
    pub(crate) fn ask_of(&self, app: usize, service: ServiceId) -> Option<&AskShape> {
        let service = usize::from(service.0);
        let mut asks = self.asks.iter();
        asks.find(|ask| (ask.app, ask.service) == (app, service))
    }
}

/// An HTTP server that services ask: what it was asked, by body, under which idempotency keys.
#[derive(Debug, Default)]
pub struct HttpServer {
    asked: BTreeMap<Vec<u8>, BTreeMap<String, u64>>,
}

impl HttpServer {
    /// A request arrives.
    pub(crate) fn on_request(&mut self, body: &[u8], idempotency_key: &str) {
        let keys = self.asked.entry(body.to_vec()).or_default();
        *keys.entry(idempotency_key.to_string()).or_default() += 1;
    }

    /// Under how many idempotency keys this was asked.
    pub(crate) fn effects(&self, asker: usize, service: ServiceId, effect: &[u8]) -> usize {
        let asker = ShardKey {
            app: app_id(asker),
            service,
            shard: e3_model::ShardId(0),
        };
        let keys = self.asked.get(&payload(asker, effect));
        keys.map_or(0, BTreeMap::len)
    }
}
