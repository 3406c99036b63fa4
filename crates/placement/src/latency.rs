//! Time of a request through an idle cluster: the longest path of messages from the ingress service.

use crate::limits::{ROUND_TRIP_HOSTS_US, ROUND_TRIP_PCIE, ROUND_TRIP_SMARTNICS};
use e3_model::dag::Dag;
use e3_model::{Application, NodeKind, ServiceId};

/// The channels of an application, for paths through it.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// Channels, those of later services first.
    channels: Vec<(ServiceId, ServiceId)>,
    source: ServiceId,
    services: usize,
}

impl Paths {
    pub(crate) fn new(app: &Application, dag: &Dag) -> Paths {
        let last_first = dag.order().iter().rev();
        let channels = last_first.flat_map(|from| {
            let to = app.channels_from(*from).map(|(_, to, _)| (*from, to));
            to.collect::<Vec<_>>()
        });
        Paths {
            channels: channels.collect(),
            source: dag.source(),
            services: app.spec.services.len(),
        }
    }

    /// The longest path, if a message takes `time` at a service and `hop` from one to another. In the unit
    /// of these.
    pub(crate) fn longest(
        &self,
        time: impl Fn(ServiceId) -> f64,
        hop: impl Fn(ServiceId, ServiceId) -> f64,
    ) -> f64 {
        let mut after = vec![0.0f64; self.services];
        for &(from, to) in &self.channels {
            let way = hop(from, to) + time(to) + after[usize::from(to.0)];
            let longest = &mut after[usize::from(from.0)];
            *longest = longest.max(way);
        }
        time(self.source) + after[usize::from(self.source.0)]
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
