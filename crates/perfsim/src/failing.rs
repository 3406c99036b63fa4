//! Faults take place; what is lost because of them is sent again.
//!
//! The product's channels and clients send again what nobody has acknowledged: nodes after
//! [`RESEND_AFTER`], clients after [`CLIENT_RETRY_AFTER`] and then less and less often. So a lost message
//! makes its request late. It fails when its client gives up.

use crate::arena::{NONE, What};
use crate::event::Kind;
use crate::faults::Failing;
use crate::limits::{
    CLIENT_DEADLINE, CLIENT_RETRY_AFTER, CLIENT_RETRY_AFTER_MAX, CLIENT_RETRY_GROWTH, RESEND_AFTER,
};
use crate::simulator::Simulator;

impl Simulator {
    /// Schedules the beginnings and ends of all faults.
    pub(crate) fn schedule_faults(&mut self) {
        for at in 0..self.model.options.faults.len() {
            let fault = self.model.options.faults[at];
            self.schedule(fault.from.0, Kind::Fault, at as u32 * 2);
            if let Some(until) = fault.until {
                self.schedule(until.0, Kind::Fault, at as u32 * 2 + 1);
            }
        }
    }

    /// A fault begins or ends.
    pub(crate) fn on_fault(&mut self, number: u32) {
        let fault = self.model.options.faults[number as usize / 2];
        let (now, begins) = (self.now, number.is_multiple_of(2));
        match fault.what {
            Failing::Node(node) => {
                self.outages.set_node(node.index(), now, begins);
                if begins {
                    self.fail(node.index())
                } else {
                    self.threads.switch_on(&self.model, node.index(), now)
                }
            }
            Failing::Link(node) => self.outages.set_link(node.index(), now, begins),
            Failing::Uplink { rack, link } => self.outages.set_uplink(rack, link, now, begins),
        }
    }

    /// What a node ran and held is lost. It draws no more than its part of the server's idle power.
    fn fail(&mut self, node: usize) {
        let mut lost = self.take_parked_on(node as u32);
        lost.extend(self.take_all(node as u32));
        lost.extend(self.take_held(node));
        self.threads.switch_off(node, self.now);
        for id in self.running_to_effect(node as u32) {
            // The thread ends it, to no effect.
            let copy = self.messages[id];
            self.messages[id].what = What::Ghost;
            lost.push(self.messages.add(copy));
        }
        for id in lost {
            self.lose(id);
        }
    }

    /// A message is lost. Whoever sent it will send it again.
    pub(crate) fn lose(&mut self, id: u32) {
        self.totals.messages_lost += 1;
        let message = &mut self.messages[id];
        message.next = NONE;
        message.waits = 0;
        let is_of_client = message.is_from_client || message.what == What::Reply;
        let after = if is_of_client {
            client_retry_ns(message.losses)
        } else {
            RESEND_AFTER.0
        };
        message.losses = message.losses.saturating_add(1);
        self.schedule(self.now + after, Kind::Resend, id);
    }

    /// A lost message is sent again, to the replica that serves now.
    pub(crate) fn on_resend(&mut self, id: u32) {
        let message = self.messages[id];
        let primary = self.model.shards[message.shard as usize].primary.node;
        match message.what {
            What::Work | What::Back | What::Reply if self.is_too_late(message.of) => {
                self.give_up(id);
            }
            What::Work => {
                self.messages[id].to = primary;
                if message.is_from_client {
                    return self.ingress(id);
                }
                // The new primary of a sender that is gone has what it has not sent.
                if self.outages.is_down(message.from) {
                    self.messages[id].from = primary;
                }
                self.send(id);
            }
            What::Back | What::Reply => {
                let from = if self.outages.is_down(message.from) {
                    primary
                } else {
                    message.from
                };
                if self.outages.is_down(from) {
                    return self.lose(id);
                }
                self.messages[id].to = from;
                self.send_answer(id);
            }
            What::Entry => self.resend_entry(id, message.to),
            What::Ack => self.resend_entry(id, message.from),
            What::Chunk => {
                self.messages.remove(id);
                self.schedule(self.now, Kind::Chunk, message.of);
            }
            What::Ghost | What::Datagram => {}
        }
    }

    /// A log entry for a backup, or its acknowledgement, was lost. A primary does not wait for a backup
    /// that the controller has removed.
    fn resend_entry(&mut self, id: u32, backup: u32) {
        let (of, shard) = (self.messages[id].of, self.messages[id].shard);
        let primary = self.messages[of].to;
        let is_backup = self.model.backups_of(shard).any(|b| b.node == backup);
        let entry = &mut self.messages[id];
        if is_backup && !self.outages.is_down(primary) {
            (entry.from, entry.to) = (primary, backup);
            entry.what = What::Entry;
            return self.send(id);
        }
        self.messages.remove(id);
        self.acknowledge(of);
    }

    fn is_too_late(&self, request: u32) -> bool {
        let age = self.now as i64 - self.requests[request].start;
        age > CLIENT_DEADLINE.0 as i64
    }

    /// The client of a message's request gives up.
    fn give_up(&mut self, id: u32) {
        let of = self.messages[id].of;
        self.messages.remove(id);
        let request = &mut self.requests[of];
        request.has_failed = true;
        request.open -= 1;
        self.end_if_over(of);
    }

    /// The last message of a request whose client has given up has ended.
    pub(crate) fn end_failed(&mut self, request: u32) {
        self.totals.other_weight_nj += self.requests[request].weight_nj;
        self.totals.failed += 1;
        self.requests.remove(request);
    }
}

/// What a client waits before it sends a request again.
fn client_retry_ns(losses: u8) -> u64 {
    let grown = |ns: u64| {
        (ns * CLIENT_RETRY_GROWTH.0 / CLIENT_RETRY_GROWTH.1).min(CLIENT_RETRY_AFTER_MAX.0)
    };
    (0..losses.min(16)).fold(CLIENT_RETRY_AFTER.0, |ns, _| grown(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_asks_less_and_less_often() {
        let waits = [0, 1, 2, 9].map(client_retry_ns);
        assert_eq!(
            waits,
            [500_000_000, 750_000_000, 1_125_000_000, 3_000_000_000]
        );
    }
}
