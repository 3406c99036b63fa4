//! A queue of messages, linked through the arena: a message is in one queue at most.

use crate::arena::{Arena, Message, NONE};

/// A queue of messages, linked through the arena.
#[derive(Clone, Copy)]
pub(crate) struct Fifo {
    first: u32,
    last: u32,
}

impl Default for Fifo {
    fn default() -> Fifo {
        Fifo {
            first: NONE,
            last: NONE,
        }
    }
}

impl Fifo {
    #[inline]
    pub fn push(&mut self, id: u32, messages: &mut Arena<Message>) {
        messages[id].next = NONE;
        match self.last {
            NONE => self.first = id,
            last => messages[last].next = id,
        }
        self.last = id;
    }

    #[inline]
    pub fn pop(&mut self, messages: &Arena<Message>) -> Option<u32> {
        let id = self.first;
        if id == NONE {
            return None;
        }
        self.first = messages[id].next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(id)
    }

    /// All of it, the first one first.
    pub fn iter<'a>(&self, messages: &'a Arena<Message>) -> impl Iterator<Item = u32> + use<'a> {
        std::iter::successors(self.first(), |id| {
            let next = messages[*id].next;
            (next != NONE).then_some(next)
        })
    }

    #[inline]
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }
}
