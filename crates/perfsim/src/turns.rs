//! Turns of a node's loop, where a measured machine takes the place of the models of cores.
//!
//! In a turn, the loop of a node takes in what has arrived, runs what it took in during the turn before, and sends
//! what all of these gave. So a message waits until the turn ends in which it arrives, and runs in the turn after the
//! one that takes it in; its outputs wait until the end of the turn that runs it. What one shard sends to another on the
//! same node runs in the next turn. A loop that sleeps takes a message in at once.

use crate::arena::{Arena, Message};
use crate::fifo::Fifo;

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

/// Where a message waits.
pub(crate) enum Place {
    /// Nowhere: the loop sleeps.
    None,
    /// In the thread's queue.
    Queue,
    /// Among what has arrived since the turn began.
    Arrived,
}

impl Turn {
    /// A message has come.
    pub fn on_message(&mut self, id: u32, messages: &mut Arena<Message>) -> Place {
        if !self.is_on {
            return Place::None;
        }
        if self.is_ending {
            self.queued += 1;
            return Place::Queue;
        }
        self.arrived_count += 1;
        self.arrived.push(id, messages);
        Place::Arrived
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

    /// A message has run; false if the turn ends with it. A turn of this length ends whatever waits.
    pub fn on_done(&mut self, id: u32, now: u64, length_max: u64) -> bool {
        self.done.push(id);
        self.left > 0 && now - self.begun < length_max
    }

    /// The turn ends; gives what it has run.
    pub fn end(&mut self) -> Vec<u32> {
        self.is_ending = true;
        std::mem::take(&mut self.done)
    }

    /// The outputs are sent; gives what has arrived, which goes to the end of the thread's queue.
    pub fn take_in(&mut self, now: u64, messages: &Arena<Message>) -> Vec<u32> {
        self.is_ending = false;
        self.begun = now;
        let arrived_count = std::mem::take(&mut self.arrived_count);
        // A turn that only takes in has no length: what it costs is part of the time of its messages.
        self.left = if self.queued > 0 {
            self.queued
        } else {
            arrived_count
        };
        self.queued += arrived_count;
        self.is_on = self.left > 0;
        std::mem::take(&mut self.arrived).iter(messages).collect()
    }

    /// Takes the next message of the turn out of the thread's queue; false if there is none.
    pub fn next(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.queued -= 1;
        true
    }

    /// What has arrived since the turn began.
    pub fn arrived<'a>(&self, messages: &'a Arena<Message>) -> impl Iterator<Item = u32> + use<'a> {
        self.arrived.iter(messages)
    }
}
