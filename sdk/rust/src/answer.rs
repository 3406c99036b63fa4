//! Answers to outbound requests.

use alloc::string::String;

/// How an outbound request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered; the status says more.
    Done,
    /// Too many requests were in flight. Nothing was done. The platform asks again, so an answer does
    /// not say this.
    Overloaded,
    /// It was not handled in time. A service keeps it as a dead letter, which an operator may replay.
    Expired,
    /// A service failed at every attempt, and keeps it as a dead letter. Over HTTP: the answer cannot be
    /// given, for example because it is too long; the status is that of the server, the payload the reason.
    Failed,
    /// There is no such service or application, or the request is out of bounds. Nothing was done.
    Rejected,
    /// Its identity belongs to another request. Nothing was done.
    Conflict,
    /// Nobody knows whether it was handled.
    Unknown,
}

impl Outcome {
    const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::Overloaded,
        Outcome::Expired,
        Outcome::Failed,
        Outcome::Rejected,
        Outcome::Conflict,
        Outcome::Unknown,
    ];

    /// From its code in the ABI. What a newer platform may add is as good as unknown.
    fn from_code(code: i64) -> Outcome {
        let known = usize::try_from(code).ok().and_then(|at| Self::ALL.get(at));
        known.copied().unwrap_or(Outcome::Unknown)
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn code(self) -> i64 {
        Self::ALL
            .iter()
            .position(|o| *o == self)
            .map_or(0, |at| at as i64)
    }
}

/// The answer that a request brings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name of the outbound request.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Status of the reply, or of HTTP; 0 if nobody answered.
    pub status: u32,
}

impl Answer {
    /// Whether a service or an application answered with status 0.
    pub fn is_ok(&self) -> bool {
        self.outcome == Outcome::Done && self.status == 0
    }

    /// Whether an HTTP server answered with a status of 200 to 299.
    pub fn is_http_ok(&self) -> bool {
        self.outcome == Outcome::Done && (200..300).contains(&self.status)
    }

    /// From outcome and status as the ABI has them.
    pub(crate) fn new(name: String, answer: i64) -> Answer {
        Answer {
            name,
            outcome: Outcome::from_code(answer >> 32),
            status: answer as u32,
        }
    }
}
