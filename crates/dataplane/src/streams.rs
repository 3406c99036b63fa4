//! The primary's streams to its backups: a snapshot first, then every entry.

use crate::deliberate::{self, Fault};
use crate::limits::*;
use crate::log::Log;
use crate::shard::{Context, Effect, Shard, Turn};
use e3_model::NodeId;
use e3_model::plan::ShardPlan;
use e3_wire::entry::{Entry, Replicated};
use e3_wire::frame::{Ends, Link};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The backups of a primary.
#[derive(Debug)]
pub(crate) struct Streams {
    backups: BTreeMap<NodeId, Backup>,
    /// Entry up to which the backups know that outputs are durable.
    released_told: u64,
}

/// A backup as its primary sees it.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) link: Link,
    /// It has everything up to this entry.
    pub(crate) acked: u64,
    /// Last entry of the snapshot that it was sent first.
    snapshot_op: u64,
    /// Messages of that snapshot.
    pub(crate) snapshot_len: u64,
    /// Commits wait for it.
    pub(crate) required: bool,
    /// `commit` when it became required: from there on it has all that was released.
    required_from: u64,
}

impl Streams {
    /// Without backups.
    pub(crate) fn new(released: u64) -> Streams {
        Streams {
            backups: BTreeMap::new(),
            released_told: released,
        }
    }

    /// All backups.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Backup)> {
        self.backups.iter().map(|(node, backup)| (*node, backup))
    }

    /// Backups that commits wait for.
    pub(crate) fn required(&self) -> impl Iterator<Item = NodeId> {
        self.iter()
            .filter(|(_, b)| b.required)
            .map(|(node, _)| node)
    }

    /// Entries that every required backup has, of `op`.
    pub(crate) fn acked_by_all(&self, op: u64) -> u64 {
        let counts = |b: &&Backup| b.required && !deliberate::is(Fault::CommitAlone);
        let required = self.backups.values().filter(counts);
        required.map(|b| b.acked).fold(op, u64::min)
    }

    /// Brings the backups to the view.
    pub(crate) fn update(&mut self, turn: &mut Turn<'_>, commit: u64, plan: &ShardPlan) {
        let wanted = plan.backups.iter().chain(&plan.joining);
        let wanted: BTreeSet<NodeId> = wanted.copied().collect();
        self.backups.retain(|node, backup| {
            let keep = wanted.contains(node);
            if !keep {
                turn.effects.push(Effect::EndStream(backup.link));
            }
            keep
        });
        // The stream's first epoch is the view, which makes streams unique where a backup leaves
        // and joins again.
        let epoch = turn.shard.view;
        for node in wanted {
            let required = plan.backups.contains(&node);
            let link = stream_link(turn.cx, turn.shard, node);
            match self.backups.get_mut(&node) {
                Some(backup) if backup.link == link => backup.required |= required,
                // A node that restarted has nothing of what its process before had.
                _ => self.begin(turn, commit, link, node, required, epoch),
            }
        }
    }

    /// Begins a backup's stream once more, in the epoch that its state asks for.
    pub(crate) fn restart(&mut self, turn: &mut Turn<'_>, commit: u64, node: NodeId, epoch: u32) {
        let Some(backup) = self.backups.get(&node) else {
            return;
        };
        // A joining one that nobody was told of does not hold up the shard when its stream begins
        // again.
        let is_counted = turn.cx.app.shard(turn.shard.key).backups.contains(&node);
        let required = backup.required && (is_counted || self.is_synced(node));
        let link = stream_link(turn.cx, turn.shard, node);
        self.begin(turn, commit, link, node, required, epoch);
    }

    fn begin(
        &mut self,
        turn: &mut Turn<'_>,
        commit: u64,
        link: Link,
        node: NodeId,
        required: bool,
        epoch: u32,
    ) {
        turn.effects.push(Effect::BeginStream {
            link,
            backup: node,
            epoch,
        });
        let snapshot = snapshot(&turn.shard.log);
        let snapshot_len = snapshot.len() as u64;
        let op = turn.shard.log.op;
        for (at, body) in (1..).zip(snapshot) {
            turn.effects.push(Effect::Replicate {
                link,
                backup: node,
                body,
                // Only the whole snapshot brings the backup to this entry.
                op: (at == snapshot_len).then_some(op),
            });
        }
        let backup = Backup {
            link,
            acked: 0,
            snapshot_op: op,
            snapshot_len,
            required,
            required_from: commit,
        };
        self.backups.insert(node, backup);
    }

    /// Sends an entry to all backups.
    pub(crate) fn replicate(&self, turn: &mut Turn<'_>, entry: &Entry) {
        if !self.backups.is_empty() {
            self.send(turn, Replicated::encode_entry(entry).into(), entry.op);
        }
    }

    fn send(&self, turn: &mut Turn<'_>, body: Rc<[u8]>, op: u64) {
        for (node, backup) in self.iter() {
            turn.effects.push(Effect::Replicate {
                link: backup.link,
                backup: node,
                body: body.clone(),
                op: Some(op),
            });
        }
    }

    /// A backup has everything up to `op`.
    pub(crate) fn on_durable(&mut self, node: NodeId, op: u64, commit: u64, log_op: u64) {
        let Some(backup) = self.backups.get_mut(&node) else {
            return;
        };
        backup.acked = backup.acked.max(op);
        // From here on commits wait for it, so that it cannot fall behind again.
        if !backup.required && op >= backup.snapshot_op && op + QUEUE_MAX as u64 >= log_op {
            backup.required = true;
            backup.required_from = commit;
        }
    }

    /// Tells the backups which outputs need not be sent again.
    pub(crate) fn tell_released(&mut self, turn: &mut Turn<'_>) {
        let (mut released, op) = (turn.shard.log.released, turn.shard.log.op);
        if deliberate::is(Fault::ReleasedTooFar) {
            released = op;
        }
        if std::mem::replace(&mut self.released_told, released) != released {
            // Behind the last entry in the stream, so its acknowledgement covers that too.
            self.send(turn, Replicated::Released(released).encode().into(), op);
        }
    }

    /// Whether a joining backup has everything, so that it may count.
    pub(crate) fn is_synced(&self, node: NodeId) -> bool {
        let backup = self.backups.get(&node);
        backup.is_some_and(|b| {
            b.required && b.acked >= b.required_from.max(b.snapshot_op)
                || deliberate::is(Fault::SyncedAtOnce)
        })
    }

    /// Whether all backups have everything up to `op`.
    pub(crate) fn all_have(&self, op: u64) -> bool {
        self.backups.values().all(|b| b.acked == op)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self, commit: u64, op: u64) {
        assert!(self.released_told <= op);
        for (node, b) in &self.backups {
            assert!(b.acked <= op, "{node} acknowledged the future");
            let bound = b.acked.max(b.required_from);
            let is_alone = deliberate::is(Fault::CommitAlone);
            assert!(
                !b.required || commit <= bound || is_alone,
                "{node} lacks commits"
            );
        }
    }
}

/// The channel to a backup. While its node is no member nothing arrives, so commits that need the
/// backup wait.
fn stream_link(cx: &Context<'_>, shard: &Shard, node: NodeId) -> Link {
    let key = shard.key;
    Link {
        app: key.app,
        ends: Ends::Replication {
            service: key.service,
            shard: key.shard,
            backup: node,
        },
        from_incarnation: shard.incarnation,
        to_incarnation: cx.peers.get(&node).map_or(0, |peer| peer.incarnation),
    }
}

/// A snapshot of the log, as items of a stream.
fn snapshot(log: &Log) -> Vec<Rc<[u8]>> {
    let mut items = Vec::new();
    let mut put = |item: Replicated| items.push(item.encode().into());
    put(Replicated::SnapshotBegin {
        released: log.released,
    });
    for chunk in log.state.borrow().snapshot_chunks(SNAPSHOT_CHUNK_LEN) {
        if deliberate::is(Fault::SnapshotWithoutState) {
            break;
        }
        put(Replicated::SnapshotState(chunk));
    }
    let handled = log.dedup.entries().into_iter();
    let is_whole = !deliberate::is(Fault::SnapshotWithoutHandled);
    let released = handled.filter(|e| e.op <= log.released && is_whole);
    for entry in released.chain(log.outbox.iter().map(|o| &o.entry)) {
        put(Replicated::SnapshotSeen((**entry).clone()));
    }
    for (id, dead) in log.dead_letters.iter() {
        put(Replicated::SnapshotDead(*id, dead.clone()));
    }
    put(Replicated::SnapshotEnd {
        op: log.op,
        now: log.now,
    });
    items
}
