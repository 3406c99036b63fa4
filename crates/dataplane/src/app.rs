//! An application as a worker needs it: its routes, and the small integers that stand for its
//! shards and channel ends in the worker's tables.

use crate::config::Config;
use e3_collections::CollectionSpec;
use e3_model::application::Service;
use e3_model::dag::Dag;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{EdgeId, NodeId, ServiceId, ShardId, ShardKey};
use e3_wire::frame::Ends;

/// An application with its routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) plan: AppPlan,
    pub(crate) dag: Dag,
    /// By service: the edges that leave it, in the manifest's order.
    pub(crate) channels: Vec<Vec<EdgeId>>,
    /// By service: index of its first shard in `plan.shards`.
    first: Vec<usize>,
    /// By edge: first row of its ends in the table of sending ends, one row a sending shard, and in
    /// that of receiving ends, one row a receiving shard.
    rows: Vec<(usize, usize)>,
    /// By index of the shard: the replica here.
    replicas: Vec<Option<ReplicaId>>,
}

/// Number of a replica in the worker's table, given again when the replica is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ReplicaId(u32);

impl ReplicaId {
    pub(crate) fn new(at: usize) -> ReplicaId {
        ReplicaId(u32::try_from(at).expect("fewer replicas than shards"))
    }

    pub(crate) fn at(self) -> usize {
        self.0 as usize
    }
}

/// Place of a channel end in the table of all ends of its application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Where a shard is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) primary: NodeId,
    pub(crate) incarnation: u32,
}

impl App {
    /// None if the plan contradicts itself.
    pub(crate) fn new(plan: AppPlan) -> Option<App> {
        let dag = Dag::new(&plan.app).ok()?;
        let services = &plan.app.spec.services;
        let mut first = Vec::with_capacity(services.len());
        let mut expected = Vec::new();
        for (i, service) in services.iter().enumerate() {
            first.push(expected.len());
            expected.extend((0..service.shards).map(|s| (i as u16, s)));
        }
        let complete = plan
            .shards
            .iter()
            .map(|s| (s.service.0, s.shard.0))
            .eq(expected);
        if !complete {
            return None;
        }
        let channels = (0..services.len())
            .map(|i| {
                plan.app
                    .channels_from(ServiceId(i as u16))
                    .map(|(e, _, _)| e)
                    .collect()
            })
            .collect();
        let shards = |service: Option<ServiceId>| {
            service.map_or(0, |s| usize::from(services[usize::from(s.0)].shards))
        };
        // Before them come replication (a row a shard) and the ingress: a row a service where it
        // sends, a row a shard where it is received.
        let mut rows = Vec::new();
        let mut next = (plan.shards.len() + services.len(), 2 * plan.shards.len());
        for edge in (0..plan.app.spec.channels.len()).map(|e| EdgeId(e as u16)) {
            rows.push(next);
            next.0 += shards(dag.sender(edge));
            next.1 += shards(dag.receiver(edge));
        }
        let replicas = vec![None; plan.shards.len()];
        Some(App {
            plan,
            dag,
            channels,
            first,
            rows,
            replicas,
        })
    }

    /// Place of a shard in `plan.shards`; none if the application has no such shard.
    fn index(&self, service: ServiceId, shard: ShardId) -> Option<usize> {
        let (service, shard) = (usize::from(service.0), shard.0);
        let has = shard < self.plan.app.spec.services.get(service)?.shards;
        has.then(|| self.first[service] + usize::from(shard))
    }

    /// Whether the application has this shard.
    pub(crate) fn has(&self, key: ShardKey) -> bool {
        self.index(key.service, key.shard).is_some()
    }

    pub(crate) fn shard(&self, key: ShardKey) -> &ShardPlan {
        &self.plan.shards[self.first[usize::from(key.service.0)] + usize::from(key.shard.0)]
    }

    /// The shard's replica here.
    pub(crate) fn replica(&self, key: ShardKey) -> Option<ReplicaId> {
        self.replicas[self.index(key.service, key.shard)?]
    }

    /// Notes the shard's replica here.
    pub(crate) fn set_replica(&mut self, key: ShardKey, id: Option<ReplicaId>) {
        if let Some(index) = self.index(key.service, key.shard) {
            self.replicas[index] = id;
        }
    }

    /// All replicas here, ordered by shard.
    pub(crate) fn replicas(&self) -> impl Iterator<Item = ReplicaId> {
        self.replicas.iter().flatten().copied()
    }

    /// Place of a channel's sending end among those of a node; none if there is no such channel.
    pub(crate) fn sending_cell(&self, ends: &Ends) -> Option<Cell> {
        let (row, column) = match *ends {
            Ends::Replication {
                service,
                shard,
                backup,
            } => (self.index(service, shard)?, backup.index()),
            Ends::Ingress { service, shard, .. } => {
                self.index(service, shard)?;
                (
                    self.plan.shards.len() + usize::from(service.0),
                    shard.0.into(),
                )
            }
            Ends::Edge { edge, from, to } => {
                self.index(self.dag.sender(edge)?, from)?;
                self.index(self.dag.receiver(edge)?, to)?;
                let (first, _) = self.rows[usize::from(edge.0)];
                (first + usize::from(from.0), to.0.into())
            }
        };
        Some(Cell { row, column })
    }

    /// The same of its receiving end.
    pub(crate) fn receiving_cell(&self, ends: &Ends) -> Option<Cell> {
        let (row, column) = match *ends {
            Ends::Replication { service, shard, .. } => (self.index(service, shard)?, 0),
            Ends::Ingress {
                node,
                service,
                shard,
            } => (
                self.plan.shards.len() + self.index(service, shard)?,
                node.index(),
            ),
            Ends::Edge { edge, from, to } => {
                self.index(self.dag.sender(edge)?, from)?;
                self.index(self.dag.receiver(edge)?, to)?;
                let (_, first) = self.rows[usize::from(edge.0)];
                (first + usize::from(to.0), from.0.into())
            }
        };
        Some(Cell { row, column })
    }

    /// Where a channel's receiver is served; none for replication, which names its node.
    pub(crate) fn route_of(&self, ends: &Ends) -> Option<Route> {
        let (service, shard) = match *ends {
            Ends::Ingress { service, shard, .. } => (service, shard),
            Ends::Edge { edge, to, .. } => (self.dag.receiver(edge)?, to),
            Ends::Replication { .. } => return None,
        };
        let key = ShardKey {
            app: self.plan.id,
            service,
            shard,
        };
        self.has(key).then(|| self.route(key))
    }

    /// The service that a channel leads to, and its number of shards; none for replication.
    pub(crate) fn receiving_shards(&self, ends: &Ends) -> Option<(ServiceId, u16)> {
        let service = match *ends {
            Ends::Ingress { service, .. } => service,
            Ends::Edge { edge, .. } => self.dag.receiver(edge)?,
            Ends::Replication { .. } => return None,
        };
        let spec = self.plan.app.spec.services.get(usize::from(service.0))?;
        Some((service, spec.shards))
    }

    pub(crate) fn route(&self, key: ShardKey) -> Route {
        let shard = self.shard(key);
        Route {
            primary: shard.primary,
            incarnation: shard.incarnation,
        }
    }

    pub(crate) fn service(&self, key: ShardKey) -> &Service {
        self.plan.app.service(key.service)
    }

    pub(crate) fn collections(&self, key: ShardKey) -> &[CollectionSpec] {
        &self.service(key).collections
    }

    /// How many times longer a request of the service occupies a core of this node than its handler
    /// runs: by how much this kind of node is slower than the fastest kind, at the scale of the
    /// emulation; 1 where service times are not emulated.
    pub(crate) fn slowdown(&self, key: ShardKey, config: &Config) -> f64 {
        let by_kind = self.plan.slowdown.get(usize::from(key.service.0));
        let of_kind = by_kind.and_then(|m| m.get(&config.kind)).copied();
        let of_kind = of_kind.filter(|_| config.slowed).unwrap_or(1.0);
        of_kind / config.emulated.map_or(1.0, |e| e.speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::app;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_channels_share_a_place() {
        let app = app();
        let nodes = || (0..4).map(NodeId);
        let shards = |n: u16| (0..n).map(ShardId);
        let places: Vec<_> = app
            .plan
            .shards
            .iter()
            .map(|s| (s.service, s.shard))
            .collect();
        let ingress = nodes().flat_map(|node| {
            let ends = |(service, shard): &(ServiceId, ShardId)| Ends::Ingress {
                node,
                service: *service,
                shard: *shard,
            };
            places.iter().map(ends).collect::<Vec<_>>()
        });
        let edge = EdgeId(0);
        let edges =
            shards(2).flat_map(|from| shards(3).map(move |to| Ends::Edge { edge, from, to }));
        let replication = app.plan.shards.iter().map(|s| (s.service, s.shard));
        let replication = replication.flat_map(|(service, shard)| {
            nodes().map(move |backup| Ends::Replication {
                service,
                shard,
                backup,
            })
        });
        let all: Vec<Ends> = ingress.chain(edges).chain(replication).collect();
        let place = |cell: Option<Cell>| cell.map(|c| (c.row, c.column)).expect("of the plan");
        // A node sends with its own ingress, and receives as one backup.
        let sends = all.iter().filter(|e| match e {
            Ends::Ingress { node, .. } => node.0 == 1,
            _ => true,
        });
        let sends: Vec<_> = sends.map(|e| place(app.sending_cell(e))).collect();
        let receives = all.iter().filter(|e| match e {
            Ends::Replication { backup, .. } => backup.0 == 1,
            _ => true,
        });
        let receives: Vec<_> = receives.map(|e| place(app.receiving_cell(e))).collect();
        for places in [sends, receives] {
            let distinct: BTreeSet<_> = places.iter().collect();
            assert_eq!(distinct.len(), places.len(), "{places:?}");
        }
    }
}
