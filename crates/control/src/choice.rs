//! The nodes that a command chooses by a search: in fail-over, after a loss of copies, off drained nodes, and
//! back to nodes that returned.
//!
//! They are logged with the command ([`Command::With`](crate::Command::With)). A replay takes them from the
//! log, so the state that a log leads to does not depend on what the search becomes. What was logged before
//! [`Format::CHOICES`](e3_model::Format::CHOICES) is searched for again.

use e3_model::{NodeId, ShardKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a node is chosen for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// The primary of a shard of which no copy is left.
    Restart,
    /// A copy that a shard lacks.
    Copy,
    /// A replica that leaves a drained node.
    Drain,
    /// A replica that moves back to a node that returned.
    Return,
}

/// A node that was chosen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// For what.
    pub purpose: Purpose,
    /// The shard.
    pub key: ShardKey,
    /// The node that its replica leaves, if it leaves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeId>,
    /// The node.
    pub to: NodeId,
    /// How often the same question was asked before while the command was carried out.
    #[serde(default, skip_serializing_if = "is_first")]
    pub nth: u32,
}

fn is_first(nth: &u32) -> bool {
    *nth == 0
}

/// A question to which a node is the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Question {
    Restart(ShardKey),
    Copy(ShardKey),
    Drain(ShardKey, NodeId),
    /// Any replica that stands better on a node that returned.
    Return,
}

/// The choices of the command that is being carried out. Not part of the state.
#[derive(Default, Debug)]
pub(crate) struct Choices {
    /// Those that the log has, if it has any that are not made yet.
    given: Option<Vec<Choice>>,
    made: Vec<Choice>,
    asked: BTreeMap<Question, u32>,
}

impl Clone for Choices {
    fn clone(&self) -> Choices {
        Choices::default()
    }
}

impl PartialEq for Choices {
    fn eq(&self, _: &Choices) -> bool {
        true
    }
}

impl Choice {
    fn question(&self) -> Question {
        match (self.purpose, self.from) {
            (Purpose::Restart, _) => Question::Restart(self.key),
            (Purpose::Drain, Some(from)) => Question::Drain(self.key, from),
            (Purpose::Copy | Purpose::Drain, _) => Question::Copy(self.key),
            (Purpose::Return, _) => Question::Return,
        }
    }
}

impl Choices {
    /// Begins a command, with the choices of the log if it was logged with some.
    pub(crate) fn begin(&mut self, given: Option<&[Choice]>) {
        *self = Choices {
            given: given.map(<[Choice]>::to_vec),
            ..Choices::default()
        };
    }

    /// Whether the command is one of the log, with its choices.
    pub(crate) fn are_given(&self) -> bool {
        self.given.is_some()
    }

    /// Ends it: the choices that were made, and those of the log that nothing asked for.
    pub(crate) fn end(&mut self) -> (Vec<Choice>, usize) {
        let ended = std::mem::take(self);
        (ended.made, ended.given.map_or(0, |left| left.len()))
    }

    /// Asks a question: its number among the same questions, and what the log says, if the log has the
    /// choices: a choice, or none.
    pub(crate) fn ask(&mut self, question: Question) -> (u32, Option<Option<Choice>>) {
        let asked = self.asked.entry(question).or_default();
        let nth = *asked;
        *asked += 1;
        let is_it = |c: &Choice| c.nth == nth && c.question() == question;
        let given = self.given.as_mut().map(|given| {
            let at = given.iter().position(is_it)?;
            Some(given.remove(at))
        });
        (nth, given)
    }

    pub(crate) fn note(&mut self, question: Question, nth: u32, (key, from, to): Chosen) {
        let purpose = match question {
            Question::Restart(_) => Purpose::Restart,
            Question::Copy(_) => Purpose::Copy,
            Question::Drain(..) => Purpose::Drain,
            Question::Return => Purpose::Return,
        };
        self.made.push(Choice {
            purpose,
            key,
            from,
            to,
            nth,
        });
    }
}

/// The shard, the node that its replica leaves, and the node that it goes to.
pub(crate) type Chosen = (ShardKey, Option<NodeId>, NodeId);
