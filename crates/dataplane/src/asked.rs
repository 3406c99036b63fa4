//! Who waits for the answer to a request.

use e3_model::{NodeId, Timestamp};
use e3_wire::entry::Entry;
use e3_wire::message::Message;

/// Who waits for an answer, and what is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Asked {
    pub(crate) attempt: u16,
    pub(crate) deadline: Timestamp,
    pub(crate) reply_to: NodeId,
    pub(crate) reply_to_incarnation: u32,
    /// See [`Message::is_branch`].
    pub(crate) is_branch: bool,
}

impl Asked {
    pub(crate) fn by_entry(e: &Entry) -> Asked {
        Asked {
            attempt: e.attempt,
            deadline: e.deadline,
            reply_to: e.reply_to,
            reply_to_incarnation: e.reply_to_incarnation,
            is_branch: e.is_branch,
        }
    }

    pub(crate) fn by_message(m: &Message) -> Asked {
        Asked {
            attempt: m.attempt,
            deadline: m.deadline,
            reply_to: m.reply_to,
            reply_to_incarnation: m.reply_to_incarnation,
            is_branch: m.is_branch,
        }
    }

    /// Whether both are answered at the same ingress.
    pub(crate) fn is_at(&self, other: &Asked) -> bool {
        (self.reply_to, self.reply_to_incarnation) == (other.reply_to, other.reply_to_incarnation)
    }
}
