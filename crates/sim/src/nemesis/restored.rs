//! What must be true of an application that began with a backup. It handles no requests of its own, so
//! its state follows from those of the application that was backed up: what was answered before the cut is
//! in it, what was sent after is not, and of what was in flight either everything or nothing.

use super::Run;
use super::asks::States;
use super::taken::Taken;
use crate::client::Client;
use crate::layout::FIRED;
use crate::ledger::Reach;
use crate::scenario::{Place, app_id};
use e3_model::{AppId, ShardKey, Timestamp};
use e3_wire::entry::Outcome;
use std::collections::BTreeMap;

/// An application that began with a backup.
struct Copy<'a> {
    taken: &'a Taken,
    states: &'a States,
    /// The places of the copy, and of the application that was backed up.
    reach: Reach,
    origin: Reach,
    /// When everything has recovered from what happened before the cut.
    recovered_by: Timestamp,
}

impl Run<'_> {
    /// Restores what was backed up, checks all copies, and deletes them.
    pub(super) fn check_backups(&mut self) {
        self.restore_rest();
        if self.copies().is_empty() {
            return;
        }
        self.let_settle(self.cluster.now + self.recovery() + self.scenario.refused_time());
        self.check_settled();
        self.wait_for_timers();
        self.let_ticks_pass();
        for (id, taken) in self.copies() {
            self.check_copy(id, &taken);
        }
        self.check_copies();
        self.backups.checked += self.copies().len() as u64;
        self.delete_copies();
        self.wait(super::START);
    }

    fn check_copy(&mut self, id: AppId, taken: &Taken) {
        let states = self.states();
        let states: States = states.into_iter().filter(|(k, _)| k.app == id).collect();
        let apps = &self.controller.control.apps;
        let of = |id| Reach::new(self.scenario, taken.app, &apps[&id].plan);
        let copy = Copy {
            taken,
            states: &states,
            reach: of(id),
            origin: of(app_id(taken.app)),
            recovered_by: taken.cut_at + self.recovery(),
        };
        let mut counted: BTreeMap<ShardKey, usize> = BTreeMap::new();
        let mut wrong = Vec::new();
        for client in &self.cluster.clients {
            if client.app() == app_id(taken.app) {
                for number in 1..=client.history.len() as u64 {
                    let found = self.check_copy_of(&copy, client, number, &mut counted);
                    wrong.extend(found.map(|what| {
                        format!(
                            "{id}, restored: request {number} of client {} {what}",
                            client.id
                        )
                    }));
                }
            }
        }
        for (key, state) in &states {
            let there = state.borrow().len(0);
            let known = counted.get(key).copied().unwrap_or(0);
            if there != known {
                wrong.push(format!(
                    "{key}, restored: {there} effects, of which requests account for {known}"
                ));
            }
        }
        for what in wrong {
            self.violation(what);
        }
    }

    /// Checks the effects of a request in a copy; what is wrong with them.
    fn check_copy_of(
        &self,
        copy: &Copy<'_>,
        client: &Client,
        number: u64,
        counted: &mut BTreeMap<ShardKey, usize>,
    ) -> Option<String> {
        let Copy { taken, reach, .. } = copy;
        let request = &client.history[number as usize - 1];
        let tag = client.tag(number);
        let count = |place: &Place| {
            let effect = [tag.as_slice(), &place.path].concat();
            let shards = reach.shards(place, &request.key).into_iter();
            let states =
                shards.filter_map(|shard| Some((shard, copy.states.get(&shard)?.borrow())));
            states.fold((0, 0, None), |(count, fired, at), (shard, state)| {
                let there = state.counter_get(0, &effect);
                let at = at.or((there != 0).then_some(shard));
                (count + there, fired + state.counter_get(FIRED, &effect), at)
            })
        };
        let counts: Vec<(i64, i64, Option<ShardKey>)> = reach.places.iter().map(count).collect();
        for (_, _, at) in &counts {
            if let Some(shard) = at {
                *counted.entry(*shard).or_default() += 1;
            }
        }
        let outcome = client.outcomes.get(&number).map(|r| r.outcome);
        let is_done = |by: Timestamp| {
            outcome == Some(Outcome::Done) && request.done.is_some_and(|done| done < by)
        };
        let lasts =
            !client.is_keyed() && request.deadline > copy.recovered_by && !self.is_replayed(&tag);
        for (at, place) in reach.places.iter().enumerate() {
            let (count, fired, _) = counts[at];
            let path = &place.path;
            let is_lost = self.may_be_lost(reach, place, request)
                || self.may_be_lost(&copy.origin, place, request);
            let parent = reach.before(at);
            let before = parent.map_or(0, |p| counts[p].0);
            let is_certain = is_done(taken.froze_at) && place.is_main;
            let follows = before == 1 && lasts && !reach.can_fail_after[at];
            let shape = &self.scenario.apps[taken.app].services[usize::from(place.service.0)];
            let timers = if shape.timer_ms > 0 { count } else { 0 };
            let effect = [tag.as_slice(), path].concat();
            let may_repeat = count > 1 && self.cluster.ledger.may_repeat(&effect);
            let may_miss = may_repeat || self.scenario.fails(taken.app, shape);
            if count > 1 && !may_repeat {
                return Some(format!("has {count} effects at {path:?}"));
            }
            if count == 1 && request.sent > taken.cut_at {
                return Some(format!(
                    "was sent after the cut, and has an effect at {path:?}"
                ));
            }
            if count == 0 && (is_certain || follows) && !is_lost {
                return Some(format!(
                    "has no effect at {path:?}; {outcome:?} before the cut: {is_certain}, at the place before: {before}"
                ));
            }
            if count == 1 && parent.is_some() && before == 0 && !is_lost {
                return Some(format!(
                    "has an effect at {path:?}, and none at the place before"
                ));
            }
            if fired > timers || (fired < timers && !may_miss) {
                return Some(format!("has a timer at {path:?} that fired {fired} times"));
            }
        }
        None
    }
}
