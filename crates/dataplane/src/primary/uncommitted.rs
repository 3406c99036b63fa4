//! What a primary keeps of an entry until it is released.

use crate::asked::Asked;
use crate::links::Delivery;
use e3_model::{MessageId, Timestamp};
use e3_wire::entry::{Entry, Reply};
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
    /// Messages that are refused because of what the log has up to it.
    pub(super) refused: Vec<Refused>,
}

/// A message that is refused, and how.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(super) id: MessageId,
    pub(super) asked: Asked,
    pub(super) reply: Reply,
}
