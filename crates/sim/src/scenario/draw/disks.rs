//! Draws faults of the nodes' disks.

use super::super::{Act, Fault, Scenario};
use e3_random::Random;

/// Most faults of the disks of nodes.
const DISK_FAULTS_MAX: u64 = 4;
/// How long disks are slow before the power fails, at most.
const SLOW_DISKS_MS: u64 = 1_000;
/// How long a node stays away whose successor has a slow disk.
const AWAY_MS: u64 = 8_000;
/// How long after it the successor loses its power, at most.
const SUCCESSOR_MS: u64 = 100;
/// Most pairs of these.
const SUCCESSORS_MAX: u64 = 4;

/// Adds faults of the nodes' disks where services have their state there. From random numbers of its own,
/// so that the rest of a seed's scenario stays as it is.
pub(super) fn draw(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_d15c);
    let mut services = scenario.apps.iter().flat_map(|app| &app.services);
    if !services.any(|s| s.on_disk) || random.one_in(3) {
        return;
    }
    for _ in 0..=random.below(DISK_FAULTS_MAX) {
        let node = random.below(u64::from(scenario.nodes())) as u32;
        let fault = match random.below(5) {
            0 => Fault::NodeDiskFull(node),
            1 => Fault::NodeTornWrite(node),
            2 => Fault::NodeBitRot(node),
            3 => Fault::NodeSyncFails(node),
            _ => Fault::NodeLostWrites(node),
        };
        let at_ms = random.below(scenario.faults_ms - 1_000);
        let span_ms = *random.pick(&[50, 240, 400, 1_000, 3_000]);
        scenario.script.push(Act {
            at_ms,
            for_ms: span_ms.min(scenario.faults_ms - at_ms),
            fault,
        });
    }
    if random.one_in(4) {
        blackout_with_slow_disks(random, scenario);
    }
    if random.one_in(2) {
        for _ in 0..1 + random.below(SUCCESSORS_MAX) {
            successor_with_a_slow_disk(random, scenario);
        }
    }
}

/// Everything loses its power while all disks have much to write, some more than others.
fn blackout_with_slow_disks(random: &mut Random, scenario: &mut Scenario) {
    let at_ms = random.below(scenario.faults_ms - 2 * SLOW_DISKS_MS);
    for node in 0..scenario.nodes() {
        let write_ms = *random.pick(&[20, 300]);
        scenario.script.push(Act {
            at_ms,
            for_ms: SLOW_DISKS_MS,
            fault: Fault::NodeDiskSlow(node, write_ms),
        });
    }
    scenario.script.push(Act {
        at_ms: at_ms + random.below(SLOW_DISKS_MS),
        for_ms: 50,
        fault: Fault::Blackout(*random.pick(&[3_000, 12_000])),
    });
}

/// A node ends and stays away, and one of another server, which may take over from it, loses its power soon
/// after, while its disk has much to write.
fn successor_with_a_slow_disk(random: &mut Random, scenario: &mut Scenario) {
    let servers = scenario.servers_of_nodes();
    let (away, torn) = (random.index(servers.len()), random.index(servers.len()));
    if servers[away] == servers[torn] {
        return;
    }
    let at_ms = random.below(scenario.faults_ms - AWAY_MS - 2 * SLOW_DISKS_MS);
    let ends_ms = at_ms + random.below(SLOW_DISKS_MS);
    let torn_ms = ends_ms + random.below(SUCCESSOR_MS);
    let (away, torn) = (away as u32, torn as u32);
    for (at_ms, for_ms, fault) in [
        (at_ms, SLOW_DISKS_MS, Fault::NodeDiskSlow(torn, 300)),
        (ends_ms, AWAY_MS, Fault::Kill(away)),
        (torn_ms, 50, Fault::NodeTornWrite(torn)),
    ] {
        scenario.script.push(Act {
            at_ms,
            for_ms,
            fault,
        });
    }
}
