//! How a plan differs from an earlier one, so that a node need not be sent all of it at each change.
//!
//! A change says what is different, not how that came about: applying it twice gives the same plan.
//! A node is sent only what concerns it. Design: docs/design/027.

use crate::format::Format;
use crate::ids::{AppId, NodeId, ServiceId, ShardId};
use crate::plan::{AppPlan, ListedApp, NodePlan, Peer, ShardPlan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Header of an answer with a plan: the number of the process that sent it. A node sends it back, since
/// another process may know another plan by the same version if its log lacks decisions.
pub const PLAN_SOURCE_HEADER: &str = "e3-plan-source";

/// Header of an answer without a plan: the version whose plan does not differ from what the node has.
pub const PLAN_VERSION_HEADER: &str = "e3-plan-version";

/// What differs between two versions of the plan of a cluster.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanChange {
    /// The version that it changes.
    pub base: u64,
    /// The version that it leads to.
    pub version: u64,
    /// The cluster.
    pub cluster: u64,
    /// The active format after the change.
    pub format: Format,
    /// Members that are new or different; none for those that are gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<NodeId, Option<Peer>>,
    /// See [`NodePlan::exited`]: what is new or different.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exited: BTreeMap<NodeId, u32>,
    /// Applications that are gone, or concern the node no longer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<AppId>,
    /// Entries of [`NodePlan::directory`] that are new or different; none for those that are gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub directory: BTreeMap<AppId, Option<ListedApp>>,
    /// Applications that are new or different.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub apps: BTreeMap<AppId, AppChange>,
}

/// What differs between two versions of the plan of an application.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AppChange {
    /// The application without its shards, if it is new or anything but its shards differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<Box<AppPlan>>,
    /// Shards that are new or different, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<ShardPlan>,
    /// Shards that are gone, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<(ServiceId, ShardId)>,
}

impl AppChange {
    /// What differs from an earlier plan; none if nothing does.
    pub fn between(old: Option<&AppPlan>, new: &AppPlan) -> Option<AppChange> {
        let app = old.is_none_or(|old| !old.is_same_but_shards(new));
        let old = old.map_or(&[][..], |old| &old.shards);
        let (shards, gone) = merge(old, &new.shards);
        let differs = app || !shards.is_empty() || !gone.is_empty();
        differs.then(|| AppChange {
            app: app.then(|| Box::new(new.without_shards())),
            shards,
            gone,
        })
    }

    /// The plan after the change; none if it lacks what it changes.
    fn apply(self, old: Option<AppPlan>) -> Option<AppPlan> {
        let (mut old, shards) = match (self.app, old) {
            (Some(app), old) => (*app, old.map_or_else(Vec::new, |old| old.shards)),
            (None, Some(mut old)) => {
                let shards = std::mem::take(&mut old.shards);
                (old, shards)
            }
            (None, None) => return None,
        };
        let mut by_id: BTreeMap<_, _> = shards.into_iter().map(|s| (s.id(), s)).collect();
        for id in &self.gone {
            by_id.remove(id);
        }
        by_id.extend(self.shards.into_iter().map(|s| (s.id(), s)));
        old.shards = by_id.into_values().collect();
        Some(old)
    }
}

impl AppPlan {
    fn without_shards(&self) -> AppPlan {
        AppPlan {
            shards: Vec::new(),
            ..self.clone()
        }
    }

    fn is_same_but_shards(&self, other: &AppPlan) -> bool {
        let AppPlan {
            id,
            code_version,
            app,
            modules,
            assets,
            proven,
            slowdown,
            shards: _,
            resharded,
            backup,
            restored,
            secrets,
        } = self;
        *id == other.id
            && *code_version == other.code_version
            && (Arc::ptr_eq(app, &other.app) || *app == other.app)
            && *modules == other.modules
            && *assets == other.assets
            && *proven == other.proven
            && *slowdown == other.slowdown
            && *resharded == other.resharded
            && *backup == other.backup
            && *restored == other.restored
            && *secrets == other.secrets
    }
}

/// The shards that are new or different, and those that are gone. Both plans are in order.
fn merge(old: &[ShardPlan], new: &[ShardPlan]) -> (Vec<ShardPlan>, Vec<(ServiceId, ShardId)>) {
    let mut old = old.iter().peekable();
    let (mut changed, mut gone) = (Vec::new(), Vec::new());
    for shard in new {
        while let Some(before) = old.next_if(|s| s.id() < shard.id()) {
            gone.push(before.id());
        }
        if old.next_if(|s| s.id() == shard.id()) != Some(shard) {
            changed.push(shard.clone());
        }
    }
    gone.extend(old.map(ShardPlan::id));
    (changed, gone)
}

impl PlanChange {
    /// Whether nothing but the version differs.
    pub fn is_empty(&self) -> bool {
        let lists = self.gone.is_empty() && self.directory.is_empty() && self.apps.is_empty();
        lists && self.peers.is_empty() && self.exited.is_empty()
    }
}

impl NodePlan {
    /// The plan after a change. None if the change is of another cluster or version, or lacks what it
    /// changes: then the node needs the whole plan.
    pub fn changed(&self, change: PlanChange) -> Option<NodePlan> {
        let is_of = (self.cluster, self.version) == (change.cluster, change.base);
        if !is_of {
            return None;
        }
        let mut peers = self.peers.clone();
        for (node, peer) in change.peers {
            match peer {
                Some(peer) => drop(peers.insert(node, peer)),
                None => drop(peers.remove(&node)),
            }
        }
        let mut exited = self.exited.clone();
        exited.extend(change.exited);
        let mut directory = self.directory.clone();
        for (id, listed) in change.directory {
            match listed {
                Some(listed) => drop(directory.insert(id, listed)),
                None => drop(directory.remove(&id)),
            }
        }
        let stays = self
            .apps
            .iter()
            .filter(|app| !change.gone.contains(&app.id));
        let mut apps: BTreeMap<AppId, AppPlan> = stays.map(|app| (app.id, app.clone())).collect();
        for (id, change) in change.apps {
            let app = change.apply(apps.remove(&id))?;
            apps.insert(id, app);
        }
        Some(NodePlan {
            version: change.version,
            revision: self.revision,
            cluster: self.cluster,
            format: change.format,
            node: self.node,
            peers,
            exited,
            // Where SmartNICs relay, nodes are sent whole plans.
            relays: self.relays.clone(),
            relayed: self.relayed,
            apps: apps.into_values().collect(),
            directory,
        })
    }
}
