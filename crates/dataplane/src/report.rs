//! What the controller hears of a node.

use crate::limits::STALLED_AFTER;
use crate::replica::{Counts, Replica};
use crate::worker::Worker;
use e3_model::plan::{
    BackupReport, ChannelReport, InstanceReport, NodeReport, NodeStats, Role, ShardCounts,
};
use e3_model::{Nanos, ShardKey, Timestamp};
use e3_wire::frame::Ends;

/// What about a primary the controller must hear at once when it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    key: ShardKey,
    serving: bool,
    stalled: bool,
    /// Backups that have everything that they were sent first.
    synced: usize,
}

impl Worker {
    /// The health of all primaries here.
    pub fn health(&self) -> Vec<Health> {
        let now = self.now;
        let primaries = self.replicas.values().filter(|r| r.role == Role::Primary);
        let health = |r: &Replica| Health {
            key: r.key,
            serving: self.may_serve(r.key, now),
            stalled: stalled(r, now) > Nanos::ZERO,
            synced: self.backups(r, now).filter(|b| b.synced).count(),
        };
        primaries.map(health).collect()
    }

    fn backups<'a>(
        &'a self,
        replica: &'a Replica,
        now: Timestamp,
    ) -> impl Iterator<Item = BackupReport> + 'a {
        let backups = replica.primary.backups.iter();
        backups.map(move |(node, backup)| {
            let sender = self.links.senders.get(&(backup.link.app, backup.link.ends));
            BackupReport {
                node: *node,
                acked: backup.acked,
                synced: sender.is_some_and(|s| s.sender.durable() >= backup.snapshot_len),
                required: backup.required,
                leased: self.leases.holds(now, *node),
            }
        })
    }

    fn instance_report(&self, r: &Replica, now: Timestamp) -> InstanceReport {
        let primary = r.role == Role::Primary;
        InstanceReport {
            key: r.key,
            role: r.role,
            view: r.view,
            op: r.log.op,
            commit: if primary {
                r.primary.commit
            } else {
                r.log.released
            },
            queue: (r.primary.queue.len() + r.primary.in_flight.len()) as u32,
            dead_letters: r.log.letters.count(),
            preemptions: 0,
            serving: primary && self.may_serve(r.key, now),
            stalled: stalled(r, now),
            backups: self.backups(r, now).collect(),
            memory_bytes: r.log.state.borrow().memory_bytes() as u64,
            code_version: 0,
            error: r.error.clone(),
            last_failure: r.counts.last_failure.clone(),
        }
    }

    /// What the controller hears of this node. The driver adds the process's own figures,
    /// and the executor its instances'.
    pub fn report(&self) -> NodeReport {
        let now = self.now;
        let all = self.replicas.values();
        let present = self.replicas.iter().map(|(k, r)| (k, &r.counts));
        let counts = |(key, c): (&ShardKey, &Counts)| ShardCounts {
            key: *key,
            handled: c.handled,
            failed: c.failed,
            dead_lettered: c.dead_lettered,
            expired: c.expired,
            busy: c.busy,
        };
        let dropped = self.dropped.iter().map(|(k, v)| (k.to_string(), *v));
        NodeReport {
            node: self.config.node,
            incarnation: self.config.incarnation,
            plan_version: self.plan.version,
            events: self.events(),
            instances: all.map(|r| self.instance_report(r, now)).collect(),
            counts: present.chain(&self.past).map(counts).collect(),
            stats: NodeStats {
                datagrams_in: self.datagrams_in,
                datagrams_out: self.datagrams_out,
                dropped: dropped.collect(),
                retransmitted: self.links.retransmitted(),
                admitted: self.ingress.admitted,
                overloaded: self.ingress.overloaded,
                ingress: self.ingress.counts.clone(),
                channels: self.channel_reports(),
                ..NodeStats::default()
            },
        }
    }

    fn channel_reports(&self) -> Vec<ChannelReport> {
        let report = |((app_id, ends), end): (&crate::links::LinkKey, &crate::links::SendEnd)| {
            let app = self.apps.get(app_id)?;
            let service = |id| app.plan.app.service(id).name.as_str();
            let node = |id| match self.links.packer.peers.get(&id) {
                Some(peer) => peer.name.clone(),
                None => id.to_string(),
            };
            let (name, from, to) = match *ends {
                Ends::Ingress { node: n, shard } => (
                    "ingress".into(),
                    node(n),
                    format!("{}/{shard}", service(app.dag.source())),
                ),
                Ends::Edge { edge, from, to } => (
                    app.plan.app.spec.channels[usize::from(edge.0)]
                        .name()
                        .to_string(),
                    format!("{}/{from}", service(app.dag.sender(edge)?)),
                    format!("{}/{to}", service(app.dag.receiver(edge)?)),
                ),
                Ends::Replication {
                    service: s,
                    shard,
                    backup,
                } => (
                    "replication".into(),
                    format!("{}/{shard}", service(s)),
                    node(backup),
                ),
            };
            let s = &end.sender;
            let sent = s.durable() + s.outstanding() as u64 - s.waiting() as u64;
            let (durable, waiting) = (s.durable(), s.waiting() as u32);
            Some(ChannelReport {
                app: *app_id,
                name,
                from,
                to,
                sent,
                durable,
                waiting,
            })
        };
        self.links.senders.iter().filter_map(report).collect()
    }
}

/// How long a primary's entries have waited without any commit, if that is too long.
fn stalled(replica: &Replica, now: Timestamp) -> Nanos {
    let p = &replica.primary;
    let span = now.since(p.progress_at);
    if p.pending.is_empty() || span < STALLED_AFTER {
        return Nanos::ZERO;
    }
    span
}
