//! Commands with the nodes that they choose: see `choice.rs`.

use crate::choice::{Choice, Chosen, Question};
use crate::command::{Applied, Command, CommandError};
use crate::state::Control;
use crate::waiting::Waiting;
use e3_model::plan::Role;
use e3_model::{Format, NodeId, ShardKey};

impl Control {
    /// Applies a command of the log, which chooses the nodes that it chose when it was logged.
    pub fn replay(&mut self, command: &Command) -> Result<Applied, CommandError> {
        match command {
            Command::With { choices, command } => self.apply_with(choices, command),
            // It chose none.
            _ if self.format >= Format::CHOICES => self.apply_with(&[], command),
            _ => self.apply(command),
        }
    }

    /// As [`Control::apply`]; also gives the nodes that it chose, so that they are logged with the command.
    pub fn apply_choosing(
        &mut self,
        command: &Command,
    ) -> Result<(Applied, Vec<Choice>), CommandError> {
        assert!(!matches!(command, Command::With { .. }), "it has chosen");
        self.choices.begin(None);
        let applied = self.apply_here(command);
        let (made, _) = self.choices.end();
        Ok((applied?, made))
    }

    /// A command as it is logged. It must be asked before the command is applied which format that is.
    pub fn logged(format: Format, command: Command, choices: Vec<Choice>) -> Command {
        if choices.is_empty() || format < Format::CHOICES {
            return command;
        }
        let command = Box::new(command);
        Command::With { choices, command }
    }

    /// Applies a command with the nodes that it chose before.
    pub(crate) fn apply_with(
        &mut self,
        choices: &[Choice],
        command: &Command,
    ) -> Result<Applied, CommandError> {
        let before = (!choices.is_empty()).then(|| self.clone());
        self.choices.begin(Some(choices));
        let applied = self.apply_here(command);
        let left = self.choices.end().1;
        match before.filter(|_| left > 0) {
            None => applied,
            Some(before) => {
                *self = before;
                let of = choices.len();
                Err(CommandError::Choices { left, of })
            }
        }
    }

    /// The node that a command of the log chose, or else that the search finds.
    pub(crate) fn choose(
        &mut self,
        question: Question,
        search: impl FnOnce(&Control) -> Option<Chosen>,
    ) -> Option<Chosen> {
        let (nth, given) = self.choices.ask(question);
        if let Some(given) = given {
            return given.map(|c| (c.key, c.from, c.to));
        }
        let chosen = search(self)?;
        self.choices.note(question, nth, chosen);
        Some(chosen)
    }

    /// The same for a copy of a shard; an error says why it waits. The log does not say that, so a replay
    /// asks the search.
    pub(crate) fn choose_copy(
        &mut self,
        key: ShardKey,
        role: Role,
        search: impl FnOnce(&Control) -> Result<NodeId, Waiting>,
    ) -> Result<NodeId, Waiting> {
        let question = if role == Role::Primary {
            Question::Restart(key)
        } else {
            Question::Copy(key)
        };
        let (nth, given) = self.choices.ask(question);
        match given {
            Some(Some(choice)) => Ok(choice.to),
            Some(None) => Err(search(self).err().unwrap_or(Waiting {
                key,
                role,
                closest: None,
            })),
            None => {
                let node = search(self)?;
                self.choices.note(question, nth, (key, None, node));
                Ok(node)
            }
        }
    }
}
