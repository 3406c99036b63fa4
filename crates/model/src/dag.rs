//! The shape of an application: reachability, order, and unique numbers for messages.
//!
//! One request may reach a service by several paths and several times. To give every message the
//! same identity in every attempt, without coordination, handler runs and messages are numbered by
//! arithmetic: a service's runs are numbered over all its incoming edges one after the other, and
//! the messages of run `r` on an edge that allows `m` messages per run are `r*m .. r*m+m`.

use crate::application::Application;
use crate::ids::{EdgeId, ServiceId, Via};
use crate::limits::REQUEST_FANOUT_MAX;

/// Numbers of runs and messages that a request can cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dag {
    /// Services in an order in which every channel and every call goes forward.
    order: Vec<ServiceId>,
    /// By edge: sender, receiver, first run number at the receiver, messages allowed per run.
    edges: Vec<Edge>,
    /// By service: handler runs that one request can cause.
    runs: Vec<u64>,
    source: ServiceId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Edge {
    from: ServiceId,
    to: ServiceId,
    first_run: u64,
    outputs: u64,
}

/// Why the channels do not form a usable DAG.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DagError {
    /// The ingress service, an end of a channel or the target of a call that is no service.
    #[error("there is no service {0:?}")]
    NoService(String),
    /// Names in order around the cycle.
    #[error("channels form a cycle: {}", .0.join(" -> "))]
    Cycle(Vec<String>),
    /// Names in order around a cycle that calls are part of.
    #[error("calls and channels form a cycle: {}", .0.join(" -> "))]
    CallCycle(Vec<String>),
    /// A service that no request can reach.
    #[error(
        "service {0:?} cannot be reached from the ingress service, no service asks it, and it has no subscription"
    )]
    Unreachable(String),
    /// More runs than can be numbered.
    #[error(
        "one request could cause {runs} runs of service {service:?}, must be at most {REQUEST_FANOUT_MAX}"
    )]
    Fanout {
        /// The service.
        service: String,
        /// Runs.
        runs: u64,
    },
}

impl Dag {
    /// Numbers the application's runs.
    pub fn new(app: &Application) -> Result<Dag, DagError> {
        let spec = &app.spec;
        let id = |name: &str| {
            let service = app.service_named(name);
            let (id, _) = service.ok_or_else(|| DagError::NoService(name.into()))?;
            Ok(id)
        };
        let arrow = |(from, to): (&String, &String)| Ok((id(from)?, id(to)?));
        let source = id(&spec.ingress)?;
        let ends = spec.channels.iter().map(|c| (&c.from, &c.to));
        let ends: Vec<(ServiceId, ServiceId)> = ends.map(arrow).collect::<Result<_, _>>()?;
        let names = |cycle: Vec<ServiceId>| -> Vec<String> {
            let names = cycle.into_iter().map(|s| app.service(s).name.clone());
            names.collect()
        };
        let count = spec.services.len();
        topological(count, &ends).map_err(|cycle| DagError::Cycle(names(cycle)))?;
        let calls = spec.services.iter();
        let calls = calls.flat_map(|s| s.calls.iter().map(move |to| (&s.name, to)));
        let calls: Vec<(ServiceId, ServiceId)> = calls.map(arrow).collect::<Result<_, _>>()?;
        let order = topological(count, &[ends.as_slice(), &calls].concat())
            .map_err(|cycle| DagError::CallCycle(names(cycle)))?;
        // A service that is only called runs for no message.
        let mut is_called = vec![false; count];
        let mut runs = vec![0u64; spec.services.len()];
        runs[usize::from(source.0)] = 1;
        for service in entries(app) {
            runs[usize::from(service.0)] = 1;
        }
        let mut edges: Vec<Edge> = ends
            .iter()
            .zip(&spec.channels)
            .map(|(&(from, to), c)| Edge {
                from,
                to,
                first_run: 0,
                outputs: u64::from(c.outputs),
            })
            .collect();
        for &service in &order {
            let at = usize::from(service.0);
            let name = || app.service(service).name.clone();
            if runs[at] == 0 {
                if !is_called[at] {
                    return Err(DagError::Unreachable(name()));
                }
                // The requests of its timers begin there.
                runs[at] = u64::from(!app.service(service).timers.is_empty());
            }
            let reached = runs[at];
            if reached > REQUEST_FANOUT_MAX {
                return Err(DagError::Fanout {
                    service: name(),
                    runs: reached,
                });
            }
            for (_, to) in calls.iter().filter(|(from, _)| *from == service) {
                is_called[usize::from(to.0)] = true;
            }
            for edge in edges.iter_mut().filter(|e| e.from == service) {
                edge.first_run = runs[usize::from(edge.to.0)];
                runs[usize::from(edge.to.0)] += reached * edge.outputs;
            }
        }
        Ok(Dag {
            order,
            edges,
            runs,
            source,
        })
    }

    /// Services in an order in which every channel and every call goes forward.
    pub fn order(&self) -> &[ServiceId] {
        &self.order
    }

    /// Where an edge leads.
    pub fn receiver(&self, edge: EdgeId) -> Option<ServiceId> {
        self.edges.get(usize::from(edge.0)).map(|e| e.to)
    }

    /// Where an edge begins.
    pub fn sender(&self, edge: EdgeId) -> Option<ServiceId> {
        self.edges.get(usize::from(edge.0)).map(|e| e.from)
    }

    /// The service that requests from clients go to.
    pub fn source(&self) -> ServiceId {
        self.source
    }

    /// Handler runs of a service that one request can cause.
    pub fn runs(&self, service: ServiceId) -> u64 {
        self.runs[usize::from(service.0)]
    }

    /// The number of the run that a message causes at its receiver; None if no such message exists.
    pub fn run(&self, via: Via, index: u32) -> Option<u32> {
        match via {
            // A request of its own, which begins at the service.
            Via::Ingress | Via::Timer => (index == 0).then_some(0),
            Via::Edge(e) => {
                let edge = self.edges.get(usize::from(e.0))?;
                let messages = self.runs[usize::from(edge.from.0)] * edge.outputs;
                (u64::from(index) < messages).then(|| (edge.first_run + u64::from(index)) as u32)
            }
        }
    }

    /// The index of the `n`th message that run `run` sends on `edge`; None beyond what is allowed.
    pub fn index(&self, edge: EdgeId, run: u32, n: u32) -> Option<u32> {
        let edge = self.edges.get(usize::from(edge.0))?;
        (u64::from(n) < edge.outputs).then(|| (u64::from(run) * edge.outputs + u64::from(n)) as u32)
    }
}

/// Services that no channel reaches, and that another service asks or a subscription names: an outbound
/// request or a publication is a request of its own, which begins there. The ingress service is not
/// among them.
pub fn entries(app: &Application) -> Vec<ServiceId> {
    let spec = &app.spec;
    let is_entry = |name: &String| {
        let is_asked = spec.services.iter().any(|s| s.asks.contains(name));
        let is_subscribed = spec.subscriptions.iter().any(|s| s.service == *name);
        let is_reached = spec.channels.iter().any(|c| c.to == *name);
        (is_asked || is_subscribed) && !is_reached && spec.ingress != *name
    };
    let services = spec.services.iter().enumerate();
    services
        .filter(|(_, service)| is_entry(&service.name))
        .map(|(i, _)| ServiceId(i as u16))
        .collect()
}

/// Order of `n` services in which every edge goes forward, or the services around a cycle.
fn topological(
    n: usize,
    edges: &[(ServiceId, ServiceId)],
) -> Result<Vec<ServiceId>, Vec<ServiceId>> {
    let mut waiting = vec![0usize; n];
    for (_, to) in edges {
        waiting[usize::from(to.0)] += 1;
    }
    let mut order: Vec<ServiceId> = (0..n)
        .filter(|i| waiting[*i] == 0)
        .map(|i| ServiceId(i as u16))
        .collect();
    let mut next = 0;
    while next < order.len() {
        let service = order[next];
        next += 1;
        for (_, to) in edges.iter().filter(|(from, _)| *from == service) {
            let w = &mut waiting[usize::from(to.0)];
            *w -= 1;
            if *w == 0 {
                order.push(*to);
            }
        }
    }
    if order.len() == n {
        return Ok(order);
    }
    // Every service left has a predecessor that is left too: walking back must close a cycle.
    let mut walk = vec![ServiceId(
        waiting.iter().position(|w| *w > 0).expect("one is left") as u16,
    )];
    loop {
        let here = *walk.last().expect("never empty");
        let (before, _) = edges
            .iter()
            .find(|(from, to)| *to == here && waiting[usize::from(from.0)] > 0)
            .expect("a service left has a predecessor left");
        if let Some(at) = walk.iter().position(|s| s == before) {
            let mut cycle = walk.split_off(at);
            cycle.push(*before);
            cycle.reverse();
            return Err(cycle);
        }
        walk.push(*before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::application;

    #[test]
    fn every_path_gets_its_own_number() {
        let app = application(&[("a", "b", 2), ("a", "c", 1), ("b", "c", 3), ("c", "d", 1)]);
        let dag = Dag::new(&app).unwrap();
        // c runs once for a and three times for each of b's two runs.
        assert_eq!(dag.runs(ServiceId(2)), 7);
        let mut runs = vec![dag.run(Via::Edge(EdgeId(1)), 0).unwrap()];
        for b in 0..2 {
            for n in 0..3 {
                let index = dag.index(EdgeId(2), b, n).unwrap();
                runs.push(dag.run(Via::Edge(EdgeId(2)), index).unwrap());
            }
        }
        runs.sort_unstable();
        assert_eq!(runs, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(dag.index(EdgeId(2), 0, 3), None);
        assert_eq!(dag.run(Via::Edge(EdgeId(2)), 6), None);
    }

    #[test]
    fn a_service_may_be_reached_by_outbound_requests_alone() {
        let mut app = application(&[("a", "b", 2), ("c", "d", 3)]);
        let error = Dag::new(&app).unwrap_err();
        assert_eq!(error, DagError::Unreachable("c".into()));
        app.spec.services[1].asks = vec!["c".into(), "a".into()];
        let dag = Dag::new(&app).unwrap();
        assert_eq!(entries(&app), [ServiceId(2)]);
        assert_eq!(dag.runs(ServiceId(3)), 3);
        assert_eq!(dag.run(Via::Edge(EdgeId(1)), 2), Some(2));
    }

    #[test]
    fn a_service_that_is_only_called_is_reached_and_runs_for_no_message() {
        let mut app = application(&[("a", "b", 1), ("c", "d", 1)]);
        let unreachable = |app: &Application| match Dag::new(app) {
            Err(DagError::Unreachable(name)) => name,
            other => panic!("{other:?}"),
        };
        assert_eq!(unreachable(&app), "c");
        app.spec.services[1].calls = vec!["c".into()];
        assert_eq!(unreachable(&app), "d", "a called service sends nothing");
        app.spec.channels.pop();
        app.spec.services[2].calls = vec!["d".into()];
        let dag = Dag::new(&app).unwrap();
        assert_eq!([0, 1, 2, 3].map(|s| dag.runs(ServiceId(s))), [1, 1, 0, 0]);
    }

    #[test]
    fn a_service_that_is_only_called_may_send_what_its_timers_cause() {
        let mut app = application(&[("a", "b", 1), ("c", "b", 2)]);
        app.spec.services[0].calls = vec!["c".into()];
        let at = |name: &str| app.service_named(name).unwrap().0;
        let (b, c) = (at("b"), at("c"));
        let runs = |app: &Application| [b, c].map(|s| Dag::new(app).unwrap().runs(s));
        assert_eq!(runs(&app), [1, 0]);
        let timer = serde_norway::from_str("{name: tick, every: 1s}").unwrap();
        app.spec.services[usize::from(c.0)].timers = vec![timer];
        let dag = Dag::new(&app).unwrap();
        assert_eq!(runs(&app), [3, 1]);
        let run = dag.run(Via::Timer, 0).unwrap();
        let sent = [0, 1].map(|n| dag.index(EdgeId(1), run, n).unwrap());
        assert_eq!(
            sent.map(|index| dag.run(Via::Edge(EdgeId(1)), index)),
            [Some(1), Some(2)]
        );
    }

    #[test]
    fn a_cycle_of_calls_and_channels_is_named() {
        let mut app = application(&[("a", "b", 1), ("b", "c", 1)]);
        app.spec.services[2].calls = vec!["b".into()];
        let error = Dag::new(&app).unwrap_err().to_string();
        let expected = ["b -> c -> b", "c -> b -> c"]
            .map(|cycle| format!("calls and channels form a cycle: {cycle}"));
        assert!(expected.contains(&error), "{error}");
    }

    #[test]
    fn a_cycle_is_named() {
        let app = application(&[("a", "b", 1), ("b", "c", 1), ("c", "b", 1)]);
        let error = Dag::new(&app).unwrap_err().to_string();
        assert!(
            error.contains("b -> c -> b") || error.contains("c -> b -> c"),
            "{error}"
        );
    }
}
