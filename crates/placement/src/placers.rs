//! The placers by name.

use crate::annealing::{self, Current};
use crate::cluster::Cluster;
use crate::decision::{InstanceKey, PlaceError, Placement};
use crate::find::Linear;
use crate::fit::Kinds;
use crate::request::Request;
use crate::search::{KIND_FIRST, PRINTED, Variant};
use crate::{Placer, hcm, joules, nicfirst, spread};
use e3_model::NodeId;
use e3_random::Random;

/// The placer that is used where none is named.
pub const PLACER_DEFAULT: &str = "joules";

/// Names of the placers.
pub const PLACERS: [&str; 7] = [
    "hcm",
    "hcm-kind",
    "joules",
    "annealing",
    "spread",
    "nicfirst",
    "hosts-only",
];

/// The placer of that name.
pub fn by_name(name: &str) -> Option<Box<dyn Placer>> {
    match name {
        "hcm" => Some(Box::new(Hcm)),
        "hcm-kind" => Some(Box::new(HcmKind)),
        "joules" => Some(Box::new(Joules)),
        "annealing" => Some(Box::new(Annealing::default())),
        "spread" => Some(Box::new(Spread)),
        "nicfirst" => Some(Box::new(NicFirst)),
        "hosts-only" => Some(Box::new(HostsOnly)),
        _ => None,
    }
}

/// Hierarchical, communication-aware placement as E3 prints it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hcm;

/// [`Hcm`] that searches by walking all nodes: the same decisions, for comparison.
#[derive(Clone, Copy, Debug, Default)]
pub struct HcmLinear;

/// [`Hcm`] that prefers, at an equal distance in servers, the kind of node with fewer joules for a
/// request.
#[derive(Clone, Copy, Debug, Default)]
pub struct HcmKind;

/// Places for the fewest joules a request under the latency objective.
#[derive(Clone, Copy, Debug, Default)]
pub struct Joules;

/// Simulated annealing as in Service Fabric: spreads load, ignores topology and energy.
#[derive(Clone, Copy, Debug)]
pub struct Annealing {
    /// Of the random numbers.
    pub seed: u64,
}

/// What a default scheduler of a cluster does: even spread, least allocated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spread;

/// As many services on SmartNICs as their memory holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct NicFirst;

/// The baseline: [`HcmKind`] as if the cluster had no SmartNICs. Pins to SmartNICs do not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostsOnly;

impl Placer for Hcm {
    fn name(&self) -> &'static str {
        "hcm"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        cluster.attempt(|cluster| hcm::place(request, cluster, PRINTED))
    }
}

impl Placer for HcmLinear {
    fn name(&self) -> &'static str {
        "hcm-linear"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        let variant = Variant {
            find: &Linear,
            ..PRINTED
        };
        cluster.attempt(|cluster| hcm::place(request, cluster, variant))
    }
}

impl Placer for HcmKind {
    fn name(&self) -> &'static str {
        "hcm-kind"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        cluster.attempt(|cluster| hcm::place(request, cluster, KIND_FIRST))
    }
}

impl Placer for Joules {
    fn name(&self) -> &'static str {
        "joules"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        cluster.attempt(|cluster| joules::place(request, cluster))
    }
}

impl Default for Annealing {
    fn default() -> Annealing {
        Annealing { seed: 1 }
    }
}

impl Annealing {
    /// Places a new application, as long as `more` says that there is time. It cools fast.
    pub fn place_within(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Placement, PlaceError> {
        self.search(request, cluster, None, more)
    }

    /// Balances an application that runs, as long as `more` says that there is time. `current` says where its
    /// instances are; the cluster is without them. It cools slowly, and an instance that moves adds to the cost.
    pub fn balance_within(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
        current: &dyn Fn(InstanceKey) -> Option<NodeId>,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Placement, PlaceError> {
        self.search(request, cluster, Some(current), more)
    }

    fn search(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
        current: Option<Current<'_>>,
        more: &mut dyn FnMut() -> bool,
    ) -> Result<Placement, PlaceError> {
        let mut random = Random::new(self.seed);
        cluster.attempt(|cluster| annealing::place(request, cluster, current, &mut random, more))
    }
}

impl Placer for Annealing {
    fn name(&self) -> &'static str {
        "annealing"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        self.place_within(request, cluster, &mut || true)
    }
}

impl Placer for Spread {
    fn name(&self) -> &'static str {
        "spread"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        cluster.attempt(|cluster| spread::place(request, cluster))
    }
}

impl Placer for NicFirst {
    fn name(&self) -> &'static str {
        "nicfirst"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        cluster.attempt(|cluster| nicfirst::place(request, cluster))
    }
}

impl Placer for HostsOnly {
    fn name(&self) -> &'static str {
        "hosts-only"
    }
    fn place(&self, request: &Request<'_>, cluster: &mut Cluster) -> Result<Placement, PlaceError> {
        let variant = Variant {
            kinds: Kinds::HostsOnly,
            ..KIND_FIRST
        };
        cluster.attempt(|cluster| hcm::place(request, cluster, variant))
    }
}
