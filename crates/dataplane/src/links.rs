//! All channel ends of a worker. A table that follows from the plan gives the place of each. An end is
//! touched only when something happened on it: a message, an acknowledgement, a timer.

mod reroute;

use crate::app::{App, ReplicaId};
use crate::ends::{EndId, Table, forget};
use crate::limits::*;
use crate::packer::Packer;
use crate::timers::{Timer, Timers};
use e3_channel::{Acked, Arrival, Number, Receiver, Sender, Taken};
use e3_model::{AppId, DropReason, Nanos, NodeId, RequestId, ShardKey, Timestamp};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// How a message came: what to acknowledge when it is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Delivery {
    end: EndId,
    pub(crate) link: Link,
    made: u64,
    taken: Taken,
}

/// What the owner of a sending end wants to know when a message is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tag {
    /// Nothing.
    None,
    /// A client's request that this node passed on.
    Request(AppId, RequestId),
    /// One output of this replica's entry: the entry, and which output.
    Output(ReplicaId, u64, u32),
    /// The node, a backup of this replica, has everything up to this entry.
    Replicated(ReplicaId, NodeId, u64),
}

#[derive(Debug)]
pub(crate) struct SendEnd {
    pub(crate) link: Link,
    pub(crate) to: NodeId,
    pub(crate) sender: Sender<Tag>,
    /// Not restarted again before then.
    restart_after: Timestamp,
    /// In `Links::to_pump`.
    is_listed: bool,
    /// The timer that fires next; later ones are set when it does.
    timer: Option<Timestamp>,
}

#[derive(Debug)]
struct RecvEnd {
    link: Link,
    /// Number of this end among all that were ever made: its place and its link may come back.
    made: u64,
    from: NodeId,
    /// The shard that the messages are for.
    key: ShardKey,
    receiver: Receiver,
    ack_by: Option<Timestamp>,
    /// In the inputs of its replica.
    is_listed: bool,
}

/// All channel ends of a worker.
#[derive(Debug, Default)]
pub(crate) struct Links {
    senders: Slab<SendEnd>,
    receivers: Slab<RecvEnd>,
    receivers_made: u64,
    sender_tables: BTreeMap<AppId, Table>,
    receiver_tables: BTreeMap<AppId, Table>,
    /// Senders that may have something to send.
    to_pump: Vec<EndId>,
    /// Receivers whose acknowledgement is due.
    to_ack: Vec<EndId>,
    /// Retransmissions by channels that are gone.
    retransmitted_before: u64,
    /// The epoch with which channels of an application begin that was here before: their receivers
    /// remember the epochs until then.
    first_epochs: BTreeMap<AppId, u32>,
}

fn is_of_app(link: &Link, app: AppId) -> bool {
    link.app == app
}

impl Links {
    fn sender_id(&self, app: &App, link: &Link) -> Option<EndId> {
        let cell = app.sending_cell(&link.ends)?;
        self.sender_tables.get(&link.app)?.get(cell)
    }

    /// Messages that channels hold, at both ends.
    pub(crate) fn open(&self) -> usize {
        let sent = self.senders.iter().map(|(_, end)| end.sender.outstanding());
        sent.chain(self.receivers.iter().map(|(_, end)| end.receiver.ready()))
            .sum()
    }

    /// Whether channels of an application have messages that are not durable at their receivers.
    pub(crate) fn has_open(&self, app: AppId) -> bool {
        let mut senders = self.senders.iter();
        senders.any(|(_, end)| is_of_app(&end.link, app) && end.sender.outstanding() > 0)
    }

    /// All sending ends, ordered by their channels.
    pub(crate) fn senders(&self) -> Vec<&SendEnd> {
        let mut all: Vec<_> = self.senders.iter().map(|(_, end)| end).collect();
        all.sort_by_key(|end| (end.link.app, end.link.ends));
        all
    }

    fn list(&mut self, id: EndId) {
        if let Some(end) = self.senders.get_mut(id.at())
            && !end.is_listed
        {
            end.is_listed = true;
            self.to_pump.push(id);
        }
    }

    /// Queues a message on a channel, which is made if it is not there.
    pub(crate) fn send(&mut self, app: &App, link: Link, to: NodeId, body: Rc<[u8]>, tag: Tag) {
        if let Some(end) = self.sender(app, link, to) {
            end.sender.push(body, tag);
        }
    }

    /// The sending end of a channel for another message, made if it is not there.
    pub(crate) fn sender(&mut self, app: &App, link: Link, to: NodeId) -> Option<&mut SendEnd> {
        let id = match self.sender_id(app, &link) {
            Some(id) => id,
            None => {
                let epoch = self.first_epochs.get(&link.app).copied().unwrap_or(0);
                self.add_sender(app, link, to, epoch)?
            }
        };
        self.list(id);
        self.senders.get_mut(id.at())
    }

    /// None if the application has no such channel.
    fn add_sender(&mut self, app: &App, link: Link, to: NodeId, epoch: u32) -> Option<EndId> {
        let cell = app.sending_cell(&link.ends)?;
        let id = EndId::new(self.senders.insert(SendEnd {
            link,
            to,
            sender: Sender::new(epoch),
            restart_after: Timestamp::ZERO,
            is_listed: false,
            timer: None,
        }));
        let table = self.sender_tables.entry(link.app).or_default();
        table.set(cell, id);
        Some(id)
    }

    /// Begins a channel, in place of the one that was there. It is not restarted before then.
    pub(crate) fn begin(&mut self, by: Timestamp, app: &App, link: Link, to: NodeId, epoch: u32) {
        self.drop_senders(|l| (l.app, l.ends) == (link.app, link.ends));
        let id = self.add_sender(app, link, to, epoch);
        if let Some(end) = id.and_then(|id| self.senders.get_mut(id.at())) {
            end.restart_after = by;
        }
    }

    /// Takes an arriving message on a channel that the plan allows. The end is given the first time
    /// that it has something for its replica since [`Links::pop`] found it empty.
    pub(crate) fn on_data(
        &mut self,
        now: Timestamp,
        timers: &mut Timers,
        app: &App,
        data: &Data<'_>,
    ) -> Result<Option<EndId>, DropReason> {
        let link = data.link;
        let cell = app.receiving_cell(&link.ends).ok_or(DropReason::Link)?;
        let made = &mut self.receivers_made;
        let mut new = || RecvEnd {
            link,
            made: {
                *made += 1;
                *made
            },
            from: data.from,
            key: data.key,
            receiver: Receiver::new(data.number.epoch),
            ack_by: None,
            is_listed: false,
        };
        let table = self.receiver_tables.entry(link.app).or_default();
        let id = match table.get(cell) {
            Some(id) => id,
            None => {
                let id = EndId::new(self.receivers.insert(new()));
                table.set(cell, id);
                id
            }
        };
        let Some(end) = self.receivers.get_mut(id.at()) else {
            return Err(DropReason::Link);
        };
        // The link is what the present plan says, so another one is of a plan before.
        if end.link != link {
            let is_listed = end.is_listed;
            *end = RecvEnd { is_listed, ..new() };
        }
        end.from = data.from;
        let arrival = end.receiver.on_data(data.number, data.behind, data.body);
        let is_new = arrival == Arrival::New;
        let has_input = is_new && !end.is_listed;
        end.is_listed |= is_new;
        // A duplicate means that an acknowledgement was lost; do not let the sender wait.
        let delay = if is_new { ACK_DELAY } else { Nanos::ZERO };
        self.ack_within(now, timers, id, delay);
        match arrival {
            Arrival::New => Ok(has_input.then_some(id)),
            Arrival::Duplicate | Arrival::Beyond | Arrival::Late => Ok(None),
            Arrival::Confused | Arrival::Invalid => Err(DropReason::Channel),
        }
    }

    /// Takes an acknowledgement from a node; the freed tags go to `freed`. If the two ends do not
    /// fit together: the epoch that the channel must begin with.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        app: &App,
        (from, link): (NodeId, Link),
        ack: &Ack,
        freed: &mut Vec<Tag>,
    ) -> Result<Option<u32>, DropReason> {
        let id = self.sender_id(app, &link).ok_or(DropReason::Link)?;
        let end = self.senders.get_mut(id.at()).ok_or(DropReason::Link)?;
        if end.link.ends != link.ends {
            return Err(DropReason::Link);
        }
        if end.link != link || end.to != from {
            return Err(DropReason::View);
        }
        match end.sender.on_ack(now, ack, |tag| freed.push(tag)) {
            Acked::Taken | Acked::Late => {}
            Acked::Invalid => return Err(DropReason::Channel),
            Acked::Confused(_) if now < end.restart_after => {}
            Acked::Confused(epoch) => return Ok(Some(epoch)),
        }
        self.list(id);
        Ok(None)
    }

    /// Sends all that is not durable again, in a new epoch.
    pub(crate) fn restart(&mut self, now: Timestamp, app: &App, link: &Link, epoch: u32) {
        if let Some(id) = self.sender_id(app, link)
            && let Some(end) = self.senders.get_mut(id.at())
        {
            end.sender.restart(epoch);
            end.restart_after = now + RESTART_INTERVAL;
            self.list(id);
        }
    }

    /// Asks the sender of a channel to begin again: what has come makes no sense.
    pub(crate) fn ask_again(&mut self, now: Timestamp, timers: &mut Timers, delivery: &Delivery) {
        if let Some(end) = self.receivers.get_mut(delivery.end.at())
            && end.made == delivery.made
        {
            end.receiver.restart();
            self.ack_within(now, timers, delivery.end, Nanos::ZERO);
        }
    }

    /// Asks the primary of a shard to begin its stream to this node again: what has come of it is given
    /// up.
    pub(crate) fn restart_stream(&mut self, now: Timestamp, timers: &mut Timers, key: ShardKey) {
        let mut ends = self.receivers.iter_mut();
        let stream = ends
            .find(|(_, end)| end.key == key && matches!(end.link.ends, Ends::Replication { .. }));
        if let Some((at, end)) = stream {
            end.receiver.restart();
            self.ack_within(now, timers, EndId::new(at), Nanos::ZERO);
        }
    }

    /// Sees that the channel's state is acknowledged within `delay`.
    fn ack_within(&mut self, now: Timestamp, timers: &mut Timers, id: EndId, delay: Nanos) {
        let by = now + delay;
        if let Some(end) = self.receivers.get_mut(id.at())
            && end.ack_by.is_none_or(|before| by < before)
        {
            end.ack_by = Some(by);
            if delay == Nanos::ZERO {
                self.to_ack.push(id);
            } else {
                timers.set(by, Timer::Ack(id));
            }
        }
    }

    /// The next message for a shard from the ends in `inputs`, one of each end in turn; ends without
    /// messages leave it.
    pub(crate) fn pop(
        &mut self,
        key: ShardKey,
        inputs: &mut VecDeque<EndId>,
    ) -> Option<(Delivery, Vec<u8>)> {
        while let Some(id) = inputs.pop_front() {
            let end = self.receivers.get_mut(id.at());
            let Some(end) = end.filter(|end| end.key == key) else {
                continue;
            };
            let popped = end.receiver.pop();
            end.is_listed = end.receiver.ready() > 0;
            if end.is_listed {
                inputs.push_back(id);
            }
            if let Some((taken, body)) = popped {
                let delivery = Delivery {
                    end: id,
                    link: end.link,
                    made: end.made,
                    taken,
                };
                return Some((delivery, body));
            }
        }
        None
    }

    /// States that a message is durable here, if its channel still has the same incarnation.
    pub(crate) fn complete(
        &mut self,
        now: Timestamp,
        timers: &mut Timers,
        delivery: &Delivery,
        delay: Nanos,
    ) {
        if let Some(end) = self.receivers.get_mut(delivery.end.at())
            && end.made == delivery.made
        {
            end.receiver.complete(delivery.taken);
            self.ack_within(now, timers, delivery.end, delay);
        }
    }

    /// Drops sending ends.
    pub(crate) fn drop_senders(&mut self, gone: impl Fn(&Link) -> bool) {
        let (before, tables) = (&mut self.retransmitted_before, &mut self.sender_tables);
        self.senders.retain(|at, end| {
            let keep = !gone(&end.link);
            if !keep {
                *before += end.sender.retransmitted();
                forget(tables, end.link.app, EndId::new(at));
            }
            keep
        });
    }

    /// Drops receiving ends.
    pub(crate) fn drop_receivers(&mut self, gone: impl Fn(&Link) -> bool) {
        let tables = &mut self.receiver_tables;
        self.receivers.retain(|at, end| {
            let keep = !gone(&end.link);
            if !keep {
                forget(tables, end.link.app, EndId::new(at));
            }
            keep
        });
    }

    /// Drops everything of an application.
    pub(crate) fn delete_app(&mut self, app: AppId) {
        let senders = self.senders.iter().map(|(_, end)| end);
        let senders = senders.filter(|end| is_of_app(&end.link, app));
        if let Some(epoch) = senders.map(|end| end.sender.next_epoch()).max() {
            self.first_epochs.insert(app, epoch);
        }
        self.drop_senders(|l| is_of_app(l, app));
        self.drop_receivers(|l| is_of_app(l, app));
        self.sender_tables.remove(&app);
        self.receiver_tables.remove(&app);
    }

    /// Puts everything that may go now into datagrams.
    pub(crate) fn flush(&mut self, now: Timestamp, timers: &mut Timers, packer: &mut Packer) {
        for id in self.to_pump.drain(..) {
            if let Some(end) = self.senders.get_mut(id.at()) {
                end.is_listed = false;
                end.pump(now, packer);
                end.arm(timers, id);
            }
        }
        for id in self.to_ack.drain(..) {
            let Some(end) = self.receivers.get_mut(id.at()) else {
                continue;
            };
            if end.ack_by.take_if(|by| *by <= now).is_some()
                && let Some(ack) = end.receiver.poll_ack()
            {
                let link = end.link;
                packer.frame(end.from, &Frame::Ack { link, ack });
            }
        }
        packer.flush();
    }

    /// A receiver's acknowledgement may be due.
    pub(crate) fn on_ack_timer(&mut self, id: EndId) {
        self.to_ack.push(id);
    }

    /// A sender's retransmission may be due. Gives its channel, if that is stalled, and the epoch
    /// to begin.
    pub(crate) fn on_retransmit_timer(&mut self, now: Timestamp, id: EndId) -> Option<(Link, u32)> {
        let end = self.senders.get_mut(id.at())?;
        end.timer.take_if(|at| *at <= now);
        let is_due = end.sender.next_deadline().is_some_and(|d| d <= now);
        let is_stalled = is_due && end.sender.on_timeout(now);
        let stalled = is_stalled.then(|| (end.link, end.sender.next_epoch()));
        self.list(id);
        stalled
    }

    /// Retransmissions so far.
    pub(crate) fn retransmitted(&self) -> u64 {
        let senders = self.senders.iter().map(|(_, e)| e.sender.retransmitted());
        self.retransmitted_before + senders.sum::<u64>()
    }

    /// Panics if an invariant is broken. After a turn nothing that could be sent is left, and
    /// whatever becomes due has a timer.
    pub(crate) fn validate(&self) {
        assert!(self.to_pump.is_empty() && self.to_ack.is_empty());
        for (_, end) in &self.senders {
            end.sender.validate();
            let deadline = end.sender.next_deadline();
            assert!(
                deadline.is_none_or(|d| end.timer.is_some_and(|t| t <= d)),
                "{:?}: no timer for its retransmission",
                end.link
            );
        }
        for (_, end) in &self.receivers {
            end.receiver.validate();
            assert!(
                end.is_listed || end.receiver.ready() == 0,
                "{:?}: messages that nobody knows of",
                end.link
            );
        }
    }
}

/// A data frame.
pub(crate) struct Data<'a> {
    pub(crate) from: NodeId,
    pub(crate) key: ShardKey,
    pub(crate) link: Link,
    pub(crate) number: Number,
    pub(crate) behind: u32,
    pub(crate) body: &'a [u8],
}

impl SendEnd {
    /// Sends what may go, if its receiver's node is known.
    fn pump(&mut self, now: Timestamp, packer: &mut Packer) {
        if !packer.peers.contains_key(&self.to) {
            return;
        }
        while let Some(t) = self.sender.poll_transmit(now) {
            let frame = Frame::Data {
                link: self.link,
                epoch: t.epoch,
                seq: t.seq,
                behind: t.behind,
                body: &t.body,
            };
            packer.frame(self.to, &frame);
        }
    }

    /// Sets the timer of the retransmission, unless one fires earlier anyway.
    fn arm(&mut self, timers: &mut Timers, id: EndId) {
        if let Some(deadline) = self.sender.next_deadline()
            && self.timer.is_none_or(|at| deadline < at)
        {
            self.timer = Some(deadline);
            timers.set(deadline, Timer::Retransmit(id));
        }
    }
}
