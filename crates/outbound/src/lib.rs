//! Performs the HTTP requests that services make: repeats each until it is answered or its deadline
//! has passed, on threads of its own.
//!
//! [`Outbound::start`] returns at once and [`Outbound::poll`] gives the answers, so the caller never
//! waits for a server. An attempt that did not reach the server, ran into a time-out, or was answered
//! with a status that asks for patience is repeated with exponential backoff and jitter (Brooker, "Exponential
//! Backoff and Jitter", 2015), each time with the same `Idempotency-Key`
//! (draft-ietf-httpapi-idempotency-key-header).

mod attempt;
mod connecting;
pub mod limits;
mod queue;
mod request;
mod resolver;

pub use request::{Answered, Attempts, Request};

use attempt::Client;
use limits::QUEUE_LEN_MAX;
use queue::{Queue, Shared};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

/// The requests in progress. Dropping it ends its threads when their attempts have ended; nobody waits
/// for them.
pub struct Outbound {
    shared: Arc<Shared>,
    answers: Receiver<Answered>,
    /// Requests beyond what the threads may know of.
    waiting: VecDeque<Request>,
    /// The system had no thread for the first requests.
    is_stuck: bool,
}

impl Outbound {
    /// No requests. `wake` is called on another thread when [`Outbound::poll`] has an answer. `version`
    /// becomes part of `User-Agent`.
    pub fn new(version: &str, wake: impl Fn() + Send + Sync + 'static) -> Outbound {
        Outbound::with(Client::new(version), wake)
    }

    fn with(client: Client, wake: impl Fn() + Send + Sync + 'static) -> Outbound {
        let (sender, answers) = mpsc::channel();
        let shared = Shared {
            queue: Queue::new().into(),
            changed: Default::default(),
            client,
            answers: sender,
            wake: Box::new(wake),
        };
        Outbound {
            shared: Arc::new(shared),
            answers,
            waiting: VecDeque::new(),
            is_stuck: false,
        }
    }

    /// Begins to perform a request. One of the same ticket that is in progress is given up.
    pub fn start(&mut self, request: Request) {
        self.cancel(request.ticket);
        self.waiting.push_back(request);
        self.advance();
    }

    /// Gives a request up: no answer comes. An attempt that is in flight may still reach the server.
    pub fn cancel(&mut self, ticket: u64) {
        self.waiting.retain(|request| request.ticket != ticket);
        self.shared.lock().cancel(ticket);
    }

    /// The next answer, if there is one.
    pub fn poll(&mut self) -> Option<Answered> {
        if self.is_stuck
            && let Some(expired) = self.poll_stuck()
        {
            return Some(expired);
        }
        loop {
            let answered = self.answers.try_recv().ok()?;
            let is_wanted = self.shared.lock().finish(answered.ticket, answered.number);
            self.advance();
            if is_wanted {
                return Some(answered);
            }
        }
    }

    /// The attempts at a request so far; none if it has its answer, or was given up.
    pub fn attempts(&self, ticket: u64) -> Option<Attempts> {
        let waits = self.waiting.iter().any(|r| r.ticket == ticket);
        let begun = self.shared.lock().attempts(ticket);
        begun.or_else(|| waits.then(Attempts::default))
    }

    /// Requests without an answer.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.shared.lock().len()
    }

    /// Whether all are answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks for a thread again. As long as there is none, requests end at their deadlines.
    fn poll_stuck(&mut self) -> Option<Answered> {
        let mut queue = self.shared.lock();
        self.shared.call_thread(&mut queue);
        self.is_stuck = queue.is_stuck();
        let expired = if self.is_stuck {
            queue.expire(Instant::now())
        } else {
            None
        };
        drop(queue);
        self.advance();
        expired
    }

    /// Gives the threads what they may know of.
    fn advance(&mut self) {
        let mut queue = self.shared.lock();
        while queue.len() < QUEUE_LEN_MAX
            && let Some(request) = self.waiting.pop_front()
        {
            queue.push(request);
            self.shared.call_thread(&mut queue);
        }
        self.is_stuck = queue.is_stuck();
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        self.shared.lock().stop();
        self.shared.changed.notify_all();
    }
}
