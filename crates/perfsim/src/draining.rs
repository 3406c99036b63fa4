//! Messages are taken out of the queues of a node, because it has failed or a shard leaves it.

use crate::arena::{Message, What};
use crate::simulator::Simulator;

impl Simulator {
    /// What the threads of a node run.
    pub(crate) fn running_on(&self, node: u32) -> impl Iterator<Item = u32> {
        self.threads.running(&self.model, node as usize)
    }

    /// The same, except for what has no effect any more.
    pub(crate) fn running_to_effect(&self, node: u32) -> Vec<u32> {
        let running = self.running_on(node);
        running
            .filter(|id| self.messages[*id].what != What::Ghost)
            .collect()
    }

    /// Takes the messages of a shard that wait for a thread of a node.
    pub(crate) fn take_queued(&mut self, shard: u32, node: u32) -> Vec<u32> {
        self.take_where(node, |m| m.what == What::Work && m.shard == shard)
    }

    /// Takes all messages that wait for a thread of a node.
    pub(crate) fn take_all(&mut self, node: u32) -> Vec<u32> {
        self.take_where(node, |_| true)
    }

    fn take_where(&mut self, node: u32, is_it: impl Fn(&Message) -> bool) -> Vec<u32> {
        let (model, messages) = (&self.model, &mut self.messages);
        self.threads
            .take_where(model, messages, node as usize, self.now, is_it)
    }
}
