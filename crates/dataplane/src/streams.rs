//! The primary's streams to its backups: a snapshot first, then every entry.

use crate::deliberate::{self, Fault};
use crate::journal::Awaited;
use crate::limits::{QUEUE_MAX, RESTART_INTERVAL};
use crate::sending::Sending;
use crate::shard::{Context, Effect, Shard, Turn};
use e3_model::plan::ShardPlan;
use e3_model::{Format, Nanos, NodeId, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::frame::{Ends, Link};
use e3_wire::journal::Record;
use e3_wire::replicated::Replicated;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The backups of a primary.
#[derive(Debug)]
pub(crate) struct Streams {
    backups: BTreeMap<NodeId, Backup>,
    /// The last epochs of streams that have ended.
    ended: BTreeMap<NodeId, u32>,
    /// Entry up to which the backups know that outputs are durable.
    released_told: u64,
    /// [`Streams::pump`] is called in this turn.
    will_pump: bool,
    /// Backups of the first view may have the log already.
    is_new: bool,
    /// Backups that may have more than a log that was on disk: nothing is handled before they go on
    /// from it.
    unheard: BTreeSet<NodeId>,
}

/// A backup as its primary sees it.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) link: Link,
    /// Of the stream.
    epoch: u32,
    /// The first view that had it. Its node must know this view before it takes the stream: until then
    /// it may drop the copy that it has, and begin another one.
    joined_in: u32,
    /// The latest view that had it, and whose plan named its node.
    view: u32,
    /// It has everything up to this entry.
    pub(crate) acked: u64,
    /// It has the snapshot that it was sent first.
    pub(crate) is_whole: bool,
    /// Until it has that, and commits wait for it.
    sending: Option<Box<Sending>>,
    /// Commits wait for it.
    pub(crate) required: bool,
    /// `commit` when it became required: from there on it has all that was released.
    required_from: u64,
    /// The controller may have been told that it has everything, and count on it.
    was_synced: bool,
}

impl Streams {
    /// Without backups.
    pub(crate) fn new(released: u64) -> Streams {
        Streams {
            backups: BTreeMap::new(),
            ended: BTreeMap::new(),
            released_told: released,
            will_pump: false,
            is_new: true,
            unheard: BTreeSet::new(),
        }
    }

    /// Whether a backup may have more than the log that was on disk.
    pub(crate) fn has_unheard(&self) -> bool {
        !self.unheard.is_empty()
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
                self.ended.insert(*node, backup.epoch);
            }
            keep
        });
        let is_new = std::mem::take(&mut self.is_new);
        let was_on_disk = is_new && plan.has_restarted() && turn.shard.disk.is_some();
        if was_on_disk {
            self.unheard.extend(&plan.backups);
        }
        self.unheard.retain(|node| plan.backups.contains(node));
        let may_have_all = is_new && (turn.shard.log.op > 0 || was_on_disk);
        for node in wanted {
            let epoch = self.first_epoch(node, turn.shard.view);
            let required = plan.backups.contains(&node);
            let link = stream_link(turn.cx, turn.shard, node);
            // One that the controller may count on is not given up for a plan that does not name it.
            let is_named = turn.cx.peers.contains_key(&node);
            let is_same = |b: &Backup| b.link == link || (b.was_synced && !is_named);
            let may_have_more = self.unheard.contains(&node);
            match self.backups.get_mut(&node) {
                Some(backup) if is_same(backup) => {
                    backup.required |= required;
                    if backup.link != link {
                        continue;
                    }
                    // In a view that this primary has not seen, a joining copy may have been dropped.
                    let before = std::mem::replace(&mut backup.view, plan.view);
                    if plan.view > before + 1 && !required {
                        backup.joined_in = plan.view;
                        let next = backup.epoch.wrapping_add(1);
                        self.restart(turn, commit, node, next);
                    }
                }
                _ if required && (may_have_all || may_have_more) => {
                    self.resume(turn, commit, link, node, epoch);
                }
                // A node that restarted has nothing of what its process before had in memory.
                _ => self.begin(turn, commit, link, node, required, epoch),
            }
        }
    }

    /// The first epoch of a stream that begins in this view. It is the view, unless a stream to the node has had
    /// this epoch before: each time that one begins again it has a later epoch. A node that left and kept its copy
    /// would take the new stream for the old one, and confirm what it does not have.
    fn first_epoch(&self, node: NodeId, view: u32) -> u32 {
        let last = self.ended.get(&node);
        last.map_or(view, |last| view.max(last.wrapping_add(1)))
    }

    /// Begins a backup's stream once more, in the epoch that its state asks for.
    pub(crate) fn restart(&mut self, turn: &mut Turn<'_>, commit: u64, node: NodeId, epoch: u32) {
        let Some(backup) = self.backups.get(&node) else {
            return;
        };
        // A joining one that nobody was told of does not hold up the shard when its stream begins
        // again.
        let is_counted = turn.cx.app.shard(turn.shard.key).backups.contains(&node);
        let required = backup.required && (is_counted || backup.was_synced);
        let link = stream_link(turn.cx, turn.shard, node);
        self.begin(turn, commit, link, node, required, epoch);
    }

    /// Begins a backup's stream with the end of the log. A backup that cannot go on from there asks
    /// for another epoch, and gets a snapshot.
    fn resume(&mut self, turn: &mut Turn<'_>, commit: u64, link: Link, node: NodeId, epoch: u32) {
        let settles_at = turn.cx.now;
        turn.effects.push(Effect::BeginStream {
            link,
            backup: node,
            epoch,
            settles_at,
        });
        let log = &turn.shard.log;
        let tail = log.history.tail();
        let first_op = log.op + 1 - tail.len() as u64;
        let reigns = log.history.reigns().to_vec();
        let joined_in = turn.shard.view;
        let begin = Replicated::Resume {
            view: view_to_name(turn.cx, joined_in),
            first_op,
            reigns,
        };
        let begin = begin.encode();
        let released = Replicated::Released(log.released).encode();
        let send = |body: Rc<[u8]>, op| replicate(link, node, body, op);
        turn.effects.push(send(begin.into(), 0));
        let entries = tail.iter().zip(first_op..);
        turn.effects
            .extend(entries.map(|(entry, op)| send(entry.clone(), op)));
        turn.effects.push(send(released.into(), log.op));
        let backup = Backup {
            link,
            epoch,
            joined_in,
            view: turn.shard.view,
            acked: 0,
            is_whole: false,
            sending: None,
            required: true,
            required_from: commit,
            was_synced: false,
        };
        self.backups.insert(node, backup);
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
            settles_at: turn.cx.now + RESTART_INTERVAL,
        });
        let before = self.backups.get(&node);
        let is_same = |b: &&Backup| b.link == link;
        let was_synced = before.filter(is_same).is_some_and(|b| b.was_synced);
        let joined_in = before
            .filter(is_same)
            .map_or(turn.shard.view, |b| b.joined_in);
        let before = before.and_then(|b| b.sending.as_deref());
        let (log, view) = (&turn.shard.log, view_to_name(turn.cx, joined_in));
        let (sending, begin) = Sending::new(turn.cx.now, log, turn.cx.format, view, before);
        let mut backup = Backup {
            link,
            epoch,
            joined_in,
            view: turn.shard.view,
            acked: 0,
            is_whole: false,
            sending: Some(Box::new(sending)),
            required,
            required_from: commit,
            was_synced,
        };
        backup.send(node, turn.effects, begin.into(), 0, Sending::on_sent);
        self.backups.insert(node, backup);
        self.pump_soon(turn);
    }

    /// Has more of the snapshots made in this turn, when all completions are in: until then the
    /// collections may hold writes of entries that are not in the log.
    fn pump_soon(&mut self, turn: &mut Turn<'_>) {
        if !std::mem::replace(&mut self.will_pump, true) {
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// Sees that the primary goes on when it has waited long enough for this backup.
    fn wake_if_over(turn: &mut Turn<'_>, sending: &Sending) {
        if sending.is_over() && sending.waits_until() > turn.cx.now {
            turn.effects.push(Effect::WakeAt(sending.waits_until()));
        }
    }

    /// Makes and sends more of the snapshots that are on their way.
    pub(crate) fn pump(&mut self, turn: &mut Turn<'_>) {
        self.will_pump = false;
        for (node, backup) in &mut self.backups {
            let (link, log, effects) = (backup.link, &turn.shard.log, &mut *turn.effects);
            if let Some(sending) = &mut backup.sending {
                sending.pump(log, |item| {
                    effects.push(replicate(link, *node, item.into(), log.op));
                });
                if sending.has_room() {
                    // In the next turn: others wait too.
                    effects.push(Effect::WakeAt(turn.cx.now + Nanos(1)));
                }
                Streams::wake_if_over(turn, sending);
            }
        }
    }

    /// Sends an entry to all backups.
    pub(crate) fn replicate(&mut self, turn: &mut Turn<'_>, entry: &Entry) {
        let is_on_disk = turn.shard.disk.is_some();
        if self.backups.is_empty() && !is_on_disk {
            return turn.shard.log.history.skip();
        }
        let body: Rc<[u8]> = Replicated::encode_entry(entry).into();
        if is_on_disk {
            let record = Record::encode_item(turn.shard.key, &body);
            turn.effects
                .push(Effect::Journal(record, Awaited::Op(entry.op)));
        }
        turn.shard.log.history.push(body.clone());
        self.send(turn, body, entry.op, Sending::on_entry);
    }

    fn send(
        &mut self,
        turn: &mut Turn<'_>,
        body: Rc<[u8]>,
        op: u64,
        note: fn(&mut Sending, usize),
    ) {
        let mut late = Vec::new();
        for (node, backup) in &mut self.backups {
            let Some(sending) = &backup.sending else {
                turn.effects
                    .push(replicate(backup.link, *node, body.clone(), op));
                continue;
            };
            if sending.is_over() {
                // Of those that commits wait for, the outbox bounds what is open.
                if !backup.required && sending.waits_until() <= turn.cx.now {
                    late.push(*node);
                    continue;
                }
                Streams::wake_if_over(turn, sending);
            }
            backup.send(*node, turn.effects, body.clone(), op, note);
        }
        for node in late {
            self.begin_again(turn, node);
            if let Some(backup) = self.backups.get_mut(&node) {
                backup.send(node, turn.effects, body.clone(), op, note);
            }
        }
        if self.backups.values().any(|b| b.sending.is_some()) {
            self.pump_soon(turn);
        }
    }

    /// Begins the stream of a backup once more that lets too much stay open.
    fn begin_again(&mut self, turn: &mut Turn<'_>, node: NodeId) {
        if let Some(backup) = self.backups.get(&node) {
            let (link, required) = (backup.link, backup.required);
            let (commit, epoch) = (backup.required_from, backup.epoch.wrapping_add(1));
            self.begin(turn, commit, link, node, required, epoch);
        }
    }

    /// Whether the primary waits for a backup that takes less than is written.
    pub(crate) fn are_behind(&self, now: Timestamp) -> bool {
        let sending = self.backups.values().filter_map(|b| b.sending.as_deref());
        let mut over = sending.filter(|s| s.is_over());
        over.any(|s| now < s.waits_until())
    }

    /// An item is durable: the backup has everything up to `op`.
    pub(crate) fn on_durable(&mut self, turn: &mut Turn<'_>, node: NodeId, op: u64, commit: u64) {
        let (now, log_op) = (turn.cx.now, turn.shard.log.op);
        let Some(backup) = self.backups.get_mut(&node) else {
            return;
        };
        let Some(sending) = &mut backup.sending else {
            // The first item says that it goes on from its own log.
            backup.is_whole = true;
            self.unheard.remove(&node);
            backup.acked = backup.acked.max(op);
            backup.was_synced |= backup.is_synced();
            return;
        };
        backup.is_whole |= sending.on_durable(now);
        if backup.is_whole {
            self.unheard.remove(&node);
            backup.acked = backup.acked.max(op);
            // From here on commits wait for it, so that it cannot fall behind again.
            if !backup.required && backup.acked + QUEUE_MAX as u64 >= log_op {
                backup.required = true;
                backup.required_from = commit;
            }
            if backup.required {
                backup.sending = None;
                backup.was_synced |= backup.is_synced();
                return;
            }
        }
        Streams::wake_if_over(turn, sending);
        self.pump_soon(turn);
    }

    /// Tells the backups which outputs need not be sent again.
    pub(crate) fn tell_released(&mut self, turn: &mut Turn<'_>) {
        let (mut released, op) = (turn.shard.log.released, turn.shard.log.op);
        if deliberate::is(Fault::ReleasedTooFar) {
            released = op;
        }
        if std::mem::replace(&mut self.released_told, released) != released {
            // Behind the last entry in the stream, so its acknowledgement covers that too.
            let body: Rc<[u8]> = Replicated::Released(released).encode().into();
            if turn.shard.disk.is_some() {
                let record = Record::encode_item(turn.shard.key, &body);
                turn.effects.push(Effect::Journal(record, Awaited::Nothing));
            }
            self.send(turn, body, op, Sending::on_sent);
        }
    }

    /// Whether a joining backup has everything, so that it may count.
    pub(crate) fn is_synced(&self, node: NodeId) -> bool {
        let backup = self.backups.get(&node);
        backup.is_some_and(|b| b.is_synced() || deliberate::is(Fault::SyncedAtOnce))
    }

    /// Whether all backups have everything up to `op`.
    pub(crate) fn all_have(&self, op: u64) -> bool {
        self.backups.values().all(|b| b.acked == op)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self, commit: u64, op: u64) {
        assert!(self.released_told <= op);
        for (node, b) in &self.backups {
            b.sending.iter().for_each(|sending| sending.validate());
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

/// The view that the first item of a stream names.
fn view_to_name(cx: &Context<'_>, joined_in: u32) -> Option<u32> {
    (cx.format >= Format::STREAM_VIEWS).then_some(joined_in)
}

/// An item for a backup's stream.
fn replicate(link: Link, backup: NodeId, body: Rc<[u8]>, op: u64) -> Effect {
    Effect::Replicate {
        link,
        backup,
        body,
        op: Some(op),
    }
}

impl Backup {
    fn is_synced(&self) -> bool {
        self.required && self.is_whole && self.acked >= self.required_from
    }

    /// Sends an item while the snapshot is on its way. Nothing before its end brings the backup to
    /// an entry.
    fn send(
        &mut self,
        node: NodeId,
        effects: &mut Vec<Effect>,
        body: Rc<[u8]>,
        op: u64,
        note: fn(&mut Sending, usize),
    ) {
        if let Some(sending) = &mut self.sending {
            note(sending, body.len());
        }
        effects.push(replicate(self.link, node, body, op));
    }
}
