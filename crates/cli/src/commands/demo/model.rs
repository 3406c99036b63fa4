//! The modelled knee of an application: as placed, on the hosts of the same servers only, and on
//! servers without SmartNICs. Only the messages per request are measured.

use crate::cluster::state_dir::StateDir;
use crate::commands::load::figures::Figures;
use crate::commands::place;
use crate::documents::builtin;
use crate::ui::failure::{Exit, Failure};
use e3_model::api::InstanceView;
use e3_model::{Application, NodeId, Profile, ServiceId, ShardId, Topology};
use e3_placement::limits::BACKUP_CPU_FRACTION;
use e3_power::knee::knee;
use e3_power::limits::KNEE_UTILISATION;
use e3_power::{Bottleneck, IdleServers, Instance, Knee, KneeInput, PowerModel};
use serde::Serialize;
use std::collections::BTreeMap;

/// A placement with its knee.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Modelled {
    /// Which placement.
    pub placement: String,
    /// Its bottleneck, as text.
    pub bound: String,
    /// The knee.
    pub knee: Knee,
}

/// What is modelled.
pub struct Subject<'a> {
    /// The application.
    pub app: &'a Application,
    /// Its manifest.
    pub text: &'a builtin::Text,
    /// Its profiles.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// Messages per request, by service.
    pub visits: Vec<f64>,
}

/// Messages per client request, by service, from what was handled.
pub fn visits(app: &Application, figures: &Figures) -> Vec<f64> {
    let handled = |name: &str| figures.handled.get(name).copied().unwrap_or(0) as f64;
    let requests = handled(&app.spec.ingress).max(1.0);
    app.spec
        .services
        .iter()
        .map(|s| handled(&s.name) / requests)
        .collect()
}

/// The running placement, then the two that it is compared with.
pub fn compare(
    subject: &Subject<'_>,
    state: &StateDir,
    instances: &[InstanceView],
) -> Result<Vec<Modelled>, Failure> {
    let topology = state.stored_topology()?;
    let running = running(subject.app, &topology, instances);
    let mut all = vec![modelled(subject, &topology, &running, "as it runs here")?];
    let hosts = placed(subject, &topology, "hosts-only")?;
    all.push(modelled(
        subject,
        &topology,
        &hosts,
        "hosts only, same servers",
    )?);
    let (_, beefy) = builtin::topology("3x-beefy")?;
    let on_beefy = placed(subject, &beefy, "hosts-only")?;
    all.push(modelled(
        subject,
        &beefy,
        &on_beefy,
        "3x Beefy, no SmartNICs",
    )?);
    Ok(all)
}

fn running(app: &Application, topology: &Topology, views: &[InstanceView]) -> Vec<Instance> {
    let instance = |view: &InstanceView| {
        let mut parts = view.instance.split('/').skip(1);
        let (service, _) = app.service_named(parts.next()?)?;
        Some(Instance {
            service,
            shard: ShardId(parts.next()?.parse().ok()?),
            role: view.role,
            node: topology.node_named(&view.node)?.id,
        })
    };
    views.iter().filter_map(instance).collect()
}

fn placed(
    subject: &Subject<'_>,
    topology: &Topology,
    placer: &str,
) -> Result<Vec<Instance>, Failure> {
    let placed = place::place(
        subject.text,
        subject.app,
        topology,
        subject.profiles,
        &place::PlacerArgs::named(placer),
    )?;
    let instance = |d: &e3_placement::Decision| Instance {
        service: d.key.service,
        shard: d.key.shard,
        role: d.key.role(),
        node: d.node,
    };
    Ok(placed.placement.decisions.iter().map(instance).collect())
}

fn modelled(
    subject: &Subject<'_>,
    topology: &Topology,
    instances: &[Instance],
    name: &str,
) -> Result<Modelled, Failure> {
    let power = PowerModel::paper();
    let load = subject.app.spec.load.as_ref();
    let knee = knee(&KneeInput {
        app: subject.app,
        profiles: subject.profiles,
        topology,
        idle_servers: IdleServers::On,
        instances,
        visits: &subject.visits,
        request_bytes: load.map_or(512, |l| l.request_bytes),
        backup_cpu_fraction: BACKUP_CPU_FRACTION,
        power: &power,
        knee_utilisation: KNEE_UTILISATION,
    })
    .map_err(|e| Failure::new(Exit::Input, format!("the knee cannot be modelled: {e}")))?;
    Ok(Modelled {
        placement: name.to_string(),
        bound: bound(subject.app, topology, &knee.bottleneck),
        knee,
    })
}

fn bound(app: &Application, topology: &Topology, bottleneck: &Bottleneck) -> String {
    let name = |id: NodeId| topology.node(id).map_or("?", |n| n.node.name.as_str());
    let service = |id: ServiceId| &app.service(id).name;
    match bottleneck {
        Bottleneck::Cores { node } => format!("cores of {}", name(*node)),
        Bottleneck::Port { node } => format!("network port of {}", name(*node)),
        Bottleneck::Shard {
            node,
            service: s,
            shard,
        } => {
            format!("one core of {}/{} on {}", service(*s), shard.0, name(*node))
        }
    }
}
