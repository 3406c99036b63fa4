//! A request on its way to an answer: what its attempts showed up to now.

use crate::attempt::Attempt;
use crate::limits::{BACKOFF_MAX, BACKOFF_MIN, LAST_ERROR_LEN_MAX, REASON_LEN_MAX};
use e3_model::Outcome;
use e3_model::outbound::{Answer, HttpRequest};
use e3_random::Random;
use std::time::{Duration, Instant};

/// A request to perform.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names it to the caller.
    pub ticket: u64,
    /// What to ask whom.
    pub http: HttpRequest,
    /// Body.
    pub body: Vec<u8>,
    /// Until when it is repeated.
    pub deadline: Instant,
    /// The same for all attempts, and for those of another node after this one.
    pub idempotency_key: String,
    /// Another node may have made attempts before.
    pub may_be_sent: bool,
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// That of the request.
    pub ticket: u64,
    /// How it ended.
    pub answer: Answer,
    /// Body of the response, or a reason in English if there is none.
    pub payload: Vec<u8>,
    /// Distinguishes requests of the same ticket.
    pub(crate) number: u64,
}

/// The attempts at a request that has no answer yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attempts {
    /// How many were begun.
    pub count: u32,
    /// When the next one begins; none while one is in flight, or while the request waits for a thread.
    pub next: Option<Instant>,
    /// Why the last one that has ended brought no answer.
    pub last_error: Option<String>,
}

/// What to do after an attempt.
pub(crate) enum Next {
    /// It has ended.
    End(Answer, Vec<u8>),
    /// Try again at this time.
    Again(Instant),
}

/// What the attempts showed.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    attempts: u32,
    /// The last response that asked for patience.
    last: Option<(u32, Vec<u8>)>,
    /// An attempt may have been handled, and nobody knows how it ended.
    maybe_handled: bool,
    /// Why the last attempt without a response failed.
    reason: Option<String>,
    /// Why the last attempt did not end the request.
    last_error: Option<String>,
}

impl Progress {
    /// Before the first attempt of this node. `may_be_sent`: another one may have made some.
    pub(crate) fn new(may_be_sent: bool) -> Progress {
        Progress {
            maybe_handled: may_be_sent,
            ..Progress::default()
        }
    }

    /// Notes an attempt that ended now. `draw` is the random number for the jitter.
    pub(crate) fn on_attempt(
        &mut self,
        attempt: Attempt,
        now: Instant,
        deadline: Instant,
        draw: &mut Random,
    ) -> Next {
        self.attempts += 1;
        let mut wait = backoff(self.attempts, draw);
        match attempt {
            Attempt::Response { status, body } => return end(Outcome::Done, status, body),
            Attempt::TooLong { status, reason } => {
                return end(Outcome::Failed, status, cut(reason));
            }
            Attempt::Impossible(reason) => {
                let outcome = match self.maybe_handled {
                    true => Outcome::Unknown,
                    false => Outcome::Rejected,
                };
                return end(outcome, 0, cut(reason));
            }
            Attempt::Busy {
                status,
                body,
                retry_after,
            } => {
                self.last_error = Some(format!("the server answered with status {status}"));
                self.last = Some((status, body));
                wait = wait.max(retry_after.unwrap_or_default());
            }
            Attempt::NotReached(reason) => self.on_no_response(reason),
            Attempt::NoAnswer(reason) => {
                self.maybe_handled = true;
                self.on_no_response(reason);
            }
        }
        match now.checked_add(wait) {
            Some(at) if at < deadline => Next::Again(at),
            _ => self.give_up(),
        }
    }

    fn on_no_response(&mut self, reason: String) {
        let len = reason.floor_char_boundary(LAST_ERROR_LEN_MAX);
        self.last_error = Some(reason[..len].to_owned());
        self.reason = Some(reason);
    }

    /// Why the last attempt did not end the request; none before there was one.
    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The answer at the deadline.
    pub(crate) fn give_up(&mut self) -> Next {
        let outcome = match (self.maybe_handled, &self.last) {
            (true, _) => Outcome::Unknown,
            (false, Some(_)) => Outcome::Done,
            (false, None) => Outcome::Expired,
        };
        match self.last.take() {
            Some((status, body)) => end(outcome, status, body),
            None => {
                let reason = self.reason.take();
                let reason = reason.unwrap_or_else(|| "no attempt before the deadline".into());
                end(outcome, 0, cut(reason))
            }
        }
    }
}

fn end(outcome: Outcome, status: u32, payload: Vec<u8>) -> Next {
    Next::End(Answer { outcome, status }, payload)
}

fn cut(reason: String) -> Vec<u8> {
    let mut reason = reason.into_bytes();
    reason.truncate(REASON_LEN_MAX);
    reason
}

/// Wait after so many attempts: between half of it and all of it.
fn backoff(attempts: u32, draw: &mut Random) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    let whole = doubled.min(BACKOFF_MAX);
    let half_us = whole.as_micros() as u64 / 2;
    whole / 2 + Duration::from_micros(draw.below(half_us + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(status: u32, retry_after: u64) -> Attempt {
        Attempt::Busy {
            status,
            body: b"busy".to_vec(),
            retry_after: Some(Duration::from_secs(retry_after)),
        }
    }

    /// How a request ends whose attempts end so.
    fn ended(attempts: Vec<Attempt>) -> (Outcome, u32, Vec<u8>) {
        let (mut progress, now) = (Progress::default(), Instant::now());
        let mut draw = Random::new(1);
        for attempt in attempts {
            let deadline = now + Duration::from_secs(60);
            if let Next::End(answer, payload) =
                progress.on_attempt(attempt, now, deadline, &mut draw)
            {
                return (answer.outcome, answer.status, payload);
            }
        }
        match progress.give_up() {
            Next::End(answer, payload) => (answer.outcome, answer.status, payload),
            Next::Again(_) => unreachable!("given up"),
        }
    }

    #[test]
    fn the_answer_says_what_is_known() {
        let lost = || Attempt::NoAnswer("lost".into());
        let refused = || Attempt::NotReached("refused".into());
        let busy = || busy(503, 1);
        let impossible = || Attempt::Impossible("no certificate".into());
        let done = Attempt::Response {
            status: 404,
            body: b"no".to_vec(),
        };
        assert_eq!(
            ended(vec![lost(), busy(), done]),
            (Outcome::Done, 404, b"no".to_vec())
        );
        assert_eq!(ended(vec![]).0, Outcome::Expired);
        assert_eq!(ended(vec![refused(), impossible()]).0, Outcome::Rejected);
        assert_eq!(ended(vec![lost(), impossible()]).0, Outcome::Unknown);
        // Another node may have sent it.
        let (now, deadline) = (Instant::now(), Instant::now() + Duration::from_secs(60));
        let mut after_another = Progress::new(true);
        after_another.on_attempt(refused(), now, deadline, &mut Random::new(1));
        match after_another.give_up() {
            Next::End(answer, _) => assert_eq!(answer.outcome, Outcome::Unknown),
            Next::Again(_) => unreachable!("given up"),
        }
        assert_eq!(
            ended(vec![refused(), refused()]),
            (Outcome::Expired, 0, b"refused".to_vec())
        );
        assert_eq!(
            ended(vec![refused(), lost(), refused()]),
            (Outcome::Unknown, 0, b"refused".to_vec())
        );
        assert_eq!(
            ended(vec![busy(), refused()]),
            (Outcome::Done, 503, b"busy".to_vec())
        );
        // The one without an answer may have been handled.
        assert_eq!(
            ended(vec![lost(), busy()]),
            (Outcome::Unknown, 503, b"busy".to_vec())
        );
    }

    #[test]
    fn waits_double_and_the_server_may_ask_for_more() {
        let now = Instant::now();
        let (mut progress, mut draw) = (Progress::default(), Random::new(7));
        let mut wait = |attempt, deadline_s| {
            let deadline = now + Duration::from_secs(deadline_s);
            match progress.on_attempt(attempt, now, deadline, &mut draw) {
                Next::Again(at) => Some((at - now).as_millis()),
                Next::End(..) => None,
            }
        };
        for attempt in 0..12 {
            let waited = wait(Attempt::NotReached(String::new()), 3600).unwrap();
            let whole = (100u128 << attempt).min(30_000);
            assert!((whole / 2..=whole).contains(&waited), "{attempt}: {waited}");
        }
        assert_eq!(wait(busy(429, 120), 3600), Some(120_000));
        assert_eq!(wait(busy(429, 120), 100), None, "beyond the deadline");
    }
}
