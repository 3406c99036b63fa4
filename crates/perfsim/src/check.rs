//! What is refused before anything is simulated.

use crate::faults::Failing;
use crate::input::{Input, ModelError};

/// Refuses what this fidelity does not model, and faults of what is not there.
pub(crate) fn check(input: &Input<'_>) -> Result<(), ModelError> {
    let services = &input.app.spec.services;
    if input.visits.len() != services.len() {
        return Err(ModelError::VisitsCount {
            given: input.visits.len(),
            services: services.len(),
        });
    }
    for (service, visits) in services.iter().zip(input.visits) {
        let name = || service.name.clone();
        if !visits.is_finite() || *visits < 0.0 {
            return Err(ModelError::Visits {
                service: name(),
                visits: *visits,
            });
        }
        let what = match () {
            () if !service.calls.is_empty() => "calls other services",
            () if !service.asks.is_empty() => "asks other services",
            () if !service.publishes.is_empty() => "publishes on topics",
            () => continue,
        };
        return Err(ModelError::NotModelled {
            service: name(),
            what,
        });
    }
    check_faults(input)
}

fn check_faults(input: &Input<'_>) -> Result<(), ModelError> {
    let nodes = input.topology.nodes().count();
    let racks = input.topology.spec.racks.len();
    let uplinks = match racks {
        1 => 0,
        _ => input.options.guesses.uplinks_per_rack.round() as usize,
    };
    for fault in &input.options.faults {
        let named = match fault.what {
            Failing::Node(node) | Failing::Link(node) => vec![("node", node.index(), nodes)],
            Failing::Uplink { rack, link } => {
                vec![("rack", rack, racks), ("uplink", link, uplinks)]
            }
        };
        if let Some((what, given, known)) = named.into_iter().find(|(_, given, n)| given >= n) {
            return Err(ModelError::FaultOf {
                what,
                given,
                topology: input.topology.name.clone(),
                known,
            });
        }
        if let Some(until) = fault.until.filter(|until| *until <= fault.from) {
            return Err(ModelError::FaultTime {
                from_s: fault.from.as_secs_f64(),
                until_s: until.as_secs_f64(),
            });
        }
    }
    Ok(())
}
