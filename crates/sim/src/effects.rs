//! Effects at services that are called: what calls ask for.

use e3_model::{AppId, ServiceId};
use e3_random::Random;
use std::collections::{BTreeMap, VecDeque};

/// Effects of a service that are remembered to be asked for.
const EFFECTS_MAX: usize = 64;

/// An effect at a service: the routing key of its message, and its name.
pub(crate) type Effect = (Vec<u8>, Vec<u8>);

/// What is known of the effects at services that are called.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    by_service: BTreeMap<(AppId, ServiceId), Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// A handler made them; nobody knows whether they last.
    recent: VecDeque<Effect>,
    /// Calls have seen them.
    seen: VecDeque<Effect>,
}

fn keep(list: &mut VecDeque<Effect>, effect: Effect) {
    list.push_back(effect);
    if list.len() > EFFECTS_MAX {
        list.pop_front();
    }
}

/// One of them, mostly the last: what may be lost with a primary is new.
fn one_of(list: &VecDeque<Effect>, random: &mut Random) -> Option<Effect> {
    let back = if random.one_in(4) {
        random.index(list.len().max(1))
    } else {
        random.index(2)
    };
    list.iter().rev().nth(back).cloned()
}

impl Effects {
    /// A handler of the service makes an effect.
    pub(crate) fn on_effect(&mut self, service: (AppId, ServiceId), key: &[u8], effect: &[u8]) {
        if let Some(known) = self.by_service.get_mut(&service) {
            keep(&mut known.recent, (key.to_vec(), effect.to_vec()));
        }
    }

    /// A call has seen an effect.
    pub(crate) fn on_seen(&mut self, service: (AppId, ServiceId), effect: Effect) {
        keep(
            &mut self.by_service.entry(service).or_default().seen,
            effect,
        );
    }

    /// An effect that a handler of the service made.
    pub(crate) fn recent(
        &mut self,
        service: (AppId, ServiceId),
        random: &mut Random,
    ) -> Option<Effect> {
        one_of(&self.by_service.entry(service).or_default().recent, random)
    }

    /// An effect that a call of the service has seen.
    pub(crate) fn seen(
        &mut self,
        service: (AppId, ServiceId),
        random: &mut Random,
    ) -> Option<Effect> {
        one_of(&self.by_service.entry(service).or_default().seen, random)
    }
}
