//! Requests of nodes to an HTTP server: requests and answers are lost, are late, and come twice. As a
//! real driver does, a node repeats what it gets no answer to, until the deadline.

use super::{Cluster, Event};
use e3_dataplane::HttpAsk;
use e3_model::Nanos;
use e3_model::Outcome;
use e3_model::outbound::Answer;
use std::rc::Rc;

/// How long a driver waits for an answer.
const RETRY_AFTER: Nanos = Nanos::from_millis(300);
/// Requests, and answers, that are lost, of 1000.
const LOST_PERMILLE: u64 = 100;
/// Requests that the driver has no room for, of 1000.
const OVERLOADED_PERMILLE: u64 = 50;
/// Answers that come twice, of 1000.
const TWICE_PERMILLE: u64 = 100;
/// Longest time from a request to its answer.
const ANSWER_WITHIN: Nanos = Nanos::from_millis(50);

impl Cluster {
    /// A node is to make a request over HTTP.
    pub(super) fn begin_http(&mut self, node: u32, ask: HttpAsk) {
        let Some(n) = self.nodes.get(&node) else {
            return;
        };
        let (incarnation, ask) = (n.incarnation, Rc::new(ask));
        if !self.random.chance(OVERLOADED_PERMILLE) {
            return self.ask_http(node, ask);
        }
        let outcome = Outcome::Overloaded;
        let refused = Event::HttpAnswer {
            node,
            incarnation,
            ask,
            answer: Some(Answer { outcome, status: 0 }),
        };
        self.push(self.now, refused);
    }

    /// A node makes no more attempts at a request over HTTP.
    pub(super) fn cancel_http(&mut self, node: u32, ticket: u64) {
        if let Some(n) = self.nodes.get_mut(&node) {
            n.http_cancelled.insert(ticket);
        }
    }

    /// A node makes a request over HTTP.
    fn ask_http(&mut self, node: u32, ask: Rc<HttpAsk>) {
        let Some(n) = self.nodes.get(&node) else {
            return;
        };
        let incarnation = n.incarnation;
        let event = |answer| Event::HttpAnswer {
            node,
            incarnation,
            ask: ask.clone(),
            answer,
        };
        if n.clock.shown(self.now) >= ask.deadline {
            let outcome = Outcome::Unknown;
            let given_up = event(Some(Answer { outcome, status: 0 }));
            return self.push(self.now, given_up);
        }
        let is_lost = self.random.chance(LOST_PERMILLE);
        if !is_lost {
            self.http.on_request(&ask.body, &ask.idempotency_key);
        }
        if is_lost || self.random.chance(LOST_PERMILLE) {
            return self.push(self.now + RETRY_AFTER, event(None));
        }
        let copies = 1 + u64::from(self.random.chance(TWICE_PERMILLE));
        for _ in 0..copies {
            let outcome = Outcome::Done;
            let answer = Answer {
                outcome,
                status: 200,
            };
            let at = self.now + Nanos(self.random.below(ANSWER_WITHIN.0));
            self.push(at, event(Some(answer)));
        }
    }

    /// An answer arrives at a node, or none has come in time.
    pub(super) fn on_http_answer(
        &mut self,
        node: u32,
        incarnation: u32,
        ask: Rc<HttpAsk>,
        answer: Option<Answer>,
    ) {
        let now = self.now;
        let Some(n) = self.nodes.get_mut(&node) else {
            return;
        };
        if n.incarnation != incarnation || n.http_cancelled.contains(&ask.ticket) {
            return;
        }
        match answer {
            None => self.ask_http(node, ask),
            Some(answer) => {
                let content = match answer.outcome {
                    Outcome::Done => ask.body.clone(),
                    _ => Vec::new(),
                };
                let now = n.clock.shown(now);
                n.worker.on_http_answer(now, ask.ticket, answer, content);
            }
        }
    }
}
