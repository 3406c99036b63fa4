//! The controller's state and how commands change it.

use crate::choice::Choices;
use crate::command::{Applied, Command, CommandError, Deployment, Placed};
use crate::credentials::{ApiToken, Secrets};
use crate::cut::Backup;
use crate::event_list::Events;
use crate::index::IndexCell;
use crate::limits::LOSSES_MAX;
use crate::migration::{Migration, Moved};
use crate::orchestration::Orchestration;
use crate::reshard::Resharding;
use crate::table::Table;
use crate::waiting::Waiting;
use e3_model::plan::{AppPlan, Release, ShardPlan};
use e3_model::{
    Address, AppId, Format, Formats, NodeId, PowerCaps, Profile, ServiceId, ShardId, ShardKey,
    Timestamp, Topology,
};
use e3_placement::Cluster;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// All decisions of the controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Control {
    /// Grows with every change of any plan.
    pub version: u64,
    /// Random id of the cluster, not 0.
    pub cluster: u64,
    /// The active format: what every process of the cluster writes.
    #[serde(default)]
    pub format: Format,
    /// Release of the controller that made it the active one; empty if it did not say.
    #[serde(default)]
    pub format_release: String,
    /// The topology.
    pub topology: Arc<Topology>,
    /// Nodes that have ever joined.
    pub members: Table<NodeId, Member>,
    /// Applications.
    pub apps: Table<AppId, AppState>,
    /// Tokens of the API by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tokens: BTreeMap<String, ApiToken>,
    /// Secrets of applications.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: Secrets,
    /// Nodes that an operator has taken out of service.
    #[serde(default)]
    pub drained: BTreeSet<NodeId>,
    /// Nodes that an operator has cordoned: they get no new instances.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cordoned: BTreeSet<NodeId>,
    /// Nodes that were removed from the topology, with their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<NodeId, String>,
    /// Nodes that came back, each with the moves that may still go there. See `returned.rs`.
    #[serde(default)]
    pub(crate) returned: BTreeMap<NodeId, u16>,
    /// Shards whose last move stalled: they are moved again when a node comes or an operator asks.
    #[serde(default)]
    pub(crate) stalled: BTreeSet<ShardKey>,
    /// Shards of which a copy waits for room. See `waiting.rs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) waiting: Vec<Waiting>,
    /// Settings and past moves of the orchestrator.
    #[serde(default)]
    pub orchestration: Orchestration,
    /// Power caps of servers and racks.
    #[serde(default, skip_serializing_if = "PowerCaps::is_empty")]
    pub power_caps: PowerCaps,
    /// What happened lately.
    #[serde(default)]
    pub events: Events,
    pub(crate) next_app: u16,
    pub(crate) next_move: u64,
    /// The latest time in a command.
    pub(crate) now: Timestamp,
    #[serde(skip)]
    pub(crate) index: IndexCell,
    #[serde(skip)]
    pub(crate) choices: Choices,
}

/// A node that has joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The incarnation of its process.
    pub incarnation: u32,
    /// What the process says of itself.
    pub process: u64,
    /// Release of its program; empty if it did not say.
    #[serde(default)]
    pub release: String,
    /// Formats that it reads and can write.
    #[serde(default)]
    pub formats: Formats,
    /// Its address.
    pub address: Address,
    /// Where it listens for the traffic of its host, if it relays that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Address>,
    /// Whether it is heard. A silent process remains the node's and may return with its state.
    pub up: bool,
    /// The latest incarnation whose process has certainly ended; 0 if there is none.
    #[serde(default)]
    pub exited: u32,
    /// Peers that it cannot reach, there or back.
    #[serde(default)]
    pub unreachable: BTreeSet<NodeId>,
}

/// An application and the decisions about it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AppState {
    /// Where its shards are.
    pub plan: AppPlan,
    /// Whether its version has started at every primary.
    #[serde(default)]
    pub has_started: bool,
    /// The versions that ran before the last one that started, the oldest first, at most
    /// [`crate::limits::RELEASES_MAX`].
    #[serde(default)]
    pub history: VecDeque<Release>,
    /// Whether its version is an earlier one that was deployed again: then what it replaced is not kept.
    #[serde(default)]
    pub(crate) is_rollback: bool,
    /// The rollbacks, the oldest first, at most [`crate::limits::ROLLBACKS_MAX`].
    #[serde(default)]
    pub rollbacks: VecDeque<RolledBack>,
    /// By service that was scaled: how many replicas the manifest says.
    #[serde(default)]
    pub scaled: BTreeMap<ServiceId, u16>,
    /// The profiles of its services.
    pub profiles: BTreeMap<String, Profile>,
    /// Why each instance was placed where it was at deployment. Shared, since the state is copied for each
    /// command.
    pub placed: Arc<[Placed]>,
    /// Moves in flight.
    pub migrations: Vec<Migration>,
    /// The change of a service's number of shards that is wanted, if one is.
    #[serde(default)]
    pub resharding: Option<Resharding>,
    /// The last backup.
    #[serde(default)]
    pub backup: Option<Backup>,
    /// Finished moves, the oldest first, at most [`crate::limits::MOVES_MAX`].
    pub moved: VecDeque<Moved>,
    /// How often the last copy of a shard that had state was lost, or given up by an operator.
    pub state_lost: u64,
    /// These losses, the oldest first, at most [`LOSSES_MAX`].
    pub losses: VecDeque<Loss>,
    /// Shards that begin empty and that no node has room for yet.
    pub(crate) orphans: BTreeSet<(ServiceId, ShardId)>,
}

/// A loss: the last copy of a shard that had state was lost or given up, so the shard begins empty, or
/// from a copy that may lack what was acknowledged last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// When.
    pub at: Timestamp,
}

/// A rollback.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// The version that was left.
    pub from: u32,
    /// The earlier version that was deployed again.
    pub to: u32,
    /// Its new number.
    pub code_version: u32,
    /// Why the controller did it by itself; none if an operator asked for it.
    pub why: Option<String>,
    /// When.
    pub at: Timestamp,
}

impl AppState {
    pub(crate) fn new(
        plan: AppPlan,
        profiles: BTreeMap<String, Profile>,
        placed: Vec<Placed>,
    ) -> AppState {
        AppState {
            plan,
            has_started: false,
            history: VecDeque::new(),
            is_rollback: false,
            rollbacks: VecDeque::new(),
            scaled: BTreeMap::new(),
            profiles,
            placed: placed.into(),
            migrations: Vec::new(),
            resharding: None,
            backup: None,
            moved: VecDeque::new(),
            state_lost: 0,
            losses: VecDeque::new(),
            orphans: BTreeSet::new(),
        }
    }

    /// The plan of a shard.
    pub fn shard(&self, key: ShardKey) -> Option<&ShardPlan> {
        let at = self.position(key).filter(|_| key.app == self.plan.id)?;
        self.plan.shards.get(at)
    }

    pub(crate) fn shard_mut(&mut self, key: ShardKey) -> Option<&mut ShardPlan> {
        let at = self.position(key)?;
        self.plan.shards.get_mut(at)
    }

    /// Position of a shard in the plan, which has them in the order of services and shards.
    pub(crate) fn position(&self, key: ShardKey) -> Option<usize> {
        let id = (key.service, key.shard);
        self.plan
            .shards
            .binary_search_by_key(&id, ShardPlan::id)
            .ok()
    }

    pub(crate) fn note_loss(&mut self, loss: Loss) {
        self.state_lost += 1;
        self.losses.push_back(loss);
        if self.losses.len() > LOSSES_MAX {
            self.losses.pop_front();
        }
    }

    /// Whether no copy of the shard is left and no node has room for it yet.
    pub fn is_orphan(&self, shard: &ShardPlan) -> bool {
        self.orphans.contains(&shard.id())
    }
}

impl Control {
    /// The state of a new cluster: no node has joined, nothing runs.
    pub fn new(cluster: u64, topology: impl Into<Arc<Topology>>) -> Control {
        Control {
            version: 1,
            cluster,
            format: Format::default(),
            format_release: String::new(),
            topology: topology.into(),
            members: Table::new(),
            apps: Table::new(),
            tokens: BTreeMap::new(),
            secrets: Secrets::new(),
            drained: BTreeSet::new(),
            cordoned: BTreeSet::new(),
            removed: BTreeMap::new(),
            returned: BTreeMap::new(),
            stalled: BTreeSet::new(),
            waiting: Vec::new(),
            orchestration: Orchestration::default(),
            power_caps: PowerCaps::default(),
            events: Events::default(),
            next_app: 1,
            next_move: 1,
            now: Timestamp::ZERO,
            index: IndexCell::default(),
            choices: Choices::default(),
        }
    }

    /// Applies a command. An error leaves the state as it was.
    pub fn apply(&mut self, command: &Command) -> Result<Applied, CommandError> {
        if let Command::With { choices, command } = command {
            return self.apply_with(choices, command);
        }
        self.apply_choosing(command).map(|(applied, _)| applied)
    }

    pub(crate) fn apply_here(&mut self, command: &Command) -> Result<Applied, CommandError> {
        if let Command::At { at, command } = command {
            return self.apply_at(*at, command);
        }
        let before = self.before(command);
        let applied = self.carry_out(command)?;
        if applied != Applied::Nothing {
            self.move_drained();
            self.move_back();
            self.settle_waiting(command);
            self.note_events(command, &before);
            self.version += 1;
        }
        Ok(applied)
    }

    fn carry_out(&mut self, command: &Command) -> Result<Applied, CommandError> {
        let applied = match command {
            Command::Deploy {
                app,
                modules,
                assets,
                profiles,
                overcommit,
                restored,
                placed,
            } => self.deploy(&Deployment {
                app,
                modules,
                assets,
                profiles,
                overcommit: *overcommit,
                restored: restored.as_ref(),
                placed,
            })?,
            Command::Backup { app } => self.backup(*app)?,
            Command::CancelBackup { app, number, why } => self.cancel_backup(*app, *number, why),
            Command::Delete { app } => self.delete(app)?,
            Command::Started { app, code_version } => self.started(*app, *code_version),
            Command::Migrate {
                key,
                from,
                to,
                cold,
            } => self.migrate_by_hand(*key, *from, *to, *cold)?,
            Command::Cancel { key } => self.cancel(*key)?,
            Command::Scale {
                app,
                service,
                replicas,
            } => self.scale(*app, *service, *replicas)?,
            Command::Rollback {
                app,
                code_version,
                why,
                at,
            } => self.rollback(*app, *code_version, why.as_deref(), *at)?,
            Command::RaiseFormat { to, release } => self.raise_format(*to, release)?,
            Command::Drain { node } => self.drain(*node)?,
            Command::Resume { node } => self.resume(*node)?,
            Command::AddNodes { racks } => self.add_nodes(racks)?,
            Command::Cordon { node } => self.cordon(*node)?,
            Command::RemoveNode { node } => self.remove_node(*node)?,
            Command::Reshard {
                app,
                service,
                shards,
            } => self.reshard(*app, *service, *shards)?,
            Command::Join { hello, at } => self.join(hello, *at)?,
            Command::Lose { nodes, at } => self.lose(nodes, *at),
            Command::Exit {
                node,
                incarnation,
                at,
            } => self.exit(*node, *incarnation, *at),
            Command::Hear {
                node,
                incarnation,
                at,
            } => self.hear(*node, *incarnation, *at),
            Command::Reach {
                node,
                incarnation,
                unreachable,
                at,
            } => self.reach(*node, *incarnation, unreachable, *at),
            Command::Forget { key, at } => self.forget(*key, *at)?,
            Command::Event(event) => self.on_event(*event),
            Command::CreateToken { name, token } => self.create_token(name, token)?,
            Command::RevokeToken { name } => self.revoke_token(name)?,
            Command::SetSecret {
                app,
                name,
                value,
                at,
            } => self.set_secret(app, name, value, *at)?,
            Command::RetireSecret { app, name } => self.retire_secret(app, name)?,
            Command::DeleteSecret { app, name } => self.delete_secret(app, name)?,
            Command::At { at, command } => self.apply_at(*at, command)?,
            // It is never within another command.
            Command::With { .. } => Applied::Nothing,
            Command::SetOrchestrator { settings, at } => self.set_orchestrator(settings, *at)?,
            Command::SetPowerCap { domain, cap_w } => self.set_power_cap(domain, *cap_w)?,
            Command::Orchestrate(decided) => self.orchestrate(decided)?,
        };
        Ok(applied)
    }

    /// The application with this name.
    pub fn app_named(&self, name: &str) -> Option<AppId> {
        self.apps
            .iter()
            .find(|(_, a)| a.plan.app.name == name)
            .map(|(id, _)| *id)
    }

    /// `app/service/shard`, as users name the shard.
    pub fn shard_name(&self, key: ShardKey) -> String {
        let app = self.apps.get(&key.app);
        app.and_then(|a| a.plan.shard_name(key))
            .unwrap_or_else(|| "of a deleted application".into())
    }

    /// The name of a node.
    pub fn node_name(&self, id: NodeId) -> String {
        let index = self.index_of_topology();
        let node = index.cluster.get(id).map(|n| n.name.clone());
        let node = node.or_else(|| self.removed.get(&id).cloned());
        node.unwrap_or_else(|| "that the topology does not have".into())
    }

    /// A number for a new move.
    pub(crate) fn next_migration(&mut self) -> u64 {
        self.next_move += 1;
        self.next_move - 1
    }

    /// The server of each node, by id; no server where there is no such node.
    pub(crate) fn servers(&self) -> Arc<[usize]> {
        self.index_of_topology().servers.clone()
    }

    /// The placer's input: the members, and the resources in use.
    pub fn resources(&self) -> Cluster {
        self.index().cluster.clone()
    }

    /// Asks the placer's input something. What is changed about it meanwhile is taken back.
    pub fn try_resources<T>(&self, work: impl FnOnce(&mut Cluster) -> T) -> T {
        self.index().cluster.try_out(work)
    }

    /// The same as if an application did not run.
    pub fn try_without<T>(&self, app: AppId, work: impl FnOnce(&mut Cluster) -> T) -> T {
        self.index().try_without(app, work)
    }

    /// The shards that name a node, in their order.
    pub fn shards_on(&self, node: NodeId) -> Vec<ShardKey> {
        self.index().shards_on(node)
    }

    /// The shards that change, wait or stand still, in their order.
    pub fn busy_shards(&self) -> Vec<ShardKey> {
        self.index().busy.iter().copied().collect()
    }

    /// Whether a node is a member and heard.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|m| m.up)
    }
}
