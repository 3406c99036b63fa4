//! All channel ends of a worker, and the packing of their frames into datagrams.

use crate::limits::*;
use e3_channel::{Arrival, Receiver, Sender};
use e3_model::plan::Peer;
use e3_model::{Address, AppId, Nanos, NodeId, ShardKey};
use e3_wire::datagram::{HEADER_LEN, Header, Kind};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A channel without its incarnations.
pub(crate) type LinkKey = (AppId, Ends);

/// What the owner of a sending end wants to know when a message is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// From an ingress: nothing.
    Ingress,
    /// One output of this shard's entry.
    Output(ShardKey, u64),
    /// Everything up to this entry is at the backup.
    Replicated(ShardKey, NodeId, u64),
}

#[derive(Debug)]
pub(crate) struct SendEnd {
    pub(crate) link: Link,
    pub(crate) to: NodeId,
    pub(crate) sender: Sender<Tag>,
}

#[derive(Debug)]
pub(crate) struct RecvEnd {
    pub(crate) link: Link,
    pub(crate) from: NodeId,
    pub(crate) receiver: Receiver,
    ack_by: Option<Nanos>,
}

/// Frames on their way into datagrams.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    pub(crate) cluster: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    open: BTreeMap<NodeId, Vec<u8>>,
    /// Whole datagrams for other nodes.
    pub(crate) remote: VecDeque<(Address, Vec<u8>)>,
    /// Whole datagrams for this node itself.
    pub(crate) local: VecDeque<Vec<u8>>,
}

impl Packer {
    /// Appends a frame for a node. Frames for unknown nodes are dropped: what must arrive is
    /// repeated by its channel.
    pub(crate) fn frame(&mut self, to: NodeId, frame: &Frame<'_>) {
        let Some(to_incarnation) = self.peers.get(&to).map(|p| p.incarnation) else {
            return;
        };
        let len = frame.encoded_len();
        if self
            .open
            .get(&to)
            .is_some_and(|b| b.len() + len > DATAGRAM_LEN_GOAL)
        {
            self.close(to);
        }
        let (node, cluster, incarnation) = (self.node, self.cluster, self.incarnation);
        let buffer = self.open.entry(to).or_default();
        if buffer.is_empty() {
            buffer.reserve(HEADER_LEN + len.max(512));
            Header {
                kind: Kind::Peer,
                from: node,
                cluster,
                incarnation,
                to_incarnation,
            }
            .encode(buffer);
        }
        frame.encode(buffer);
    }

    /// Closes all open datagrams.
    pub(crate) fn flush(&mut self) {
        while let Some(to) = self.open.keys().next().copied() {
            self.close(to);
        }
    }

    fn close(&mut self, to: NodeId) {
        let Some(buffer) = self.open.remove(&to) else {
            return;
        };
        if to == self.node {
            self.local.push_back(buffer);
        } else if let Some(peer) = self.peers.get(&to) {
            self.remote.push_back((peer.address, buffer));
        }
    }
}

/// All channel ends of a worker.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) senders: BTreeMap<LinkKey, SendEnd>,
    pub(crate) receivers: BTreeMap<LinkKey, RecvEnd>,
    pub(crate) packer: Packer,
    to_pump: BTreeSet<LinkKey>,
    to_ack: BTreeSet<LinkKey>,
    timer: Option<Nanos>,
    /// Repetitions by channels that are gone.
    retransmitted_before: u64,
}

impl Links {
    /// Queues a message on a channel, which is made if it is not there.
    pub(crate) fn send(&mut self, link: Link, to: NodeId, body: Rc<[u8]>, tag: Tag) {
        let key = (link.app, link.ends);
        let end = self.senders.entry(key).or_insert_with(|| SendEnd {
            link,
            to,
            sender: Sender::default(),
        });
        end.sender.push(body, tag);
        self.to_pump.insert(key);
    }

    /// Takes an arriving message; true if something new can be popped.
    pub(crate) fn on_data(
        &mut self,
        now: Nanos,
        from: NodeId,
        link: Link,
        seq: u64,
        body: &[u8],
    ) -> bool {
        let key = (link.app, link.ends);
        let end = self.receivers.entry(key).or_insert_with(|| RecvEnd {
            link,
            from,
            receiver: Receiver::default(),
            ack_by: None,
        });
        let theirs = (link.from_incarnation, link.to_incarnation);
        let ours = (end.link.from_incarnation, end.link.to_incarnation);
        if theirs < ours {
            return false;
        }
        if theirs > ours {
            *end = RecvEnd {
                link,
                from,
                receiver: Receiver::default(),
                ack_by: None,
            };
        }
        end.from = from;
        let arrival = end.receiver.on_data(seq, body);
        // A repeat means that an acknowledgement was lost; do not let the sender wait.
        let delay = if arrival == Arrival::New {
            ACK_DELAY.0
        } else {
            0
        };
        self.ack_within(now, key, delay);
        arrival == Arrival::New
    }

    /// Takes an acknowledgement; the freed tags go to `freed`.
    pub(crate) fn on_ack(&mut self, now: Nanos, link: Link, ack: &Ack, freed: &mut Vec<Tag>) {
        let key = (link.app, link.ends);
        let Some(end) = self.senders.get_mut(&key) else {
            return;
        };
        if end.link != link {
            return;
        }
        end.sender.on_ack(now, ack, |tag| freed.push(tag));
        self.to_pump.insert(key);
    }

    /// Sees that the channel's state is acknowledged within `delay_ns`.
    pub(crate) fn ack_within(&mut self, now: Nanos, key: LinkKey, delay_ns: u64) {
        if let Some(end) = self.receivers.get_mut(&key) {
            let by = Nanos(now.0 + delay_ns);
            end.ack_by = Some(end.ack_by.map_or(by, |b| b.min(by)));
            self.to_ack.insert(key);
        }
    }

    /// The next message of a channel, if `link` is still its incarnation.
    pub(crate) fn pop(&mut self, key: &LinkKey) -> Option<(Link, u64, Vec<u8>)> {
        let end = self.receivers.get_mut(key)?;
        let (seq, body) = end.receiver.pop()?;
        Some((end.link, seq, body))
    }

    /// States that a message that came by `link` is durable here.
    pub(crate) fn complete(&mut self, now: Nanos, link: Link, seq: u64, delay_ns: u64) {
        let key = (link.app, link.ends);
        if let Some(end) = self.receivers.get_mut(&key)
            && end.link == link
        {
            end.receiver.complete(seq);
            self.ack_within(now, key, delay_ns);
        }
    }

    /// Points all sending ends that `matches` chooses to another incarnation or node.
    pub(crate) fn reroute(&mut self, key: LinkKey, to: NodeId, to_incarnation: u32) {
        let Some(end) = self.senders.get_mut(&key) else {
            return;
        };
        if end.to != to || end.link.to_incarnation != to_incarnation {
            end.to = to;
            end.link.to_incarnation = to_incarnation;
            end.sender.restart();
            self.to_pump.insert(key);
        }
    }

    /// Drops sending ends.
    pub(crate) fn drop_senders(&mut self, gone: impl Fn(&LinkKey) -> bool) {
        let before = &mut self.retransmitted_before;
        self.senders.retain(|key, end| {
            let keep = !gone(key);
            if !keep {
                *before += end.sender.retransmitted();
            }
            keep
        });
        self.to_pump.retain(|key| !gone(key));
    }

    /// Drops receiving ends.
    pub(crate) fn drop_receivers(&mut self, gone: impl Fn(&LinkKey) -> bool) {
        self.receivers.retain(|key, _| !gone(key));
        self.to_ack.retain(|key| !gone(key));
    }

    /// Puts everything that may go now into datagrams.
    pub(crate) fn flush(&mut self, now: Nanos) {
        for key in std::mem::take(&mut self.to_pump) {
            let Some(end) = self.senders.get_mut(&key) else {
                continue;
            };
            if !self.packer.peers.contains_key(&end.to) {
                continue;
            }
            while let Some((seq, body)) = end.sender.poll_transmit(now) {
                self.packer.frame(
                    end.to,
                    &Frame::Data {
                        link: end.link,
                        seq,
                        body: &body,
                    },
                );
            }
        }
        let due: Vec<LinkKey> = self
            .to_ack
            .iter()
            .filter(|k| {
                self.receivers.get(k).is_some_and(|e| {
                    // Long enough a wait, or so much arrived that the sender may stall.
                    e.ack_by.is_some_and(|by| by <= now)
                })
            })
            .copied()
            .collect();
        for key in due {
            self.to_ack.remove(&key);
            let end = self.receivers.get_mut(&key).expect("just seen");
            end.ack_by = None;
            if let Some(ack) = end.receiver.poll_ack() {
                self.packer.frame(
                    end.from,
                    &Frame::Ack {
                        link: end.link,
                        ack,
                    },
                );
            }
        }
        self.packer.flush();
    }

    /// Repeats what is due.
    pub(crate) fn on_timer(&mut self, now: Nanos) {
        if self.timer.is_some_and(|t| now < t) {
            return;
        }
        for (key, end) in &mut self.senders {
            if end.sender.next_deadline().is_some_and(|d| d <= now) {
                end.sender.on_timeout(now);
                self.to_pump.insert(*key);
            }
        }
        self.timer = Some(Nanos(now.0 + TIMER_INTERVAL.0));
    }

    /// When [`Links::flush`] or [`Links::on_timer`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let acks = self
            .to_ack
            .iter()
            .filter_map(|k| self.receivers.get(k)?.ack_by)
            .min();
        let open = self
            .senders
            .values()
            .filter_map(|e| e.sender.next_deadline())
            .min();
        let timer = open.map(|o| o.max(self.timer.unwrap_or(o)));
        [acks, timer].into_iter().flatten().min()
    }

    /// Repetitions so far.
    pub(crate) fn retransmitted(&self) -> u64 {
        self.retransmitted_before
            + self
                .senders
                .values()
                .map(|e| e.sender.retransmitted())
                .sum::<u64>()
    }
}
