//! The views of applications: what was deployed, and what its instances report.

use crate::core::Core;
use crate::counters::{Totals, add};
use crate::operate::rollback_view;
use crate::status::health;
use e3_control::{AppState, Loss, Placed};
use e3_model::api::*;
use e3_model::application::Service;
use e3_model::plan::ShardPlan;
use e3_model::profile::{Profile, Provenance};
use e3_model::{AppId, NodeKind, ServiceId, Timestamp};
use e3_placement::Request;
use std::collections::BTreeMap;

impl Core {
    pub(crate) fn app_views(&self) -> Vec<AppView> {
        self.control
            .apps
            .keys()
            .map(|id| self.app_view(*id, false))
            .collect()
    }

    /// An application; `whole` with its placement, moves and topics.
    pub(crate) fn app_view(&self, id: AppId, whole: bool) -> AppView {
        let state = &self.control.apps[&id];
        let app = &state.plan.app;
        let mut problems = Vec::new();
        let (mut ready, mut dead_letters) = (0, 0);
        let mut services = self.service_views(state);
        for shard in &state.plan.shards {
            let key = state.plan.key(shard);
            let replicas = self.replicas(key, shard);
            let service = &mut services[usize::from(shard.service.0)];
            let running = |r: &&InstanceView| r.status == InstanceStatus::Running;
            ready += replicas.iter().filter(running).count() as u32;
            problems.extend(self.shard_problem(key, &replicas, service.replicas));
            add(&mut dead_letters, replicas[0].dead_letters);
            add_shard(service, &replicas);
        }
        for (service, at) in services.iter_mut().zip(0..) {
            add_totals(service, self.counters.service(id, ServiceId(at)));
        }
        let is_ready = problems.is_empty();
        let (dead_lettered_lately, _) = self.counters.dead_lettered_lately(self.clock.now(), id);
        if let Some(problem) = self.dead_letter_problem(id) {
            problems.insert(0, problem);
        }
        let (admitted, overloaded) = self.counters.ingress(id);
        let mut view = AppView {
            name: app.name.clone(),
            id: id.0,
            code_version: state.plan.code_version,
            earlier_version: state.earlier().map(|r| r.code_version),
            rollbacks: state.rollbacks.iter().map(rollback_view).collect(),
            instances: app.instances(),
            instances_ready: ready,
            ready: is_ready,
            health: health(is_ready, dead_lettered_lately),
            problems,
            waiting: self.waiting(state),
            state_lost: state.state_lost,
            losses: self.loss_views(state),
            dead_letters,
            dead_lettered_lately,
            admitted,
            overloaded,
            modelled_joules_per_request: joules_per_request(&services, &app.spec.ingress),
            services,
            topics: Vec::new(),
            subscriptions: Vec::new(),
            placed: Vec::new(),
            migrations: Vec::new(),
            moves: Vec::new(),
        };
        if whole {
            view.topics = self.topic_views(state);
            view.subscriptions = self.subscription_views(state);
            view.placed = self.placed_views(state);
            let migrations = state.migrations.iter();
            view.migrations = migrations.map(|m| self.migration_view(m)).collect();
            view.moves = state.moved.iter().map(|m| self.moved_view(m)).collect();
        }
        view
    }

    fn placed_views(&self, state: &AppState) -> Vec<PlacedView> {
        let view = |p: &Placed| {
            let service = &state.plan.app.service(p.key.service).name;
            let role = if p.key.replica == 0 {
                "primary"
            } else {
                "backup"
            };
            PlacedView {
                instance: format!("{service}/{} {role}", p.key.shard),
                node: self.node_name(p.node),
                why: p.why.clone(),
            }
        };
        state.placed.iter().map(view).collect()
    }

    fn loss_views(&self, state: &AppState) -> Vec<LossView> {
        let view = |l: &Loss| LossView {
            shard: self.shard_name(state.plan.key_of(l.service, l.shard.0)),
            at_unix_ms: l.at.since(Timestamp::ZERO).as_millis(),
        };
        state.losses.iter().map(view).collect()
    }

    /// The shards whose only copies are on silent nodes.
    fn waiting(&self, state: &AppState) -> Vec<WaitingView> {
        let view = |shard: &ShardPlan| {
            let nodes = self.control.waits_for(state, shard);
            (!nodes.is_empty()).then(|| WaitingView {
                shard: self.shard_name(state.plan.key(shard)),
                nodes: nodes.into_iter().map(|n| self.node_name(n)).collect(),
                had_state: shard.filled,
            })
        };
        state.plan.shards.iter().filter_map(view).collect()
    }

    fn service_views(&self, state: &AppState) -> Vec<ServiceView> {
        let request = Request::new(&state.plan.app, &state.profiles);
        let view = |(id, s): (ServiceId, &Service)| {
            let profile = state.profiles.get(s.profile());
            let kinds = [NodeKind::Host, NodeKind::SmartNic];
            let joules = kinds
                .iter()
                .filter_map(|k| Some((*k, request.cost(id, *k).joules?)));
            let joules_by_kind: BTreeMap<NodeKind, f64> = joules.collect();
            let energy = profile.filter(|_| !joules_by_kind.is_empty());
            let energy = energy.map(|profile| energy_view(profile, joules_by_kind));
            ServiceView {
                name: s.name.clone(),
                shards: s.shards,
                shard_bounds: s.shard_bounds,
                shards_wanted: (state.resharding.as_ref())
                    .filter(|r| r.service == id)
                    .map(|r| r.split.after),
                replicas: s.replicas,
                replicas_in_manifest: state.scaled.get(&id).copied(),
                stateful: s.stateful,
                on_disk: s.is_on_disk(),
                state_bytes: 0,
                state_bytes_max: 0,
                quota_bytes: s.quota().0,
                nodes: BTreeMap::new(),
                handled: 0,
                failed: 0,
                dead_lettered: 0,
                expired: 0,
                busy_seconds: 0.0,
                dead_letters: 0,
                timers: 0,
                queue: 0,
                energy,
                measured: self.counters.metering.service_view(state.plan.id, id),
                error: None,
                last_failure: None,
            }
        };
        request
            .services()
            .zip(&state.plan.app.spec.services)
            .map(view)
            .collect()
    }
}

/// What a service has done, also in shards that have become others.
fn add_totals(service: &mut ServiceView, totals: Totals) {
    service.handled = totals.handled;
    service.failed = totals.failed;
    service.dead_lettered = totals.dead_lettered;
    service.expired = totals.expired;
    service.busy_seconds = totals.busy_seconds;
    let runs = totals.handled.saturating_add(totals.calls);
    if let Some(energy) = &mut service.energy {
        energy.joules = totals.joules;
        energy.joules_per_request = (runs > 0).then(|| totals.joules / runs as f64);
    }
}

/// Adds what a shard's replicas report, its primary first.
fn add_shard(service: &mut ServiceView, replicas: &[InstanceView]) {
    let primary = &replicas[0];
    *service.nodes.entry(primary.node.clone()).or_default() += 1;
    service.queue = service.queue.saturating_add(primary.queue);
    add(&mut service.state_bytes, primary.memory_bytes);
    service.state_bytes_max = service.state_bytes_max.max(primary.memory_bytes);
    add(&mut service.dead_letters, primary.dead_letters);
    add(&mut service.timers, primary.timers);
    if service.last_failure.is_none() {
        service.last_failure.clone_from(&primary.last_failure);
    }
    if service.error.is_none() {
        service.error = replicas.iter().find_map(|r| r.error.clone());
    }
}

/// The energy of a service before anything is known to be handled.
fn energy_view(profile: &Profile, joules_by_kind: BTreeMap<NodeKind, f64>) -> ServiceEnergyView {
    let source = format!(
        "handled requests x service time x active power of a core, profile {:?} ({}: {})",
        profile.name,
        profile.spec.provenance.name(),
        profile.spec.source
    );
    ServiceEnergyView {
        provenance: Provenance::Modelled,
        source,
        joules: 0.0,
        joules_per_request: None,
        joules_by_kind,
    }
}

/// The modelled joules of a request through all services; None if one of them has no profile or no
/// request was handled.
fn joules_per_request(services: &[ServiceView], ingress: &str) -> Option<f64> {
    let requests = services.iter().find(|s| s.name == ingress)?.handled;
    let joules: Option<Vec<f64>> = services
        .iter()
        .map(|s| s.energy.as_ref().map(|e| e.joules))
        .collect();
    (requests > 0).then_some(joules?.iter().sum::<f64>() / requests as f64)
}
