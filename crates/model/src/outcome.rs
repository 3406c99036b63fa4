//! Outcome of a request.

/// Outcome of a request, as the platform sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Handled; the application's status says more.
    Done,
    /// Not admitted: too many requests are in flight. Nothing was done.
    Overloaded,
    /// It was not handled before its deadline; it is a dead letter.
    Expired,
    /// Every attempt failed; it is a dead letter.
    Failed,
    /// No such application here, or a request out of bounds. Nothing was done.
    Rejected,
    /// Its idempotency key belongs to another request. Nothing was done.
    Conflict,
    /// Nobody knows any more whether it was handled; it is a dead letter that cannot be replayed.
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

    /// Code on the wire and in the ABI.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Overloaded => 1,
            Outcome::Expired => 2,
            Outcome::Failed => 3,
            Outcome::Rejected => 4,
            Outcome::Conflict => 5,
            Outcome::Unknown => 6,
        }
    }

    /// From its code.
    pub fn from_code(code: u8) -> Option<Outcome> {
        Outcome::ALL.into_iter().find(|o| o.code() == code)
    }
}
