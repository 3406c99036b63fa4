//! Simulated annealing with the published structure of Service Fabric's resource balancer, as E3 (ATC
//! 2019, 5.4) compares it: load is spread, topology and energy do not count.
//!
//! 1. A random walk until no constraint is broken: those of every placer. It starts from a random placement,
//!    or from where the instances run.
//! 2. Annealing. The energy is the standard deviation of the nodes' use, averaged over cores, memory
//!    and bandwidth, times the cost of moves; to that each replica in the rack of another one of its shard adds.
//!    The cost of moves is 1 + moved / (instances + 1000): Service Fabric's formula (`Score.cpp` of its source,
//!    with the default of 1 for each move), divided by its value without a move. A new instance moves nowhere, so
//!    the cost of a first placement is 1. The start temperature is the mean change of energy over [`PROBES`]
//!    random moves; it is multiplied by a factor after each round.
//!
//! The factor is that of Service Fabric's searches ([`Cooling`]): fast for what does not run yet, slow to
//! balance what runs.
//!
//! It ends when it is cold or when the caller has no more time, with the best placement that it has seen. The same
//! seed gives the same result, time permitting.

mod state;
#[cfg(test)]
mod tests;

use crate::assignment::reserve;
use crate::cluster::Cluster;
use crate::decision::{InstanceKey, PlaceError, Placement, Rule};
use crate::request::Request;
use e3_model::NodeId;
use e3_random::Random;
use state::State;

/// Random moves from which the start temperature is taken.
const PROBES: usize = 50;
/// Moves of a round, for each instance.
const MOVES_PER_INSTANCE: usize = 8;
/// The search ends at this part of the start temperature.
const COLD: f64 = 1e-3;
/// Steps of the random walk, for each instance.
const WALK_PER_INSTANCE: usize = 400;

/// By how much the temperature falls after each round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cooling {
    /// To 0.8 of it: new instances, which wait for a place.
    Fast,
    /// To 0.98 of it: instances that run, whose load is to be balanced.
    Slow,
}

impl Cooling {
    /// The cooling of a search that starts from where instances run, or from nothing.
    fn of(current: Option<Current<'_>>) -> Cooling {
        match current {
            None => Cooling::Fast,
            Some(_) => Cooling::Slow,
        }
    }

    fn factor(self) -> f64 {
        match self {
            Cooling::Fast => 0.8,
            Cooling::Slow => 0.98,
        }
    }
}

/// Where instances run. None for an instance that does not.
pub(crate) type Current<'a> = &'a dyn Fn(InstanceKey) -> Option<NodeId>;

/// Places a whole application and reserves what it takes. `current` says where its instances run, if it runs;
/// the cluster is without them. `more` says whether there is time left.
pub(crate) fn place(
    request: &Request<'_>,
    cluster: &mut Cluster,
    current: Option<Current<'_>>,
    random: &mut Random,
    more: &mut dyn FnMut() -> bool,
) -> Result<Placement, PlaceError> {
    let assignment = {
        let from = current.unwrap_or(&|_| None);
        let mut state = State::new(request, cluster, from, random)?;
        let is_feasible = walk(&mut state, random, more);
        anneal(&mut state, Cooling::of(current), is_feasible, random, more);
        state.part()?;
        state.assignment()
    };
    Ok(reserve(
        request,
        cluster,
        &assignment,
        Rule::Annealed,
        |_, _| Vec::new(),
    ))
}

/// The placement with the lowest energy so far.
struct Best {
    energy: f64,
    /// By item.
    at: Vec<NodeId>,
    /// Items that have moved since, each once, and whether an item is one of them.
    since: Vec<usize>,
    is_since: Vec<bool>,
}

impl Best {
    fn new(state: &State<'_>) -> Best {
        Best {
            energy: state.energy(),
            at: state.at.clone(),
            since: Vec::new(),
            is_since: vec![false; state.at.len()],
        }
    }

    /// Notes that an item has moved.
    fn moved(&mut self, state: &State<'_>, item: usize) {
        if !std::mem::replace(&mut self.is_since[item], true) {
            self.since.push(item);
        }
        let energy = state.energy();
        if energy < self.energy {
            self.energy = energy;
            for item in self.since.drain(..) {
                self.at[item] = state.at[item];
                self.is_since[item] = false;
            }
        }
    }

    fn restore(self, state: &mut State<'_>) {
        for item in self.since {
            state.move_to(item, self.at[item]);
        }
    }
}

/// Moves instances that break a constraint to random nodes until none does. Whether none does.
fn walk(state: &mut State<'_>, random: &mut Random, more: &mut dyn FnMut() -> bool) -> bool {
    let mut broken: Vec<usize> = (0..state.items.len()).collect();
    for _ in 0..WALK_PER_INSTANCE * state.items.len() {
        if broken.is_empty() {
            break;
        }
        let at = random.index(broken.len());
        let item = broken[at];
        if !state.is_broken(item) {
            broken.swap_remove(at);
            continue;
        }
        let (from, to) = (state.at[item], random_node(state, item, random));
        state.move_to(item, to);
        if state.is_broken(item) {
            state.move_to(item, from);
        } else {
            broken.swap_remove(at);
        }
        if !more() {
            break;
        }
    }
    broken.iter().all(|item| !state.is_broken(*item))
}

fn random_node(state: &State<'_>, item: usize, random: &mut Random) -> NodeId {
    *random.pick(&state.allowed[state.items[item].place])
}

/// The mean change of energy over [`PROBES`] random moves, each of which is taken back.
fn start_temperature(state: &mut State<'_>, random: &mut Random) -> f64 {
    if state.items.is_empty() {
        return 0.0;
    }
    let probes = (0..PROBES).map(|_| try_move(state, random, |_, _| false).1.abs());
    probes.sum::<f64>() / PROBES as f64
}

/// Tries a random move; takes it back unless `accept` says yes to its change of energy. The item that has moved,
/// if one has, and the change.
fn try_move(
    state: &mut State<'_>,
    random: &mut Random,
    accept: impl FnOnce(f64, &mut Random) -> bool,
) -> (Option<usize>, f64) {
    let item = random.index(state.items.len());
    let (from, to) = (state.at[item], random_node(state, item, random));
    let before = state.energy();
    state.move_to(item, to);
    let change = state.energy() - before;
    if state.is_broken(item) || !accept(change, random) {
        state.move_to(item, from);
        return (None, change);
    }
    (Some(item), change)
}

/// Anneals, and leaves the best placement. Moves break no constraint; `is_feasible` says that none was broken
/// before. Otherwise moves fix some of them, and the last placement is left.
fn anneal(
    state: &mut State<'_>,
    cooling: Cooling,
    is_feasible: bool,
    random: &mut Random,
    more: &mut dyn FnMut() -> bool,
) {
    let start = start_temperature(state, random);
    let mut best = is_feasible.then(|| Best::new(state));
    let mut temperature = start;
    'cooling: while temperature > start * COLD {
        for _ in 0..MOVES_PER_INSTANCE * state.items.len() {
            let accept = |change: f64, random: &mut Random| {
                change <= 0.0 || random.unit() < (-change / temperature).exp()
            };
            let (moved, _) = try_move(state, random, accept);
            if let (Some(item), Some(best)) = (moved, best.as_mut()) {
                best.moved(state, item);
            }
            if !more() {
                break 'cooling;
            }
        }
        temperature *= cooling.factor();
    }
    if let Some(best) = best {
        best.restore(state);
    }
}
