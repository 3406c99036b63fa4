//! Groups of benchmarks, and their parts, which `--only` chooses.

use crate::ui::failure::{Exit, Failure};
use clap::ValueEnum;
use e3_bench::control;

/// Groups of benchmarks.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum BenchGroup {
    /// Requests on one core: WebAssembly calls, collections, preemption
    Engine,
    /// Each service on one core, in WebAssembly and compiled natively
    Services,
    /// The thermostat application at the highest rate that this machine sustains
    Demo,
    /// Fail-overs, pauses and losses under faults
    Chaos,
    /// Placement in large clusters
    Control,
    /// The performance simulator
    Sim,
    /// Migration, fail-over, recovery and replicated writes, against etcd and Redis
    State,
}

/// Parts of the groups chaos, control and state.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Fail-overs after each fault (chaos, state)
    Failover,
    /// Service while the controller is down (chaos)
    Controller,
    /// False fail-overs under load (chaos)
    Load,
    /// Losses in a long run with all faults (chaos)
    Run,
    /// Random scenarios of the simulator (chaos)
    Seeds,
    /// Deliberate faults that the simulator's checks find (chaos)
    Deliberate,
    /// Pauses of migrations (state)
    Migration,
    /// Pause when a service gets more shards (state)
    Reshard,
    /// Writes on disk and in memory against etcd and Redis (state)
    Writes,
    /// Commits that share a wait for the disk (state)
    Commits,
    /// Recovery of a state from the disk (state)
    Recovery,
    /// Time of a placement decision (control)
    Placement,
    /// Requests per joule of each placer (control)
    Quality,
    /// Growth of the time of a decision with the cluster (control)
    Growth,
    /// Moves, losses and memory of the controller's state (control)
    Plans,
    /// Distance to what no placement can exceed (control)
    Gap,
    /// Heartbeats and decisions of the orchestrator (control)
    Orchestrator,
}

impl Part {
    fn groups(self) -> &'static [BenchGroup] {
        use BenchGroup::{Chaos, Control, State};
        match self {
            Part::Failover => &[Chaos, State],
            Part::Controller | Part::Load | Part::Run | Part::Seeds | Part::Deliberate => &[Chaos],
            Part::Migration | Part::Reshard | Part::Writes | Part::Commits | Part::Recovery => {
                &[State]
            }
            Part::Placement
            | Part::Quality
            | Part::Growth
            | Part::Plans
            | Part::Gap
            | Part::Orchestrator => &[Control],
        }
    }

    /// The part of the group control that it is.
    pub fn of_control(&self) -> Option<control::Part> {
        Some(match self {
            Part::Placement => control::Part::Placement,
            Part::Quality => control::Part::Quality,
            Part::Growth => control::Part::Growth,
            Part::Plans => control::Part::Plans,
            Part::Gap => control::Part::Gap,
            Part::Orchestrator => control::Part::Orchestrator,
            _ => return None,
        })
    }

    /// The parts of a group, or the one that was asked for.
    pub fn of(group: BenchGroup, only: Option<Part>) -> Result<Vec<Part>, Failure> {
        let parts = Part::value_variants().iter().copied();
        let all: Vec<Part> = parts.filter(|p| p.groups().contains(&group)).collect();
        match only {
            None => Ok(all),
            Some(only) if all.contains(&only) => Ok(vec![only]),
            Some(only) => Err(no_part(group, only, &all)),
        }
    }
}

fn no_part(group: BenchGroup, only: Part, all: &[Part]) -> Failure {
    let group = name(&group);
    let message = format!("the group {group} has no part {}", name(&only));
    let all: Vec<String> = all.iter().map(name).collect();
    Failure::new(Exit::Input, message).hint(match &all[..] {
        [] => format!("leave out --only: {group} is measured as a whole"),
        all => format!("its parts are {}", all.join(", ")),
    })
}

/// As on the command line.
fn name<V: ValueEnum>(value: &V) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |v| v.get_name().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_another_group_is_refused_with_the_parts_that_there_are() {
        let one = Part::of(BenchGroup::State, Some(Part::Failover)).unwrap();
        assert_eq!(one, [Part::Failover]);
        assert_eq!(Part::of(BenchGroup::Chaos, None).unwrap().len(), 6);
        let failure = Part::of(BenchGroup::State, Some(Part::Seeds)).unwrap_err();
        assert_eq!(failure.exit, Exit::Input);
        assert_eq!(failure.message, "the group state has no part seeds");
        let hint = "its parts are failover, migration, reshard, writes, commits, recovery";
        assert_eq!(failure.hint.as_deref(), Some(hint));
        let failure = Part::of(BenchGroup::Demo, Some(Part::Run)).unwrap_err();
        assert!(failure.hint.unwrap().contains("as a whole"));
    }
}
