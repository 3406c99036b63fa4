//! Which nodes have sent heartbeats lately. Soft state: never logged, lost with the process.
//!
//! A controller that was not listening knows nothing. Silence counts from when it began to listen
//! without a gap, in two measures: time, and turns in which it took everything that had arrived. A
//! paused process, a stepped clock and a fast clock each affect only one of them.
//!
//! The table of heartbeats has shards, each with some of the nodes (`sharding.rs`). A turn looks only at
//! shards in which a member may be silent. What it finds does not depend on the number of shards.

use crate::limits::{START_GRACE, START_SILENCE};
use crate::sharding::Shards;
use crate::state::{Control, Member};
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

/// A process that has sent heartbeats.
#[derive(Clone, Copy, Default, Debug)]
struct Heard {
    incarnation: u32,
    last: Moment,
}

/// How silent a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    Heard,
    /// It may be about to count as silent.
    Near,
    Silent,
}

/// Some of the nodes.
#[derive(Clone, Default, Debug)]
struct Shard {
    heard: BTreeMap<NodeId, Heard>,
    /// Members that count as heard in the state, with their incarnations.
    up: Vec<(NodeId, u32)>,
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
    /// All members were silent at the last turn: it may be the controller that is cut off.
    deaf: bool,
    /// Members whose processes have ended, by the word of their successor or of whoever started them.
    ended: BTreeMap<NodeId, u32>,
    numbers: Shards,
    shards: Vec<Shard>,
    /// The version of the state whose members the shards have.
    version: Option<u64>,
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
            deaf: false,
            ended: BTreeMap::new(),
            shards: vec![Shard::default(); numbers.numbers().len()],
            numbers,
            version: None,
        }
    }

    /// Records a heartbeat. A late one of an older process does not count.
    pub fn on_heartbeat(&mut self, now: Timestamp, node: NodeId, incarnation: u32) {
        if std::mem::take(&mut self.deaf) {
            self.listen_anew(now);
        }
        let turn = self.now.turn;
        let shard = &mut self.shards[self.numbers.place(node)];
        let heard = shard.heard.entry(node).or_default();
        if incarnation >= heard.incarnation {
            if incarnation != heard.incarnation {
                shard.calm = None;
            }
            let last = Moment { at: now, turn };
            *heard = Heard { incarnation, last };
        }
    }

    /// A member's process has ended, and cannot say any more what it has seen.
    pub fn on_end(&mut self, node: NodeId, incarnation: u32) {
        self.ended.insert(node, incarnation);
    }

    /// A process asks to join: if it is another one of a member's node, the member's has ended.
    pub fn on_hello(&mut self, hello: &NodeHello, control: &Control) {
        if let Some((node, incarnation)) = control.ended_by(hello) {
            self.on_end(node, incarnation);
        }
    }

    /// When the first of these members may be about to count as silent, if none sends anything.
    fn calm_until(&self, up: &[(NodeId, u32)]) -> Option<Timestamp> {
        let times = up.iter().map(|(node, incarnation)| {
            let (since, limit) = self.since(*node, *incarnation);
            since.at + (limit - TOGETHER)
        });
        times.min()
    }

    fn listen_anew(&mut self, now: Timestamp) {
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

    /// Takes up the members of a state.
    fn note_members(&mut self, control: &Control) {
        if self.version == Some(control.version) {
            return;
        }
        self.version = Some(control.version);
        self.look_again();
        for shard in &mut self.shards {
            shard.up.clear();
        }
        for (node, member) in control.members.iter().filter(|(_, m)| m.up) {
            let shard = &mut self.shards[self.numbers.place(*node)];
            shard.up.push((*node, member.incarnation));
        }
    }

    fn last_heard(&self, node: NodeId) -> Option<&Heard> {
        self.shards[self.numbers.place(node)].heard.get(&node)
    }

    /// Whether no member is heard: the controller itself may be cut off.
    pub fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// When a node's process was last heard.
    pub fn heard(&self, node: NodeId, incarnation: u32) -> Option<Timestamp> {
        self.last_heard(node)
            .filter(|h| h.incarnation == incarnation)
            .map(|h| h.last.at)
    }

    /// Whether every member has been heard since the start or has ended, or has had the time for it while
    /// this process listened; more time if that is true of none. Before that nothing should be decided:
    /// nodes may have seen decisions that the log lacks.
    pub fn is_settled(&self, now: Timestamp, control: &Control) -> bool {
        let is_listening = now.since(self.now.at) <= TURN_GAP_MAX;
        let had_gap = self.listening != self.started;
        let listened = now.since(self.listening.at);
        let had_time = is_listening
            && now.since(self.started.at) > START_GRACE
            && (!had_gap || listened > self.timeout);
        if had_time && listened > START_SILENCE {
            return true;
        }
        let is_known = |(node, member): (&NodeId, &Member)| {
            let has_ended = self.ended.get(node) == Some(&member.incarnation);
            has_ended || self.heard(*node, member.incarnation).is_some()
        };
        let up = control.members.iter().filter(|(_, m)| m.up);
        let members = up.clone().count();
        let known = up.filter(|member| is_known(*member)).count();
        known == members || (had_time && known > 0)
    }

    /// Whether a node's process has been silent for too long.
    pub fn is_silent(&self, now: Timestamp, node: NodeId, incarnation: u32) -> bool {
        self.silence(now, node, incarnation) == Silence::Silent
    }

    /// Since when a node's process is silent, and how long it may be.
    fn since(&self, node: NodeId, incarnation: u32) -> (Moment, Nanos) {
        let heard = self.last_heard(node);
        let heard = heard.filter(|h| h.incarnation == incarnation);
        let first = self.listening == self.started;
        let limit = match heard {
            None if first => START_GRACE.max(self.timeout),
            _ => self.timeout,
        };
        let last = heard.map_or(self.listening, |h| h.last);
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
            self.listen_anew(now);
        }
        self.now = Moment {
            at: now,
            turn: self.now.turn + 1,
        };
        self.note_members(control);
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
            let heard = self.last_heard(*n).map_or(self.started, |h| h.last);
            now.since(heard.at.max(self.listening.at)) > self.timeout + TOGETHER
        };
        if is_near && !lost.iter().any(long) {
            return BTreeMap::new();
        }
        lost
    }

    fn look(&self, now: Timestamp, up: &[(NodeId, u32)]) -> Look {
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
