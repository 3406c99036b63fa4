//! How many copies the shards of a service have, changed while it runs.
//!
//! The number in the plan's manifest is the one that holds; what the deployed manifest says is kept
//! beside it and holds again from the next deployment on. Copies that lack are added as after a loss,
//! in the background; those that are too many leave in two steps, like any copy (`view.rs`).

use crate::command::{Applied, CommandError};
use crate::migration::{Cancelled, Migration};
use crate::state::Control;
use crate::view::leave;
use e3_model::limits::REPLICAS_MAX;
use e3_model::{AppId, NodeId, ServiceId, ShardKey};
use e3_placement::PlaceError;
use std::sync::Arc;

impl Control {
    /// Changes the number of copies of each shard of a service.
    pub(crate) fn scale(
        &mut self,
        app: AppId,
        service: ServiceId,
        replicas: u16,
    ) -> Result<Applied, CommandError> {
        let none = || CommandError::NoApp(format!("with id {app}"));
        let state = self.apps.get(&app).ok_or_else(none)?;
        let services = &state.plan.app.spec.services;
        let at = usize::from(service.0);
        let Some(spec) = services.get(at) else {
            return Err(CommandError::NoService {
                app: state.plan.app.name.clone(),
                service: service.to_string(),
                known: services.iter().map(|s| s.name.clone()).collect(),
            });
        };
        let (name, before) = (spec.name.clone(), spec.replicas);
        if !spec.stateful {
            return Err(CommandError::Stateless(name));
        }
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            let service = name;
            return Err(CommandError::Replicas { service, replicas });
        }
        let required = spec.accelerators_required();
        let index = self.index();
        let domains = index.cluster.fault_domains(spec.pin.as_ref(), required);
        drop(index);
        if replicas > before && usize::from(replicas) > domains {
            let service = name;
            return Err(CommandError::Place(PlaceError::FaultDomains {
                service,
                replicas,
                domains,
            }));
        }
        if replicas == before {
            return Ok(Applied::Nothing);
        }
        let state = self.apps.get_mut(&app).expect("just seen");
        let manifest = *state.scaled.entry(service).or_insert(before);
        if manifest == replicas {
            state.scaled.remove(&service);
        }
        Arc::make_mut(&mut state.plan.app).spec.services[at].replicas = replicas;
        self.settle_scale(app);
        Ok(Applied::Changed)
    }

    /// The replicas in the manifest of an application have changed.
    pub(crate) fn settle_scale(&mut self, app: AppId) {
        let state = &self.apps[&app];
        let is_too_many = |m: &&Migration| {
            let shard = state.shard(m.key).expect("it moves");
            let copies = 1 + shard.staying().count() + shard.joining.len();
            let wanted = state.plan.app.service(m.key.service).replicas;
            // Its own copy is one more than wanted while it moves.
            m.from != shard.primary && copies > usize::from(wanted) + 1
        };
        let moves = state.migrations.iter().filter(is_too_many);
        let moves: Vec<ShardKey> = moves.map(|m| m.key).collect();
        for key in moves {
            self.undo_move(key, Cancelled::Scaled);
        }
        self.settle_all();
    }

    /// Has backups leave a shard that has more copies than wanted: first those that are not complete,
    /// then those on drained nodes.
    pub(crate) fn remove_extra_backups(&mut self, id: AppId, at: usize) {
        let app = &self.apps[&id];
        let shard = &app.plan.shards[at];
        if app.is_orphan(shard) || !self.is_up(shard.primary) {
            return;
        }
        let key = app.plan.key(shard);
        let moving = app.migrations.iter().find(|m| m.key == key).copied();
        let wanted = app.plan.app.service(shard.service).replicas;
        let wanted = usize::from(wanted) + usize::from(moving.is_some());
        let mut shard = shard.clone();
        let takes_part = |n: &NodeId| moving.is_some_and(|m| m.from == *n || m.to == *n);
        while 1 + shard.staying().count() + shard.joining.len() > wanted {
            if let Some(last) = shard.joining.iter().rposition(|n| !takes_part(n)) {
                shard.joining.remove(last);
            } else {
                let backups: Vec<NodeId> = shard.staying().filter(|n| !takes_part(n)).collect();
                let mut last_first = backups.iter().rev();
                let drained = last_first.clone().find(|n| self.drained.contains(n));
                let Some(backup) = drained.or_else(|| last_first.next()).copied() else {
                    return;
                };
                leave(&mut shard, backup);
            }
        }
        if app.plan.shards[at] != shard {
            shard.view += 1;
            let app = self.apps.get_mut(&id).expect("just seen");
            app.plan.shards[at] = shard;
        }
    }
}
