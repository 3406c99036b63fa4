//! All channel ends of a worker, and the packing of their frames into datagrams.

use crate::check::Refused;
use crate::limits::*;
use e3_channel::{Acked, Arrival, Number, Receiver, Sender};
use e3_model::plan::Peer;
use e3_model::{Address, AppId, Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::datagram::{HEADER_LEN, Header, Kind, seal};
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
    /// Not restarted again before then.
    restart_after: Timestamp,
}

impl SendEnd {
    fn new(link: Link, to: NodeId, epoch: u32) -> SendEnd {
        SendEnd {
            link,
            to,
            sender: Sender::new(epoch),
            restart_after: Timestamp(0),
        }
    }
}

#[derive(Debug)]
pub(crate) struct RecvEnd {
    pub(crate) link: Link,
    pub(crate) from: NodeId,
    pub(crate) receiver: Receiver,
    ack_by: Option<Timestamp>,
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
    /// Whole datagrams for this node itself, without checksum.
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
        let Some(mut buffer) = self.open.remove(&to) else {
            return;
        };
        if to == self.node {
            self.local.push_back(buffer);
        } else if let Some(peer) = self.peers.get(&to) {
            seal(&mut buffer);
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
    timer: Option<Timestamp>,
    /// Repetitions by channels that are gone.
    retransmitted_before: u64,
}

impl Links {
    /// Queues a message on a channel, which is made if it is not there.
    pub(crate) fn send(&mut self, link: Link, to: NodeId, body: Rc<[u8]>, tag: Tag) {
        let key = (link.app, link.ends);
        let end = self.senders.entry(key);
        let end = end.or_insert_with(|| SendEnd::new(link, to, 0));
        end.sender.push(body, tag);
        self.to_pump.insert(key);
    }

    /// Begins a channel, in place of the one that was there.
    pub(crate) fn begin(&mut self, now: Timestamp, link: Link, to: NodeId, epoch: u32) {
        let mut end = SendEnd::new(link, to, epoch);
        end.restart_after = now + RESTART_INTERVAL;
        if let Some(before) = self.senders.insert((link.app, link.ends), end) {
            self.retransmitted_before += before.sender.retransmitted();
        }
    }

    /// Takes an arriving message on a channel that the plan allows.
    pub(crate) fn on_data(
        &mut self,
        now: Timestamp,
        from: NodeId,
        link: Link,
        number: Number,
        behind: u32,
        body: &[u8],
    ) -> Arrival {
        let key = (link.app, link.ends);
        let new = || RecvEnd {
            link,
            from,
            receiver: Receiver::new(number.epoch),
            ack_by: None,
        };
        let end = self.receivers.entry(key).or_insert_with(new);
        // The link is what the present plan says, so another one is of a plan before.
        if end.link != link {
            *end = new();
        }
        end.from = from;
        let arrival = end.receiver.on_data(number, behind, body);
        // A repeat means that an acknowledgement was lost; do not let the sender wait.
        let delay = if arrival == Arrival::New {
            ACK_DELAY
        } else {
            Nanos::ZERO
        };
        self.ack_within(now, key, delay);
        arrival
    }

    /// Takes an acknowledgement from a node; the freed tags go to `freed`. If the two ends do not
    /// fit together: the epoch that the channel must begin with.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        from: NodeId,
        link: Link,
        ack: &Ack,
        freed: &mut Vec<Tag>,
    ) -> Result<Option<u32>, Refused> {
        let key = (link.app, link.ends);
        let end = self.senders.get_mut(&key).ok_or("link")?;
        if end.link != link || end.to != from {
            return Err("view");
        }
        match end.sender.on_ack(now, ack, |tag| freed.push(tag)) {
            Acked::Taken | Acked::Late => {}
            Acked::Invalid => return Err("channel"),
            Acked::Confused(_) if now < end.restart_after => {}
            Acked::Confused(epoch) => return Ok(Some(epoch)),
        }
        self.to_pump.insert(key);
        Ok(None)
    }

    /// Sends all that is not durable again, in a new epoch.
    pub(crate) fn restart(&mut self, now: Timestamp, key: LinkKey, epoch: u32) {
        if let Some(end) = self.senders.get_mut(&key) {
            end.sender.restart(epoch);
            end.restart_after = now + RESTART_INTERVAL;
            self.to_pump.insert(key);
        }
    }

    /// Asks the sender of a channel to begin again: what has come makes no sense.
    pub(crate) fn ask_again(&mut self, now: Timestamp, key: LinkKey) {
        if let Some(end) = self.receivers.get_mut(&key) {
            end.receiver.restart();
            self.ack_within(now, key, Nanos::ZERO);
        }
    }

    /// Sees that the channel's state is acknowledged within `delay`.
    pub(crate) fn ack_within(&mut self, now: Timestamp, key: LinkKey, delay: Nanos) {
        if let Some(end) = self.receivers.get_mut(&key) {
            let by = now + delay;
            end.ack_by = Some(end.ack_by.map_or(by, |b| b.min(by)));
            self.to_ack.insert(key);
        }
    }

    /// The next message of a channel, if `link` is still its incarnation.
    pub(crate) fn pop(&mut self, key: &LinkKey) -> Option<(Link, Number, Vec<u8>)> {
        let end = self.receivers.get_mut(key)?;
        let (number, body) = end.receiver.pop()?;
        Some((end.link, number, body))
    }

    /// States that a message that came by `link` is durable here.
    pub(crate) fn complete(&mut self, now: Timestamp, link: Link, number: Number, delay: Nanos) {
        let key = (link.app, link.ends);
        if let Some(end) = self.receivers.get_mut(&key)
            && end.link == link
        {
            end.receiver.complete(number);
            self.ack_within(now, key, delay);
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
            end.sender.restart(end.sender.next_epoch());
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
    pub(crate) fn flush(&mut self, now: Timestamp) {
        for key in std::mem::take(&mut self.to_pump) {
            let Some(end) = self.senders.get_mut(&key) else {
                continue;
            };
            if !self.packer.peers.contains_key(&end.to) {
                continue;
            }
            while let Some(t) = end.sender.poll_transmit(now) {
                let frame = Frame::Data {
                    link: end.link,
                    epoch: t.epoch,
                    seq: t.seq,
                    behind: t.behind,
                    body: &t.body,
                };
                self.packer.frame(end.to, &frame);
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

    /// Sends again what is due. Gives the channels that are stalled, with the epochs to begin.
    pub(crate) fn on_timer(&mut self, now: Timestamp) -> Vec<(LinkKey, u32)> {
        let mut stalled = Vec::new();
        if self.timer.is_some_and(|t| now < t) {
            return stalled;
        }
        for (key, end) in &mut self.senders {
            if end.sender.next_deadline().is_some_and(|d| d <= now) {
                if end.sender.on_timeout(now) {
                    stalled.push((*key, end.sender.next_epoch()));
                }
                self.to_pump.insert(*key);
            }
        }
        self.timer = Some(now + TIMER_INTERVAL);
        stalled
    }

    /// When [`Links::flush`] or [`Links::on_timer`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
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
