//! What a primary keeps of an entry until it is released.

use crate::asked::Asked;
use crate::links::Delivery;
use e3_model::{MessageId, Timestamp};
use e3_wire::entry::{Entry, Reply};
use std::collections::VecDeque;
use std::rc::Rc;

/// An entry that has not been released: not all backups have it, or an emulated core is not done.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) entry: Rc<Entry>,
    /// Copies of its message: durable with it.
    pub(super) deliveries: Vec<Delivery>,
    /// An emulated core is done with it then; its outputs and reply leave no earlier.
    pub(super) release_at: Timestamp,
    /// Who else asks for its answer.
    pub(super) retries: Vec<Asked>,
}

/// Messages that are refused because of what the log has, until that is durable. There are rarely any.
#[derive(Debug, Default)]
pub(super) struct Refusals(VecDeque<Refused>);

/// A message that is refused, and how.
#[derive(Debug)]
pub(super) struct Refused {
    /// The last entry that the log had.
    pub(super) op: u64,
    pub(super) id: MessageId,
    pub(super) asked: Asked,
    pub(super) delivery: Option<Delivery>,
    pub(super) reply: Reply,
}

impl Refusals {
    /// Later ones have no earlier entries.
    pub(super) fn push(&mut self, refused: Refused) {
        self.0.push_back(refused);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How a message is refused, if its refusal has not left: no copy of it may be handled.
    pub(super) fn reply(&self, id: &MessageId) -> Option<&Reply> {
        let refused = self.0.iter().find(|refused| refused.id == *id);
        refused.map(|refused| &refused.reply)
    }

    /// Takes the first one if all that it rests on is committed.
    pub(super) fn take_committed(&mut self, commit: u64) -> Option<Refused> {
        self.0.pop_front_if(|refused| refused.op <= commit)
    }
}
