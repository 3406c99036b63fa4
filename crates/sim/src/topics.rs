//! Publications of the simulated services. A service publishes for some of the messages that it handles.
//! Who is subscribed counts each publication, and so does every service behind it along its first
//! channel. A publication has a number among those of its key, by which subscribers check the order.

use crate::asks::count_in_fired;
use crate::layout::{FILL, TAG_LEN};
use crate::ledger::Ledger;
use crate::scenario::{Scenario, SubscriberShape, TopicShape, app_id};
use e3_collections::{State, Txn};
use e3_invocation::{Effects, Invocation, Output, Reply};
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::topic::Publication;
use e3_model::{ServiceId, ShardKey};
use e3_random::Random;

/// What the payload of a publication begins with; no client has this number.
const MARK: [u8; 8] = [0xfe; 8];
/// Bytes before the number of a publication: the mark, the publisher, and the subscriber, which is 0 in
/// the publication itself.
const NUMBER_AT: usize = MARK.len() + 4;
/// Bytes before the effect for which something is published.
const EFFECT_AT: usize = NUMBER_AT + 8;

/// On what a service publishes, and for which messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Publishes {
    every: u64,
}

impl Publishes {
    /// What this service publishes in a scenario.
    pub fn of(scenario: &Scenario, app: usize, service: usize) -> Option<Publishes> {
        let topic = scenario.topic_of(app, service)?;
        Some(Publishes { every: topic.every })
    }

    /// Gives what is published for an effect the next number of its key.
    pub(crate) fn number(&self, txn: &mut Txn, state: &State, at: &Invocation) -> Option<u64> {
        is_published(self.every, &at.payload).then(|| {
            let key = [MARK.as_slice(), b"published", &at.key].concat();
            let number = 1 + number_at(txn, state, &key);
            set_number(txn, state, &key, number);
            number
        })
    }
}

/// Publications of a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Published {
    /// Publications of effects that took place.
    pub(crate) published: u64,
    /// How often subscribers handled one.
    pub(crate) received: u64,
}

/// Whether something is published for an effect.
pub(crate) fn is_published(every: u64, effect: &[u8]) -> bool {
    let seed = effect.iter().fold(0u64, |sum, byte| {
        sum.wrapping_mul(257).wrapping_add(u64::from(*byte))
    });
    Random::new(seed).below(every) == 0
}

/// What a handler does to publish for an effect.
pub(crate) fn publication(key: ShardKey, at: &Invocation, number: u64) -> TimerChange {
    let publisher = [key.app.0 as u8, key.service.0 as u8, 0, 0];
    let number = number.to_le_bytes();
    let publication = Publication {
        topic: format!("t{}", key.service.0),
        key: at.key.clone(),
    };
    TimerChange {
        name: String::new(),
        key: at.key.clone(),
        set: Some(TimerSet {
            when: When::Published(Box::new(publication)),
            payload: [MARK.as_slice(), &publisher, &number, &at.payload].concat(),
        }),
    }
}

/// Whether a message brings a publication, or follows from one.
pub(crate) fn is_publication(payload: &[u8]) -> bool {
    payload.starts_with(&MARK)
}

/// The key under which a subscriber and all behind it count a publication.
pub(crate) fn received_key(
    publisher: (usize, usize),
    subscriber: SubscriberShape,
    effect: &[u8],
) -> Vec<u8> {
    let bytes = |app: usize, service: usize| [app_id(app).0 as u8, service as u8];
    let (from, to) = (
        bytes(publisher.0, publisher.1),
        bytes(subscriber.app, subscriber.service),
    );
    [MARK.as_slice(), &from, &to, effect].concat()
}

/// Counts a publication, or what follows from one, and sends it on.
pub(crate) fn serve(
    key: ShardKey,
    invocation: &Invocation,
    state: &mut State,
    channels: usize,
    ledger: &mut Ledger,
) -> Effects {
    let mut payload = invocation.payload.clone();
    if invocation.topic.is_some() {
        let subscriber = [key.app.0 as u8, key.service.0 as u8];
        payload[NUMBER_AT - 2..NUMBER_AT].copy_from_slice(&subscriber);
    }
    let counted = [&payload[..NUMBER_AT], &payload[EFFECT_AT..]].concat();
    let mut effects = Effects::default();
    if state.specs().is_empty() {
        ledger.received.insert(counted);
    } else {
        let (before, writes) = count_in_fired(invocation, state, &counted, |txn, state| {
            if invocation.topic.is_some() {
                check_order(key, (invocation, &payload), txn, state, ledger);
            }
        });
        let may_repeat =
            ledger.has_lost(publisher(&payload)) || ledger.may_repeat(&payload[EFFECT_AT..]);
        if before != 0 && !may_repeat {
            ledger.on_repeated(key, &payload);
        }
        effects.writes = writes;
    }
    if channels > 0 {
        effects.outputs.push(Output {
            channel: 0,
            key: invocation.key.clone(),
            payload,
        });
    } else {
        effects.reply = Some(Reply {
            status: 0,
            payload: payload[..TAG_LEN].to_vec(),
        });
    }
    effects
}

/// Checks that a publication comes after those of its key that were published before it.
fn check_order(
    key: ShardKey,
    (invocation, payload): (&Invocation, &[u8]),
    txn: &mut Txn,
    state: &State,
    ledger: &mut Ledger,
) {
    let topic = &payload[..NUMBER_AT];
    let place = [topic, b"received", &invocation.key].concat();
    let last = number_at(txn, state, &place);
    let number: [u8; 8] = payload[NUMBER_AT..EFFECT_AT].try_into().expect("8 bytes");
    let number = u64::from_le_bytes(number);
    let is_handled_again = ledger.on_in_order(
        key,
        invocation.slot,
        [&place[..], &number.to_le_bytes()].concat(),
    );
    if number <= last && !ledger.has_lost(publisher(payload)) && !is_handled_again {
        let of = &invocation.key;
        ledger.violation(format!(
            "{key}: publication {number} of key {of:?} comes after {last}"
        ));
    }
    set_number(txn, state, &place, number);
}

/// The service that published.
fn publisher(payload: &[u8]) -> (e3_model::AppId, ServiceId) {
    let at = MARK.len();
    let (app, service) = (u16::from(payload[at]), u16::from(payload[at + 1]));
    (e3_model::AppId(app), ServiceId(service))
}

fn number_at(txn: &Txn, state: &State, key: &[u8]) -> u64 {
    let bytes = txn.get(state, FILL, key).expect("it is a map");
    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

fn set_number(txn: &mut Txn, state: &State, key: &[u8], number: u64) {
    let put = txn.put(state, FILL, key, &number.to_le_bytes());
    put.expect("it is a map");
}

impl TopicShape {
    /// Whether something is published for an effect at the publisher.
    pub(crate) fn is_published(&self, effect: &[u8]) -> bool {
        is_published(self.every, effect)
    }
}
