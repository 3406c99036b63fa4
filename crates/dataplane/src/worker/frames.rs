//! Frames from other nodes, and from this one to itself: checked, then given to the channel end or
//! the replica that they are for.

use super::{Worker, routing::hosted};
use crate::app::ReplicaId;
use crate::check::LinkCheck;
use crate::deliberate::{self, Fault};
use crate::links::{Data, Tag};
use crate::reach::ClockCheck;
use crate::replica::Replica;
use crate::traffic::Destination;
use e3_channel::Number;
use e3_model::plan::Role;
use e3_model::{Address, DropReason, Nanos, NodeId, ShardKey, Timestamp};
use e3_wire::codec::Reader;
use e3_wire::datagram::{Header, Kind, open};
use e3_wire::frame::{Ends, Frame, Link};
use e3_wire::replicated::Replicated;

impl Worker {
    /// Takes a datagram. Whatever it holds, at worst it is counted and dropped.
    pub fn handle_datagram(&mut self, now: Timestamp, from: Address, bytes: &[u8]) {
        self.world.now = now;
        self.datagrams_in += 1;
        self.arrive(Destination::Here(from), bytes);
    }

    pub(super) fn take_datagram(&mut self, from: Address, bytes: &[u8]) {
        let taken = match open(self.world.config.formats, bytes) {
            Err(e) => Err(e.drop_reason()),
            Ok((_, reader)) if reader.is_empty() => Err(DropReason::Empty),
            Ok((Header::CLIENT, mut reader)) => self.on_client(from, &mut reader),
            Ok((header, mut reader)) => match header.kind {
                Kind::Peer => self.on_peer(&header, &mut reader),
                Kind::Client => Err(DropReason::Header),
                Kind::Heartbeat => Err(DropReason::Kind),
            },
        };
        self.count(taken);
    }

    /// Counts something that came and was not taken.
    pub(super) fn drop_for(&mut self, reason: DropReason) {
        *self.dropped.entry(reason).or_default() += 1;
    }

    pub(super) fn count(&mut self, taken: Result<(), DropReason>) {
        if let Err(reason) = taken {
            self.drop_for(reason);
        }
    }

    pub(super) fn on_peer(&mut self, h: &Header, r: &mut Reader<'_>) -> Result<(), DropReason> {
        if h.cluster != self.world.config.cluster {
            return Err(DropReason::Cluster);
        }
        if h.to_incarnation != self.world.config.incarnation {
            return Err(DropReason::Incarnation);
        }
        match self.world.plan.peers.get(&h.from) {
            Some(peer) if peer.incarnation == h.incarnation => {}
            _ => return Err(DropReason::Sender),
        }
        while !r.is_empty() {
            let frame = Frame::decode(r).map_err(|_| DropReason::Frame)?;
            let taken = self.on_frame(h, frame);
            self.count(taken);
        }
        Ok(())
    }

    fn on_frame(&mut self, h: &Header, frame: Frame<'_>) -> Result<(), DropReason> {
        match frame {
            Frame::Data {
                link,
                epoch,
                seq,
                behind,
                body,
            } => {
                let data = Data {
                    from: h.from,
                    key: self.check_link(h, &link)?,
                    link,
                    number: Number { epoch, seq },
                    behind,
                    body,
                };
                self.on_data(&data)
            }
            Frame::Ack { link, ack } => {
                let app = self.world.apps.get(&link.app).ok_or(DropReason::Link)?;
                let from = (h.from, link);
                let (now, mut freed) = (self.world.now, std::mem::take(&mut self.freed));
                let confused = self.links.on_ack(now, app, from, &ack, &mut freed);
                for tag in freed.drain(..) {
                    self.on_freed(tag);
                }
                self.freed = freed;
                if let Some(epoch) = confused? {
                    self.restart(&link, epoch);
                }
                Ok(())
            }
            Frame::LeaseRequest { sent, plan_version } => {
                if self.may_need_lease(h.from, plan_version)
                    && !self.reach.is_lease_futile(h.from)
                    && self.world.leases.on_request(
                        self.world.now,
                        (h.from, h.incarnation),
                        sent,
                        plan_version,
                    )
                {
                    if plan_version > self.world.plan.version {
                        self.world.leases.on_ahead(h.from, plan_version);
                    }
                    self.packer.frame(h.from, &Frame::LeaseGrant { sent });
                }
                Ok(())
            }
            Frame::LeaseGrant { sent } => self.on_grant(h.from, sent),
            Frame::Probe { sent } => {
                let now = self.world.now;
                self.packer.frame(h.from, &Frame::ProbeAnswer { sent, now });
                Ok(())
            }
            Frame::ProbeAnswer { sent, now } => {
                self.reach.on_answer(self.world.now, h.from, sent, now);
                if self.world.clock == ClockCheck::Open {
                    self.check_clock();
                }
                Ok(())
            }
            Frame::Reply {
                app,
                request,
                attempt,
                is_branch,
                reply,
            } => self.on_reply(app, request, attempt, is_branch, reply),
            Frame::Call(call) => self.on_call(h, &call),
            Frame::CallAnswer(answer) => self.on_call_answer(h.from, &answer),
        }
    }

    fn check_link(&self, header: &Header, link: &Link) -> Result<ShardKey, DropReason> {
        let check = LinkCheck {
            app: self.world.apps.get(&link.app).ok_or(DropReason::Link)?,
            config: &self.world.config,
            header,
        };
        check.check(link, |key| {
            let id = check.app.replica(key)?;
            let replica = &self.replicas.get(id.at())?.replica;
            Some((replica.role(), replica.shard.incarnation))
        })
    }

    fn on_data(&mut self, data: &Data<'_>) -> Result<(), DropReason> {
        let app = self.world.apps.get(&data.key.app).ok_or(DropReason::Link)?;
        let id = app.replica(data.key).ok_or(DropReason::View)?;
        let replica = self.replicas.get(id.at()).map(|h| h.replica.role());
        // A copy of which the shard could get no lease, as the clocks differ, would only stop it.
        if replica == Some(Role::Joining) && !self.world.leases.grants(self.world.now, data.from) {
            return Err(DropReason::Lease);
        }
        // This node may be about to drop the copy that is here, and to begin another one in that view.
        let is_stream = matches!(data.link.ends, Ends::Replication { .. });
        let joined_in = Replicated::view_of_stream(data.body).filter(|_| is_stream);
        if joined_in.is_some_and(|view| view > app.shard(data.key).view) {
            return Err(DropReason::View);
        }
        let (now, timers) = (self.world.now, &mut self.timers);
        if let Some(end) = self.links.on_data(now, timers, app, data)?
            && let Some(hosted) = self.replicas.get_mut(id.at())
        {
            hosted.inputs.push_back(end);
        }
        if is_stream {
            self.take_stream(id);
        } else {
            self.make_ready(id);
        }
        Ok(())
    }

    /// A backup takes what has arrived from its primary.
    fn take_stream(&mut self, id: ReplicaId) {
        let Some((hosted, cx)) = hosted(&mut self.replicas, &self.world, id) else {
            return;
        };
        let (key, timers, links) = (hosted.replica.shard.key, &mut self.timers, &mut self.links);
        let mut written = Vec::new();
        while let Some((delivery, body)) = links.pop(key, &mut hosted.inputs) {
            match hosted.replica.on_item(&cx, &body) {
                Ok(taken) if hosted.replica.shard.disk.is_some() => {
                    let op = hosted.replica.shard.log.op;
                    written.push((delivery, taken, body, op));
                }
                Ok(_) => links.complete(cx.now, timers, &delivery, Nanos::ZERO),
                Err(_) => {
                    // Not acknowledged, so never counted as a copy. The primary begins again with a
                    // snapshot.
                    *self.dropped.entry(DropReason::Replication).or_default() += 1;
                    links.ask_again(cx.now, timers, &delivery);
                }
            }
        }
        let discarded = hosted.replica.take_discarded();
        self.discard(discarded);
        for (delivery, taken, body, op) in written {
            self.write_item(id, delivery, taken, &body, op);
        }
    }

    /// Begins a new epoch of a channel whose ends do not fit together. A replication stream begins
    /// with a snapshot again.
    pub(super) fn restart(&mut self, link: &Link, epoch: u32) {
        self.drop_for(DropReason::Channel);
        let Some(app) = self.world.apps.get(&link.app) else {
            return;
        };
        let Ends::Replication {
            service,
            shard,
            backup,
        } = link.ends
        else {
            return self.links.restart(self.world.now, app, link, epoch);
        };
        let app = link.app;
        let key = ShardKey {
            app,
            service,
            shard,
        };
        if let Some(id) = self.find(key) {
            self.primary(id, |p, turn| {
                p.streams.restart(turn, p.commit, backup, epoch);
            });
        }
    }

    fn on_freed(&mut self, tag: Tag) {
        match tag {
            Tag::None => {}
            Tag::Request(app, id) => self.on_request_durable((app, id)),
            Tag::Output(id, op, at) => {
                self.primary(id, |p, turn| p.on_output_durable(turn, op, at));
            }
            Tag::Replicated(id, node, op) => self.primary(id, |p, turn| {
                p.streams.on_durable(turn, node, op, p.commit);
                p.advance(turn);
            }),
        }
    }

    /// A node grants its lease. What had to wait for it goes on.
    fn on_grant(&mut self, from: NodeId, sent: Timestamp) -> Result<(), DropReason> {
        let held_before = self.world.leases.holds(self.world.now, from);
        if !self.world.leases.on_grant(from, sent) {
            return Err(DropReason::Lease);
        }
        if !held_before {
            self.wake_all();
        }
        Ok(())
    }

    /// Whether a node that has applied `plan_version` may need this one's lease: by this node's plan
    /// it is the primary of a replica here, or it knows more than this node.
    fn may_need_lease(&self, node: NodeId, plan_version: u64) -> bool {
        let is_backup_of = |replica: &Replica| {
            let key = replica.shard.key;
            let app = self.world.apps.get(&key.app);
            replica.as_primary().is_none() && app.is_some_and(|a| a.shard(key).primary == node)
        };
        let mut replicas = self.replicas.iter().map(|(_, h)| &h.replica);
        plan_version > self.world.plan.version
            || replicas.any(is_backup_of)
            || deliberate::is(Fault::LeaseForReplaced)
    }
}
