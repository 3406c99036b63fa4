//! The effects of requests, compared with the reference model.

use crate::client::{Client, Request};
use crate::layout::FIRED;
use crate::ledger::Reach;
use crate::nemesis::Run;
use crate::nemesis::asks::Asking;
use crate::scenario::known::may_contradict;
use crate::scenario::{AppShape, Place, app_id};
use crate::topics::Published;
use e3_collections::State;
use e3_model::{ShardKey, Timestamp};
use e3_wire::entry::Outcome;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the states hold, and which requests account for it.
struct Account {
    states: BTreeMap<ShardKey, Rc<RefCell<State>>>,
    /// When the cluster has recovered: a request with a later deadline has its effects.
    recovered_by: Timestamp,
    /// By shard: effects that requests account for.
    counted: BTreeMap<ShardKey, usize>,
    /// By shard: timers, answers and publications that requests account for.
    witnessed: BTreeMap<ShardKey, usize>,
    published: Published,
    wrong: Vec<String>,
}

/// A request, and what its client knows of it.
struct Asked<'a> {
    client: &'a Client,
    number: u64,
    request: &'a Request,
    tag: [u8; 8],
    outcome: Option<Outcome>,
}

impl Account {
    fn add(of: &mut BTreeMap<ShardKey, usize>, shard: ShardKey, is_there: bool) {
        *of.entry(shard).or_default() += usize::from(is_there);
    }

    /// Compares what shards hold with what requests account for.
    fn check_totals(&mut self, apps: usize) {
        let of_apps = |key: &ShardKey| usize::from(key.app.0) <= apps;
        for (key, state) in self.states.iter().filter(|(key, _)| of_apps(key)) {
            let there = state.borrow().len(0);
            let known = self.counted.get(key).copied().unwrap_or(0);
            if there != known {
                self.wrong.push(format!(
                    "{key}: {there} effects, of which requests account for {known}"
                ));
            }
            let fired = state.borrow().len(FIRED);
            let known = self.witnessed.get(key).copied().unwrap_or(0);
            if fired != known {
                self.wrong.push(format!(
                    "{key}: {fired} timers fired, requests were asked or answered, publications received, of which clients account for {known}"
                ));
            }
        }
    }
}

impl Run<'_> {
    /// Checks that the effects of requests are those of the reference model.
    pub(in crate::nemesis) fn check_effects(&mut self) {
        let mut account = Account {
            states: self.states(),
            recovered_by: self.healed_at + self.recovery(),
            counted: BTreeMap::new(),
            witnessed: BTreeMap::new(),
            published: Published::default(),
            wrong: Vec::new(),
        };
        let reaches: Vec<Reach> = (0..self.scenario.apps.len())
            .map(|at| {
                let running = &self.controller.control.apps[&app_id(at)].plan;
                Reach::new(self.scenario, at, running)
            })
            .collect();
        for client in &self.cluster.clients {
            self.check_client(client, &reaches, &mut account);
        }
        account.check_totals(self.scenario.apps.len());
        self.check_replays(&reaches, &account.states);
        self.published = account.published;
        for what in account.wrong {
            self.violation(what);
        }
    }

    /// Checks the answers to one client, and the effects of its requests.
    fn check_client(&self, client: &Client, reaches: &[Reach], account: &mut Account) {
        let app = client.app();
        let at = usize::from(app.0) - 1;
        let (reach, shape) = (&reaches[at], &self.scenario.apps[at]);
        // A shard that begins empty no longer knows what it answered.
        let mut forfeited = self.cluster.ledger.forfeited.keys();
        let keeps_answers = !forfeited.any(|(k, _)| k.app == app);
        let is_certain = is_linear(shape) && keeps_answers && !may_contradict(shape);
        if client.contradictions > 0 && is_certain {
            account.wrong.push(format!(
                "client {}: {} answers contradict earlier ones",
                client.id, client.contradictions
            ));
        }
        for (number, request) in (1..).zip(&client.history) {
            let reply = client.outcomes.get(&number);
            let asked = Asked {
                client,
                number,
                request,
                tag: client.tag(number),
                outcome: reply.map(|r| r.outcome),
            };
            if let Some(reply) = reply
                && reply.outcome == Outcome::Done
                && reply.payload != asked.tag
            {
                account.wrong.push(format!(
                    "client {}: request {number} has the answer {:?}",
                    client.id, reply.payload
                ));
            }
            let mut counts = BTreeMap::new();
            for (place, can_fail) in reach.places.iter().zip(&reach.can_fail) {
                let count = self.check_place(&asked, reach, (place, *can_fail), at, account);
                counts.insert(place.path.as_slice(), count);
            }
            let wrong = self.check_order(&asked, reach, is_certain, &counts);
            account.wrong.extend(wrong);
            if !client.is_keyed() && request.deadline > account.recovered_by {
                let lost = self.check_followed(&asked, reach, &counts);
                account.wrong.extend(lost);
            }
        }
    }

    /// Checks the effects of one request at one place, and what follows from them.
    fn check_place(
        &self,
        asked: &Asked<'_>,
        reach: &Reach,
        (place, can_fail): (&Place, bool),
        app: usize,
        account: &mut Account,
    ) -> i64 {
        let (client, number, request) = (asked.client, asked.number, asked.request);
        let effect = [asked.tag.as_slice(), &place.path].concat();
        let shards = reach.shards(place, &request.key);
        let mut count = 0;
        for shard in &shards {
            count += self.check_shard(asked, *shard, (place, &effect), app, account);
        }
        let may_be_lost = self.may_be_lost(reach, place, request);
        let asking = Asking {
            app,
            place,
            effect: &effect,
            sent: request.sent,
            count,
            may_repeat: may_be_lost,
        };
        let Account {
            states,
            witnessed,
            published,
            wrong,
            ..
        } = account;
        wrong.extend(self.check_ask(states, &asking, witnessed));
        wrong.extend(self.check_published(states, &asking, witnessed, published));
        let is_in_time = request.deadline > account.recovered_by;
        let is_certain = asked.outcome == Some(Outcome::Done)
            && (place.is_main || !client.is_keyed() && is_in_time && !can_fail);
        let is_refused = matches!(asked.outcome, Some(Outcome::Overloaded | Outcome::Rejected));
        let is_wrong = match count {
            0 => is_certain && !may_be_lost,
            1 => {
                let refused = request.done.unwrap_or(request.deadline);
                let ledger = &self.cluster.ledger;
                is_refused && !ledger.may_forget_refusal(request.sent, refused)
            }
            _ => !self.cluster.ledger.may_repeat(&effect),
        };
        if is_wrong {
            account.wrong.push(format!(
                "client {}: request {number} of {}, {:?}, has {count} effects at {:?} in {shards:?}; sent {} ms after the beginning",
                client.id,
                app_id(app),
                asked.outcome,
                place.path,
                self.begin.until(request.sent).as_millis()
            ));
        }
        count
    }

    /// Checks that a request that has an effect at a place has one at the place before, and that one that
    /// failed or expired has none at the service that answers, the last one, where its answer is certain.
    fn check_order(
        &self,
        asked: &Asked<'_>,
        reach: &Reach,
        is_certain: bool,
        counts: &BTreeMap<&[u8], i64>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let (client, number) = (asked.client.id, asked.number);
        let is_certain = is_certain && !self.has_replayed();
        let last = reach.places.last().filter(|_| is_certain);
        let is_undone = matches!(asked.outcome, Some(Outcome::Expired | Outcome::Failed));
        if is_undone && last.is_some_and(|place| counts[place.path.as_slice()] > 0) {
            wrong.push(format!(
                "client {client}: request {number}, {:?}, has an effect at the service that answers",
                asked.outcome
            ));
        }
        for place in &reach.places {
            let path = place.path.as_slice();
            let Some((before, _)) = path.split_last_chunk::<2>() else {
                continue;
            };
            let before = reach.places.iter().find(|p| p.path == before);
            if counts[path] > 0
                && let Some(before) = before
                && counts[before.path.as_slice()] == 0
                && !self.may_be_lost(reach, before, asked.request)
            {
                wrong.push(format!(
                    "client {client}: request {number} has an effect at {path:?}, and none before"
                ));
            }
        }
        wrong
    }

    /// Checks that what had time enough also took effect where its effects were sent on to, whatever its answer.
    fn check_followed(
        &self,
        asked: &Asked<'_>,
        reach: &Reach,
        counts: &BTreeMap<&[u8], i64>,
    ) -> Vec<String> {
        if self.is_replayed(&asked.tag) {
            return Vec::new();
        }
        let count = |at: usize| counts[reach.places[at].path.as_slice()];
        let is_lost = |(at, place): &(usize, &Place)| {
            reach.before(*at).is_some_and(|before| count(before) == 1)
                && count(*at) == 0
                && !reach.can_fail_after[*at]
                && !self.may_be_lost(reach, place, asked.request)
        };
        let places = reach.places.iter().enumerate();
        let lost = places.filter(is_lost).map(|(_, place)| {
            format!(
                "client {}: request {}, {:?}, has no effect at {:?}, and one before",
                asked.client.id, asked.number, asked.outcome, place.path
            )
        });
        lost.collect()
    }

    /// The effects of a request at a shard; checks that its timer fired for each.
    fn check_shard(
        &self,
        asked: &Asked<'_>,
        shard: ShardKey,
        (place, effect): (&Place, &[u8]),
        app: usize,
        account: &mut Account,
    ) -> i64 {
        let state = account.states.get(&shard);
        let there = state.map_or(0, |s| s.borrow().counter_get(0, effect));
        let fired = state.map_or(0, |s| s.borrow().counter_get(FIRED, effect));
        Account::add(&mut account.counted, shard, there != 0);
        Account::add(&mut account.witnessed, shard, fired != 0);
        let service = &self.scenario.apps[app].services[usize::from(place.service.0)];
        let set = if service.timer_ms > 0 { there } else { 0 };
        // A repeated effect sets the timer again, which may not have fired yet.
        let may_repeat = there > 1 && self.cluster.ledger.may_repeat(effect);
        let most = if may_repeat { set } else { set.min(1) };
        let may_miss = may_repeat || self.scenario.fails(app, service);
        if fired > most || (fired < most && !may_miss) {
            account.wrong.push(format!(
                "{shard}: the timer of request {} of client {} fired {fired} times",
                asked.number, asked.client.id
            ));
        }
        there
    }

    /// Whether the effect of a request at a place was lost with a shard, or a message on the way to it.
    pub(in crate::nemesis) fn may_be_lost(
        &self,
        reach: &Reach,
        place: &Place,
        request: &Request,
    ) -> bool {
        let on_way = reach.places.iter();
        let mut on_way = on_way.filter(|p| place.path.starts_with(&p.path));
        on_way.any(|p| {
            let mut shards = reach.shards(p, &request.key).into_iter();
            shards.any(|shard| {
                let of = reach.shards_of(shard);
                self.cluster.ledger.is_forfeited(shard, of, request.sent)
            })
        })
    }
}

/// Whether a request passes through the services one after another.
fn is_linear(app: &AppShape) -> bool {
    app.places().iter().all(|p| p.is_main)
}
