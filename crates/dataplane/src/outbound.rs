//! Outbound requests of a shard's service that its primary has in progress. Nothing here survives the
//! primary: the requests themselves are in the table of timers, and a successor asks again, under
//! the same identities.
//!
//! A request is begun when the entry that sets it is committed, in the order of the entries. So what
//! is begun and what waits follows from one place in the table.

use crate::limits::{OUTBOUND_OPEN_MAX, OUTBOUND_RETRY_AFTER, OUTBOUND_RETRY_AFTER_MAX};
use crate::publications::Subscriber;
use crate::timer_table::{OutboundPlace, Place};
use e3_model::outbound::{Answer, Destination, HttpRequest};
use e3_model::topic::Topic;
use e3_model::{AppId, Nanos, RequestId, ShardKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// An outbound request that the worker is to make.
#[derive(Debug)]
pub(crate) struct Ask {
    /// Its identity, the same whoever asks and however often.
    pub(crate) id: RequestId,
    pub(crate) to: Receiver,
    pub(crate) payload: Vec<u8>,
    /// When the handler asked.
    pub(crate) sent: Timestamp,
    pub(crate) deadline: Timestamp,
    /// Another primary may have asked before.
    pub(crate) may_be_sent: bool,
}

/// Who gets an outbound request.
#[derive(Debug)]
pub(crate) enum Receiver {
    /// As its service said.
    Destination(Destination),
    /// A subscriber of the topic, by this key.
    Subscriber {
        subscriber: Subscriber,
        topic: Box<Topic>,
        key: Vec<u8>,
    },
}

/// An outbound HTTP request for the driver.
#[derive(Debug)]
pub struct HttpAsk {
    /// Names it when its answer comes.
    pub ticket: u64,
    /// What is asked.
    pub request: HttpRequest,
    /// Its body.
    pub body: Vec<u8>,
    /// Until when it may be repeated.
    pub deadline: Timestamp,
    /// The same for every repetition, also by another node.
    pub idempotency_key: String,
    /// Another node may have sent it before: without an answer nobody knows whether it was handled.
    pub may_be_sent: bool,
}

/// The attempts at an outbound request that has no answer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attempts {
    /// How many were begun.
    pub count: u32,
    /// When the next one begins; none while one over HTTP is in flight, or if there is none.
    pub next: Option<Timestamp>,
    /// Why the last one that has ended brought no answer, if that is known.
    pub last_error: Option<String>,
}

/// Outbound requests that a primary has in progress.
#[derive(Debug)]
pub(crate) struct Outbounds {
    open: BTreeMap<RequestId, Open>,
    /// All requests of the table up to this one were begun.
    begun: Option<OutboundPlace>,
    /// When requests are made again.
    retries: BTreeSet<(Timestamp, RequestId)>,
    /// Answers that wait to be handled, in the order in which they came.
    answered: BTreeMap<u64, RequestId>,
    answers: u64,
    /// Requests of entries up to this one a predecessor may have made.
    inherited: u64,
}

/// A request in progress.
#[derive(Debug)]
struct Open {
    place: Rc<Place>,
    progress: Progress,
    /// How often it was made.
    attempts: u32,
}

#[derive(Debug)]
enum Progress {
    /// It was made.
    Asked {
        /// When it is made again, if that is ahead.
        retry_at: Timestamp,
        /// It is made again until it is answered. If not, the driver repeats it.
        repeats: bool,
        /// Between this attempt and the next.
        wait: Nanos,
        /// It was admitted, as far as this primary knows.
        is_passed_on: bool,
    },
    /// Its answer has come.
    Answered {
        /// Its number among all answers.
        number: u64,
        at: Timestamp,
        answer: Answer,
        content: Vec<u8>,
    },
    /// Its answer is being handled.
    Handling,
}

/// What is known of the answer to a request that is over.
pub(crate) enum Known {
    /// This came.
    Answer(Answer, Vec<u8>),
    /// Nothing; it may have been handled.
    Asked,
    /// Nothing; nobody was asked.
    NotAsked,
}

impl Outbounds {
    /// Of a primary that begins with the log up to `op`.
    pub(crate) fn new(op: u64) -> Outbounds {
        Outbounds {
            open: BTreeMap::new(),
            begun: None,
            retries: BTreeSet::new(),
            answered: BTreeMap::new(),
            answers: 0,
            inherited: op,
        }
    }

    /// Requests of the table up to this one were begun.
    pub(crate) fn begun(&self) -> Option<&OutboundPlace> {
        self.begun.as_ref()
    }

    /// Whether one more may be begun.
    pub(crate) fn has_room(&self) -> bool {
        self.open.len() < OUTBOUND_OPEN_MAX
    }

    /// Whether a predecessor may have made the requests of this entry.
    pub(crate) fn is_inherited(&self, op: u64) -> bool {
        op <= self.inherited
    }

    /// Notes that the requests of the table up to this one were begun.
    pub(crate) fn begin(&mut self, place: OutboundPlace) {
        self.begun = Some(place);
    }

    /// Notes that a request is made. `repeats`: an answer may be lost, so it is made again.
    pub(crate) fn on_asked(
        &mut self,
        now: Timestamp,
        id: RequestId,
        place: Rc<Place>,
        repeats: bool,
    ) {
        let wait = OUTBOUND_RETRY_AFTER;
        let retry_at = if repeats { now + wait } else { Timestamp::MAX };
        let progress = Progress::Asked {
            retry_at,
            repeats,
            wait,
            is_passed_on: true,
        };
        if repeats {
            self.retries.insert((retry_at, id));
        }
        let open = Open {
            place,
            progress,
            attempts: 1,
        };
        self.open.insert(id, open);
    }

    /// How often a request to a service was made, when it is made again, and why.
    pub(crate) fn attempts(&self, id: RequestId) -> Attempts {
        let Some(open) = self.open.get(&id) else {
            return Attempts::default();
        };
        let next = match open.progress {
            Progress::Asked { retry_at, .. } => Some(retry_at),
            Progress::Answered { .. } | Progress::Handling => None,
        };
        let refused = "whoever was asked had no room for it; it is asked again";
        Attempts {
            count: open.attempts,
            next: next.filter(|at| *at < Timestamp::MAX),
            last_error: self.is_refused(id).then(|| refused.into()),
        }
    }

    /// A request that is to be made again now; none if there is none. It comes again after a while if it is
    /// not made now.
    pub(crate) fn pop_retry(&mut self, now: Timestamp) -> Option<(RequestId, Rc<Place>)> {
        let (at, id) = *self.retries.first().filter(|(at, _)| *at <= now)?;
        self.retries.remove(&(at, id));
        let open = self.open.get_mut(&id)?;
        if let Progress::Asked { retry_at, wait, .. } = &mut open.progress {
            *wait = Nanos(wait.0 * 3 / 2).min(OUTBOUND_RETRY_AFTER_MAX);
            *retry_at = now + *wait;
            self.retries.insert((*retry_at, id));
        }
        Some((id, open.place.clone()))
    }

    /// Whether a request is known to have been admitted by nobody, as far as this primary asked.
    pub(crate) fn is_refused(&self, id: RequestId) -> bool {
        let progress = self.open.get(&id).map(|open| &open.progress);
        matches!(
            progress,
            None | Some(Progress::Asked {
                is_passed_on: false,
                ..
            })
        )
    }

    /// Notes that a request is made again.
    pub(crate) fn on_asked_again(&mut self, id: RequestId) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        if let Progress::Asked {
            is_passed_on,
            retry_at,
            repeats,
            ..
        } = &mut open.progress
        {
            *is_passed_on = true;
            open.attempts = open.attempts.saturating_add(1);
            if !*repeats {
                self.retries.remove(&(*retry_at, id));
                *retry_at = Timestamp::MAX;
            }
        }
    }

    /// A request was not admitted. It is made again in time.
    pub(crate) fn on_overloaded(&mut self, now: Timestamp, id: RequestId) {
        let progress = self.open.get_mut(&id).map(|open| &mut open.progress);
        if let Some(Progress::Asked {
            is_passed_on,
            retry_at,
            wait,
            ..
        }) = progress
        {
            *is_passed_on = false;
            if *retry_at == Timestamp::MAX {
                *retry_at = now + *wait;
                self.retries.insert((*retry_at, id));
            }
        }
    }

    /// Takes the answer to a request. Later ones change nothing.
    pub(crate) fn on_answer(
        &mut self,
        now: Timestamp,
        id: RequestId,
        answer: Answer,
        content: Vec<u8>,
    ) {
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        if let Progress::Asked { retry_at, .. } = open.progress {
            self.retries.remove(&(retry_at, id));
            self.answered.insert(self.answers, id);
            open.progress = Progress::Answered {
                number: self.answers,
                at: now,
                answer,
                content,
            };
            self.answers += 1;
        }
    }

    /// When the oldest answer came that waits, and where its request is in the table.
    pub(crate) fn first_answered(&self) -> Option<(Timestamp, &Rc<Place>)> {
        let (_, id) = self.answered.first_key_value()?;
        let open = self.open.get(id)?;
        match open.progress {
            Progress::Answered { at, .. } => Some((at, &open.place)),
            Progress::Asked { .. } | Progress::Handling => None,
        }
    }

    /// Whether an answer waits to be handled.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Gives what is known of the answer to a request of the entry `op`, which is handled now.
    pub(crate) fn take(&mut self, id: RequestId, op: u64) -> Known {
        let is_inherited = self.is_inherited(op);
        let Some(open) = self.open.get_mut(&id) else {
            return if is_inherited {
                Known::Asked
            } else {
                Known::NotAsked
            };
        };
        match std::mem::replace(&mut open.progress, Progress::Handling) {
            Progress::Answered {
                number,
                answer,
                content,
                ..
            } => {
                self.answered.remove(&number);
                Known::Answer(answer, content)
            }
            Progress::Asked {
                retry_at,
                is_passed_on,
                ..
            } => {
                self.retries.remove(&(retry_at, id));
                if is_passed_on || is_inherited {
                    Known::Asked
                } else {
                    Known::NotAsked
                }
            }
            Progress::Handling => Known::Asked,
        }
    }

    /// A request is over: its answer is handled, or it was cancelled or replaced. True if somebody may still be
    /// asked.
    pub(crate) fn forget(&mut self, id: RequestId) -> bool {
        match self.open.remove(&id).map(|open| open.progress) {
            Some(Progress::Asked { retry_at, .. }) => {
                self.retries.remove(&(retry_at, id));
                true
            }
            Some(Progress::Answered { number, .. }) => {
                self.answered.remove(&number);
                false
            }
            // It was without an answer at its deadline, or has one.
            Some(Progress::Handling) => true,
            None => false,
        }
    }

    /// When a request is made again next.
    pub(crate) fn next_retry(&self) -> Option<Timestamp> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// Panics if an invariant is broken.
    pub(crate) fn validate(&self) {
        assert!(self.open.len() <= OUTBOUND_OPEN_MAX, "requests in progress");
        let count = |is: fn(&Progress) -> bool| {
            let open = self.open.values();
            open.filter(|open| is(&open.progress)).count()
        };
        let retried =
            count(|p| matches!(p, Progress::Asked { retry_at, .. } if *retry_at < Timestamp::MAX));
        assert_eq!(self.retries.len(), retried, "requests that are repeated");
        let answered = count(|p| matches!(p, Progress::Answered { .. }));
        assert_eq!(self.answered.len(), answered, "answers that wait");
    }
}

/// An answer that came for a shard.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) shard: ShardKey,
    /// The application that was asked, if it was one.
    pub(crate) by: Option<AppId>,
    pub(crate) id: RequestId,
    pub(crate) answer: Answer,
    pub(crate) content: Vec<u8>,
}

/// Outbound requests and answers on their way between the primaries of a worker, its ingress and its
/// driver. Each is passed on in the turn in which it came.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(crate) asks: VecDeque<(ShardKey, Ask)>,
    pub(crate) answers: VecDeque<Answered>,
    /// What the driver was given and has not answered.
    pub(crate) tickets: BTreeMap<u64, (ShardKey, RequestId)>,
    /// The same by request.
    by_request: BTreeMap<(ShardKey, RequestId), u64>,
    next_ticket: u64,
}

impl Passage {
    /// A ticket for a request that the driver is given.
    pub(crate) fn open(&mut self, shard: ShardKey, id: RequestId) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.insert(ticket, (shard, id));
        self.by_request.insert((shard, id), ticket);
        ticket
    }

    /// Whose request a ticket is, which is over now.
    pub(crate) fn close(&mut self, ticket: u64) -> Option<(ShardKey, RequestId)> {
        let request = self.tickets.remove(&ticket)?;
        if self.by_request.get(&request) == Some(&ticket) {
            self.by_request.remove(&request);
        }
        Some(request)
    }

    /// The ticket of a request.
    pub(crate) fn ticket(&self, shard: ShardKey, id: RequestId) -> Option<u64> {
        self.by_request.get(&(shard, id)).copied()
    }

    /// The tickets of a shard.
    pub(crate) fn tickets_of(&self, shard: ShardKey) -> Vec<u64> {
        let first = (shard, RequestId { client: 0, seq: 0 });
        let all = self.by_request.range(first..);
        all.take_while(|((of, _), _)| *of == shard)
            .map(|(_, ticket)| *ticket)
            .collect()
    }
}
