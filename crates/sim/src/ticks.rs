//! Timers of the simulated services that repeat each minute. One is set for a key when its first message is
//! handled; the collection says when that was, and in which minutes the timer fired since.

use crate::ledger::Ledger;
use e3_collections::{State, Txn};
use e3_invocation::{Effects, Invocation};
use e3_model::cron::Cron;
use e3_model::timer::{TimerChange, TimerSet, When};
use e3_model::{Nanos, ShardKey, Timestamp};

/// Name of these timers.
pub(crate) const NAME: &str = "tick";
/// Between two times at which they fire.
pub(crate) const INTERVAL: Nanos = Nanos::from_secs(60);
/// Keys of one slot in this many have one, so that a minute does not begin with a rush.
const SLOT_ONE_IN: u16 = 2;

/// What a collection says of a key's timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ticks {
    /// When it was set.
    pub(crate) set_at: Timestamp,
    /// The minutes in which it fired.
    pub(crate) fired: Vec<u64>,
}

/// Timers, by key.
pub(crate) type ByKey = Vec<(Vec<u8>, Ticks)>;

impl Ticks {
    fn decode(bytes: &[u8]) -> Ticks {
        let numbers = bytes.as_chunks().0.iter().copied();
        let mut numbers = numbers.map(u64::from_le_bytes);
        Ticks {
            set_at: Timestamp(numbers.next().unwrap_or_default()),
            fired: numbers.collect(),
        }
    }

    /// The key's timer, of all keys.
    pub(crate) fn all(state: &State, collection: u16) -> ByKey {
        let (mut txn, mut all) = (Txn::new(), Vec::new());
        let visit = |key: &[u8], bytes: &[u8]| {
            all.push((key.to_vec(), Ticks::decode(bytes)));
            true
        };
        txn.scan(state, collection, b"", b"", false, visit)
            .expect("it is an ordered map");
        all
    }
}

/// The collection of these timers; behind those of a service whose keys expire, if they do.
pub(crate) fn collection(has_ttl: bool) -> u16 {
    if has_ttl { 5 } else { 3 }
}

/// The minute of a time.
pub(crate) fn minute(at: Timestamp) -> u64 {
    at.0 / INTERVAL.0
}

/// Sets the timer of a message's key, unless it is set.
pub(crate) fn set(
    txn: &mut Txn,
    state: &State,
    collection: u16,
    invocation: &Invocation,
) -> Option<TimerChange> {
    let key = &invocation.key;
    let known = txn.get(state, collection, key).expect("it is a map");
    if known.is_some() || !invocation.slot.0.is_multiple_of(SLOT_ONE_IN) {
        return None;
    }
    let set_at = invocation.now.0.to_le_bytes();
    txn.put(state, collection, key, &set_at)
        .expect("it is a map");
    let each_minute = "* * * * *".parse::<Cron>();
    Some(TimerChange {
        name: NAME.into(),
        key: key.clone(),
        set: Some(TimerSet {
            when: When::Cron(each_minute.expect("it is an expression")),
            payload: Vec::new(),
        }),
    })
}

/// Notes that the timer of a key fires, which it does at most once in a minute.
pub(crate) fn on_fired(
    shard: ShardKey,
    collection: u16,
    invocation: &Invocation,
    state: &mut State,
    ledger: &mut Ledger,
) -> Effects {
    let (key, now) = (&invocation.key, invocation.now);
    let mut txn = Txn::new();
    txn.begin(invocation.slot.0);
    let known = txn.get(state, collection, key).expect("it is a map");
    let mut bytes = known.map(|bytes| bytes.to_vec()).unwrap_or_default();
    let ticks = Ticks::decode(&bytes);
    let minute = minute(now);
    ledger.on_fired(shard, Timestamp(minute * INTERVAL.0), now);
    if bytes.is_empty() || ticks.fired.last().is_some_and(|last| minute <= *last) {
        ledger.violation(format!(
            "{shard}: the repeating timer of key {key:?} fires in minute {minute} after {ticks:?}"
        ));
    }
    bytes.extend(minute.to_le_bytes());
    txn.put(state, collection, key, &bytes)
        .expect("it is a map");
    let writes = txn.finish();
    state.apply(&writes).expect("made against this state");
    Effects {
        writes,
        ..Effects::default()
    }
}

/// Which time of a timer was missed: each must have been followed by a request within `within`, or after
/// `whole`, the time since which all shards are served.
pub(crate) fn missed(
    ticks: &Ticks,
    whole: Timestamp,
    within: Nanos,
    now: Timestamp,
) -> Option<u64> {
    let due = minute(ticks.set_at) + 1..;
    let mut due = due.take_while(|due| Timestamp(due * INTERVAL.0) + within <= now);
    due.find(|due| {
        let latest = minute(Timestamp(due * INTERVAL.0).max(whole) + within);
        !ticks.fired.iter().any(|at| (*due..=latest).contains(at))
    })
}
