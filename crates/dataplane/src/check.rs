//! What is checked of a frame from another node before it changes anything: each field against the
//! plan, and against what this node did itself. docs/design/002-datagrams.md lists all fields.
//!
//! A frame whose sender knows a newer plan than this node is refused as well: the sender
//! retransmits what matters, and the plan is on its way.

use crate::app::App;
use crate::config::Config;
use crate::limits::{CLOCK_AHEAD_MAX, DEADLINE_AHEAD_MAX};
use e3_collections::WriteBatch;
use e3_model::limits::SLOTS;
use e3_model::plan::Role;
use e3_model::timer::TimerChange;
use e3_model::{DropReason, ShardKey, Slot, Timestamp, Via};
use e3_wire::datagram::Header;
use e3_wire::entry::Entry;
use e3_wire::frame::{Ends, Link};
use e3_wire::message::Message;
use e3_wire::timer::{PublicationName, Timer};

/// What the plan must allow before a frame on a channel is taken.
pub(crate) struct LinkCheck<'a> {
    pub(crate) app: &'a App,
    pub(crate) config: &'a Config,
    /// Of the datagram.
    pub(crate) header: &'a Header,
}

impl LinkCheck<'_> {
    /// The shard that messages on this channel are for, and whether the plan lets that node send
    /// them now.
    fn receiver(&self, link: &Link) -> Option<(ShardKey, bool)> {
        let (app, from) = (self.app, self.header.from);
        let has = |service, shard| {
            let key = ShardKey {
                app: link.app,
                service,
                shard,
            };
            app.has(key).then_some(key)
        };
        let is_primary = |source: ShardKey| {
            let source = app.shard(source);
            (source.primary, source.incarnation) == (from, link.from_incarnation)
        };
        match link.ends {
            Ends::Ingress {
                node,
                service,
                shard,
            } => {
                let key = has(service, shard)?;
                let current = link.from_incarnation == self.header.incarnation;
                (node == from).then_some((key, current))
            }
            Ends::Edge { edge, from, to } => {
                let source = has(app.dag.sender(edge)?, from)?;
                let key = has(app.dag.receiver(edge)?, to)?;
                Some((key, is_primary(source)))
            }
            Ends::Replication {
                service,
                shard,
                backup,
            } => {
                let key = has(service, shard)?;
                (backup == self.config.node).then_some((key, is_primary(key)))
            }
        }
    }

    /// The shard here that messages on this channel are for, if the plan lets that node send them.
    /// `replica` gives role and incarnation of what is here of a shard.
    pub(crate) fn check(
        &self,
        link: &Link,
        replica: impl FnOnce(ShardKey) -> Option<(Role, u32)>,
    ) -> Result<ShardKey, DropReason> {
        let (key, is_current) = self.receiver(link).ok_or(DropReason::Link)?;
        let (role, incarnation) = replica(key).ok_or(DropReason::View)?;
        let is_primary = role == Role::Primary;
        let is_for_me = match link.ends {
            Ends::Replication { .. } => {
                !is_primary && link.to_incarnation == self.config.incarnation
            }
            _ => is_primary && link.to_incarnation == incarnation,
        };
        (is_current && is_for_me)
            .then_some(key)
            .ok_or(DropReason::View)
    }
}

fn fits_service(app: &App, key: ShardKey, via: Via, index: u32) -> bool {
    let service = match via {
        // Of a client at the source service, or of a service that asks this one.
        Via::Ingress => Some(key.service),
        Via::Edge(edge) => app.dag.receiver(edge),
        Via::Timer => app.service(key).stateful.then_some(key.service),
    };
    service == Some(key.service) && app.dag.run(via, index).is_some()
}

fn owns(app: &App, key: ShardKey, slot: Slot) -> bool {
    slot.0 < SLOTS && slot.shard(app.service(key).shards) == key.shard
}

/// A message that came by `link`, which [`LinkCheck::check`] has passed. Its deadline is not
/// checked: what the clock of one node says must not drop a message for good.
pub(crate) fn check_message(app: &App, key: ShardKey, link: &Link, m: &Message) -> bool {
    let came_by = match link.ends {
        Ends::Ingress { node, .. } => {
            m.id.via == Via::Ingress
                && !m.key.is_empty()
                && (m.reply_to, m.reply_to_incarnation) == (node, link.from_incarnation)
        }
        Ends::Edge { edge, .. } => m.id.via == Via::Edge(edge),
        Ends::Replication { .. } => false,
    };
    came_by
        && (m.topic.is_none() || m.id.via == Via::Ingress)
        && fits_service(app, key, m.id.via, m.id.index)
        && m.slot == Slot::of(&m.key)
        && owns(app, key, m.slot)
        && m.oldest_seq <= m.id.request.seq
}

/// An entry of the shard's log, from its primary. Its number is the log's business.
pub(crate) fn check_entry(
    app: &App,
    now: Timestamp,
    key: ShardKey,
    e: &Entry,
) -> Result<(), &'static str> {
    let must = |so: bool, what| if so { Ok(()) } else { Err(what) };
    must(owns(app, key, e.slot), "an entry of another shard")?;
    if e.is_expiry {
        let answers = e.reply.is_some() || e.dead.is_some() || e.replays.is_some();
        must(
            !answers && e.outputs.is_empty(),
            "an entry of the primary's own that answers a message",
        )?;
        let is_own = |c: &PublicationName| owns(app, key, Slot::of(&c.key));
        must(
            e.confirmed.iter().all(is_own),
            "a publication of another shard",
        )?;
        let is_of_slot = |change: &TimerChange| Slot::of(&change.key) == e.slot;
        must(
            e.timers.iter().all(is_of_slot),
            "a timer of another slot in an entry of the primary's own",
        )?;
        return check_time(now, e.now);
    }
    must(
        e.confirmed.is_empty(),
        "a message's entry that removes publications",
    )?;
    must(
        fits_service(app, key, e.id.via, e.id.index),
        "an entry of another service",
    )?;
    must(
        e.oldest_seq <= e.id.request.seq,
        "an entry that forgets itself",
    )?;
    check_time(now, e.now)?;
    must(
        e.deadline <= latest_deadline(now),
        "a deadline too far ahead",
    )?;
    let leaves = |o: &e3_wire::entry::Output| {
        app.dag.sender(o.edge) == Some(key.service)
            && app.dag.run(Via::Edge(o.edge), o.index).is_some()
    };
    must(
        e.outputs.iter().all(leaves),
        "an output that the service cannot send",
    )?;
    must(
        e.dead.is_none() || (e.batch.is_empty() && e.outputs.is_empty() && e.timers.is_empty()),
        "a dead letter with effects",
    )?;
    let fired = e.fired.as_ref();
    must(
        fired.is_none_or(|fired| e.id.via == Via::Timer && Slot::of(&fired.key) == e.slot),
        "a timer of another slot",
    )?;
    must(
        e.timers
            .iter()
            .all(|change| Slot::of(&change.key) == e.slot),
        "a timer set in another slot",
    )
}

/// A timer of a snapshot.
pub(crate) fn check_timer(app: &App, key: ShardKey, timer: &Timer) -> Result<(), &'static str> {
    if owns(app, key, Slot::of(&timer.name.key)) {
        Ok(())
    } else {
        Err("a timer of another shard")
    }
}

/// A write batch of an entry that [`check_entry`] has passed; none if it is empty.
pub(crate) fn check_batch(slot: Slot, bytes: Vec<u8>) -> Result<Option<WriteBatch>, &'static str> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let batch = WriteBatch::from_bytes(bytes).map_err(|_| "a write batch that cannot be read")?;
    if batch.slot() != slot.0 {
        return Err("a write batch of another slot");
    }
    Ok(Some(batch))
}

/// The primary's clock may be ahead of this node's, but not by any amount: what a log says of the
/// time stays with it for ever.
pub(crate) fn check_time(now: Timestamp, then: Timestamp) -> Result<(), &'static str> {
    if then > now + CLOCK_AHEAD_MAX {
        return Err("the primary's clock is over a minute ahead of this node's");
    }
    Ok(())
}

/// The latest deadline that a request of a node with a right clock has.
pub(crate) fn latest_deadline(now: Timestamp) -> Timestamp {
    now + DEADLINE_AHEAD_MAX + CLOCK_AHEAD_MAX
}

#[cfg(test)]
pub(crate) mod tests;
