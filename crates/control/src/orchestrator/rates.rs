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
    nodes: BTreeMap<NodeId, Counted>,
    /// Begin of the interval.
    begun: Option<Timestamp>,
    /// The interval is not the first: all nodes have reported before it began.
    is_whole: bool,
    /// The rates in the last intervals, the oldest first.
    last: BTreeMap<AppId, VecDeque<f64>>,
}

/// What a node has reported in the interval. Its reports do not begin and end with the interval, so the time
/// between them counts, not the interval.
#[derive(Debug, Default)]
struct Counted {
    incarnation: u32,
    /// The last report.
    at: Timestamp,
    /// What clients have asked since its process started.
    counts: BTreeMap<AppId, u64>,
    /// Requests of clients.
    requests: BTreeMap<AppId, u64>,
    /// Time in which they came.
    requests_span: Nanos,
    /// Requests that services handled.
    handled: BTreeMap<(AppId, ServiceId), u64>,
    /// Time in which they did.
    handled_span: Nanos,
}

impl Counted {
    /// Ends the interval: the rates of clients' requests and of handled requests are added.
    fn close(&mut self, asked: &mut BTreeMap<AppId, f64>, handled: &mut Handled) {
        let requests = std::mem::take(&mut self.requests);
        let span_s = std::mem::take(&mut self.requests_span).as_secs_f64();
        for (app, count) in requests.into_iter().filter(|_| span_s > 0.0) {
            *asked.entry(app).or_default() += count as f64 / span_s;
        }
        let all = std::mem::take(&mut self.handled);
        let span_s = std::mem::take(&mut self.handled_span).as_secs_f64();
        for (of, count) in all.into_iter().filter(|_| span_s > 0.0) {
            *handled.entry(of).or_default() += count as f64 / span_s;
        }
    }
}

/// Handled requests per second, by service.
type Handled = BTreeMap<(AppId, ServiceId), f64>;

/// The rate that an application is to be placed for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// The highest of the last intervals.
    pub(super) rps: f64,
    /// There were enough intervals to know that it has not been higher lately.
    pub(super) is_settled: bool,
}

impl Rates {
    /// Takes what clients have asked of a node since its process started.
    pub(super) fn on_ingress(
        &mut self,
        now: Timestamp,
        node: NodeId,
        incarnation: u32,
        counts: BTreeMap<AppId, u64>,
    ) {
        let is_new = !self.nodes.contains_key(&node);
        let node = self.nodes.entry(node).or_default();
        if incarnation < node.incarnation {
            return;
        }
        let is_same = incarnation == node.incarnation;
        for (app, count) in counts.iter().filter(|_| !is_new) {
            let base = node.counts.get(app).filter(|_| is_same);
            let more = count.saturating_sub(base.copied().unwrap_or(0));
            *node.requests.entry(*app).or_default() += more;
        }
        if !is_new {
            node.requests_span += now.since(node.at);
        }
        (node.incarnation, node.at, node.counts) = (incarnation, now, counts);
    }

    /// Takes what the services on a node have handled in this time.
    pub(super) fn on_handled(
        &mut self,
        node: NodeId,
        span: Nanos,
        handled: impl Iterator<Item = (ShardKey, u64)>,
    ) {
        // The first report comes with the counts of clients.
        let Some(node) = self.nodes.get_mut(&node).filter(|_| span > Nanos(0)) else {
            return;
        };
        node.handled_span += span;
        for (key, count) in handled {
            *node.handled.entry((key.app, key.service)).or_default() += count;
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
        let (mut asked, mut handled) = (BTreeMap::new(), Handled::new());
        for node in self.nodes.values_mut() {
            node.close(&mut asked, &mut handled);
        }
        let was_whole = std::mem::replace(&mut self.is_whole, self.begun.is_some());
        self.begun = Some(now);
        let is_missing = |node: NodeId| control.is_up(node) && !is_known(node);
        let missing = self.nodes.iter().filter(|(node, _)| is_missing(**node));
        let unknown: BTreeSet<AppId> = missing
            .flat_map(|(_, node)| node.counts.keys().copied())
            .collect();
        let mut before = std::mem::take(&mut self.last);
        if !was_whole {
            return;
        }
        for (id, app) in &control.apps {
            let mut primaries = app.plan.shards.iter().map(|s| s.primary);
            if unknown.contains(id) || primaries.any(is_missing) {
                continue;
            }
            let asked = asked.get(id).copied().unwrap_or(0.0);
            let of = |service| handled.get(&(*id, service)).copied().unwrap_or(0.0);
            let rate = rate_of(app, asked, of);
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

/// The rate of clients that explains what the services of an application handle: at least the rate that
/// there is.
fn rate_of(app: &AppState, asked_rps: f64, handled_rps: impl Fn(ServiceId) -> f64) -> f64 {
    let request = Request::new(&app.plan.app, &app.profiles);
    let of = |service| match request.visits(service) {
        visits if visits > 0.0 => handled_rps(service) / visits,
        _ => 0.0,
    };
    request.services().map(of).fold(asked_rps, f64::max)
}
