//! Turns of a node's loop, where a measured machine takes the place of the models of cores.
//!
//! In a turn, the loop of a node takes in what has arrived, runs what it took in during the turn before, and sends
//! what all of these gave. So a message waits until the turn ends in which it arrives, and runs in the turn after the
//! one that takes it in; its outputs wait until the end of the turn that runs it. What one shard sends to another on the
//! same node runs in the next turn. A loop that sleeps takes a message in at once.

use crate::arena::{Arena, Message};
use crate::fifo::Fifo;
use crate::simulator::Simulator;

/// The turns of a thread.
#[derive(Default)]
pub(crate) struct Turn {
    /// The loop does not sleep.
    is_on: bool,
    /// The outputs of the turn are sent: what comes now comes from this node.
    is_ending: bool,
    /// When the turn began.
    begun: u64,
    /// What waits in the thread's queue.
    queued: u32,
    /// What the turn has still to run of that.
    left: u32,
    /// What the turn has run.
    done: Vec<u32>,
    /// What has arrived since the turn began.
    arrived: Fifo,
    arrived_count: u32,
}

impl Turn {
    /// What has arrived since the turn began.
    pub fn arrived<'a>(&self, messages: &'a Arena<Message>) -> impl Iterator<Item = u32> + use<'a> {
        self.arrived.iter(messages)
    }

    /// A message begins to run; true if the loop slept until now.
    pub fn wake(&mut self, now: u64) -> bool {
        let slept = !self.is_on;
        if slept {
            self.is_on = true;
            self.begun = now;
        }
        slept
    }
}

impl Simulator {
    /// A message has come to a thread whose loop does not sleep; false if it sleeps, or there are no turns.
    pub(crate) fn wait_for_turn(&mut self, at: usize, id: u32) -> bool {
        let Some(turn) = self.threads.turns.get_mut(at).filter(|turn| turn.is_on) else {
            return false;
        };
        if turn.is_ending {
            turn.queued += 1;
            self.threads.push(at, id, &mut self.messages);
        } else {
            turn.arrived_count += 1;
            turn.arrived.push(id, &mut self.messages);
        }
        self.threads.note_waiting(at);
        true
    }

    /// A thread has run a message; false if there are no turns.
    pub(crate) fn on_turn_done(&mut self, at: usize, id: u32) -> bool {
        let (now, turn_max) = (self.now, self.model.turn_max_ns());
        let Some(turn) = self.threads.turns.get_mut(at) else {
            return false;
        };
        turn.done.push(id);
        if turn.left > 0 && now - turn.begun < turn_max {
            self.run_next(at);
            return true;
        }
        turn.is_ending = true;
        for id in std::mem::take(&mut turn.done) {
            self.handled(id);
        }
        let turn = &mut self.threads.turns[at];
        turn.is_ending = false;
        turn.begun = now;
        let arrived_count = std::mem::take(&mut turn.arrived_count);
        // A turn that only takes in has no length: what it costs is part of the time of its messages.
        turn.left = if turn.queued > 0 {
            turn.queued
        } else {
            arrived_count
        };
        turn.queued += arrived_count;
        turn.is_on = turn.left > 0;
        let arrived = std::mem::take(&mut turn.arrived);
        for id in arrived.iter(&self.messages).collect::<Vec<_>>() {
            self.threads.push(at, id, &mut self.messages);
        }
        if self.threads.turns[at].is_on {
            self.run_next(at);
        }
        true
    }

    fn run_next(&mut self, at: usize) {
        let turn = &mut self.threads.turns[at];
        turn.left -= 1;
        turn.queued -= 1;
        self.start_next(at);
    }
}
