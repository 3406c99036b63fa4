//! An application as a worker needs it.

use e3_collections::CollectionSpec;
use e3_model::application::Service;
use e3_model::dag::Dag;
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{EdgeId, NodeId, NodeKind, ServiceId, ShardKey};

/// An application with its routes.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) plan: AppPlan,
    pub(crate) dag: Dag,
    /// By service: the edges that leave it, in the manifest's order.
    pub(crate) channels: Vec<Vec<EdgeId>>,
    /// By service: index of its first shard in `plan.shards`.
    first: Vec<usize>,
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
        Some(App {
            plan,
            dag,
            channels,
            first,
        })
    }

    /// Whether the application has this shard.
    pub(crate) fn has(&self, key: ShardKey) -> bool {
        let service = self.plan.app.spec.services.get(usize::from(key.service.0));
        service.is_some_and(|s| key.shard.0 < s.shards)
    }

    pub(crate) fn shard(&self, key: ShardKey) -> &ShardPlan {
        &self.plan.shards[self.first[usize::from(key.service.0)] + usize::from(key.shard.0)]
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

    /// How many times slower the service is on this kind of node than on the fastest kind; 1 where
    /// service times are not emulated.
    pub(crate) fn slowdown(&self, key: ShardKey, kind: NodeKind, slowed: bool) -> f64 {
        if !slowed {
            return 1.0;
        }
        let by_kind = self.plan.slowdown.get(usize::from(key.service.0));
        by_kind.and_then(|m| m.get(&kind)).copied().unwrap_or(1.0)
    }
}
