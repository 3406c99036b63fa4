//! The rate of each application, measured over one interval after another.
//!
//! Nodes report what clients have asked of them. Requests that come another way (topics, timers, other
//! services) show in what the services handle: if that is more than the clients' requests explain, it
//! counts as a rate of clients that would cause it.

use crate::limits::FOLLOW_RATES;
use crate::state::{AppState, Control};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardKey, Timestamp};
use e3_placement::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What is measured of the rates of applications.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// By node: what its last report says.
    nodes: BTreeMap<NodeId, Asked>,
    /// Begin of the interval.
    begun: Option<Timestamp>,
    /// The interval is not the first: all nodes have reported before it began.
    is_whole: bool,
    /// In the interval: requests of clients.
    requests: BTreeMap<AppId, u64>,
    /// In the interval: requests that services handled.
    handled: BTreeMap<(AppId, ServiceId), u64>,
    /// The rates in the last intervals, the oldest first.
    last: BTreeMap<AppId, VecDeque<f64>>,
}

/// What clients have asked of a node since its process started.
#[derive(Debug)]
struct Asked {
    incarnation: u32,
    counts: BTreeMap<AppId, u64>,
}

/// The rate that an application is to be placed for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// The highest of the last intervals.
    pub(super) rps: f64,
    /// There were enough intervals to know that it has not been higher lately.
    pub(super) is_settled: bool,
}

impl Rates {
    pub(super) fn on_ingress(
        &mut self,
        node: NodeId,
        incarnation: u32,
        counts: BTreeMap<AppId, u64>,
    ) {
        if let Some(before) = self.nodes.get(&node) {
            if incarnation < before.incarnation {
                return;
            }
            let is_same = incarnation == before.incarnation;
            for (app, count) in &counts {
                let base = before.counts.get(app).filter(|_| is_same);
                let more = count.saturating_sub(base.copied().unwrap_or(0));
                *self.requests.entry(*app).or_default() += more;
            }
        }
        let asked = Asked {
            incarnation,
            counts,
        };
        self.nodes.insert(node, asked);
    }

    pub(super) fn on_handled(&mut self, handled: impl Iterator<Item = (ShardKey, u64)>) {
        for (key, count) in handled {
            *self.handled.entry((key.app, key.service)).or_default() += count;
        }
    }

    /// Whether the interval is over.
    pub(super) fn is_over(&self, now: Timestamp, interval: Nanos) -> bool {
        self.begun.is_none_or(|begun| now.since(begun) >= interval)
    }

    /// Ends the interval. `is_known` says whether a node has reported lately; without the reports of all
    /// nodes that matter the rate of an application is not known.
    pub(super) fn close(
        &mut self,
        now: Timestamp,
        control: &Control,
        is_known: impl Fn(NodeId) -> bool,
    ) {
        let requests = std::mem::take(&mut self.requests);
        let handled = std::mem::take(&mut self.handled);
        let was_whole = std::mem::replace(&mut self.is_whole, self.begun.is_some());
        let begun = self.begun.replace(now).unwrap_or(now);
        let span_s = now.since(begun).as_secs_f64();
        let is_missing = |node: NodeId| control.is_up(node) && !is_known(node);
        let missing = self.nodes.iter().filter(|(node, _)| is_missing(**node));
        let unknown: BTreeSet<AppId> = missing
            .flat_map(|(_, asked)| asked.counts.keys().copied())
            .collect();
        let mut before = std::mem::take(&mut self.last);
        if !was_whole || span_s <= 0.0 {
            return;
        }
        for (id, app) in &control.apps {
            let mut primaries = app.plan.shards.iter().map(|s| s.primary);
            if unknown.contains(id) || primaries.any(is_missing) {
                continue;
            }
            let asked = requests.get(id).copied().unwrap_or(0);
            let of = |service| handled.get(&(*id, service)).copied().unwrap_or(0);
            let rate = requests_of(app, asked, of) / span_s;
            let mut last = before.remove(id).unwrap_or_default();
            last.push_back(rate);
            if last.len() > FOLLOW_RATES {
                last.pop_front();
            }
            self.last.insert(*id, last);
        }
    }

    /// The rate of an application, if it is known.
    pub(super) fn of(&self, app: AppId) -> Option<Rate> {
        let last = self.last.get(&app)?;
        Some(Rate {
            rps: last.iter().copied().fold(0.0, f64::max),
            is_settled: last.len() >= FOLLOW_RATES,
        })
    }
}

/// The clients' requests that explain what the services of an application handled: at least those that
/// there were.
fn requests_of(app: &AppState, asked: u64, handled: impl Fn(ServiceId) -> u64) -> f64 {
    let request = Request::new(&app.plan.app, &app.profiles);
    let of = |service| match request.visits(service) {
        visits if visits > 0.0 => handled(service) as f64 / visits,
        _ => 0.0,
    };
    request.services().map(of).fold(asked as f64, f64::max)
}
