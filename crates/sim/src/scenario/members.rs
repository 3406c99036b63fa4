//! Nodes of a scenario that come and go: an operator cordons, drains, removes and adds them.

use super::{Act, Fault, Scenario, known};
use e3_random::Random;

/// Most such acts of a scenario.
const ACTS_MAX: u64 = 5;
/// How long after a server was added a fault meets one of its nodes, at most.
const NEW_FAULT_MS_MAX: u64 = 4_000;

/// An operator changes the nodes in one scenario of three. From random numbers of its own, so that the
/// rest of a seed's scenario stays as it is.
pub(super) fn draw(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_40de);
    if !random.one_in(3) {
        return;
    }
    let faults_ms = scenario.faults_ms;
    let mut server = scenario.servers.len() as u32;
    for _ in 0..1 + random.below(ACTS_MAX) {
        let at_ms = random.below(faults_ms - 1_000);
        let for_ms = *random.pick(&[50, 400, 1_000, 3_000, 8_000, faults_ms]);
        // Also those that were added.
        let node = random.below(scenario.nodes_max().into()) as u32;
        let fault = match random.below(10) {
            0..=1 => Fault::Cordon(node),
            2..=4 => Fault::Remove(node),
            5..=6 => Fault::RemoveDead(node),
            7 => Fault::Drain(node),
            _ if known::may_lose_log_and_memory(scenario) => Fault::Cordon(node),
            _ => Fault::Add(server, *random.pick(&[0, 0, 1, 2])),
        };
        if let Fault::Add(_, nics) = fault {
            server += 1;
            let new = scenario.nodes_max() + random.below(1 + u64::from(nics)) as u32;
            if random.one_in(2) {
                let act = soon_after(random, faults_ms, at_ms, new);
                scenario.script.push(act);
            }
        }
        scenario.script.push(Act {
            at_ms,
            for_ms: for_ms.min(faults_ms - at_ms),
            fault,
        });
    }
}

/// A fault of a node that has just been added.
fn soon_after(random: &mut Random, faults_ms: u64, added_ms: u64, node: u32) -> Act {
    let fault = match random.below(4) {
        0 => Fault::Kill(node),
        1 => Fault::Restart(node),
        2 => Fault::Pause(node),
        _ => Fault::Isolate(node),
    };
    let at_ms = (added_ms + random.below(NEW_FAULT_MS_MAX)).min(faults_ms - 1_000);
    let for_ms = *random.pick(&[50, 320, 1_000, 3_000]);
    Act {
        at_ms,
        for_ms: for_ms.min(faults_ms - at_ms),
        fault,
    }
}

impl Scenario {
    /// Most nodes that there ever are: those of the beginning, and those that are added.
    pub fn nodes_max(&self) -> u32 {
        let added = self.script.iter().map(|act| match act.fault {
            Fault::Add(_, nics) => 1 + u32::from(nics),
            _ => 0,
        });
        self.nodes() + added.sum::<u32>()
    }

    /// Whether nodes are added, cordoned or removed, which older releases cannot do.
    pub(crate) fn has_members(&self) -> bool {
        let changes = |act: &Act| {
            matches!(
                act.fault,
                Fault::Cordon(_) | Fault::Add(..) | Fault::Remove(_) | Fault::RemoveDead(_)
            )
        };
        self.script.iter().any(changes)
    }
}
