//! Timers of services: requests of a service to itself at a later time.
//!
//! A timer is named by its name and its key, which decides its slot. Setting the same one again
//! replaces it.

use crate::cron::Cron;
use crate::ids::{AppId, RequestId, ServiceId, Slot};
use crate::outbound::Outbound;
use crate::time::Timestamp;
use crate::topic::Publication;

/// When a timer fires.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// Once.
    At(Timestamp),
    /// Repeatedly.
    Cron(Cron),
    /// Once, when the answer to an outbound request has come, or does not come in time.
    Answered(Box<Outbound>),
    /// Never: a publication, kept until all subscribers have confirmed it.
    Published(Box<Publication>),
}

impl When {
    /// Bytes of what it holds.
    pub fn bytes(&self) -> usize {
        match self {
            When::At(_) => 0,
            When::Cron(cron) => cron.as_str().len(),
            When::Answered(outbound) => outbound.bytes(),
            When::Published(publication) => publication.bytes(),
        }
    }

    /// The first time, if it is set at `now`; none if there is none.
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            When::At(at) => Some(*at),
            When::Cron(cron) => cron.next(now),
            When::Answered(outbound) => Some(outbound.deadline),
            When::Published(_) => Some(Timestamp::MAX),
        }
    }

    /// The time after it has fired at `now`; none if it fires no more. Times that were missed are
    /// left out.
    pub fn after(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            When::At(_) | When::Answered(_) | When::Published(_) => None,
            When::Cron(cron) => cron.next(now),
        }
    }
}

/// What a handler does to a timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimerChange {
    /// Of the timer; at most [`crate::limits::TIMER_NAME_LEN_MAX`] bytes. Empty for a publication, which
    /// replaces none.
    pub name: String,
    /// Its key.
    pub key: Vec<u8>,
    /// What it is set to; none if it is cancelled.
    pub set: Option<TimerSet>,
}

/// What a timer is set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimerSet {
    /// When it fires.
    pub when: When,
    /// Payload of its request.
    pub payload: Vec<u8>,
}

impl TimerChange {
    /// Bytes of what it holds.
    pub fn bytes(&self) -> usize {
        let set = self.set.as_ref();
        let set = set.map_or(0, |set| set.when.bytes() + set.payload.len());
        self.name.len() + self.key.len() + set
    }
}

/// Identity of a timer's request: the same whichever primary makes it, and however the shards of the
/// service are split. `set_at`: the time of the log entry that set the timer, or in which it was last
/// handled; `seq`: its number among all timers of that log.
pub fn request(
    (app, service, slot): (AppId, ServiceId, Slot),
    set_at: Timestamp,
    seq: u64,
) -> RequestId {
    let place = u64::from(app.0) << 32 | u64::from(service.0) << 16 | u64::from(slot.0);
    // Clients draw their numbers at random: one of these is as unlikely to be among them.
    let client = mix(mix(place ^ 0x7469_6d65_7200_0000) ^ set_at.0);
    RequestId { client, seq }
}

/// Identity under which the outbound request of a timer is made, given that of the timer's own request.
/// Each has a client of its own, as a request with an idempotency key has.
pub fn outbound_request(timer: RequestId) -> RequestId {
    let client = mix(timer.client ^ mix(timer.seq ^ 0x6f75_7462_6f75_6e64));
    let seq = mix(client ^ timer.seq).max(1);
    RequestId { client, seq }
}

/// Identity under which a subscriber gets a publication, given that of the publication's timer: each
/// subscriber's copy has its own.
pub fn publication_request(timer: RequestId, (app, service): (AppId, ServiceId)) -> RequestId {
    let subscriber = u64::from(app.0) << 16 | u64::from(service.0);
    let client = mix(mix(timer.client ^ 0x746f_7069_6300_0000) ^ mix(subscriber) ^ timer.seq);
    let seq = mix(client ^ subscriber).max(1);
    RequestId { client, seq }
}

/// A permutation whose result depends on each bit alike (the finalizer of SplitMix64).
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_timers_have_the_same_request() {
        let (mut requests, mut clients) = (BTreeSet::new(), BTreeSet::new());
        for app in 0..3 {
            for service in 0..3 {
                for slot in 0..20 {
                    for at in 0..20 {
                        let place = (AppId(app), ServiceId(service), Slot(slot));
                        for seq in [1, 2] {
                            let timer = request(place, Timestamp(at), seq);
                            assert!(requests.insert(timer));
                            assert!(requests.insert(outbound_request(timer)));
                            assert!(clients.insert(outbound_request(timer).client));
                            for to in [(AppId(1), ServiceId(0)), (AppId(0), ServiceId(1))] {
                                let copy = publication_request(timer, to);
                                assert!(requests.insert(copy));
                                assert!(clients.insert(copy.client));
                            }
                        }
                    }
                }
            }
        }
    }
}
