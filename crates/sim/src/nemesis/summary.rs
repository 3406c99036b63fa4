//! What a scenario that passed did.

use e3_model::Nanos;
use std::collections::BTreeSet;

/// The figures of a scenario that passed.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests sent.
    pub requests: u64,
    /// Requests that were handled.
    pub done: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Simulated time.
    pub simulated: Nanos,
    /// A digest of everything that happened.
    pub trace: u64,
    /// The pairs of kinds of faults that met.
    pub pairs: BTreeSet<(&'static str, &'static str)>,
    /// Shards whose last copy the scenario destroyed.
    pub forfeited: usize,
    /// Faults in its script, without what operators do.
    pub faults: usize,
    /// Processes that received no plans and were replaced.
    pub withheld: u64,
    /// Services whose number of shards changed.
    pub resharded: u64,
    /// It ended early, since the controller had decided without decisions that only hidden processes knew.
    pub is_beyond: bool,
    /// Logs that lacked decisions, and were restored from a copy.
    pub restored_logs: u64,
    /// Moves that the orchestrator decided on.
    pub orchestrated: u64,
    /// Publications of effects that took place.
    pub published: u64,
    /// How often subscribers handled one.
    pub received: u64,
    /// Backups that were complete, that were given up, and applications that began with one.
    pub backups: [u64; 3],
    /// Dead letters whose replays took effect.
    pub replayed: u64,
    /// Versions that the controller went back from by itself.
    pub went_back: u64,
    /// Nodes that were added, that were removed, and that the operator could not drain to remove them.
    pub members: [u64; 3],
    /// Processes that were replaced by those of the next release, by those of the one before, and
    /// whether the format was raised.
    pub upgrades: [u64; 3],
    /// The time from healing until every request had its outcome.
    pub recovered_after: Nanos,
    /// The longest time that a request waited while no fault acted, beyond the time in which its client expected a reply.
    pub longest_wait: Nanos,
}
