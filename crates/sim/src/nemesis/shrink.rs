//! Shrinks a scenario that fails to one that is short to read and still fails.

use crate::scenario::Scenario;

/// The smallest failing scenario that at most `runs` runs find.
pub fn shrink(scenario: &Scenario, runs: usize, fails: impl Fn(&Scenario) -> bool) -> Scenario {
    let mut best = scenario.clone();
    let mut left = runs;
    loop {
        let before = best.clone();
        for candidate in smaller(&best) {
            if left == 0 {
                return best;
            }
            left -= 1;
            if fails(&candidate) {
                best = candidate;
                break;
            }
        }
        if best == before {
            return best;
        }
    }
}

/// Smaller variants of this scenario, the greatest cuts first.
fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let with = &mut |change: Change<'_>| {
        let mut next = scenario.clone();
        change(&mut next);
        if next != *scenario {
            all.push(next);
        }
    };
    fewer_acts(scenario, with);
    fewer_parts(scenario, with);
    lighter_load(scenario, with);
    for app in 0..scenario.apps.len() {
        simpler_app(scenario, app, with);
    }
    with(&|s| s.racks.clear());
    for at in 0..scenario.servers.len() {
        // Of the last server only: a node removed elsewhere would renumber those after it.
        if at + 1 == scenario.servers.len() && scenario.servers[at] > 0 {
            with(&|s| s.servers[at] -= 1);
        }
    }
    for at in 0..scenario.script.len() {
        with(&|s| s.script[at].for_ms /= 2);
    }
    all
}

type Change<'a> = &'a dyn Fn(&mut Scenario);
/// Notes the variant that a change makes, if it makes one.
type With<'a> = &'a mut dyn FnMut(Change<'_>);

/// Half of the faults, or all but one.
fn fewer_acts(scenario: &Scenario, with: With<'_>) {
    let acts = scenario.script.len();
    let half = acts / 2;
    if acts > 1 {
        with(&|s| s.script.truncate(half));
        with(&|s| drop(s.script.drain(..half)));
    }
    for at in (0..acts).rev() {
        with(&|s| drop(s.script.remove(at)));
    }
}

/// All but one application, question, topic, subscriber or client.
fn fewer_parts(scenario: &Scenario, with: With<'_>) {
    if scenario.apps.len() > 1 {
        for at in 0..scenario.apps.len() {
            with(&|s| without_app(s, at));
        }
    }
    for at in 0..scenario.asks.len() {
        with(&|s| {
            s.asks.remove(at);
        });
    }
    for at in 0..scenario.topics.len() {
        with(&|s| {
            s.topics.remove(at);
        });
        for subscriber in 0..scenario.topics[at].subscribers.len() {
            with(&|s| {
                s.topics[at].subscribers.remove(subscriber);
            });
        }
    }
    if scenario.clients.len() > 1 {
        for at in 0..scenario.clients.len() {
            with(&|s| {
                s.clients.remove(at);
            });
        }
    }
}

/// Less time, fewer and more uniform requests, exact clocks, a good network.
fn lighter_load(scenario: &Scenario, with: With<'_>) {
    let last_ms = scenario.script.iter().map(|a| a.end_ms()).max();
    with(&|s| s.faults_ms = s.faults_ms.min(last_ms.unwrap_or(0) + 1_000));
    with(&|s| {
        s.clients
            .iter_mut()
            .for_each(|c| c.requests = c.requests.div_ceil(2))
    });
    with(&|s| s.clients.iter_mut().for_each(|c| c.keys = 1));
    with(&|s| s.clients.iter_mut().for_each(|c| c.burst = 1));
    with(&|s| {
        s.clients
            .iter_mut()
            .for_each(|c| (c.vanishes_ms, c.offset_ms) = (None, 0))
    });
    with(&|s| s.clocks.iter_mut().for_each(|c| *c = Default::default()));
    with(&|s| s.network = crate::scenario::Wire::GOOD);
}

/// An application with one service less, or services that do less.
fn simpler_app(scenario: &Scenario, app: usize, with: With<'_>) {
    let services = scenario.apps[app].services.len();
    if services > 1 {
        with(&|s| without_last_service(s, app));
    }
    for at in 0..services {
        with(&|s| s.apps[app].services[at].shards = 1);
        with(&|s| s.apps[app].services[at].fails_permille = 0);
        with(&|s| s.apps[app].services[at].service_us = 5);
        with(&|s| s.apps[app].services[at].state_bytes = 0);
        with(&|s| s.apps[app].services[at].ttl_ms = 0);
        with(&|s| s.apps[app].services[at].timer_ms = 0);
        with(&|s| s.apps[app].services[at].ticks = false);
        with(&|s| without_calls(s, app, at));
    }
    with(&|s| s.apps[app].channels.iter_mut().for_each(|c| c.messages = 1));
}

/// A service without calls, unless another one is reached by these alone.
fn without_calls(scenario: &mut Scenario, app: usize, at: usize) {
    let shape = &mut scenario.apps[app];
    let called = shape.services[at].calls;
    if called.is_none_or(|called| shape.channels.iter().any(|c| c.to == called)) {
        shape.services[at].calls = None;
    }
}

fn without_app(scenario: &mut Scenario, at: usize) {
    scenario.apps.remove(at);
    scenario.clients.retain(|c| c.app != at);
    scenario.asks.retain(|ask| ask.app != at);
    for ask in &mut scenario.asks {
        ask.app -= usize::from(ask.app > at);
    }
    scenario.remove_topics_of_app(at);
    for client in &mut scenario.clients {
        client.app -= usize::from(client.app > at);
    }
    scenario
        .script
        .retain_mut(|act| act.fault.app_mut().is_none_or(|app| *app != at));
    for act in &mut scenario.script {
        if let Some(app) = act.fault.app_mut() {
            *app -= usize::from(*app > at);
        }
    }
}

fn without_last_service(scenario: &mut Scenario, app: usize) {
    let shape = &mut scenario.apps[app];
    shape.services.pop();
    let count = shape.services.len();
    scenario
        .asks
        .retain(|ask| ask.app != app || ask.service < count);
    shape.channels.retain(|c| c.to < count && c.from < count);
    for service in &mut shape.services {
        service.calls.take_if(|called| *called >= count);
    }
    if shape.services.iter().all(|s| !s.stateful) {
        shape.services[count - 1].stateful = true;
    }
    scenario.remove_topics_from(app, count);
}
