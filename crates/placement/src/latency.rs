//! Time of a request through an idle cluster: the longest path of messages from the ingress service. A service takes
//! the time of those that it calls too, since it waits for them.

use crate::limits::{ROUND_TRIP_HOSTS_US, ROUND_TRIP_PCIE, ROUND_TRIP_SMARTNICS};
use e3_model::dag::Dag;
use e3_model::{Application, NodeKind, ServiceId};

/// The channels and calls of an application, for paths through it.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Channels, those of later services first.
    channels: Vec<(ServiceId, ServiceId)>,
    /// Callers with the called, those of later services first.
    calls: Vec<(ServiceId, ServiceId)>,
    source: ServiceId,
    services: usize,
}

impl Paths {
    pub(crate) fn new(app: &Application, dag: &Dag) -> Paths {
        let last_first = |is_call: bool| {
            let from = dag.order().iter().rev();
            let flows = from.flat_map(|from| {
                let flows = app
                    .flows()
                    .filter(|f| f.is_call == is_call && f.from == *from);
                flows.map(|f| (f.from, f.to)).collect::<Vec<_>>()
            });
            flows.collect()
        };
        Paths {
            channels: last_first(false),
            calls: last_first(true),
            source: dag.source(),
            services: app.spec.services.len(),
        }
    }

    /// By service: its time, with that of its calls, if a message takes `time` at a service and `hop` from one to
    /// another. In the unit of these.
    fn with_calls(
        &self,
        time: impl Fn(ServiceId) -> f64,
        hop: impl Fn(ServiceId, ServiceId) -> f64,
    ) -> Vec<f64> {
        let services = (0..self.services).map(|s| ServiceId(s as u16));
        let mut all: Vec<f64> = services.map(time).collect();
        for &(caller, called) in &self.calls {
            let waits = hop(caller, called) + all[usize::from(called.0)] + hop(called, caller);
            all[usize::from(caller.0)] += waits;
        }
        all
    }

    /// The longest path, if a message takes `time` at a service and `hop` from one to another. In the unit
    /// of these.
    pub(crate) fn longest(
        &self,
        time: impl Fn(ServiceId) -> f64,
        hop: impl Fn(ServiceId, ServiceId) -> f64,
    ) -> f64 {
        let time = self.with_calls(time, &hop);
        let mut after = vec![0.0f64; self.services];
        for &(from, to) in &self.channels {
            let at = usize::from(to.0);
            let way = hop(from, to) + time[at] + after[at];
            let longest = &mut after[usize::from(from.0)];
            *longest = longest.max(way);
        }
        let source = usize::from(self.source.0);
        time[source] + after[source]
    }
}

/// How far two nodes are apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apart {
    /// On one server.
    Nodes,
    Servers,
}

/// Time of a message from a node of one kind to another node, in microseconds: half a round trip. Over PCIe and
/// the switch, the parts add up; a host sends through a SmartNIC of its server where that has one.
pub(crate) fn between_us(apart: Apart, from: NodeKind, to: NodeKind) -> f64 {
    let hosts = u32::from(from == NodeKind::Host) + u32::from(to == NodeKind::Host);
    let round_trip = match (apart, hosts) {
        // Between SmartNICs of one server the switch is the fastest way.
        (_, 0) => ROUND_TRIP_SMARTNICS,
        (Apart::Nodes, _) => ROUND_TRIP_PCIE,
        (Apart::Servers, 1) => ROUND_TRIP_SMARTNICS + ROUND_TRIP_PCIE,
        (Apart::Servers, _) => 1.0,
    };
    round_trip * ROUND_TRIP_HOSTS_US / 2.0
}
