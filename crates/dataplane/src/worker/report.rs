//! What the controller hears of a node.

use super::Worker;
use crate::limits::{PENDING_NODE_MAX, PENDING_SHARD_MAX};
use crate::links::SendEnd;
use crate::outbound::Attempts;
use crate::primary::Primary;
use crate::reach::ClockCheck;
use crate::replica::Replica;
use crate::shard::{Context, Counts};
use e3_model::pending::{PendingAsked, PendingReport};
use e3_model::plan::{
    BackupReport, ChannelReport, InstanceReport, NodeEvent, NodeReport, NodeStats, ShardCounts,
};
use e3_model::{MessageId, Nanos, NodeId, RequestId, ServiceId, ShardKey, Slot, Timestamp};
use e3_wire::frame::Ends;
use std::collections::{BTreeMap, BTreeSet};

/// What about a primary the controller must hear at once when it changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    key: ShardKey,
    serving: bool,
    stalled: bool,
    /// Backups that have everything that they were sent first.
    synced: usize,
}

/// What a node keeps in memory because of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Messages in queues, channels and outboxes, and shards with a timer that is due.
    pub open: usize,
    /// Messages of clients that shards remember as handled.
    pub remembered: usize,
    /// Keys with publications that are not confirmed by all subscribers, or not removed.
    pub publishing: usize,
    /// Requests that the ingress remembers.
    pub sessions: usize,
}

/// What a copy of a shard has beside its collections: equal on all copies when nothing happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beside {
    /// Last entry of the log.
    pub op: u64,
    /// Messages that are remembered as handled, with what followed from them.
    pub handled: BTreeSet<(Slot, MessageId)>,
    /// Dead letters.
    pub letters: BTreeSet<MessageId>,
    /// Times of timers, ascending.
    pub timers: Vec<Timestamp>,
}

impl Worker {
    /// What a copy of a shard has beside its collections, if there is one here.
    pub fn beside(&self, key: ShardKey) -> Option<Beside> {
        let log = &self.replicas.get(self.find(key)?.at())?.replica.shard.log;
        let handled = log.dedup.entries_after(None);
        // Of answered requests a copy may know less: that they are answered is in another entry too.
        let handled = handled.filter(|e| e.reply.is_some() || !e.outputs.is_empty());
        Some(Beside {
            op: log.op,
            handled: handled.map(|e| (e.slot, e.id)).collect(),
            letters: log.dead_letters.iter().map(|(id, _)| id).collect(),
            timers: log.timers.by_time().map(|(_, timer)| timer.next).collect(),
        })
    }

    /// What is kept because of requests: nothing open when all is done, and nothing remembered for
    /// good.
    pub fn kept(&self) -> Kept {
        let mut kept = Kept {
            sessions: self.ingress.sessions(),
            open: self.links.open() + self.calls.len(),
            ..Kept::default()
        };
        for (replica, _) in self.all() {
            kept.open += replica.shard.log.outbox.len();
            if let Some(primary) = replica.as_primary() {
                let is_due = replica.shard.log.timers.is_due(self.world.now);
                kept.open += primary.queue_len() + usize::from(is_due);
                kept.publishing += replica.shard.log.timers.publishing();
            }
            kept.remembered += replica.shard.log.dedup.places();
        }
        kept
    }

    /// All replicas here, ordered by shard, with the world around them.
    fn all(&self) -> impl Iterator<Item = (&Replica, Context<'_>)> {
        let ids = self.world.apps.values().flat_map(|app| app.replicas());
        ids.filter_map(|id| {
            let replica = &self.replicas.get(id.at())?.replica;
            Some((replica, self.world.context(replica.shard.key.app)?))
        })
    }

    /// The health of all primaries here.
    pub fn health(&self) -> Vec<Health> {
        let health = |(r, cx): (&Replica, Context<'_>)| {
            let primary = r.as_primary()?;
            Some(Health {
                key: r.shard.key,
                serving: primary.may_serve(&cx, &r.shard),
                stalled: primary.stalled(cx.now) > Nanos::ZERO,
                synced: self.backups(primary, &cx).filter(|b| b.synced).count(),
            })
        };
        self.all().filter_map(health).collect()
    }

    /// What the controller must hear, until a plan shows that it has.
    pub fn events(&self) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        for (replica, cx) in self.all() {
            replica.events(&cx, &mut events);
        }
        events
    }

    fn backups<'a>(
        &'a self,
        primary: &'a Primary,
        cx: &Context<'a>,
    ) -> impl Iterator<Item = BackupReport> + 'a {
        let cx = *cx;
        let backups = primary.streams.iter();
        backups.map(move |(node, backup)| BackupReport {
            node,
            acked: backup.acked,
            synced: backup.is_whole,
            required: backup.required,
            leased: cx.leases.holds(cx.now, node),
        })
    }

    fn instance_report(&self, r: &Replica, cx: &Context<'_>) -> InstanceReport {
        let (shard, primary) = (&r.shard, r.as_primary());
        InstanceReport {
            key: shard.key,
            role: r.role(),
            view: shard.view,
            op: shard.log.op,
            commit: primary.map_or(shard.log.released, |p| p.commit),
            queue: primary.map_or(0, |p| p.queue_len() as u32),
            dead_letters: shard.log.dead_letters.count(),
            timers: shard.log.timers.len() as u64,
            preemptions: 0,
            serving: primary.is_some_and(|p| p.may_serve(cx, shard)),
            clock_off: cx.clock == ClockCheck::Off,
            stalled: primary.map_or(Nanos::ZERO, |p| p.stalled(cx.now)),
            backups: primary.map_or_else(Vec::new, |p| self.backups(p, cx).collect()),
            memory_bytes: shard.log.memory_bytes().0,
            code_version: 0,
            error: shard.error.clone(),
            last_failure: shard.counts.last_failure.clone(),
        }
    }

    /// What the controller hears of this node. The driver adds the process's own figures,
    /// and the executor its instances'.
    pub fn report(&self) -> NodeReport {
        let config = &self.world.config;
        let present = self.all().map(|(r, _)| (&r.shard.key, &r.shard.counts));
        let counts = |(key, c): (&ShardKey, &Counts)| ShardCounts {
            key: *key,
            handled: c.handled,
            failed: c.failed,
            dead_lettered: c.dead_lettered,
            expired: c.expired,
            calls: c.calls,
            busy: c.busy,
        };
        let instances = self.all().map(|(r, cx)| self.instance_report(r, &cx));
        NodeReport {
            node: config.node,
            incarnation: config.incarnation,
            plan_version: self.world.plan.version,
            events: self.events(),
            instances: instances.collect(),
            unreachable: self.unreachable(),
            counts: present.chain(&self.past).map(counts).collect(),
            pending: None,
            stats: NodeStats {
                datagrams_in: self.datagrams_in,
                datagrams_out: self.datagrams_out,
                dropped: self.dropped.clone(),
                retransmitted: self.links.retransmitted(),
                admitted: self.ingress.admitted,
                overloaded: self.ingress.overloaded,
                ingress: self.ingress.counts.clone(),
                channels: self.channel_reports(),
                ..NodeStats::default()
            },
        }
    }

    /// What is pending at those of the shards whose primary is here and may serve. `http` gives what the driver
    /// knows of the attempts at an [`super::Output::Http`] by its ticket.
    pub fn pending(
        &self,
        asked: &PendingAsked,
        http: impl Fn(u64) -> Option<Attempts>,
    ) -> PendingReport {
        let mut tickets: BTreeMap<ShardKey, BTreeMap<RequestId, u64>> = BTreeMap::new();
        for (ticket, (shard, id)) in &self.passage.tickets {
            tickets.entry(*shard).or_default().insert(*id, *ticket);
        }
        let each_max = PENDING_NODE_MAX / asked.shards.len().max(1);
        let count_max = each_max.clamp(1, PENDING_SHARD_MAX);
        let of = |key: &ShardKey| {
            let replica = &self.replicas.get(self.find(*key)?.at())?.replica;
            let (cx, primary) = (self.world.context(key.app)?, replica.as_primary()?);
            let serves = primary.may_serve(&cx, &replica.shard);
            let http = |id: RequestId| http(*tickets.get(key)?.get(&id)?);
            serves.then(|| primary.pending(&cx, &replica.shard, http, count_max))
        };
        PendingReport {
            number: asked.number,
            shards: asked.shards.iter().filter_map(of).collect(),
        }
    }

    fn channel_reports(&self) -> Vec<ChannelReport> {
        let senders = self.links.senders().into_iter();
        senders.filter_map(|end| self.channel_report(end)).collect()
    }

    fn channel_report(&self, end: &SendEnd) -> Option<ChannelReport> {
        let app = self.world.apps.get(&end.link.app)?;
        let service = |id: ServiceId| app.plan.app.service(id).name.as_str();
        let node = |id: NodeId| match self.world.plan.peers.get(&id) {
            Some(peer) => peer.name.clone(),
            None => id.to_string(),
        };
        let (name, from, to) = match end.link.ends {
            Ends::Ingress {
                node: n,
                service: s,
                shard,
            } => ("ingress".into(), node(n), format!("{}/{shard}", service(s))),
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
        Some(ChannelReport {
            app: end.link.app,
            name,
            from,
            to,
            sent: s.durable() + s.outstanding() as u64 - s.waiting() as u64,
            durable: s.durable(),
            waiting: s.waiting() as u32,
        })
    }
}
