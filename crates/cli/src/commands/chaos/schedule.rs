//! The schedule of faults. It is a function of the seed, the faults to choose from and the shape of the
//! cluster.

use super::fault::{Fault, Subject};
use e3_random::Random;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Time before the first fault, in which the load begins.
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Shortest and longest time from the end of a round to the next one.
const GAP: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(6));
/// The second fault of a round begins at most this long after the first.
const SECOND_WITHIN: Duration = Duration::from_secs(1);
/// One round in this many has two faults.
const SECOND_ONE_IN: u64 = 3;
/// Time before the end of the load in which no fault begins, so that the application can recover.
const LAST_BEFORE_END: Duration = Duration::from_secs(8);

/// Prefix of a target that is the node that a shard's primary is on when the fault begins.
pub const PRIMARY_OF: &str = "primary of ";

/// The possible targets of faults.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// The names of the nodes, sorted.
    pub nodes: Vec<String>,
    /// Shards of stateful services, as `app/service/shard`, sorted.
    pub shards: Vec<String>,
}

/// One fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Planned {
    /// The round. A round begins when the application has recovered from the previous one.
    pub round: usize,
    /// When it begins, since the start of the load; later if the application has not recovered by then.
    #[serde(skip)]
    pub at: Duration,
    /// The fault.
    pub fault: Fault,
    /// A node (by name, or as that of a shard's primary), or a shard and the node that it moves to.
    pub target: String,
    /// How long it lasts; zero if it is over at once.
    #[serde(skip)]
    pub length: Duration,
}

/// The faults for a load of this length.
pub fn schedule(seed: u64, length: Duration, faults: &[Fault], shape: &Shape) -> Vec<Planned> {
    let mut random = Random::new(seed);
    let possible = |fault: &Fault| match fault.subject() {
        Subject::Node => !shape.nodes.is_empty(),
        Subject::Shard => !shape.shards.is_empty() && !shape.nodes.is_empty(),
        Subject::Whole => true,
    };
    let faults: Vec<Fault> = faults.iter().copied().filter(possible).collect();
    let mut all = Vec::new();
    if faults.is_empty() {
        return all;
    }
    // Each fault comes once before one comes again.
    let mut bag = Vec::new();
    let mut at = FIRST_AFTER;
    for round in 0.. {
        if at + LAST_BEFORE_END >= length {
            break;
        }
        if bag.is_empty() {
            bag = shuffled(&mut random, &faults);
        }
        let Some(first) = bag.pop() else { break };
        let first = planned(&mut random, round, at, first, shape);
        let mut end = at + first.length;
        let second: Vec<Fault> = faults
            .iter()
            .copied()
            .filter(|f| *f != first.fault && !(f.costs_a_copy() && first.fault.costs_a_copy()))
            .collect();
        all.push(first);
        if random.one_in(SECOND_ONE_IN) && !second.is_empty() {
            let fault = *random.pick(&second);
            let after = at + between(&mut random, Duration::ZERO, SECOND_WITHIN);
            let second = planned(&mut random, round, after, fault, shape);
            end = end.max(after + second.length);
            all.push(second);
        }
        at = end + between(&mut random, GAP.0, GAP.1);
    }
    all
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        if !self.target.is_empty() {
            write!(f, " {}", self.target)?;
        }
        match self.length.as_millis() {
            0 => Ok(()),
            ms => write!(f, " for {ms} ms"),
        }
    }
}

fn planned(
    random: &mut Random,
    round: usize,
    at: Duration,
    fault: Fault,
    shape: &Shape,
) -> Planned {
    let target = match fault.subject() {
        // A node without a primary has little to lose.
        Subject::Node if random.one_in(2) && !shape.shards.is_empty() => {
            format!("{PRIMARY_OF}{}", random.pick(&shape.shards))
        }
        Subject::Node => random.pick(&shape.nodes).clone(),
        Subject::Shard => {
            let shard = random.pick(&shape.shards).clone();
            format!("{shard} to {}", random.pick(&shape.nodes))
        }
        Subject::Whole => String::new(),
    };
    let length = fault
        .length()
        .map_or(Duration::ZERO, |(low, high)| log_between(random, low, high));
    Planned {
        round,
        at,
        fault,
        target,
        length,
    }
}

fn shuffled(random: &mut Random, faults: &[Fault]) -> Vec<Fault> {
    let mut all = faults.to_vec();
    for at in (1..all.len()).rev() {
        all.swap(at, random.index(at + 1));
    }
    all
}

/// Whole milliseconds, so that a printed schedule is exact.
fn between(random: &mut Random, low: Duration, high: Duration) -> Duration {
    let span = (high - low).as_millis() as u64;
    low + Duration::from_millis(random.below(span + 1))
}

/// As many below the geometric mean as above it: short pauses find other faults than long ones.
fn log_between(random: &mut Random, low: Duration, high: Duration) -> Duration {
    let (low, high) = (low.as_millis() as f64, high.as_millis() as f64);
    Duration::from_millis((low * (high / low).powf(random.unit())).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn shape() -> Shape {
        Shape {
            nodes: ["a", "b", "c"].map(String::from).to_vec(),
            shards: vec!["x/y/0".into(), "x/y/1".into()],
        }
    }

    #[test]
    fn the_seed_decides_the_schedule() {
        let of = |seed| {
            schedule(
                seed,
                Duration::from_secs(120),
                &Fault::defaults(true),
                &shape(),
            )
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn every_chosen_fault_comes_and_no_two_cost_a_copy_together() {
        let length = Duration::from_secs(600);
        for seed in 0..50 {
            let all = schedule(seed, length, &Fault::defaults(true), &shape());
            let seen: BTreeSet<Fault> = all.iter().map(|p| p.fault).collect();
            assert_eq!(seen.len(), Fault::defaults(true).len(), "seed {seed}");
            for p in &all {
                assert!(p.at < length, "seed {seed}: {p:?}");
                let of_round = all.iter().filter(|q| q.round == p.round);
                let costly = of_round.filter(|q| q.fault.costs_a_copy()).count();
                assert!(costly <= 1, "seed {seed}: round {}", p.round);
            }
        }
    }

    #[test]
    fn without_nodes_or_time_nothing_is_planned() {
        let none = schedule(
            1,
            Duration::from_secs(60),
            &[Fault::Kill],
            &Shape::default(),
        );
        assert_eq!(none, []);
        let short = schedule(1, Duration::from_secs(1), &[Fault::Kill], &shape());
        assert_eq!(short, []);
    }
}
