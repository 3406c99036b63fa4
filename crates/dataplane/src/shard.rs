//! What the transitions of a replica work on: the shard, the world as the worker knows it, and the
//! effects that a transition asks for.

use crate::app::App;
use crate::asked::Asked;
use crate::config::Config;
use crate::journal::{Awaited, Disk};
use crate::lease::Leases;
use crate::links::Delivery;
use crate::log::Log;
use crate::outbound::Ask;
use crate::publications::{Subscriber, Subscribers};
use crate::reach::ClockCheck;
use e3_collections::State;
use e3_invocation::{CallAnswer, Invocation};
use e3_model::outbound::Answer;
use e3_model::plan::{NodePlan, Peer};
use e3_model::topic::Publication;
use e3_model::{
    AppId, DropReason, Format, MessageId, Nanos, NodeId, RequestId, ShardKey, Timestamp, Via,
};
use e3_wire::entry::Reply;
use e3_wire::frame::Link;
use e3_wire::message::Message;
use e3_wire::timer::TimerName;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// What a replica has in every role.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) key: ShardKey,
    pub(crate) view: u32,
    pub(crate) incarnation: u32,
    pub(crate) log: Log,
    /// What of it is on the node's disk; none if the service is in memory only.
    pub(crate) disk: Option<Disk>,
    pub(crate) counts: Counts,
    /// Why its service does not run here, or why its replication stopped.
    pub(crate) error: Option<String>,
}

/// What a node did as the primary of a shard.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    pub(crate) failed: u64,
    pub(crate) dead_lettered: u64,
    pub(crate) expired: u64,
    /// Calls that were handled.
    pub(crate) calls: u64,
    /// Why the last attempt failed that did.
    pub(crate) last_failure: Option<String>,
    pub(crate) busy: Nanos,
}

/// What replicas see of their worker.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) plan: Arc<NodePlan>,
    pub(crate) apps: BTreeMap<AppId, App>,
    /// Of all applications of the plan.
    pub(crate) subscribers: Subscribers,
    pub(crate) leases: Leases,
    /// Why nothing new is handled, if the node's memory is used up.
    pub(crate) memory_full: Option<String>,
    /// When this process read its journal: what the one before promised has run out a lease later.
    pub(crate) recovered_at: Timestamp,
    /// Unless its clock is right, nothing that the node says about deadlines, or leases, is worth
    /// anything.
    pub(crate) clock: ClockCheck,
}

/// The world around a replica during one transition.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    pub(crate) config: &'a Config,
    pub(crate) app: &'a App,
    pub(crate) subscribers: &'a Subscribers,
    pub(crate) leases: &'a Leases,
    pub(crate) peers: &'a BTreeMap<NodeId, Peer>,
    pub(crate) memory_full: Option<&'a str>,
    pub(crate) clock: ClockCheck,
    /// Cores for another handler run; without end where cores are not emulated. Only valid where
    /// handlers are dispatched.
    pub(crate) free_cores: usize,
    /// In which the cluster's processes write.
    pub(crate) format: Format,
}

impl World {
    /// As a replica of the application sees it.
    pub(crate) fn context(&self, app: AppId) -> Option<Context<'_>> {
        Some(Context {
            now: self.now,
            config: &self.config,
            app: self.apps.get(&app)?,
            subscribers: &self.subscribers,
            leases: &self.leases,
            peers: &self.plan.peers,
            memory_full: self.memory_full.as_deref(),
            clock: self.clock,
            free_cores: usize::MAX,
            format: self.plan.format,
        })
    }
}

impl Context<'_> {
    /// Who gets a publication of the application.
    pub(crate) fn subscribers(&self, publication: &Publication) -> &[Subscriber] {
        self.subscribers.of(&self.app.plan.app.name, publication)
    }
}

/// One transition of a primary.
pub(crate) struct Turn<'a> {
    pub(crate) cx: &'a Context<'a>,
    pub(crate) shard: &'a mut Shard,
    pub(crate) effects: &'a mut Vec<Effect>,
}

/// What a transition asks the worker to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Start an instance with these collections.
    Start(Rc<RefCell<State>>),
    /// Run the handler.
    Run(Invocation),
    /// A message is durable: tell its sender within `delay`.
    Complete { delivery: Delivery, delay: Nanos },
    /// What follows from the replay of a dead letter of a stateless service is durable.
    ReplayDurable(RequestId),
    /// Send a message downstream. `op` is the entry that waits until it is durable, and which of the
    /// entry's outputs it is.
    Send {
        link: Link,
        to: NodeId,
        body: Rc<[u8]>,
        op: Option<(u64, u32)>,
    },
    /// Begin a replication stream in this epoch, in place of the one before. Not restarted again
    /// before `settles_at`.
    BeginStream {
        link: Link,
        backup: NodeId,
        epoch: u32,
        settles_at: Timestamp,
    },
    /// Send an item of a replication stream. When it is durable the backup has all up to `op`; an
    /// item inside a snapshot brings it nowhere.
    Replicate {
        link: Link,
        backup: NodeId,
        body: Rc<[u8]>,
        op: Option<u64>,
    },
    /// End a replication stream.
    EndStream(Link),
    /// Answer a request.
    Reply {
        asked: Asked,
        request: RequestId,
        reply: Reply,
    },
    /// Make an outbound request of the service.
    Ask(Box<Ask>),
    /// Nobody waits for the answer to an outbound request any more.
    AskEnds(RequestId),
    /// Answer a call.
    Answer { caller: Caller, answer: CallAnswer },
    /// Call the replica again at this time.
    WakeAt(Timestamp),
    /// The backups do not know yet which outputs are durable.
    Released,
    /// Append a record to the journal; when it is durable, so much is so.
    Journal(Vec<u8>, Awaited),
    /// Send bytes of the shard's part of a backup, which begin at this offset.
    Export {
        number: u64,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Note when all records so far are durable.
    Await(Awaited),
    /// Count something that was dropped.
    Drop(DropReason),
}

/// Who waits for the answer to a call: the process of a node, and its name for the call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Caller {
    pub(crate) node: NodeId,
    pub(crate) incarnation: u32,
    pub(crate) token: u64,
}

/// A message that waits for its turn.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// How it came; none for the replay of a dead letter, and for the request of a timer.
    pub(crate) delivery: Option<Delivery>,
    /// The dead letter that it was.
    pub(crate) replays: Option<MessageId>,
    pub(crate) message: Message,
    /// The timer whose request it is, or of whose request it is a replay.
    pub(crate) timer: Option<TimerName>,
    /// The answer to an outbound request that it brings; the payload is its content.
    pub(crate) answer: Option<Answer>,
    /// Attempts that failed.
    pub(crate) failures: u32,
}

impl Waiting {
    /// The timer that fires with it.
    pub(crate) fn fired(&self) -> Option<TimerName> {
        let fires = self.replays.is_none() && self.message.id.via == Via::Timer;
        self.timer.clone().filter(|_| fires)
    }
}

impl Turn<'_> {
    /// States that messages are durable here. The acknowledgement may wait for company.
    pub(crate) fn complete(
        &mut self,
        deliveries: impl IntoIterator<Item = Delivery>,
        delay: Nanos,
    ) {
        let effects = deliveries.into_iter();
        self.effects
            .extend(effects.map(|delivery| Effect::Complete { delivery, delay }));
    }
}
