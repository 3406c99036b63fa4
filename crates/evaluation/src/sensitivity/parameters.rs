//! What is moved, and where it has an effect.

use crate::range::Visits;
use crate::world::{Case, World};
use e3_hardware::guesses::{Concerns, GUESSES};
use e3_model::NodeKind;

/// Guesses of a quick run.
const QUICK: [&str; 4] = [
    "host_wake_us",
    "smartnic_power_by_load",
    "knee_utilisation",
    "instance_start_ms",
];

/// A parameter with the ends of its range.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// In words.
    pub(super) range: String,
    pub(super) ends: [Change; 2],
    concerns: Concerns,
}

/// A change of a case.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Guess(&'static str, f64),
    Visits(Visits),
    Seed(u64),
}

/// All parameters: messages, chance, and the guesses.
pub(super) fn parameters(world: &World<'_>) -> Vec<Parameter> {
    let of_flows = Parameter {
        name: "messages per request",
        range: "see flows".into(),
        ends: [Visits::Fewest, Visits::Most].map(Change::Visits),
        concerns: Concerns::Every,
    };
    let seeds = [1, 2].map(|more| world.seed.wrapping_add(more));
    let chance = Parameter {
        name: "chance",
        range: "two other seeds".into(),
        ends: seeds.map(Change::Seed),
        concerns: Concerns::Every,
    };
    let guesses = GUESSES.iter().map(|g| Parameter {
        name: g.name,
        range: format!("{} to {}", g.low, g.high),
        ends: [g.low, g.high].map(|value| Change::Guess(g.name, value)),
        concerns: g.concerns,
    });
    let guesses = guesses.filter(|p| !world.quick || QUICK.contains(&p.name));
    [of_flows, chance].into_iter().chain(guesses).collect()
}

impl Parameter {
    /// Whether it has an effect on any run here: clusters have one rack, Ethernet and kernel bypass, requests the
    /// size of the profiles, and no link fails.
    pub(super) fn is_in_play(&self) -> bool {
        !matches!(
            self.concerns,
            Concerns::Racks
                | Concerns::Roce
                | Concerns::LinuxStack
                | Concerns::SmallRequests
                | Concerns::LinkFailures
        )
    }

    /// Whether it has an effect on a run of a case, in which shards move or not.
    pub(super) fn matters(&self, case: &Case<'_>, moves: bool) -> bool {
        let kinds = || case.topology.nodes().map(|n| n.node.kind);
        let hosts = || kinds().any(|k| k == NodeKind::Host);
        let smartnics = || kinds().any(|k| k == NodeKind::SmartNic);
        let services = &case.subject.app.spec.services;
        match self.concerns {
            Concerns::Every => true,
            Concerns::Hosts | Concerns::HyperThreading => hosts(),
            Concerns::SmartNics => smartnics(),
            Concerns::Pcie => hosts() && smartnics(),
            Concerns::Backups => services.iter().any(|s| s.stateful && s.replicas > 1),
            Concerns::Moves => moves,
            Concerns::Racks
            | Concerns::Roce
            | Concerns::LinuxStack
            | Concerns::SmallRequests
            | Concerns::LinkFailures => false,
        }
    }

    /// Whether it concerns moves of shards.
    pub(super) fn is_of_moves(&self) -> bool {
        self.concerns == Concerns::Moves
    }
}

impl Change {
    /// The case with the change.
    pub(super) fn of<'a>(self, case: &Case<'a>) -> Case<'a> {
        let mut case = case.clone();
        match self {
            Change::Guess(name, value) => {
                let set = case.options.guesses.set(name, value);
                set.expect("the end of its own range");
            }
            Change::Visits(visits) => case = case.with(visits),
            Change::Seed(seed) => case.seed = seed,
        }
        case
    }
}
