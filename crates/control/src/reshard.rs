//! Changing the number of shards of a service while it serves.
//!
//! Each node splits or merges the copies that it has, so that no state moves. Shards that are to be
//! merged are on the same nodes by then (`gather.rs`). The shards of the service stop together: all copies are complete and nothing of them is on its way. When every
//! primary has confirmed that, the shards after the change take the places of those before.
//! docs/design/014.

use crate::command::{Applied, CommandError, Placed};
use crate::state::{AppState, Control};
use e3_model::plan::{Role, ShardPlan};
use e3_model::reshard::{Resharded, Split};
use e3_model::{AppId, NodeId, ServiceId, ShardId, ShardKey};
use e3_placement::{InstanceKey, Request, fits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A change that is wanted and has not taken place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resharding {
    /// The service.
    pub service: ServiceId,
    /// How the number of its shards is to change.
    pub split: Split,
    /// The shards are stopping. Otherwise the change waits until all copies are in place.
    pub is_freezing: bool,
    /// By shard that has stopped: the view in which it has.
    stopped: BTreeMap<ShardId, u32>,
}

impl Control {
    /// Begins a change of the number of shards of a service.
    pub(crate) fn reshard(
        &mut self,
        id: AppId,
        service: ServiceId,
        shards: u16,
    ) -> Result<Applied, CommandError> {
        let Some(split) = self.check_reshard(id, service, shards)? else {
            return Ok(Applied::Nothing);
        };
        self.orchestration.forget(id, Some(service));
        let app = self.apps.get_mut(&id).expect("just seen");
        let stateful = app.plan.app.service(service).stateful;
        app.resharding = Some(Resharding {
            service,
            split,
            is_freezing: false,
            stopped: BTreeMap::new(),
        });
        if !stateful {
            // There is nothing to hand over: what was on its way is sent again.
            app.switch_shards();
        }
        self.settle_all();
        Ok(Applied::Changed)
    }

    /// Whether the number of shards of a service can become this; none if it is so.
    pub(crate) fn check_reshard(
        &self,
        id: AppId,
        service: ServiceId,
        shards: u16,
    ) -> Result<Option<Split>, CommandError> {
        let app = self.apps.get(&id);
        let app = app.ok_or_else(|| CommandError::NoApp(id.to_string()))?;
        let spec = app.plan.app.spec.services.get(usize::from(service.0));
        let spec = spec.ok_or_else(|| CommandError::NoShard(format!("{id}/{service}")))?;
        if let Some(running) = &app.resharding {
            return Err(CommandError::Resharding {
                service: self.service_name(app, running.service),
                shards: running.split.after,
            });
        }
        let restored = app.plan.restored.as_ref();
        if restored.is_some_and(|r| !r.parts.is_empty()) {
            let (app, what) = (app.plan.app.name.clone(), "it is being restored".into());
            return Err(CommandError::Busy { app, what });
        }
        if spec.shards == shards {
            return Ok(None);
        }
        if let Some(bounds) = spec.shard_bounds.filter(|b| !b.allow(shards)) {
            return Err(CommandError::ShardBounds {
                service: self.service_name(app, service),
                wanted: shards,
                bounds,
            });
        }
        let split = Split::new(spec.shards, shards).ok_or(CommandError::Shards {
            service: self.service_name(app, service),
            now: spec.shards,
            wanted: shards,
        })?;
        self.check_split(app, service, split)?;
        if spec.stateful {
            self.check_apart(app, service, split)?;
        }
        Ok(Some(split))
    }

    /// Whether every node has room for its shards after a split.
    fn check_split(
        &self,
        app: &AppState,
        service: ServiceId,
        split: Split,
    ) -> Result<(), CommandError> {
        let request = Request::new(&app.plan.app, &app.profiles);
        let misfit = self.try_resources(|cluster| {
            for child in (0..split.after).map(ShardId) {
                let parent = split.parents(child).start;
                let is_first = split.children(ShardId(parent)).start == child.0;
                if split.after < split.before || is_first {
                    continue;
                }
                let parent = app.shard(app.plan.key_of(service, parent));
                let parent = parent.expect("every shard is there");
                // The shards of one that waits for a place wait as it does.
                if app.is_orphan(parent) {
                    continue;
                }
                for (node, role) in copies(parent) {
                    if let Err(misfit) = fits(&request, cluster, service, role, node, &[]) {
                        return Some((child, node, misfit));
                    }
                    cluster.add(&request, service, role, node);
                }
            }
            None
        });
        match misfit {
            None => Ok(()),
            Some((child, node, misfit)) => Err(CommandError::Misfit {
                shard: format!("{}/{child}", self.service_name(app, service)),
                node: self.node_name(node),
                misfit,
            }),
        }
    }

    /// `app/service`, as users name the service.
    pub(crate) fn service_name(&self, app: &AppState, service: ServiceId) -> String {
        let name = &app.plan.app.service(service).name;
        format!("{}/{name}", app.plan.app.name)
    }

    /// Brings a change of the number of shards to what the members and shards are now.
    pub(crate) fn settle_resharding(&mut self, id: AppId) {
        let app = &self.apps[&id];
        let Some(resharding) = &app.resharding else {
            return;
        };
        let (service, split) = (resharding.service, resharding.split);
        let is_freezing = resharding.is_freezing;
        let shards = || app.plan.shards.iter().filter(|s| s.service == service);
        let in_place = shards().all(|s| self.is_in_place(app, s));
        let frozen = shards().filter(|s| s.frozen && s.quiet).count();
        let all_frozen = frozen == shards().count();
        let apart = !app.apart(service, split).is_empty();
        let app = self.apps.get_mut(&id).expect("just seen");
        if is_freezing && !(in_place && all_frozen) {
            app.thaw_shards();
        }
        if apart {
            self.gather(id, service, split);
        } else if in_place && !(is_freezing && all_frozen) {
            app.freeze_shards(service);
        }
    }

    /// Whether all copies of a shard are where they should be, and heard.
    pub(crate) fn is_in_place(&self, app: &AppState, shard: &ShardPlan) -> bool {
        let key = app.plan.key(shard);
        let mut nodes = copies(shard).into_iter();
        shard.joining.is_empty()
            && shard.leaving.is_empty()
            && !app.is_orphan(shard)
            && !app.is_moving(key)
            && nodes.all(|(node, _)| self.is_up(node))
    }
}

/// The nodes with complete copies of a shard.
pub(crate) fn copies(shard: &ShardPlan) -> Vec<(NodeId, Role)> {
    let mut backups: Vec<NodeId> = shard.backups.clone();
    backups.sort_unstable();
    let backups = backups.into_iter().map(|node| (node, Role::Backup));
    [(shard.primary, Role::Primary)]
        .into_iter()
        .chain(backups)
        .collect()
}

impl AppState {
    /// Whether a shard is about to be split or merged: nothing else may happen to it.
    pub fn is_resharding(&self, key: ShardKey) -> bool {
        let resharding = self.resharding.as_ref();
        resharding.is_some_and(|r| r.is_freezing && r.service == key.service)
    }

    fn freeze_shards(&mut self, service: ServiceId) {
        for shard in self.plan.shards.iter_mut().filter(|s| s.service == service) {
            shard.view += 1;
            (shard.frozen, shard.quiet) = (true, true);
        }
        if let Some(resharding) = &mut self.resharding {
            resharding.is_freezing = true;
            resharding.stopped.clear();
        }
    }

    /// The shards serve on; the change waits.
    fn thaw_shards(&mut self) {
        let Some(resharding) = &mut self.resharding else {
            return;
        };
        resharding.is_freezing = false;
        let service = resharding.service;
        for shard in self.plan.shards.iter_mut() {
            if shard.service == service && shard.quiet {
                shard.view += u32::from(shard.frozen);
                (shard.frozen, shard.quiet) = (false, false);
            }
        }
    }

    /// Gives up a change that makes no progress. True if there was one.
    pub(crate) fn cancel_resharding(&mut self, service: ServiceId) -> bool {
        if self
            .resharding
            .as_ref()
            .is_none_or(|r| r.service != service)
        {
            return false;
        }
        self.thaw_shards();
        self.resharding = None;
        true
    }

    /// A primary has stopped in this view. True if that changed anything.
    pub(crate) fn on_stopped(&mut self, key: ShardKey, view: u32) -> bool {
        let shard = self.shard(key);
        let is_so = shard.is_some_and(|s| s.view == view && s.frozen && s.quiet);
        let Some(resharding) = self.resharding.as_mut() else {
            return false;
        };
        let is_so = is_so && resharding.is_freezing && resharding.service == key.service;
        if !is_so || resharding.stopped.insert(key.shard, view) == Some(view) {
            return false;
        }
        let stopped = &resharding.stopped;
        let mut shards = self.plan.shards.iter().filter(|s| s.service == key.service);
        if shards.all(|s| stopped.get(&s.shard) == Some(&s.view)) {
            self.switch_shards();
        }
        true
    }

    /// The shards after the change take the places of those before.
    fn switch_shards(&mut self) {
        let Some(Resharding { service, split, .. }) = self.resharding.take() else {
            return;
        };
        let all = std::mem::take(&mut self.plan.shards);
        let (before, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|s| s.service == service);
        let view = 1 + before.iter().map(|s| s.view).max().unwrap_or_default();
        let is_placed = |s: &&ShardPlan| !self.orphans.contains(&s.id());
        let children = (0..split.after).map(|shard| {
            let parents = split.parents(ShardId(shard));
            let parents = &before[usize::from(parents.start)..usize::from(parents.end)];
            let placed = parents.iter().find(is_placed);
            let first = placed.unwrap_or(&parents[0]);
            let mut after = child(first, parents, ShardId(shard), view);
            if placed.is_none() {
                after.incarnation = first.incarnation;
            }
            (after, placed.is_none())
        });
        let (after, waits): (Vec<_>, Vec<_>) = children.unzip();
        self.orphans.retain(|(s, _)| *s != service);
        let waiting = after.iter().zip(waits).filter(|(_, waits)| *waits);
        self.orphans.extend(waiting.map(|(shard, _)| shard.id()));
        let mut shards: Vec<ShardPlan> = others.into_iter().chain(after).collect();
        shards.sort_by_key(ShardPlan::id);
        self.plan.shards = shards;
        self.plan.resharded.retain(|r| r.service != service);
        self.plan.resharded.push(Resharded {
            service,
            split,
            eras: before.iter().map(|s| s.era).collect(),
            era: view,
        });
        self.set_shards(service, split);
    }

    /// Updates the number of shards in the manifests and in the reasons of placement.
    fn set_shards(&mut self, service: ServiceId, split: Split) {
        let at = usize::from(service.0);
        let proven = self.plan.proven.as_mut().map(|release| &mut release.app);
        for app in [&mut self.plan.app].into_iter().chain(proven) {
            Arc::make_mut(app).spec.services[at].shards = split.after;
        }
        let before = std::mem::take(&mut self.placed);
        let others = before.iter().filter(|p| p.key.service != service);
        let mut placed: Vec<Placed> = others.cloned().collect();
        for shard in (0..split.after).map(ShardId) {
            let parent = ShardId(split.parents(shard).start);
            let of_parent = |p: &&Placed| p.key.service == service && p.key.shard == parent;
            let same = before.iter().filter(of_parent);
            placed.extend(same.map(|p| Placed {
                key: InstanceKey { shard, ..p.key },
                ..p.clone()
            }));
        }
        self.placed = placed.into();
    }
}

/// A shard after the change, made of these, where the first of them is that has a place.
fn child(first: &ShardPlan, parents: &[ShardPlan], shard: ShardId, view: u32) -> ShardPlan {
    ShardPlan {
        shard,
        view,
        incarnation: view,
        era: view,
        predecessor: Some(first.primary),
        fenced: true,
        frozen: false,
        quiet: false,
        filled: parents.iter().any(|p| p.filled),
        ..first.clone()
    }
}
