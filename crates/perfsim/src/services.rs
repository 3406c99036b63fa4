//! Services as the simulator sees them: service times, state and channels.

use crate::input::{Input, ModelError};
use crate::model::{Edge, Node, Service};
use e3_hardware::Guesses;
use e3_hardware::service_time::ServiceTime;
use e3_model::{NodeKind, Profile, ServiceId};
use std::collections::BTreeSet;

/// Services with their service times and channels.
pub(crate) fn services(input: &Input<'_>, nodes: &[Node]) -> Result<Vec<Service>, ModelError> {
    let mut on = vec![[false; 2]; input.app.spec.services.len()];
    for d in &input.placement.decisions {
        if let Some(node) = nodes.get(d.node.index()) {
            on[usize::from(d.key.service.0)][node.kind as usize] = true;
        }
    }
    let mut first_shard = 0;
    let mut all = Vec::new();
    for (i, spec) in input.app.spec.services.iter().enumerate() {
        let id = ServiceId(i as u16);
        let profile = input.profiles.get(spec.profile());
        let profile = profile.ok_or_else(|| ModelError::Profile {
            service: spec.name.clone(),
            profile: spec.profile().to_string(),
        })?;
        // A kind of node that the service is not placed on needs no service time.
        let time = |kind| match service_time(input, profile, &spec.name, kind) {
            Ok(time) => Ok(time),
            Err(_) if !on[i][kind as usize] => Ok(ServiceTime {
                mean: 0.0,
                variation: 0.0,
            }),
            Err(error) => Err(error),
        };
        all.push(Service {
            name: spec.name.clone(),
            first_shard,
            shards: spec.shards,
            edges: edges(input, id),
            entry_bytes: profile.spec.write_bytes as u32,
            is_stateful: spec.stateful,
            state_bytes: state_bytes(spec, profile, &input.options.guesses),
            time: [time(NodeKind::Host)?, time(NodeKind::SmartNic)?],
        });
        first_shard += u32::from(spec.shards);
    }
    Ok(all)
}

fn service_time(
    input: &Input<'_>,
    profile: &Profile,
    service: &str,
    kind: NodeKind,
) -> Result<ServiceTime, ModelError> {
    let service = service.to_string();
    let (bytes, options) = (input.request_bytes, input.options);
    let time = ServiceTime::of(profile, kind, bytes, &options.guesses);
    let time = match time {
        Ok(time) => time,
        Err(source) => return Err(ModelError::ServiceTime { service, source }),
    };
    match options.stack.factor(profile, kind) {
        Ok(factor) => Ok(ServiceTime {
            mean: time.mean * factor,
            ..time
        }),
        Err(source) => Err(ModelError::Stack { service, source }),
    }
}

/// Service times of requests smaller than all that were measured, then those that are only bounds.
pub(crate) fn assumptions(input: &Input<'_>, nodes: &[Node]) -> Vec<String> {
    let (mut small, mut bounds) = (BTreeSet::new(), BTreeSet::new());
    for d in &input.placement.decisions {
        let spec = input.app.service(d.key.service);
        let Some(node) = nodes.get(d.node.index()) else {
            continue;
        };
        let (bytes, kind) = (input.request_bytes, node.kind);
        let profile = input.profiles.get(spec.profile());
        let from = profile.and_then(|p| ServiceTime::assumed_from(p, kind, bytes));
        if let Some(from) = from {
            let percent = u64::from(bytes) * 100 / u64::from(from);
            small.insert(format!(
                "{} on a {}: measured with {from} bytes, not with {bytes}; its time is between {percent} and 100 % of the measured one (guess per_byte_part)",
                spec.name,
                kind.name()
            ));
        }
        let cost = profile.and_then(|p| p.spec.nodes.get(&kind));
        if cost.is_some_and(|cost| cost.lower_bound) {
            bounds.insert(format!(
                "{} on a {}: its service time is a bound, since the network port and not the cores limited the measurement; the true time is at most that",
                spec.name,
                kind.name()
            ));
        }
    }
    small.into_iter().chain(bounds).collect()
}

/// The state of a shard: what was measured, else a part of what is reserved for it.
fn state_bytes(spec: &e3_model::application::Service, profile: &Profile, guesses: &Guesses) -> u64 {
    let reserved = spec.resources.state.unwrap_or(spec.resources.memory);
    match profile.spec.memory.0 {
        0 => (reserved.0 as f64 * guesses.state_fill) as u64,
        measured => measured,
    }
}

/// A service with several parents gets from each in proportion to the parents' visits.
fn edges(input: &Input<'_>, from: ServiceId) -> Vec<Edge> {
    let channels = &input.app.spec.channels;
    let visits = |name: &str| {
        let found = input.app.service_named(name);
        found.map_or(0.0, |(id, _)| input.visits[usize::from(id.0)])
    };
    let edge = |to: ServiceId| {
        let name = &input.app.service(to).name;
        let parents = channels.iter().filter(|c| c.to == *name);
        let all: f64 = parents.map(|c| visits(&c.from)).sum();
        let mean = if all > 0.0 { visits(name) / all } else { 0.0 };
        Edge {
            to: to.0,
            whole: mean as u32,
            part: mean.fract(),
        }
    };
    let channels = input.app.channels_from(from);
    channels.map(|(_, to, _)| edge(to)).collect()
}
