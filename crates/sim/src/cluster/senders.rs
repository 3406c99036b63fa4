//! The clients of a simulated cluster: when they send, and to which nodes.

use super::{Cluster, Event};
use crate::network::client_address;
use e3_model::{MessageId, Nanos, ShardKey, Timestamp};
use e3_wire::dead_letter::DeadLetter;

impl Cluster {
    /// A client sends a request to a node.
    pub fn request(&mut self, client: u16, to: u32, deadline: Nanos) {
        self.set_routes(client, to);
        let sender = &mut self.clients[usize::from(client)];
        sender.request(self.now, &mut self.random, deadline);
        self.drain_client(client);
    }

    /// A client asks the primary of a shard for its dead letters.
    pub fn read_dead_letters(&mut self, client: u16, to: u32, shard: ShardKey) {
        self.clients[usize::from(client)]
            .primaries
            .insert(shard, to);
        self.set_routes(client, to);
        self.clients[usize::from(client)].read_dead_letters(self.now, shard);
        self.drain_client(client);
    }

    /// A client replays a dead letter at the primary of its shard.
    pub fn replay(
        &mut self,
        client: u16,
        to: u32,
        shard: ShardKey,
        letter: &(MessageId, DeadLetter),
        deadline: Nanos,
    ) {
        self.clients[usize::from(client)]
            .primaries
            .insert(shard, to);
        self.set_routes(client, to);
        self.clients[usize::from(client)].replay(self.now, shard, letter, deadline);
        self.drain_client(client);
    }

    /// Tells a client which nodes there are: this one first, the others in random order. A client that knows
    /// the topology gets all nodes, any other client those that are up.
    fn set_routes(&mut self, client: u16, first: u32) {
        let known = &self.clients[usize::from(client)].nodes;
        let all = if known.is_empty() {
            self.up()
        } else {
            known.clone()
        };
        let mut others: Vec<u32> = all.into_iter().filter(|n| *n != first).collect();
        for at in (1..others.len()).rev() {
            others.swap(at, self.random.below(at as u64 + 1) as usize);
        }
        let nodes = std::iter::once(first).chain(others);
        self.clients[usize::from(client)].set_routes(self.now, nodes);
    }

    /// Tells all clients that the cluster has these nodes now.
    pub(crate) fn set_nodes_of_clients(&mut self, nodes: &[u32]) {
        for client in 0..self.clients.len() {
            self.clients[client].nodes = nodes.to_vec();
            let first = *self.random.pick(nodes);
            self.set_routes(client as u16, first);
            self.drain_client(client as u16);
        }
    }

    /// The client's driver: drains all outputs, then sets one timer.
    pub(super) fn drain_client(&mut self, client: u16) {
        let at = usize::from(client);
        if self.clients[at].has_vanished {
            return;
        }
        while let Some((to, bytes)) = self.clients[at].poll_transmit() {
            self.transmit(client_address(client), to, bytes);
        }
        let next = self.clients[at].next_deadline();
        if let Some(next) = next.filter(|next| *next < self.clients[at].tick_at) {
            self.clients[at].tick_at = next;
            self.push(next, Event::ClientTick { client });
        }
    }

    /// Retries what a client has due, at nodes that are up now.
    pub(super) fn tick_client(&mut self, client: u16) {
        if self.clients[usize::from(client)].nodes.is_empty() {
            let up = self.up();
            if !up.is_empty() {
                let first = up[self.random.below(up.len() as u64) as usize];
                self.set_routes(client, first);
            }
        }
        let ticked = &mut self.clients[usize::from(client)];
        if ticked.tick_at <= self.now {
            ticked.tick_at = e3_model::Timestamp::MAX;
            ticked.on_timer(self.now);
        }
        self.drain_client(client);
    }

    /// Starts the load of a client.
    pub fn begin_load(&mut self, client: u16) {
        self.load_at(client, self.now);
    }

    /// A client sends a burst of its load at a time.
    pub fn load_at(&mut self, client: u16, at: Timestamp) {
        self.push(at, Event::Load { client });
    }

    /// Sends a burst, and sets the time of the next one.
    pub(super) fn load_client(&mut self, client: u16) {
        let at = usize::from(client);
        let Some(load) = self.clients[at].load.filter(|load| load.left > 0) else {
            return;
        };
        let nodes = self.clients[at].nodes.len();
        if nodes > 0 && self.random.one_in(3) {
            let first = self.clients[at].nodes[self.random.index(nodes)];
            self.set_routes(client, first);
        }
        let burst = load.burst.min(load.left);
        for _ in 0..burst {
            let is_hurried = load.hurried.is_some() && self.random.one_in(3);
            let hurried = load.hurried.filter(|_| is_hurried);
            let deadline = hurried.unwrap_or(load.deadline);
            self.clients[at].request(self.now, &mut self.random, deadline);
        }
        if let Some(load) = &mut self.clients[at].load {
            load.left -= burst;
        }
        if let Some(every) = load.every {
            let pause = Nanos(self.random.below(2 * every.0 * burst + 1));
            self.load_at(client, self.now + pause);
        }
        self.drain_client(client);
    }
}
