//! Deploying, updating and deleting applications.

use crate::command::{Applied, CommandError, Deployment, Placed};
use crate::limits::APPS_MAX;
use crate::state::{AppState, Control};
use crate::update::update;
use e3_model::application::Service;
use e3_model::backup::{Part, Restored};
use e3_model::plan::{AppPlan, ShardPlan};
use e3_model::{AppId, Application, Format, NodeKind, Profile, ServiceId, ShardId};
use e3_placement::limits::REQUEST_BYTES_DEFAULT;
use e3_placement::{Cluster, InstanceKey, Placement, Request, accept, admit, by_name, given};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The placer of deployments whose log holds no decisions, as of format 7. It is not the default placer:
/// old logs must replay to the same state.
pub const PLACER_UNDECIDED: &str = "hcm-kind";

impl Control {
    /// Places a new application, or updates one that runs.
    pub(crate) fn deploy(&mut self, d: &Deployment<'_>) -> Result<Applied, CommandError> {
        let Deployment {
            app,
            modules,
            assets,
            profiles,
            overcommit,
            restored,
            placed,
        } = *d;
        if app.spec.services.iter().any(|s| !s.timers.is_empty()) {
            self.check_format(Format::SERVICE_TIMERS, "timers in manifests")?;
        }
        if app.spec.services.iter().any(|s| s.shard_bounds.is_some()) {
            self.check_format(Format::SHARD_BOUNDS, "bounds of the number of shards")?;
        }
        let has_new =
            |s: &Service| !s.accelerators_required.is_empty() || s.resources.disk.is_some();
        let has_day = app.spec.load.as_ref().is_some_and(|l| !l.day.is_empty());
        if has_day || app.spec.services.iter().any(has_new) {
            self.check_format(
                Format::CONSTRAINTS,
                "required accelerators, disk and the load by the hour in manifests",
            )?;
        }
        if let Some(restored) = restored {
            self.check_restore(app, restored)?;
        }
        if let Some(id) = self.app_named(&app.name) {
            let state = self.apps.get_mut(&id).expect("found by its name");
            let applied = update(state, app, modules, assets)?;
            if applied != Applied::Nothing {
                self.settle_scale(id);
                self.settle_backup(id);
            }
            return Ok(applied);
        }
        if self.apps.len() >= APPS_MAX {
            return Err(CommandError::TooManyApps(self.apps.len()));
        }
        let next_app = self.next_app.checked_add(1).ok_or(CommandError::NoAppId)?;
        let request = Request::new(app, profiles);
        let placement = self.placement(&request, placed, overcommit)?;
        let id = AppId(self.next_app);
        self.next_app = next_app;
        let plan = AppPlan {
            id,
            code_version: 1,
            app: Arc::new(app.clone()),
            modules: modules.to_vec(),
            assets: assets.clone(),
            proven: None,
            resharded: Vec::new(),
            backup: None,
            secrets: BTreeMap::new(),
            restored: restored.cloned(),
            slowdown: slowdowns(app, profiles),
            shards: shards(app, &placement, restored),
        };
        let placed = match placed {
            [] => self.try_resources(|cluster| explain(&request, cluster, &placement)),
            placed => placed.to_vec(),
        };
        let state = AppState::new(plan, profiles.clone(), placed);
        self.apps.insert(id, state);
        self.settle_secrets(&app.name);
        Ok(Applied::Deployed(id))
    }

    /// Where the instances go. What was decided before is checked like any placement: it may have been
    /// overtaken.
    fn placement(
        &self,
        request: &Request<'_>,
        placed: &[Placed],
        overcommit: bool,
    ) -> Result<Placement, CommandError> {
        self.try_resources(|cluster| Control::place(request, cluster, placed, overcommit))
    }

    fn place(
        request: &Request<'_>,
        cluster: &mut Cluster,
        placed: &[Placed],
        overcommit: bool,
    ) -> Result<Placement, CommandError> {
        if placed.is_empty() {
            let placer = by_name(PLACER_UNDECIDED).expect("it exists");
            return Ok(admit(&*placer, request, cluster, overcommit)?);
        }
        let refused = |key: InstanceKey, why: String| CommandError::Placed {
            instance: format!(
                "{}/{} replica {}",
                request.app.service(key.service).name,
                key.shard,
                key.replica
            ),
            why,
        };
        let nodes: BTreeMap<_, _> = placed.iter().map(|p| (p.key, p.node)).collect();
        let node_of = |key| nodes.get(&key).copied();
        let placement = cluster
            .try_out(|cluster| given(request, cluster, node_of))
            .map_err(|key| refused(key, "it has no node".into()))?;
        if let Some(extra) = placed.get(placement.decisions.len()) {
            return Err(refused(
                extra.key,
                "there are more nodes than instances".into(),
            ));
        }
        for d in &placement.decisions {
            if let Some(misfit) = d.overcommitted.as_ref().filter(|m| m.is_hard()) {
                return Err(refused(d.key, misfit.to_string()));
            }
        }
        accept(PLACER_UNDECIDED, request, cluster, &placement, overcommit)?;
        Ok(placement)
    }

    /// Whether an application can begin with the state of a backup: a part for each shard with state.
    fn check_restore(&self, app: &Application, restored: &Restored) -> Result<(), CommandError> {
        let name = &app.name;
        self.check_restored_name(name)?;
        let services = (0..).map(ServiceId).zip(&app.spec.services);
        let stateful = services.filter(|(_, spec)| spec.stateful);
        let expected: Vec<_> = stateful
            .flat_map(|(service, spec)| (0..spec.shards).map(move |s| (service, ShardId(s))))
            .collect();
        let parts = restored.parts.iter();
        if parts.map(Part::id).eq(expected.iter().copied()) {
            Ok(())
        } else {
            Err(CommandError::Parts {
                app: name.clone(),
                found: restored.parts.len(),
                expected: expected.len(),
            })
        }
    }

    /// Refuses a name for an application that begins with a backup, if there is one of this name.
    pub fn check_restored_name(&self, name: &str) -> Result<(), CommandError> {
        let Some(id) = self.app_named(name) else {
            return Ok(());
        };
        let restored = self.apps[&id].plan.restored.as_ref();
        let app = name.to_owned();
        match restored.map_or(0, |restored| restored.parts.len()) {
            0 => Err(CommandError::Exists(app)),
            left => Err(CommandError::Restoring { app, left }),
        }
    }

    /// Deletes an application and its state.
    pub(crate) fn delete(&mut self, name: &str) -> Result<Applied, CommandError> {
        let id = self.app_named(name);
        let id = id.ok_or_else(|| CommandError::NoApp(name.into()))?;
        self.apps.remove(&id);
        self.secrets.remove(name);
        self.orchestration.forget(id, None);
        self.stalled.retain(|key| key.app != id);
        Ok(Applied::Changed)
    }
}

/// The decisions of a placer with the reason of each, given the reservations of those before it.
pub fn explain(request: &Request<'_>, cluster: &mut Cluster, placement: &Placement) -> Vec<Placed> {
    let mut placed = Vec::new();
    for d in &placement.decisions {
        placed.push(Placed {
            key: d.key,
            node: d.node,
            why: d.explain(request, cluster).to_string(),
        });
        cluster.add(request, d.key.service, d.key.role(), d.node);
    }
    placed
}

/// By service: its service time on each kind of node against that on a host.
fn slowdowns(
    app: &Application,
    profiles: &BTreeMap<String, Profile>,
) -> Vec<BTreeMap<NodeKind, f64>> {
    let load = app.spec.load.as_ref();
    let bytes = load.map_or(REQUEST_BYTES_DEFAULT, |l| l.request_bytes);
    let services = app.spec.services.iter();
    let factors = services.map(|service| {
        let profile = profiles.get(service.profile());
        let factor = |k: NodeKind| (k, profile.map_or(1.0, |p| p.slowdown(k, bytes)));
        [NodeKind::Host, NodeKind::SmartNic].map(factor).into()
    });
    factors.collect()
}

/// All shards in their first view.
fn shards(app: &Application, placement: &Placement, restored: Option<&Restored>) -> Vec<ShardPlan> {
    let mut shards = Vec::new();
    for (service, spec) in (0..).map(ServiceId).zip(&app.spec.services) {
        for shard in (0..spec.shards).map(ShardId) {
            let replicas = placement.replicas(service, shard);
            let is_restored = restored.is_some_and(|r| r.part(service, shard).is_some());
            // No copy is complete before its primary has the state.
            let (backups, joining) = if is_restored {
                (Vec::new(), replicas[1..].to_vec())
            } else {
                (replicas[1..].to_vec(), Vec::new())
            };
            shards.push(ShardPlan {
                service,
                shard,
                view: 1,
                incarnation: 1,
                primary: replicas[0],
                backups,
                joining,
                leaving: Vec::new(),
                predecessor: None,
                fenced: true,
                frozen: is_restored,
                quiet: false,
                era: 1,
                filled: false,
            });
        }
    }
    shards
}
