//! Services as stubs: what a handler writes and sends. Its time is that of a hardware thread.

use crate::limits::WRITE_BYTES_MAX;
use e3_collections::limits::EXPIRED_LEN_MAX;
use e3_collections::{State, Txn, WriteBatch};
use e3_invocation::{Effects, Invocation, Output, Reply};
use e3_model::application::CollectionKind;
use e3_model::{MessageId, ServiceId};
use e3_perfsim::Input;
use e3_random::Random;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Messages that a handled message puts on a channel, on average.
#[derive(Clone, Copy, Debug)]
struct Channel {
    whole: u32,
    part: f64,
}

/// A service.
#[derive(Clone, Debug)]
pub(crate) struct Stub {
    channels: Vec<Channel>,
    /// The collection that it writes to, if it has one that it can.
    collection: Option<(u16, CollectionKind)>,
    write_bytes: usize,
}

impl Stub {
    /// The service of an application; a service with several parents gets from each in proportion to the
    /// parents' visits.
    pub fn new(input: &Input<'_>, id: ServiceId) -> Stub {
        let visits = |name: &str| {
            let found = input.app.service_named(name);
            found.map_or(0.0, |(id, _)| input.visits[usize::from(id.0)])
        };
        let channel = |to: ServiceId| {
            let name = &input.app.service(to).name;
            let parents = input.app.spec.channels.iter().filter(|c| c.to == *name);
            let all: f64 = parents.map(|c| visits(&c.from)).sum();
            let mean = if all > 0.0 { visits(name) / all } else { 0.0 };
            Channel {
                whole: mean as u32,
                part: mean.fract(),
            }
        };
        let service = input.app.service(id);
        let mut collections = (0u16..).zip(&service.collections);
        let collection = collections.find(|(_, c)| c.kind != CollectionKind::Array);
        let profile = input.profiles.get(service.profile());
        let write_bytes = profile.map_or(0, |p| p.spec.write_bytes as usize);
        Stub {
            channels: input
                .app
                .channels_from(id)
                .map(|(_, to, _)| channel(to))
                .collect(),
            collection: collection
                .filter(|_| service.stateful)
                .map(|(at, c)| (at, c.kind)),
            write_bytes: write_bytes.min(WRITE_BYTES_MAX),
        }
    }

    /// Runs it. It sends no answer yet. What it sends follows from `seed` and the message.
    pub fn handle(&self, invocation: &Invocation, state: &mut State, seed: u64) -> Effects {
        let mut random = random(seed, &invocation.id);
        let mut outputs = Vec::new();
        for (at, channel) in self.channels.iter().enumerate() {
            let more = channel.part > 0.0 && random.unit() < channel.part;
            for _ in 0..channel.whole + u32::from(more) {
                outputs.push(Output {
                    channel: at as u16,
                    key: invocation.key.clone(),
                    payload: invocation.payload.clone(),
                });
            }
        }
        Effects {
            writes: self.write(invocation, state),
            outputs,
            reply: None,
            timers: Vec::new(),
        }
    }

    /// One item for each slot, so that the state does not grow with the run.
    fn write(&self, invocation: &Invocation, state: &mut State) -> WriteBatch {
        let Some((collection, kind)) = self.collection else {
            return WriteBatch::default();
        };
        let mut txn = Txn::new();
        txn.begin(invocation.slot.0);
        state.advance(invocation.now);
        let key = &invocation.key;
        let written = match kind {
            CollectionKind::Counter => txn.counter_add(state, collection, key, 1).map(|_| ()),
            _ => txn.put(state, collection, key, &vec![7; self.write_bytes]),
        };
        written.expect("the collection is of this kind");
        let mut writes = txn.finish();
        let slot = invocation.slot.0;
        let made = state.commit(&mut writes, slot, u64::MAX, EXPIRED_LEN_MAX);
        made.expect("made against this state");
        writes
    }
}

fn random(seed: u64, id: &MessageId) -> Random {
    let mut hasher = DefaultHasher::new();
    (seed, id).hash(&mut hasher);
    Random::new(hasher.finish())
}

/// The answer of the run that ends a request.
pub(crate) fn answer(invocation: &Invocation) -> Reply {
    Reply {
        status: 0,
        payload: invocation.payload.clone(),
    }
}
