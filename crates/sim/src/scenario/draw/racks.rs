//! Draws racks, and faults of a whole rack.

use super::super::{Act, Fault, Scenario};
use super::FAULTS_MS;
use e3_random::Random;

/// Most racks of a scenario at its start.
const RACKS_MAX: u64 = 3;
/// Most faults of racks.
const FAULTS_MAX: u64 = 3;

/// Half of the scenarios with several servers have several racks. From random numbers of its own, so
/// that the rest of a seed's scenario stays as it is.
pub(super) fn draw(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_4ac5);
    let servers = scenario.servers.len() as u64;
    if servers < 2 || random.one_in(2) {
        return;
    }
    let racks = 2 + random.below(RACKS_MAX.min(servers) - 1);
    let mut left = servers;
    for others in (0..racks).rev() {
        let count = if others == 0 {
            left
        } else {
            1 + random.below(left - others)
        };
        scenario.racks.push(count as u8);
        left -= count;
    }
    for _ in 0..random.below(FAULTS_MAX + 1) {
        let rack = random.below(racks) as u32;
        // Its power fails, or its switch.
        let fault = if random.one_in(3) {
            Fault::Split(scenario.nodes_of_rack(rack))
        } else {
            Fault::RackPowerCut(rack)
        };
        let at_ms = random.below(FAULTS_MS - 1_000);
        let for_ms = *random.pick(&[50, 240, 400, 1_000, 3_000, 8_000]);
        scenario.script.push(Act {
            at_ms,
            for_ms: for_ms.min(FAULTS_MS - at_ms),
            fault,
        });
    }
}
