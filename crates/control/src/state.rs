//! The controller's state, and how commands change it.

use crate::command::{Applied, Command, CommandError};
use crate::limits::{APPS_MAX, LOSSES_MAX};
use crate::migration::{Migration, Moved};
use crate::update::update;
use e3_model::plan::{AppPlan, NodeHello, NodePlan, NodeWelcome, Peer, Role, ShardPlan};
use e3_model::{
    Address, AppId, Application, Nanos, NodeId, NodeKind, Profile, ServiceId, ShardId, ShardKey,
    Timestamp, Topology,
};
use e3_placement::{Cluster, InstanceKey, Request, admit, by_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Everything that the controller has decided.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Control {
    /// Grows with every change of any plan.
    pub version: u64,
    /// The cluster; 0 before `Init`.
    pub cluster: u64,
    /// The hardware.
    pub topology: Option<Topology>,
    /// Nodes that ever joined.
    pub members: BTreeMap<NodeId, Member>,
    /// Applications.
    pub apps: BTreeMap<AppId, AppState>,
    next_app: u16,
    next_move: u64,
    /// The latest time that a command told, since the Unix epoch.
    pub(crate) now: Timestamp,
}

/// A node that has joined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Number of its process.
    pub incarnation: u32,
    /// What the process calls itself.
    pub process: u64,
    /// Where it listens.
    pub address: Address,
    /// Whether it takes part now.
    pub up: bool,
}

/// An application and what was decided for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AppState {
    /// Where everything is.
    pub plan: AppPlan,
    /// Costs of its services.
    pub profiles: BTreeMap<String, Profile>,
    /// Why every instance was placed where it was at deployment.
    pub placed: Vec<Placed>,
    /// Moves in flight.
    pub migrations: Vec<Migration>,
    /// Finished moves, the oldest first, at most [`crate::limits::MOVES_MAX`].
    pub moved: VecDeque<Moved>,
    /// How often a shard that had state lost all replicas and began again empty.
    pub state_lost: u64,
    /// These losses, the oldest first, at most [`LOSSES_MAX`].
    pub losses: VecDeque<Loss>,
    /// Shards whose primary is lost and that no node can take over yet.
    pub(crate) orphans: BTreeSet<(ServiceId, ShardId)>,
}

/// A shard that had state lost all replicas and began again empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Service.
    pub service: ServiceId,
    /// Shard.
    pub shard: ShardId,
    /// When it began again, since the Unix epoch.
    pub at: Timestamp,
}

/// A decision of the placer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    /// The instance.
    pub key: InstanceKey,
    /// Where it went.
    pub node: NodeId,
    /// Why, in one line.
    pub why: String,
}

impl AppState {
    /// The plan of a shard.
    pub fn shard(&self, key: ShardKey) -> Option<&ShardPlan> {
        self.plan.shards.iter().find(|s| self.plan.key(s) == key)
    }

    pub(crate) fn shard_mut(&mut self, key: ShardKey) -> Option<&mut ShardPlan> {
        let mut shards = self.plan.shards.iter_mut();
        shards.find(|s| (s.service, s.shard) == (key.service, key.shard))
    }

    pub(crate) fn note_loss(&mut self, loss: Loss) {
        self.state_lost += 1;
        self.losses.push_back(loss);
        if self.losses.len() > LOSSES_MAX {
            self.losses.pop_front();
        }
    }

    /// Whether the shard's primary is lost, with all that it had. Its node may be back by now.
    pub fn is_orphan(&self, shard: &ShardPlan) -> bool {
        self.orphans.contains(&(shard.service, shard.shard))
    }
}

impl Control {
    /// Applies a command. An error leaves the state as it was.
    pub fn apply(&mut self, command: &Command) -> Result<Applied, CommandError> {
        let applied = match command {
            Command::Init { cluster, topology } => self.init(*cluster, topology)?,
            _ if self.topology.is_none() => return Err(CommandError::NotInitialised),
            Command::Deploy {
                app,
                modules,
                assets,
                profiles,
                overcommit,
            } => self.deploy(app, modules, assets, profiles, *overcommit)?,
            Command::Delete { app } => {
                let id = self
                    .app_named(app)
                    .ok_or_else(|| CommandError::NoApp(app.clone()))?;
                self.apps.remove(&id);
                Applied::Changed
            }
            Command::Migrate { key, from, to } => self.migrate(*key, *from, *to)?,
            Command::Cancel { key } => self.cancel(*key)?,
            Command::Join { hello, at } => self.join(hello, *at)?,
            Command::Lose {
                node,
                incarnation,
                at,
            } => self.lose(*node, *incarnation, *at),
            Command::Event(event) => self.on_event(*event),
        };
        if applied != Applied::Nothing {
            self.version += 1;
        }
        Ok(applied)
    }

    fn init(&mut self, cluster: u64, topology: &Topology) -> Result<Applied, CommandError> {
        if self.topology.is_some() {
            return Err(CommandError::Initialised);
        }
        self.cluster = cluster;
        self.topology = Some(topology.clone());
        self.next_app = 1;
        self.next_move = 1;
        Ok(Applied::Changed)
    }

    /// The application of that name.
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

    /// Name of a node.
    pub fn node_name(&self, id: NodeId) -> String {
        let topology = self.topology.as_ref();
        let node = topology.and_then(|t| t.node(id).map(|n| n.node.name.clone()));
        node.unwrap_or_else(|| "that the topology does not have".into())
    }

    /// The next number of a move.
    pub(crate) fn number_move(&mut self) -> u64 {
        self.next_move += 1;
        self.next_move - 1
    }

    pub(crate) fn topology(&self) -> &Topology {
        self.topology.as_ref().expect("checked by apply")
    }

    /// By node: its server.
    pub(crate) fn servers(&self) -> Vec<usize> {
        self.topology().nodes().map(|n| n.server).collect()
    }

    /// The placer's view: who takes part, and what is taken.
    pub fn resources(&self) -> Cluster {
        let topology = self.topology();
        let mut cluster = Cluster::new(topology);
        for node in topology.nodes() {
            cluster.set_member(node.id, self.is_up(node.id));
        }
        for app in self.apps.values() {
            let request = Request::new(&app.plan.app, &app.profiles);
            for shard in &app.plan.shards {
                if !app.is_orphan(shard) {
                    cluster.add(&request, shard.service, Role::Primary, shard.primary);
                }
                for backup in shard.backups.iter().chain(&shard.joining) {
                    cluster.add(&request, shard.service, Role::Backup, *backup);
                }
            }
        }
        cluster
    }

    /// Whether a node takes part now.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|m| m.up)
    }

    fn deploy(
        &mut self,
        app: &Application,
        modules: &[String],
        assets: &BTreeMap<String, String>,
        profiles: &BTreeMap<String, Profile>,
        overcommit: bool,
    ) -> Result<Applied, CommandError> {
        if let Some(id) = self.app_named(&app.name) {
            let state = self.apps.get_mut(&id).expect("found by its name");
            return update(&mut state.plan, app, modules, assets);
        }
        if self.apps.len() >= APPS_MAX {
            return Err(CommandError::TooManyApps(self.apps.len()));
        }
        let next_app = self.next_app.checked_add(1).ok_or(CommandError::NoAppId)?;
        let request = Request::new(app, profiles);
        let mut cluster = self.resources();
        let placer = by_name("hcm").expect("it exists");
        let placement = admit(&*placer, &request, &cluster, overcommit)?;
        let mut placed = Vec::new();
        for d in &placement.decisions {
            let role = if d.key.replica == 0 {
                Role::Primary
            } else {
                Role::Backup
            };
            let why = d.explain(&request, &cluster).to_string();
            placed.push(Placed {
                key: d.key,
                node: d.node,
                why,
            });
            cluster.add(&request, d.key.service, role, d.node);
        }
        let mut shards = Vec::new();
        let mut slowdown = Vec::new();
        let bytes = app.spec.load.as_ref().map_or(512, |l| l.request_bytes);
        for (i, service) in app.spec.services.iter().enumerate() {
            let id = ServiceId(i as u16);
            let profile = profiles.get(service.profile());
            let factor = |k: NodeKind| (k, profile.map_or(1.0, |p| p.slowdown(k, bytes)));
            slowdown.push([NodeKind::Host, NodeKind::SmartNic].map(factor).into());
            for shard in (0..service.shards).map(ShardId) {
                let replicas = placement.replicas(id, shard);
                shards.push(ShardPlan {
                    service: id,
                    shard,
                    view: 1,
                    incarnation: 1,
                    primary: replicas[0],
                    backups: replicas[1..].to_vec(),
                    joining: Vec::new(),
                    predecessor: None,
                    fenced: true,
                    frozen: false,
                    filled: false,
                });
            }
        }
        let id = AppId(self.next_app);
        self.next_app = next_app;
        let plan = AppPlan {
            id,
            code_version: 1,
            app: Arc::new(app.clone()),
            modules: modules.to_vec(),
            assets: assets.clone(),
            slowdown,
            shards,
        };
        let profiles = profiles.clone();
        let state = AppState {
            plan,
            profiles,
            placed,
            migrations: Vec::new(),
            moved: VecDeque::new(),
            state_lost: 0,
            losses: VecDeque::new(),
            orphans: BTreeSet::new(),
        };
        self.apps.insert(id, state);
        Ok(Applied::Deployed(id))
    }

    fn join(&mut self, hello: &NodeHello, at: Timestamp) -> Result<Applied, CommandError> {
        let topology = self.topology();
        let Some(found) = topology.node_named(&hello.name) else {
            let known = topology.nodes().map(|n| n.node.name.clone()).collect();
            return Err(CommandError::NoNode {
                name: hello.name.clone(),
                known,
            });
        };
        let (id, node) = (found.id, found.node.clone());
        let slowed = topology.nodes().any(|n| n.node.emulated);
        let before = self.members.get(&id).cloned();
        let same = before
            .as_ref()
            .filter(|m| m.process == hello.process && m.up);
        let incarnation = match (same, &before) {
            (Some(member), _) => member.incarnation,
            (None, Some(member)) => {
                let old = member.incarnation;
                self.lose(id, old, at);
                old + 1
            }
            (None, None) => 1,
        };
        let member = Member {
            incarnation,
            process: hello.process,
            address: hello.address,
            up: true,
        };
        self.members.insert(id, member);
        self.now = self.now.max(at);
        self.restore_all();
        Ok(Applied::Joined(NodeWelcome {
            cluster: self.cluster,
            node: id,
            incarnation,
            kind: node.kind,
            emulated: node.emulated,
            slowed,
            link_latency: node.link_latency.unwrap_or(Nanos(0)),
            memory_max: node.emulated.then_some(node.memory),
            accelerators: node.accelerators,
        }))
    }

    /// What a node should do now.
    pub fn plan_for(&self, node: NodeId) -> NodePlan {
        let Some(topology) = &self.topology else {
            return NodePlan::default();
        };
        let peers = topology
            .nodes()
            .filter_map(|n| {
                let member = self.members.get(&n.id).filter(|m| m.up)?;
                let peer = Peer {
                    name: n.node.name.clone(),
                    server: n.server as u32,
                    incarnation: member.incarnation,
                    address: member.address,
                };
                Some((n.id, peer))
            })
            .collect();
        NodePlan {
            version: self.version,
            cluster: self.cluster,
            node,
            peers,
            apps: self.apps.values().map(|a| a.plan.clone()).collect(),
        }
    }

    /// Panics if an invariant is broken.
    pub fn validate(&self) {
        if self.topology.is_none() {
            return;
        }
        let servers = self.servers();
        for app in self.apps.values() {
            let shards = app
                .plan
                .app
                .spec
                .services
                .iter()
                .map(|s| usize::from(s.shards));
            assert_eq!(
                app.plan.shards.len(),
                shards.sum::<usize>(),
                "every shard once"
            );
            for s in &app.plan.shards {
                let key = app.plan.key(s);
                assert!(s.incarnation <= s.view, "{key}: incarnation of the future");
                let moving = app.migrations.iter().find(|m| m.key == key);
                let mut used = BTreeSet::new();
                for node in [&s.primary].into_iter().chain(&s.backups).chain(&s.joining) {
                    // Two copies on one server only while one replaces the other.
                    let replaces = moving.is_some_and(|m| m.to == *node || m.from == *node);
                    let apart = used.insert(servers[usize::from(node.0)]);
                    assert!(apart || replaces, "{key}: two replicas in one fault domain");
                    let orphan = *node == s.primary && app.is_orphan(s);
                    assert!(
                        orphan || self.is_up(*node),
                        "{key}: replica on lost node {node}"
                    );
                }
                let service = app.plan.app.service(s.service);
                let extra = usize::from(moving.is_some());
                let replicas = 1 + s.backups.len() + s.joining.len();
                assert!(
                    replicas <= usize::from(service.replicas) + extra,
                    "{key}: {replicas} replicas"
                );
                let at_both_ends = |m: &Migration| {
                    s.role(m.from).is_some() && s.role(m.to).is_some() && m.from != m.to
                };
                assert!(
                    moving.is_none_or(at_both_ends),
                    "{key}: moves from or to nowhere"
                );
                assert_eq!(
                    s.frozen,
                    moving.is_some_and(Migration::is_freezing),
                    "{key}: frozen"
                );
            }
        }
    }
}
