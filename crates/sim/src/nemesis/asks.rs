//! What must be true of outbound requests after healing: each has one answer, and what was asked has
//! taken effect once if the answer says so, and at most once otherwise.

use super::Run;
use crate::asks::{OUTCOMES, answered_key, payload};
use crate::layout::FIRED;
use crate::scenario::{AskShape, AskTarget, Place, app_id};
use e3_collections::State;
use e3_model::Outcome;
use e3_model::{ServiceId, ShardKey, Timestamp};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A request with so much time is answered in time when everything works.
const LONG_MS: u64 = 8_000;
/// An application that admits no more may refuse a request again and again.
pub(super) const ADMITTED_FEW: u32 = 20;

/// By shard: the state of its primary.
pub(super) type States = BTreeMap<ShardKey, Rc<RefCell<State>>>;

/// A message that caused an outbound request.
pub(super) struct Asking<'a> {
    pub(super) app: usize,
    pub(super) place: &'a Place,
    pub(super) effect: &'a [u8],
    pub(super) sent: Timestamp,
    /// Effects of the message that are there.
    pub(super) count: i64,
    /// It may have been handled before by a shard whose state was lost.
    pub(super) may_repeat: bool,
}

impl Run<'_> {
    /// Checks what came of the outbound request of a message. `witnessed` counts the keys by which that
    /// is known.
    pub(super) fn check_ask(
        &self,
        states: &States,
        asking: &Asking<'_>,
        witnessed: &mut BTreeMap<ShardKey, usize>,
    ) -> Option<String> {
        let Asking {
            app,
            place,
            effect,
            count,
            ..
        } = *asking;
        let ask = self.scenario.ask_of(app, place.service)?;
        let key = |outcome: &Outcome| answered_key(effect, *outcome);
        let answered = |outcome| sum(states, app, place.service, &key(outcome), witnessed);
        let by_outcome: Vec<i64> = OUTCOMES.iter().map(answered).collect();
        let answers: i64 = by_outcome.iter().sum();
        let service = &self.scenario.apps[app].services[usize::from(place.service.0)];
        let can_fail = self.scenario.fails(app, service);
        let expected = count.min(1);
        let most = if self.cluster.ledger.may_repeat(effect) {
            count
        } else {
            expected
        };
        if answers > most || (answers < expected && !can_fail) {
            return Some(format!(
                "the outbound request of {effect:?} at {:?} of application {app} has {answers} answers, must have {expected}",
                place.service
            ));
        }
        let is_done = by_outcome[0] == 1;
        let is_late = asking.sent >= self.whole_at;
        if !is_done && expected == 1 && !can_fail && is_late && self.must_be_done(ask) {
            return Some(format!(
                "the outbound request of {effect:?} at {:?} of application {app} is not done, although everything works",
                place.service
            ));
        }
        self.check_asked(states, asking, ask, is_done, witnessed)
    }

    /// Whether a request of this shape is always done when everything works: it has time, whoever is asked
    /// exists, does not fail, and has room.
    fn must_be_done(&self, ask: &AskShape) -> bool {
        let on_way = self.scenario.asked_by(ask);
        let never_refuses = |(app, service): &(usize, ServiceId)| {
            let shape = &self.scenario.apps[*app];
            let service = &shape.services[usize::from(service.0)];
            shape.admitted_max > ADMITTED_FEW && !self.scenario.fails(*app, service)
        };
        let has_receiver = ask.to == AskTarget::Http || !on_way.is_empty();
        ask.deadline_ms >= LONG_MS && has_receiver && on_way.iter().all(never_refuses)
    }

    /// Checks the effects at those who were asked.
    fn check_asked(
        &self,
        states: &States,
        asking: &Asking<'_>,
        ask: &AskShape,
        is_done: bool,
        witnessed: &mut BTreeMap<ShardKey, usize>,
    ) -> Option<String> {
        let Asking {
            app, place, effect, ..
        } = *asking;
        if ask.to == AskTarget::Http {
            let keys = self.cluster.http.effects(app, place.service, effect);
            let may_repeat = asking.may_repeat || self.has_copy(app);
            let is_wrong = (is_done && keys == 0) || (keys > 1 && !may_repeat);
            return is_wrong
                .then(|| format!("{effect:?} was asked over HTTP under {keys} idempotency keys"));
        }
        let asker = ShardKey {
            app: app_id(app),
            service: place.service,
            shard: e3_model::ShardId(0),
        };
        let asked = payload(asker, effect);
        let on_way = self.scenario.asked_by(ask);
        if on_way.is_empty() {
            return is_done.then(|| format!("{effect:?} has an answer of no service"));
        }
        let forfeited = |(app, service): &(usize, ServiceId)| {
            let mut lost = self.cluster.ledger.forfeited.iter();
            lost.any(|((shard, _), at)| {
                (shard.app, shard.service) == (app_id(*app), *service) && asking.sent <= *at
            })
        };
        // An application that began with a backup asks again what it handles again.
        let others = ask.to != AskTarget::Service(on_way[0].1.0.into());
        let is_asked_by_copy = others && self.has_copy(app);
        let is_forfeited = on_way.iter().any(forfeited) || asking.may_repeat || is_asked_by_copy;
        for (app, service) in on_way {
            if !self.scenario.apps[app].services[usize::from(service.0)].stateful {
                continue;
            }
            let effects = sum(states, app, service, &asked, witnessed);
            let is_wrong = match effects {
                0 => is_done,
                1 => false,
                _ => true,
            };
            if is_wrong && !is_forfeited {
                return Some(format!(
                    "what {effect:?} of application {} asked has {effects} effects at service {service:?} of application {app}, done: {is_done}",
                    asking.app
                ));
            }
        }
        None
    }
}

/// The value of a counter over all shards of a service.
pub(super) fn sum(
    states: &States,
    app: usize,
    service: ServiceId,
    key: &[u8],
    witnessed: &mut BTreeMap<ShardKey, usize>,
) -> i64 {
    let of_service = states
        .iter()
        .filter(|(shard, _)| (shard.app, shard.service) == (app_id(app), service));
    let mut sum = 0;
    for (shard, state) in of_service {
        let there = state.borrow().counter_get(FIRED, key);
        *witnessed.entry(*shard).or_default() += usize::from(there != 0);
        sum += there;
    }
    sum
}
