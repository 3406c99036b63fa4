//! Replication: the primary's snapshots, the backup's part, and the change from one to the other.

use crate::app::App;
use crate::check::{check_batch, check_entry, check_time};
use crate::limits::*;
use crate::links::Tag;
use crate::replica::{Backup, Incoming, Log, Outgoing, Pending, Primary, Replica};
use crate::worker::{Output, Worker};
use e3_collections::Restore;
use e3_model::plan::{NodeEvent, Role};
use e3_model::{Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::entry::Replicated;
use e3_wire::frame::{Ends, Link};
use std::rc::Rc;

impl Worker {
    /// Begins to replicate to a node: snapshot first, then every entry.
    /// The stream's first epoch is the view, which makes streams unique where a backup leaves and
    /// joins again, unless the other end's state asks for another one.
    pub(crate) fn add_backup(
        &mut self,
        now: Timestamp,
        key: ShardKey,
        node: NodeId,
        required: bool,
        epoch: Option<u32>,
    ) {
        let Some(peer) = self.links.packer.peers.get(&node) else {
            return;
        };
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        let ends = Ends::Replication {
            service: key.service,
            shard: key.shard,
            backup: node,
        };
        let link = Link {
            app: key.app,
            ends,
            from_incarnation: replica.incarnation,
            to_incarnation: peer.incarnation,
        };
        let epoch = epoch.unwrap_or(replica.view);
        self.links.begin(now, link, node, epoch);
        let log = &replica.log;
        let op = log.op;
        let mut snapshot_len = 0;
        let mut send = |item: Replicated, acked: u64| {
            snapshot_len += 1;
            self.links.send(
                link,
                node,
                item.encode().into(),
                Tag::Replicated(key, node, acked),
            );
        };
        send(
            Replicated::SnapshotBegin {
                released: log.released,
            },
            0,
        );
        for chunk in log.state.borrow().snapshot_chunks(SNAPSHOT_CHUNK_LEN) {
            send(Replicated::SnapshotState(chunk), 0);
        }
        let mut released = log.seen.entries();
        released.retain(|e| e.op <= log.released);
        for entry in released
            .into_iter()
            .chain(log.outbox.iter().map(|o| &o.entry))
        {
            send(Replicated::SnapshotSeen((**entry).clone()), 0);
        }
        for (id, dead) in log.letters.iter() {
            send(Replicated::SnapshotDead(*id, dead.clone()), 0);
        }
        send(Replicated::SnapshotEnd { op, now: log.now }, op);
        let commit = replica.primary.commit;
        let backup = Backup {
            link,
            acked: 0,
            snapshot_op: op,
            snapshot_len,
            required,
            required_from: commit,
        };
        replica.primary.backups.insert(node, backup);
    }

    /// A backup has everything up to `op`.
    pub(crate) fn on_replicated(&mut self, now: Timestamp, key: ShardKey, node: NodeId, op: u64) {
        let Some(replica) = self.replicas.get_mut(&key) else {
            return;
        };
        let log_op = replica.log.op;
        let commit = replica.primary.commit;
        let Some(backup) = replica.primary.backups.get_mut(&node) else {
            return;
        };
        backup.acked = backup.acked.max(op);
        // From here on commits wait for it, so that it cannot fall behind again.
        if !backup.required && op >= backup.snapshot_op && op + QUEUE_MAX as u64 >= log_op {
            backup.required = true;
            backup.required_from = commit;
        }
        self.advance(key, now);
    }

    /// What the controller must hear, until a plan shows that it has.
    pub fn events(&self) -> Vec<NodeEvent> {
        let mut events = Vec::new();
        for (key, replica) in self
            .replicas
            .iter()
            .filter(|(_, r)| r.role == Role::Primary)
        {
            let Some(app) = self.apps.get(&key.app) else {
                continue;
            };
            let shard = app.shard(*key);
            for node in &shard.joining {
                let synced =
                    replica.primary.backups.get(node).is_some_and(|b| {
                        b.required && b.acked >= b.required_from.max(b.snapshot_op)
                    });
                if synced {
                    events.push(NodeEvent::Synced {
                        key: *key,
                        view: shard.view,
                        backup: *node,
                    });
                }
            }
            if !shard.filled && replica.log.op > 0 {
                events.push(NodeEvent::Filled {
                    key: *key,
                    incarnation: replica.incarnation,
                });
            }
            let p = &replica.primary;
            let stopped = p.frozen && p.in_flight.is_empty() && p.commit == replica.log.op;
            if stopped && p.backups.values().all(|b| b.acked == replica.log.op) {
                events.push(NodeEvent::Frozen {
                    key: *key,
                    view: shard.view,
                });
            }
        }
        events
    }

    /// Takes what has arrived from the primary.
    pub(crate) fn drain_replication(&mut self, now: Timestamp, key: ShardKey) {
        let Some(inputs) = self.inputs.get(&key) else {
            return;
        };
        let streams: Vec<_> = inputs
            .iter()
            .filter(|(_, ends)| matches!(ends, Ends::Replication { .. }))
            .copied()
            .collect();
        for stream in streams {
            while let Some((link, number, body)) = self.links.pop(&stream) {
                let replica = self.replicas.get_mut(&key).expect("it has inputs");
                let app = &self.apps[&key.app];
                let taken = Replicated::decode(&body)
                    .map_err(|_| "what came cannot be read")
                    .and_then(|item| replica.take(app, now, item));
                match taken {
                    Ok(()) => self.links.complete(now, link, number, Nanos::ZERO),
                    Err(reason) => {
                        // Not acknowledged, so never counted as a copy. The primary begins again
                        // with a snapshot.
                        *self.dropped.entry("replication").or_default() += 1;
                        replica.error = Some(format!("replication: {reason}"));
                        replica.incoming = None;
                        self.links.ask_again(now, stream);
                    }
                }
            }
            if let Some(inputs) = self.inputs.get_mut(&key) {
                inputs.remove(&stream);
            }
        }
    }

    /// A backup becomes primary: all that it has is the log now. What its predecessor may not have
    /// sent waits, like anything new, until the backups of this view have it.
    pub(crate) fn promote(&mut self, key: ShardKey, serve_at: Timestamp) {
        let replica = self.replicas.get_mut(&key).expect("its caller has it");
        replica.incoming = None;
        replica.error = None;
        replica.role = Role::Primary;
        let log = &replica.log;
        let progress_at = self.now;
        let pending = |o: &Outgoing| Pending {
            entry: o.entry.clone(),
            copies: Vec::new(),
            release_at: Timestamp(0),
            repeats: Vec::new(),
        };
        replica.primary = Primary {
            serve_at,
            commit: log.released,
            released_told: log.released,
            progress_at,
            pending: log.outbox.iter().map(pending).collect(),
            ..Primary::default()
        };
        let state = log.state.clone();
        self.outputs.push_back(Output::Start { key, state });
    }

    /// Tells the backups which outputs need not be sent again.
    pub(crate) fn tell_released(&mut self) {
        for (key, replica) in self
            .replicas
            .iter_mut()
            .filter(|(_, r)| r.role == Role::Primary)
        {
            let log = &replica.log;
            if log.released == replica.primary.released_told {
                continue;
            }
            replica.primary.released_told = log.released;
            let body: Rc<[u8]> = Replicated::Released(log.released).encode().into();
            for (node, backup) in &replica.primary.backups {
                // Behind the last entry in the stream, so its acknowledgement covers that too.
                let tag = Tag::Replicated(*key, *node, log.op);
                self.links.send(backup.link, *node, body.clone(), tag);
            }
        }
    }
}

impl Replica {
    /// Takes one item of the primary's stream.
    fn take(&mut self, app: &App, now: Timestamp, item: Replicated) -> Result<(), &'static str> {
        let key = self.key;
        match item {
            Replicated::SnapshotBegin { released } => {
                let collections = self.log.state.borrow().specs().to_vec();
                let mut log = Log::new(&collections);
                log.released = released;
                self.incoming = Some(Incoming {
                    state: Restore::new(&collections),
                    log,
                });
                Ok(())
            }
            Replicated::SnapshotState(chunk) => {
                let incoming = self.incoming.as_mut().ok_or("no snapshot has begun")?;
                let accepted = incoming.state.accept(&chunk);
                accepted.map_err(|_| "a snapshot's chunk does not fit")?;
                let memory_max = app.service(key).resources.memory.0;
                match incoming.state.memory_bytes() as u64 {
                    len if len > memory_max.saturating_add(SNAPSHOT_OVER_MAX) => {
                        Err("the snapshot is larger than the service's memory")
                    }
                    _ => Ok(()),
                }
            }
            Replicated::SnapshotSeen(entry) => {
                let log = &mut self.incoming.as_mut().ok_or("no snapshot has begun")?.log;
                check_entry(app, now, key, &entry)?;
                if !entry.batch.is_empty() {
                    return Err("writes beside a snapshot");
                }
                let entry = Rc::new(entry);
                if entry.op > log.released {
                    if entry.op - log.released != log.outbox.len() as u64 + 1 {
                        return Err("the snapshot's outbox has a gap");
                    }
                    log.outbox.push_back(Outgoing::new(entry.clone()));
                }
                log.seen.insert(entry);
                Ok(())
            }
            Replicated::SnapshotDead(id, dead) => {
                let log = &mut self.incoming.as_mut().ok_or("no snapshot has begun")?.log;
                log.letters.keep(id, dead);
                Ok(())
            }
            Replicated::SnapshotEnd { op, now: last } => {
                check_time(now, last)?;
                let Incoming { state, mut log } =
                    self.incoming.take().ok_or("no snapshot has begun")?;
                if op.checked_sub(log.released) != Some(log.outbox.len() as u64) {
                    return Err("the snapshot's outbox has a gap");
                }
                *log.state.borrow_mut() = state.finish();
                log.op = op;
                log.now = last;
                self.log = log;
                self.error = None;
                Ok(())
            }
            Replicated::Entry(mut entry) => {
                if self.incoming.is_some() {
                    return Err("an entry inside a snapshot");
                }
                if entry.op != self.log.op + 1 {
                    return Err("a gap in the log");
                }
                check_entry(app, now, key, &entry)?;
                let batch = std::mem::take(&mut entry.batch);
                if let Some(batch) = check_batch(entry.slot, batch)? {
                    let applied = self.log.state.borrow_mut().apply(&batch);
                    applied.map_err(|_| "a write batch that does not fit the collections")?;
                }
                self.log.record(Rc::new(entry));
                Ok(())
            }
            Replicated::Released(op) => {
                if self.incoming.is_some() || op > self.log.op {
                    return Err("outputs released of entries that are not there");
                }
                self.log.release(op);
                Ok(())
            }
        }
    }
}
