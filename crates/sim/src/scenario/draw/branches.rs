//! Draws changes of the number of shards while one of a request's branches waits.

use super::super::{Act, AppShape, Fault, Scenario};
use e3_random::Random;

/// Most of these changes.
const CHANGES_MAX: u64 = 6;

/// Where a service without state has several outputs for each message, nodes fall silent, so that some of
/// the outputs wait, and then numbers of shards change: in two of three such scenarios. The client of a
/// request whose other outputs have arrived does not send it again. From random numbers of its own, so
/// that the rest of a seed's scenario stays as it is.
pub(super) fn draw(scenario: &mut Scenario) {
    let random = &mut Random::new(scenario.seed ^ 0x0e3_b4a);
    if !scenario.apps.iter().any(branches) || random.one_in(3) {
        return;
    }
    for _ in 0..1 + random.below(CHANGES_MAX) {
        let node = random.below(u64::from(scenario.nodes())) as u32;
        let for_ms = *random.pick(&[150, 240, 400, 1_000]);
        let at_ms = random.below(scenario.faults_ms - 2 * for_ms);
        let silence = if random.one_in(2) {
            Fault::Pause(node)
        } else {
            Fault::CutPeers(node)
        };
        let change = Fault::Reshard(random.next_u64());
        for (at_ms, fault) in [(at_ms, silence), (at_ms + random.below(for_ms), change)] {
            scenario.script.push(Act {
                at_ms,
                for_ms,
                fault,
            });
        }
    }
}

/// Whether a service without state has several outputs for each message.
fn branches(app: &AppShape) -> bool {
    let stateless = (0..app.services.len()).filter(|at| !app.services[*at].stateful);
    let outputs = |at: usize| {
        app.channels_of(at)
            .iter()
            .map(|(_, n)| u32::from(*n))
            .sum::<u32>()
    };
    stateless.map(outputs).any(|outputs| outputs > 1)
}
