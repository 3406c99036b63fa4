//! What the placement that is seen draws, by the power model.

use e3_model::api::InstanceView;
use e3_model::plan::Role;
use e3_model::{Application, NodeId, Profile, ServiceId, ShardId, Topology};
use e3_placement::{Cluster, InstanceKey, Request, carried};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A placement as it was seen.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Drawn {
    /// Servers with an instance; the others sleep.
    pub servers: f64,
    /// Modelled power of all servers.
    pub watts: f64,
}

/// What the model knows of the application.
pub struct Subject<'a> {
    /// The application.
    pub app: &'a Application,
    /// Its profiles by name.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// The cluster, on which nothing else runs.
    pub topology: &'a Topology,
}

impl Subject<'_> {
    /// What these instances draw at a rate. None while some shard has no primary.
    pub fn drawn(&self, instances: &[InstanceView], rate_rps: f64) -> Option<Drawn> {
        let at = instances.iter().filter_map(|i| self.place(i));
        let at: BTreeMap<InstanceKey, NodeId> = at.collect();
        let cluster = Cluster::new(self.topology);
        let request = Request::new(self.app, self.profiles);
        let model = carried(&request, &cluster, |key| at.get(&key).copied(), rate_rps)?;
        let server = |i: &InstanceView| Some(self.topology.node_named(&i.node)?.server);
        let servers: BTreeSet<usize> = instances.iter().filter_map(server).collect();
        Some(Drawn {
            servers: servers.len() as f64,
            watts: model.watts,
        })
    }

    fn place(&self, view: &InstanceView) -> Option<(InstanceKey, NodeId)> {
        if view.role != Role::Primary {
            return None;
        }
        let mut parts = view.instance.split('/').skip(1);
        let (service, _) = self.app.service_named(parts.next()?)?;
        let shard = ShardId(parts.next()?.parse().ok()?);
        let node = self.topology.node_named(&view.node)?.id;
        Some((key(service, shard), node))
    }
}

fn key(service: ServiceId, shard: ShardId) -> InstanceKey {
    InstanceKey {
        service,
        shard,
        replica: 0,
    }
}
