//! The views of the API: desired state and reports together.

use crate::core::Core;
use crate::counters::Totals;
use crate::refusal::no_node;
use axum::http::StatusCode;
use e3_control::limits::PROGRESS_TIMEOUT;
use e3_control::{Cancelled, Command, CommandError, Migration, MoveOutcome, Moved, Phase};
use e3_http::Refusal;
use e3_model::api::*;
use e3_model::format::RELEASE;
use e3_model::plan::{NodeReport, Role, ShardPlan};
use e3_model::profile::Provenance;
use e3_model::topology::NodeRef;
use e3_model::{AppId, NodeId, ServiceId, ShardId, ShardKey, Timestamp};
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
        let topology = &self.control.topology;
        ClusterView {
            cluster: format!("{:016x}", self.control.cluster),
            plan_version: self.control.version,
            topology: topology.name.clone(),
            nodes: topology.nodes().count() as u32,
            nodes_up: topology.nodes().filter(|n| self.is_heard(n.id)).count() as u32,
            apps: self
                .control
                .apps
                .values()
                .map(|a| a.plan.app.name.clone())
                .collect(),
            release: RELEASE.into(),
            formats: self.formats,
            format: self.control.format,
            orchestrator: self.orchestrator_mode(),
        }
    }

    pub(crate) fn node_views(&self) -> Vec<NodeView> {
        let now = self.clock.now();
        let mut instances: BTreeMap<NodeId, u32> = BTreeMap::new();
        for shard in self.control.apps.values().flat_map(|a| &a.plan.shards) {
            let copies = shard.backups.iter().chain(&shard.joining);
            let nodes = copies.chain([&shard.primary]).copied();
            for node in nodes.filter(|n| shard.role(*n).is_some()) {
                *instances.entry(node).or_default() += 1;
            }
        }
        let view = |n: NodeRef<'_>| {
            let instances = instances.get(&n.id).copied().unwrap_or_default();
            self.node_view(now, &n, instances)
        };
        self.control.topology.nodes().map(view).collect()
    }

    fn node_view(&self, now: Timestamp, n: &NodeRef<'_>, instances: u32) -> NodeView {
        let member = self.control.members.get(&n.id);
        let incarnation = member.map_or(0, |m| m.incarnation);
        let up = self.is_heard(n.id);
        let heartbeat = self.hearing.last(n.id).filter(|_| up);
        let report = self.report(n.id);
        let stats = report.map(|r| r.stats.clone()).unwrap_or_default();
        NodeView {
            name: n.node.name.clone(),
            id: n.id.0,
            kind: n.node.kind,
            server: n.in_server.name.clone(),
            rack: n.rack_name.to_string(),
            emulated: n.node.emulated,
            speed: n.node.speed(),
            cores: n.node.cores,
            memory: n.node.memory,
            up,
            drained: self.control.drained.contains(&n.id),
            cordoned: self.control.cordoned.contains(&n.id),
            undrained: self.undrained(n.id),
            incarnation,
            release: member.map_or_else(String::new, |m| m.release.clone()),
            formats: member.map(|m| m.formats).unwrap_or_default(),
            address: member.filter(|_| up).map(|m| address(m.address)),
            relay: member.filter(|_| up).and_then(|m| m.relay).map(address),
            url: member.filter(|_| up).map(|m| url(m.address)),
            heard_ms_ago: self
                .hearing
                .membership
                .heard(n.id, incarnation)
                .map(|at| now.since(at).as_millis()),
            unreachable: member.map_or_else(Vec::new, |m| {
                // One that names itself has a wrong clock.
                let others = m.unreachable.iter().filter(|other| **other != n.id);
                others.map(|n| self.node_name(*n)).collect()
            }),
            plan_version: self.applied_version(n.id, report),
            instances,
            cpu_seconds: stats.cpu_seconds,
            resident_bytes: stats.resident_bytes,
            accelerators: stats.accelerators,
            queue: heartbeat.map_or(0, |h| h.load.queue_len),
            port_use: heartbeat.map_or(0.0, |h| f64::from(h.load.port_permille) / 1e3),
            admitted: stats.admitted,
            overloaded: stats.overloaded,
            datagrams_in: stats.datagrams_in,
            datagrams_out: stats.datagrams_out,
            retransmitted: stats.retransmitted,
            journal_records: stats.journal.records,
            journal_syncs: stats.journal.syncs,
            dropped: stats.dropped,
            energy: self.node_energy(n, up),
            measured: self.counters.metering.node_view(n.id, up),
        }
    }

    fn node_energy(&self, n: &NodeRef<'_>, up: bool) -> Option<NodeEnergyView> {
        let energy = self.counters.node(n.id)?;
        Some(NodeEnergyView {
            provenance: Provenance::Modelled,
            source: format!(
                "power model of system {:?} from E3 (USENIX ATC 2019), Tables 1 and 4",
                n.in_server.system
            ),
            idle_joules: energy.idle_joules,
            active_joules: energy.active_joules,
            active_watts: if up { energy.active_watts } else { 0.0 },
        })
    }

    /// The version of the plan that a node has applied. Its heartbeats carry the lower half at once, its
    /// reports the whole number about once a second.
    fn applied_version(&self, node: NodeId, report: Option<&NodeReport>) -> u64 {
        let reported = report.map_or(0, |r| r.plan_version);
        let Some(heartbeat) = self.hearing.last(node) else {
            return reported;
        };
        let behind = (self.control.version as u32).wrapping_sub(heartbeat.plan_version_low);
        let heard = self.control.version.checked_sub(behind.into());
        reported.max(heard.unwrap_or(0))
    }

    /// All replicas of a shard with their status.
    pub(crate) fn replicas(&self, key: ShardKey, shard: &ShardPlan) -> Vec<InstanceView> {
        let nodes = [shard.primary]
            .into_iter()
            .chain(shard.backups.iter().chain(&shard.joining).copied());
        let app = &self.control.apps[&key.app];
        let primary = self.instance_report(key, shard.primary);
        let primary = primary.filter(|r| r.role == Role::Primary);
        let view = |node: NodeId| {
            // A shard without any copy has no roles, and waits for its primary.
            let role = match shard.role(node) {
                Some(role) => role,
                None if node == shard.primary => Role::Primary,
                None => Role::Backup,
            };
            let report = self.instance_report(key, node);
            let (status, reason) = self.status(app, shard, node);
            let totals = match role {
                Role::Primary => self.counters.shard(key),
                _ => Totals::default(),
            };
            // Reports arrive at different times, so a backup is shown as its primary knows it.
            let (op, commit) = match role {
                Role::Primary => report.map_or((0, 0), |r| (r.op, r.commit)),
                _ => primary.map_or((0, 0), |p| {
                    let acked = p.backups.iter().find(|b| b.node == node);
                    let acked = acked.map_or(0, |b| b.acked);
                    (acked, acked.min(p.commit))
                }),
            };
            InstanceView {
                instance: self.shard_name(key),
                role,
                node: self.node_name(node),
                view: shard.view,
                status,
                reason,
                op,
                commit,
                queue: report.map_or(0, |r| r.queue),
                handled: totals.handled,
                failed: totals.failed,
                dead_lettered: totals.dead_lettered,
                expired: totals.expired,
                dead_letters: report.map_or(0, |r| r.dead_letters),
                timers: report.map_or(0, |r| r.timers),
                preemptions: report.map_or(0, |r| r.preemptions),
                busy_seconds: totals.busy_seconds,
                memory_bytes: report.map_or(0, |r| r.memory_bytes),
                quota_bytes: app.plan.app.service(key.service).quota().0,
                error: report.and_then(|r| r.error.clone()),
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

    /// Whether a node's process sends heartbeats.
    pub(crate) fn is_heard(&self, node: NodeId) -> bool {
        let member = self.control.members.get(&node).filter(|m| m.up);
        let now = self.clock.now();
        member.is_some_and(|m| !self.hearing.membership.is_silent(now, node, m.incarnation))
    }

    /// The command that gives up the state of `app/service/shard`.
    pub(crate) fn forget_command(&self, q: &ForgetRequest) -> Result<Command, Refusal> {
        let apps = self.control.apps.values();
        let mut keys = apps.flat_map(|a| a.plan.shards.iter().map(|s| a.plan.key(s)));
        let found = keys.find(|key| self.shard_name(*key) == q.shard);
        let key = found.ok_or_else(|| {
            let error = CommandError::NoShard(q.shard.clone()).to_string();
            Refusal::new(StatusCode::NOT_FOUND, error)
                .hint("shards are named app/service/shard, see e3 get instances")
        })?;
        let at = self.clock.now();
        let app = &self.control.apps[&key.app];
        let shard = app.shard(key).into_iter();
        let mut waits_for = shard.flat_map(|shard| self.control.waits_for(app, shard));
        let runs = |node: &NodeId| {
            self.control.members.get(node).is_some_and(|m| {
                let (membership, incarnation) = (&self.hearing.membership, m.incarnation);
                let is_silent = membership.is_silent(at, *node, incarnation);
                self.receipts.is_withheld(*node, incarnation) && !is_silent
            })
        };
        if let Some(node) = waits_for.find(runs) {
            let (name, shard) = (self.node_name(node), &q.shard);
            let error = format!(
                "node {name} runs and has the state of {shard}, but does not receive plans: nothing is given up"
            );
            let hint = "let its connections to the controller through, or stop the node first";
            return Err(Refusal::new(StatusCode::CONFLICT, error).hint(hint));
        }
        Ok(Command::Forget { key, at })
    }

    pub(crate) fn migration_view(&self, m: &Migration) -> MigrationView {
        MigrationView {
            id: m.id,
            shard: self.shard_name(m.key),
            from: self.node_name(m.from),
            to: self.node_name(m.to),
            phase: match m.phase {
                Phase::Copying => MovePhase::Copying,
                Phase::Freezing => MovePhase::Freezing,
            },
            reason: None,
        }
    }

    pub(crate) fn moved_view(&self, m: &Moved) -> MigrationView {
        let (from, to) = (self.node_name(m.from), self.node_name(m.to));
        let (phase, reason) = match m.outcome {
            MoveOutcome::Done => (MovePhase::Done, None),
            MoveOutcome::Cancelled(why) => {
                let why = match why {
                    Cancelled::TargetLost => format!("node {to} was lost"),
                    Cancelled::SourceLost => format!("node {from} was lost"),
                    Cancelled::PrimaryLost => "the node of the primary was lost".to_string(),
                    Cancelled::Drained => format!("node {to} was drained"),
                    Cancelled::Scaled => "the service was scaled to fewer replicas".to_string(),
                    Cancelled::Stalled => {
                        let limit = PROGRESS_TIMEOUT.as_secs_f64();
                        format!("it made no progress for {limit} s")
                    }
                };
                (MovePhase::Cancelled, Some(why))
            }
        };
        MigrationView {
            id: m.id,
            shard: self.shard_name(m.key),
            from,
            to,
            phase,
            reason,
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
            let at = member.and_then(|_| self.control.client_address(node));
            at.map(address).unwrap_or_default()
        };
        let shards = plan.shards.iter().filter(|s| s.service == ingress);
        let members = self.control.members.iter();
        let mut up: Vec<_> = members.filter(|(_, m)| m.up).collect();
        // Another node asks the controller for the routes first.
        let hosts = |node| plan.shards.iter().any(|shard| shard.role(node).is_some());
        up.sort_by_cached_key(|(node, _)| !hosts(**node));
        EndpointsView {
            app: id.0,
            shards: shards.map(|s| at(s.primary)).collect(),
            nodes: up.iter().map(|(node, _)| at(**node)).collect(),
            urls: up.iter().map(|(_, m)| url(m.address)).collect(),
        }
    }

    /// The command that moves `app/service/shard[/primary|/backup]`.
    pub(crate) fn migrate_command(&self, q: &MigrateRequest) -> Result<Command, Refusal> {
        let bad = |error: String| {
            Refusal::new(StatusCode::NOT_FOUND, error)
                .hint("instances are named app/service/shard, see e3 get instances")
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
        let topology = &self.control.topology;
        let to = topology.node_named(&q.to).map(|n| n.id);
        let to = to.ok_or_else(|| no_node(topology, &q.to))?;
        Ok(Command::Migrate {
            key,
            from,
            to,
            cold: q.cold,
        })
    }
}
