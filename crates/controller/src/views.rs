//! What the API shows: desired state and reports, side by side.

use crate::core::Core;
use crate::refusal::Refusal;
use axum::http::StatusCode;
use e3_control::limits::PROGRESS_TIMEOUT;
use e3_control::{Command, CommandError, Phase};
use e3_model::api::*;
use e3_model::plan::{InstanceReport, NodeReport, Role, ShardPlan};
use e3_model::{AppId, NodeId, ServiceId, ShardId, ShardKey};
use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};

fn address(a: e3_model::Address) -> String {
    SocketAddr::new(Ipv6Addr::from(a.ip).to_canonical(), a.port).to_string()
}

/// Where a node takes requests over HTTP: the TCP port of the same number as its UDP port.
fn url(a: e3_model::Address) -> String {
    format!("http://{}", address(a))
}

impl Core {
    pub(crate) fn cluster_view(&self) -> ClusterView {
        let topology = self.control.topology.as_ref().expect("set up when opened");
        ClusterView {
            cluster: format!("{:016x}", self.control.cluster),
            plan_version: self.control.version,
            topology: topology.name.clone(),
            nodes: topology.nodes().count() as u32,
            nodes_up: self.control.members.values().filter(|m| m.up).count() as u32,
            apps: self
                .control
                .apps
                .values()
                .map(|a| a.plan.app.name.clone())
                .collect(),
        }
    }

    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let topology = self.control.topology.as_ref().expect("set up when opened");
        let now = self.clock.now();
        let shards = || self.control.apps.values().flat_map(|a| &a.plan.shards);
        let view = |n: e3_model::topology::NodeRef<'_>| {
            let member = self.control.members.get(&n.id);
            let incarnation = member.map_or(0, |m| m.incarnation);
            let up = member.is_some_and(|m| m.up);
            let report = self.report(n.id);
            let stats = report.map(|r| r.stats.clone()).unwrap_or_default();
            NodeView {
                name: n.node.name.clone(),
                id: n.id.0,
                kind: n.node.kind,
                server: n.in_server.name.clone(),
                rack: n.rack_name.to_string(),
                emulated: n.node.emulated,
                cores: n.node.cores,
                memory: n.node.memory,
                up,
                incarnation,
                address: member.filter(|_| up).map(|m| address(m.address)),
                url: member.filter(|_| up).map(|m| url(m.address)),
                heard_ms_ago: self
                    .membership
                    .heard(n.id, incarnation)
                    .map(|at| now.0.saturating_sub(at.0) / 1_000_000),
                plan_version: self.applied_version(n.id, report),
                instances: shards().filter(|s| s.role(n.id).is_some()).count() as u32,
                cpu_seconds: stats.cpu_seconds,
                resident_bytes: stats.resident_bytes,
                accelerators: stats.accelerators,
                queue: self
                    .heartbeats
                    .get(&n.id)
                    .filter(|_| up)
                    .map_or(0, |h| h.queue_len),
                admitted: stats.admitted,
                overloaded: stats.overloaded,
                datagrams_in: stats.datagrams_in,
                datagrams_out: stats.datagrams_out,
                retransmitted: stats.retransmitted,
                dropped: stats.dropped,
            }
        };
        topology.nodes().map(view).collect()
    }

    /// Version of the plan that a node has applied: its heartbeats say the lower half at once, its
    /// reports all of it about once a second.
    fn applied_version(&self, node: NodeId, report: Option<&NodeReport>) -> u64 {
        let reported = report.map_or(0, |r| r.plan_version);
        let Some(heartbeat) = self.heartbeats.get(&node) else {
            return reported;
        };
        let behind = (self.control.version as u32).wrapping_sub(heartbeat.plan_version_low);
        let heard = self.control.version.checked_sub(behind.into());
        reported.max(heard.unwrap_or(0))
    }

    /// What a node's present process told last.
    fn report(&self, node: NodeId) -> Option<&NodeReport> {
        let member = self.control.members.get(&node)?;
        let (_, report) = self.reports.get(&node)?;
        (report.incarnation == member.incarnation).then_some(report)
    }

    fn instance_report(&self, key: ShardKey, node: NodeId) -> Option<&InstanceReport> {
        self.report(node)?.instances.iter().find(|i| i.key == key)
    }

    /// All replicas of a shard with their status.
    fn replicas(&self, key: ShardKey, shard: &ShardPlan) -> Vec<InstanceView> {
        let nodes = [shard.primary]
            .into_iter()
            .chain(shard.backups.iter().chain(&shard.joining).copied());
        let app = self.control.apps.get(&key.app);
        let code_version = app.map_or(0, |a| a.plan.code_version);
        let orphan = app.is_some_and(|a| a.is_orphan(shard));
        let view = |node: NodeId| {
            let role = shard.role(node).expect("listed");
            let report = self.instance_report(key, node);
            let error = report.and_then(|r| r.error.clone());
            let status = match (report, role) {
                _ if orphan && role == Role::Primary => "lost",
                _ if !self.control.is_up(node) => "lost",
                (None, _) => "starting",
                (Some(_), _) if error.is_some() => "failed",
                (Some(r), _) if r.role != role => "starting",
                (_, Role::Joining) => "joining",
                (_, Role::Primary) if shard.frozen => "frozen",
                (Some(r), Role::Primary) if r.code_version == 0 => "starting",
                (Some(r), Role::Primary) if r.code_version != code_version => "updating",
                _ => "running",
            };
            InstanceView {
                instance: self.shard_name(key),
                role,
                node: self.node_name(node),
                view: shard.view,
                status: status.into(),
                op: report.map_or(0, |r| r.op),
                commit: report.map_or(0, |r| r.commit),
                queue: report.map_or(0, |r| r.queue),
                handled: report.map_or(0, |r| r.handled),
                failed: report.map_or(0, |r| r.failed),
                dead_letters: report.map_or(0, |r| r.dead_letters),
                preemptions: report.map_or(0, |r| r.preemptions),
                busy_seconds: report.map_or(0.0, |r| r.busy.as_secs_f64()),
                memory_bytes: report.map_or(0, |r| r.memory_bytes),
                error,
                last_failure: report.and_then(|r| r.last_failure.clone()),
            }
        };
        nodes.map(view).collect()
    }

    pub(crate) fn instance_views(&self) -> Vec<InstanceView> {
        let apps = self.control.apps.values();
        apps.flat_map(|a| {
            a.plan
                .shards
                .iter()
                .flat_map(|s| self.replicas(a.plan.key(s), s))
        })
        .collect()
    }

    pub(crate) fn channel_views(&self) -> Vec<ChannelView> {
        let mut views = Vec::new();
        for (node, (_, report)) in &self.reports {
            for channel in &report.stats.channels {
                let Some(app) = self.control.apps.get(&channel.app) else {
                    continue;
                };
                let app = app.plan.app.name.clone();
                views.push(ChannelView {
                    app,
                    node: self.node_name(*node),
                    channel: channel.clone(),
                });
            }
        }
        views
    }

    pub(crate) fn app_views(&self) -> Vec<AppView> {
        self.control
            .apps
            .keys()
            .map(|id| self.app_view(*id, false))
            .collect()
    }

    pub(crate) fn app_view(&self, id: AppId, whole: bool) -> AppView {
        let state = &self.control.apps[&id];
        let app = &state.plan.app;
        let mut problems = Vec::new();
        let (mut ready, mut dead_letters) = (0, 0);
        let mut services: Vec<ServiceView> = app
            .spec
            .services
            .iter()
            .map(|s| ServiceView {
                name: s.name.clone(),
                shards: s.shards,
                replicas: s.replicas,
                stateful: s.stateful,
                nodes: BTreeMap::new(),
                handled: 0,
                failed: 0,
                queue: 0,
                busy_seconds: 0.0,
                error: None,
                last_failure: None,
            })
            .collect();
        for shard in &state.plan.shards {
            let key = state.plan.key(shard);
            let replicas = self.replicas(key, shard);
            let wanted = services[usize::from(shard.service.0)].replicas;
            let running = replicas.iter().filter(|r| r.status == "running").count();
            ready += running as u32;
            if running < usize::from(wanted) {
                let states: Vec<String> = replicas
                    .iter()
                    .filter(|r| r.status != "running")
                    .map(|r| format!("{} on {}", r.status, r.node))
                    .collect();
                let name = self.shard_name(key);
                let states = states.join(", ");
                problems.push(format!(
                    "{name}: {running} of {wanted} replicas run ({states})"
                ));
            }
            let service = &mut services[usize::from(shard.service.0)];
            let primary = &replicas[0];
            *service.nodes.entry(primary.node.clone()).or_default() += 1;
            service.handled += primary.handled;
            service.failed += primary.failed;
            service.queue += primary.queue;
            service.busy_seconds += primary.busy_seconds;
            dead_letters += primary.dead_letters;
            if service.last_failure.is_none() {
                service.last_failure.clone_from(&primary.last_failure);
            }
            if service.error.is_none() {
                service.error = replicas.iter().find_map(|r| r.error.clone());
            }
        }
        let placed = state.placed.iter().filter(|_| whole).map(|p| PlacedView {
            instance: format!(
                "{}/{} {}",
                app.service(p.key.service).name,
                p.key.shard,
                if p.key.replica == 0 {
                    "primary"
                } else {
                    "backup"
                }
            ),
            node: self.node_name(p.node),
            why: p.why.clone(),
        });
        let migrations = state
            .migrations
            .iter()
            .filter(|_| whole)
            .map(|m| MigrationView {
                shard: self.shard_name(m.key),
                from: self.node_name(m.from),
                to: self.node_name(m.to),
                phase: match m.phase {
                    Phase::Copying => "copying".into(),
                    Phase::Freezing => "freezing".into(),
                },
            });
        AppView {
            name: app.name.clone(),
            id: id.0,
            code_version: state.plan.code_version,
            instances: app.instances(),
            instances_ready: ready,
            ready: problems.is_empty(),
            problems,
            state_lost: state.state_lost,
            dead_letters,
            services,
            placed: placed.collect(),
            migrations: migrations.collect(),
        }
    }

    pub(crate) fn endpoints_view(&self, id: AppId) -> EndpointsView {
        let plan = &self.control.apps[&id].plan;
        let (ingress, _) = plan
            .app
            .service_named(&plan.app.spec.ingress)
            .expect("checked");
        let at = |node: NodeId| {
            let member = self.control.members.get(&node).filter(|m| m.up);
            member.map(|m| address(m.address)).unwrap_or_default()
        };
        let shards = plan.shards.iter().filter(|s| s.service == ingress);
        let up = || self.control.members.values().filter(|m| m.up);
        EndpointsView {
            app: id.0,
            shards: shards.map(|s| at(s.primary)).collect(),
            nodes: up().map(|m| address(m.address)).collect(),
            urls: up().map(|m| url(m.address)).collect(),
        }
    }

    /// What is not as it should be, for `/readyz`.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(broken) = self.broken() {
            problems.push(broken);
        }
        for node in self.node_views().iter().filter(|n| !n.up) {
            problems.push(format!("node {} is not up", node.name));
        }
        for app in self.app_views() {
            let more = app.problems.len().saturating_sub(3);
            problems.extend(app.problems.into_iter().take(3));
            if more > 0 {
                problems.push(format!("{}: {more} more shards", app.name));
            }
        }
        let (shards, channels) = self.progress.stuck(self.clock.now(), PROGRESS_TIMEOUT);
        let seconds = PROGRESS_TIMEOUT.as_secs_f64();
        for key in shards {
            let name = self.shard_name(key);
            problems.push(format!(
                "{name}: its new copy makes no progress for {seconds} s"
            ));
        }
        for channel in channels.into_iter().take(3) {
            problems.push(format!(
                "channel {channel} makes no progress for {seconds} s"
            ));
        }
        problems
    }

    /// `app/service/shard[/primary|/backup]` as a command.
    pub(crate) fn migrate_command(&self, q: &MigrateRequest) -> Result<Command, Refusal> {
        let bad = |error: String| {
            Refusal::new(StatusCode::NOT_FOUND, error)
                .with_hint("instances are named app/service/shard, see e3 get instances".into())
        };
        let parts: Vec<&str> = q.instance.split('/').collect();
        let (app, service, shard, role) = match parts[..] {
            [app, service, shard] => (app, service, shard, "primary"),
            [app, service, shard, role @ ("primary" | "backup")] => (app, service, shard, role),
            _ => return Err(bad(format!("{:?} names no instance", q.instance))),
        };
        let none = || bad(format!("there is no instance {:?}", q.instance));
        let id = self.control.app_named(app).ok_or_else(none)?;
        let state = &self.control.apps[&id];
        let (service, _): (ServiceId, _) =
            state.plan.app.service_named(service).ok_or_else(none)?;
        let shard = ShardId(e3_model::units::whole(shard).ok_or_else(none)?);
        let key = ShardKey {
            app: id,
            service,
            shard,
        };
        let plan = state.shard(key).ok_or_else(none)?;
        let from = match role {
            "primary" => plan.primary,
            _ => *plan.backups.first().ok_or_else(none)?,
        };
        let topology = self.control.topology.as_ref().expect("set up when opened");
        let to = topology.node_named(&q.to).map(|n| n.id).ok_or_else(|| {
            let known = topology.nodes().map(|n| n.node.name.clone()).collect();
            let error = CommandError::NoNode {
                name: q.to.clone(),
                known,
            };
            Refusal::new(StatusCode::NOT_FOUND, error.to_string())
        })?;
        Ok(Command::Migrate { key, from, to })
    }
}
