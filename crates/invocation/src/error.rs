//! Why a run of a handler fails.

use crate::limits::EFFECTS_LEN_MAX;
use e3_collections::{ApplyError, CommitError, TxnError};
use e3_model::Nanos;
use thiserror::Error;

/// Why an attempt failed. An instance whose handler or start failed gets a new memory.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum HandlerError {
    /// No instance of the service runs here.
    #[error("service does not run on this node")]
    NotRunning,
    /// Too many invocations wait at the instance.
    #[error("queue of the service is full with {0} requests")]
    QueueFull(usize),
    /// The handler returned this instead of 0.
    #[error("handler returned {0}, must be 0")]
    Code(i32),
    /// An access to a collection was refused, and the handler returned a code; or the access was a
    /// `counter_add`, which cannot tell the handler.
    #[error("collection {collection:?}: {error}; handler returned {code}")]
    Refused {
        /// Name of the collection, or its handle if there is none.
        collection: String,
        /// Why it was refused.
        error: TxnError,
        /// What the handler returned.
        code: i32,
    },
    /// The code trapped.
    #[error("{0}")]
    Trap(String),
    /// The handler passed a pointer outside of the instance's memory.
    #[error("{len} bytes at {ptr} are outside of the instance's memory of {memory} bytes")]
    Pointer {
        /// Address.
        ptr: u32,
        /// Length.
        len: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// The handler ran longer than it may.
    #[error("handler exceeded its {} deadline", seconds(*deadline))]
    DeadlineExceeded {
        /// How long it ran.
        ran: Nanos,
        /// How long it may run.
        deadline: Nanos,
    },
    /// The handler asked for more memory than it may have, and trapped.
    #[error("handler needs {asked} bytes of memory, must be at most {maximum}")]
    MemoryLimit {
        /// What it asked for.
        asked: usize,
        /// What it may have.
        maximum: usize,
    },
    /// The payload is longer than the instance's buffer.
    #[error("request of {len} bytes, must be at most {capacity}")]
    RequestTooLong {
        /// Bytes of the payload.
        len: usize,
        /// Size of the buffer.
        capacity: usize,
    },
    /// The effects do not fit in one log entry.
    #[error(
        "writes, messages and reply of {len} bytes together, must be at most {EFFECTS_LEN_MAX}"
    )]
    EffectsTooLong {
        /// Bytes of the effects.
        len: usize,
    },
    /// The shard's collections would take more memory than they may.
    #[error("collections hold {used} bytes, the writes add {growth}, the quota is {max}")]
    Full {
        /// Bytes that the collections hold.
        used: u64,
        /// Bytes that the writes would add.
        growth: u64,
        /// Bytes that the collections may hold.
        max: u64,
    },
    /// `e3_init` returned this instead of 0.
    #[error("e3_init returned {code}, must be 0{}", said.as_ref().map(|s| format!(" ({s})")).unwrap_or_default())]
    Init {
        /// The code.
        code: i32,
        /// The last line that it logged.
        said: Option<String>,
    },
    /// `e3_abi_version` returned this instead of 1.
    #[error("built for version {0} of the service ABI, must be 1")]
    AbiVersion(i32),
    /// The request buffer lies outside of the memory.
    #[error(
        "request buffer of {capacity} bytes at {address}: outside of the memory of {memory} bytes"
    )]
    RequestBuffer {
        /// Address.
        address: u32,
        /// Size.
        capacity: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// The place for a request's head lies outside of the memory.
    #[error("request head at {address}: outside of the memory of {memory} bytes")]
    RequestHead {
        /// Address.
        address: u32,
        /// Size of the memory.
        memory: usize,
    },
    /// `e3_init` called an import that only a handler may call.
    #[error("import \"{0}\" was called outside of a request")]
    OutsideRequest(&'static str),
    /// A service without state set or cancelled a timer, or made an outbound request.
    #[error(
        "import \"{0}\" was called by a service without state: timers and outbound requests need `stateful: true`"
    )]
    Stateless(&'static str),
    /// A called handler had an effect beside its reply. What it was: a write, a message, a timer.
    #[error("called handler made {0}: in a call it may only read and reply")]
    CallEffect(&'static str),
    /// A called handler gave no reply.
    #[error("called handler gave no reply: the caller waits for one")]
    CallUnanswered,
    /// The collections refused the writes: something else changed them meanwhile.
    #[error("{0}")]
    State(#[from] ApplyError),
    /// The system has no memory, stack or address space for the instance.
    #[error("the system has no memory for an instance: {0}")]
    OutOfMemory(String),
}

impl From<CommitError> for HandlerError {
    fn from(error: CommitError) -> HandlerError {
        match error {
            CommitError::Full { used, growth, max } => HandlerError::Full { used, growth, max },
            CommitError::Apply(error) => HandlerError::State(error),
        }
    }
}

/// A span in the largest unit that gives a whole number.
fn seconds(span: Nanos) -> String {
    match span.0 / 1_000 {
        us if us.is_multiple_of(1_000_000) => format!("{} s", us / 1_000_000),
        us if us.is_multiple_of(1_000) => format!("{} ms", us / 1_000),
        us => format!("{us} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_told_as_manifests_write_it() {
        for (deadline, expected) in [
            (Nanos::from_secs(1), "handler exceeded its 1 s deadline"),
            (
                Nanos::from_millis(50),
                "handler exceeded its 50 ms deadline",
            ),
            (
                Nanos::from_micros(1_500),
                "handler exceeded its 1500 us deadline",
            ),
        ] {
            let ran = Nanos::from_secs(2);
            let error = HandlerError::DeadlineExceeded { ran, deadline };
            assert_eq!(error.to_string(), expected);
        }
    }
}
