//! Which nodes have sent heartbeats lately. Soft state: never logged, lost with the process.
//!
//! A controller that was not listening knows nothing. Silence counts from when it began to listen
//! without a gap, in two measures: time, and turns in which it took everything that had arrived. A
//! paused process, a stepped clock and a fast clock each affect only one of them.
//!
//! The members have shards, each with some of the nodes (`sharding.rs`). A turn looks only at shards in
//! which a member may be silent. What it finds does not depend on the number of shards.
//!
//! A heartbeat changes one entry of a table by node. Which processes are members is copied from the state
//! into the same table, so that a heartbeat searches no map.

use crate::limits::{START_GRACE, START_SILENCE};
use crate::sharding::Shards;
use crate::state::{Control, Member};
use crate::table::Table;
use e3_model::plan::NodeHello;
use e3_model::timing::{SILENT_TURNS_MIN, TOGETHER, TURN_GAP_MAX};
use e3_model::{Nanos, NodeId, Timestamp};
use std::collections::BTreeMap;

/// A point in both measures.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Moment {
    at: Timestamp,
    turn: u64,
}

/// How silent a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    Heard,
    /// It may be about to count as silent.
    Near,
    Silent,
}

/// What is known of a node. Two fit into a cache line, so that a heartbeat reads one line.
#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    /// When the last heartbeat came that counted.
    at: Timestamp,
    /// Low half of the turn.
    turn_low: u32,
    /// Incarnation that sent it.
    heard: u32,
    /// Its number, if the member's process sent it.
    sequence: u32,
    /// Incarnation of the member, as the state has it.
    member: u32,
    /// Low half of the plan's version that the member had applied at its last heartbeat.
    applied_low: u32,
    is_heard: bool,
    is_member: bool,
    /// The member counts as heard in the state.
    is_up: bool,
    /// `applied_low` is known.
    has_applied: bool,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Whose heartbeat it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    /// The present process of a member that counts as heard.
    Present,
    /// The present process of a member that counts as silent.
    Silent,
    /// No present process of a member.
    Stranger,
    /// The present process of a member, of which this or a later one came before.
    Late,
}

/// Some of the members.
#[derive(Clone, Default, Debug)]
struct Shard {
    /// Members that count as heard in the state, with their incarnations.
    up: BTreeMap<NodeId, u32>,
    /// None of them can become silent before this time. Heartbeats only put it off.
    calm: Option<Timestamp>,
}

/// What a look at a shard finds.
#[derive(Default)]
struct Look {
    silent: Vec<(NodeId, u32)>,
    is_near: bool,
}

/// Heartbeats.
#[derive(Debug)]
pub struct Membership {
    timeout: Nanos,
    /// When the last gap ended.
    listening: Moment,
    /// Since the start, in which nodes must first be found again.
    started: Moment,
    /// The last turn.
    now: Moment,
    /// Since the start it has listened for as long as a silence takes, or the cluster is new.
    has_listened: bool,
    /// All members were silent at the last turn: it may be the controller that is cut off.
    deaf: bool,
    /// Members from which nothing more is to be learned: another process of their node asks to join, or a
    /// later one sends heartbeats or asks for a plan.
    excused: BTreeMap<NodeId, u32>,
    /// The processes that have asked for a plan since the start.
    asked: BTreeMap<NodeId, u32>,
    /// By node.
    nodes: Vec<Entry>,
    numbers: Shards,
    shards: Vec<Shard>,
    /// The version of the state whose members the shards have.
    version: Option<u64>,
    /// These members.
    members: Table<NodeId, Member>,
}

impl Membership {
    /// No heartbeat has come yet. `timeout` is the silence after which a node counts as lost.
    pub fn new(now: Timestamp, timeout: Nanos) -> Membership {
        Membership::sharded(now, timeout, 1)
    }

    /// The same with so many shards.
    pub fn sharded(now: Timestamp, timeout: Nanos, shards: u16) -> Membership {
        let numbers = Shards::new(shards);
        let now = Moment { at: now, turn: 0 };
        Membership {
            timeout,
            listening: now,
            started: now,
            now,
            has_listened: false,
            deaf: false,
            excused: BTreeMap::new(),
            asked: BTreeMap::new(),
            nodes: Vec::new(),
            shards: vec![Shard::default(); numbers.numbers().len()],
            numbers,
            version: None,
            members: Table::new(),
        }
    }

    /// The same of a new cluster: no process can have seen anything.
    pub fn of_new_cluster(self) -> Membership {
        Membership {
            has_listened: true,
            ..self
        }
    }

    /// Records a heartbeat of a node of the topology. A late one of an older process does not count.
    #[inline]
    pub fn on_heartbeat(&mut self, now: Timestamp, node: NodeId, incarnation: u32) {
        if std::mem::take(&mut self.deaf) {
            self.listen_again(now);
        }
        let turn = self.now.turn;
        let entry = self.entry(node);
        let (heard, is_first) = (entry.heard, !entry.is_heard);
        if is_first || incarnation >= heard {
            entry.at = now;
            entry.turn_low = turn as u32;
            entry.heard = incarnation;
            entry.is_heard = true;
            if is_first || incarnation != heard {
                self.shards[self.numbers.place(node)].calm = None;
            }
        }
    }

    #[inline]
    fn entry(&mut self, node: NodeId) -> &mut Entry {
        if node.index() >= self.nodes.len() {
            self.nodes.resize(node.index() + 1, Entry::default());
        }
        &mut self.nodes[node.index()]
    }

    /// Whether this heartbeat of a member's process, or a later one, came before. Those without a number
    /// count until the first one with a number.
    pub(crate) fn is_late(&self, node: NodeId, sequence: u32) -> bool {
        let last = self.nodes.get(node.index()).map_or(0, |e| e.sequence);
        last > 0 && sequence <= last
    }

    /// Notes the number of a member's heartbeat.
    #[inline]
    pub(crate) fn on_sequence(&mut self, node: NodeId, sequence: u32) {
        let entry = self.entry(node);
        entry.sequence = entry.sequence.max(sequence);
    }

    /// Notes which version of the plan a member has applied.
    #[inline]
    pub fn on_applied(&mut self, node: NodeId, version_low: u32) {
        let entry = self.entry(node);
        entry.applied_low = version_low;
        entry.has_applied = true;
    }

    /// Low half of the version of the plan that a member has applied.
    pub fn applied_low(&self, node: NodeId) -> Option<u32> {
        let entry = self.nodes.get(node.index());
        entry.filter(|e| e.has_applied).map(|e| e.applied_low)
    }

    /// Forgets that.
    pub fn forget_applied(&mut self, node: NodeId) {
        self.entry(node).has_applied = false;
    }

    /// Whose heartbeats a process sends. The members must have been noted.
    pub(crate) fn sender(&self, node: NodeId, incarnation: u32) -> Sender {
        match self.nodes.get(node.index()) {
            Some(e) if e.is_member && e.member == incarnation => match e.is_up {
                true => Sender::Present,
                false => Sender::Silent,
            },
            _ => Sender::Stranger,
        }
    }

    /// A process asks to join. If it is another one of a member's node, the member's has ended, and cannot
    /// say any more what it has seen; if it is the member's, it has not been told that it joined, and so has
    /// applied no plan.
    pub fn on_hello(&mut self, hello: &NodeHello, control: &Control) {
        if let Some(node) = control.index().cluster.named(&hello.name)
            && let Some(member) = control.members.get(&node)
        {
            self.excused.insert(node, member.incarnation);
        }
    }

    /// A process that is no member's sends a heartbeat, or asks for a plan. If it is a later one of a member's
    /// node, the log lacks its join: the member's has ended, and this one says what it has seen.
    pub fn on_stranger(&mut self, node: NodeId, incarnation: u32, control: &Control) {
        if let Some(member) = control.members.get(&node)
            && incarnation > member.incarnation
        {
            self.excused.insert(node, member.incarnation);
        }
    }

    /// A process has joined, and has no plan yet.
    pub fn on_joined(&mut self, now: Timestamp, node: NodeId, incarnation: u32) {
        self.on_heartbeat(now, node, incarnation);
        self.asked.insert(node, incarnation);
    }

    /// A process asks for a plan. A member's does so when it has taken what was sent to it before, and its
    /// heartbeats say so from then on.
    pub fn on_plan_request(&mut self, node: NodeId, incarnation: u32, control: &Control) {
        match control.members.get(&node) {
            Some(member) if member.incarnation == incarnation => {
                self.asked.insert(node, incarnation);
            }
            _ => self.on_stranger(node, incarnation, control),
        }
    }

    /// When the first of these members may be about to count as silent, if none sends anything.
    fn calm_until(&self, up: &BTreeMap<NodeId, u32>) -> Option<Timestamp> {
        let times = up.iter().map(|(node, incarnation)| {
            let (since, limit) = self.since(*node, *incarnation);
            since.at + (limit - TOGETHER)
        });
        times.min()
    }

    fn listen_again(&mut self, now: Timestamp) {
        let turn = self.now.turn;
        self.listening = Moment { at: now, turn };
        self.look_again();
    }

    /// The next turn looks at all shards.
    fn look_again(&mut self) {
        for shard in &mut self.shards {
            shard.calm = None;
        }
    }

    /// Takes up the members of a state that are others than before.
    pub(crate) fn note_members(&mut self, control: &Control) {
        if self.version == Some(control.version) {
            return;
        }
        self.version = Some(control.version);
        let changed = control.members.unshared(&self.members);
        self.members = control.members.clone();
        for node in changed {
            let member = control.members.get(&node);
            let (incarnation, is_up) = member.map_or((0, false), |m| (m.incarnation, m.up));
            let is_member = member.is_some();
            let entry = self.entry(node);
            let before = (entry.member, entry.is_member, entry.is_up);
            let known = (incarnation, is_member, is_up);
            if before == known {
                continue;
            }
            (entry.member, entry.is_member, entry.is_up) = known;
            if incarnation != before.0 {
                entry.sequence = 0;
            }
            let shard = &mut self.shards[self.numbers.place(node)];
            shard.calm = None;
            if is_up {
                shard.up.insert(node, incarnation);
            } else {
                shard.up.remove(&node);
            }
        }
    }

    /// When a node was heard last, and the incarnation that was.
    fn last_heard(&self, node: NodeId) -> Option<(Moment, u32)> {
        let entry = self.nodes.get(node.index()).filter(|e| e.is_heard)?;
        // A turn of more than 2^32 turns ago looks like a later one, but then the time says enough.
        let ago = (self.now.turn as u32).wrapping_sub(entry.turn_low);
        let last = Moment {
            at: entry.at,
            turn: self.now.turn - u64::from(ago),
        };
        Some((last, entry.heard))
    }

    /// Whether no member is heard: the controller itself may be cut off.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// When a node's process was last heard.
    pub fn heard(&self, node: NodeId, incarnation: u32) -> Option<Timestamp> {
        let heard = self.last_heard(node);
        heard.filter(|h| h.1 == incarnation).map(|h| h.0.at)
    }

    /// Whether every member has been heard since the start and has asked for a plan, or is excused, or has had
    /// the time for it while this process listened; more time if there is none such. Before that nothing should
    /// be decided: nodes may have seen decisions that the log lacks, or be about to take a plan that is on its
    /// way. So may processes of which the log knows nothing, so it listens for a while in any case, and members
    /// that were silent count too: they may have been heard again, and those that had ended may have joined
    /// again.
    pub fn is_settled(&self, now: Timestamp, control: &Control) -> bool {
        if !self.has_listened {
            return false;
        }
        let is_listening = now.since(self.now.at) <= TURN_GAP_MAX;
        let had_gap = self.listening != self.started;
        let listened = now.since(self.listening.at);
        let had_time = is_listening
            && now.since(self.started.at) > START_GRACE
            && (!had_gap || listened > self.timeout);
        if had_time && listened > START_SILENCE {
            return true;
        }
        let mut members = control.members.iter();
        let is_heard = |(node, member): (&NodeId, &Member)| {
            let has_asked = self.asked.get(node) == Some(&member.incarnation);
            has_asked && self.heard(*node, member.incarnation).is_some()
        };
        let is_excused = |(node, member): (&NodeId, &Member)| {
            self.excused.get(node) == Some(&member.incarnation)
        };
        members.clone().all(|m| is_heard(m) || is_excused(m)) || (had_time && members.any(is_heard))
    }

    /// Whether a node's process has been silent for too long.
    pub fn is_silent(&self, now: Timestamp, node: NodeId, incarnation: u32) -> bool {
        self.silence(now, node, incarnation) == Silence::Silent
    }

    /// Since when a node's process is silent, and how long it may be.
    fn since(&self, node: NodeId, incarnation: u32) -> (Moment, Nanos) {
        let heard = self.last_heard(node);
        let heard = heard.filter(|h| h.1 == incarnation).map(|h| h.0);
        let first = self.listening == self.started;
        let limit = match heard {
            None if first => START_GRACE.max(self.timeout),
            _ => self.timeout,
        };
        let last = heard.unwrap_or(self.listening);
        let since = Moment {
            at: last.at.max(self.listening.at),
            turn: last.turn.max(self.listening.turn),
        };
        (since, limit)
    }

    fn silence(&self, now: Timestamp, node: NodeId, incarnation: u32) -> Silence {
        let (since, limit) = self.since(node, incarnation);
        let span = now.since(since.at);
        let turns = self.now.turn - since.turn;
        if span > limit && turns > SILENT_TURNS_MIN {
            Silence::Silent
        } else if span + TOGETHER > limit {
            Silence::Near
        } else {
            Silence::Heard
        }
    }

    /// One turn, in which all that had come was taken: the members that have been silent for too
    /// long, with their incarnations. Nodes that fall silent together are named together; if no
    /// member is heard, none is named, since the controller may be the one that is cut off.
    pub fn lost(&mut self, now: Timestamp, control: &Control) -> BTreeMap<NodeId, u32> {
        if now.since(self.now.at) > TURN_GAP_MAX {
            self.listen_again(now);
        }
        self.now = Moment {
            at: now,
            turn: self.now.turn + 1,
        };
        self.note_members(control);
        let had_time = now.since(self.started.at) > self.timeout;
        self.has_listened |= had_time && self.now.turn > SILENT_TURNS_MIN;
        let (mut lost, mut is_near) = (BTreeMap::new(), false);
        for at in 0..self.shards.len() {
            if self.shards[at].calm.is_some_and(|until| now < until) {
                continue;
            }
            let found = self.look(now, &self.shards[at].up);
            let is_calm = found.silent.is_empty() && !found.is_near;
            let until = is_calm.then(|| self.calm_until(&self.shards[at].up));
            self.shards[at].calm = until.flatten();
            lost.extend(found.silent);
            is_near |= found.is_near;
        }
        let members = self
            .shards
            .iter()
            .map(|shard| shard.up.len())
            .sum::<usize>();
        if lost.len() == members {
            self.deaf = members > 0;
            return BTreeMap::new();
        }
        let long = |(n, _): (&NodeId, &u32)| {
            let heard = self.last_heard(*n).map_or(self.started, |h| h.0);
            now.since(heard.at.max(self.listening.at)) > self.timeout + TOGETHER
        };
        if is_near && !lost.iter().any(long) {
            return BTreeMap::new();
        }
        lost
    }

    fn look(&self, now: Timestamp, up: &BTreeMap<NodeId, u32>) -> Look {
        let mut look = Look::default();
        for (node, incarnation) in up {
            match self.silence(now, *node, *incarnation) {
                Silence::Silent => look.silent.push((*node, *incarnation)),
                Silence::Near => look.is_near = true,
                Silence::Heard => {}
            }
        }
        look
    }
}
