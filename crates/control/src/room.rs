//! Which copies wait for room: see `waiting.rs`.

use crate::command::Command;
use crate::state::Control;
use crate::waiting::Waiting;
use e3_model::plan::Role;
use e3_model::{Format, NodeId, ShardKey};
use e3_placement::{Decision, PlaceError};

impl Control {
    /// The node of a decision, or why the copy waits.
    pub(crate) fn firmly(
        &self,
        key: ShardKey,
        role: Role,
        found: Result<Decision, PlaceError>,
    ) -> Result<NodeId, Waiting> {
        let Ok(decision) = found else {
            let closest = None;
            return Err(Waiting { key, role, closest });
        };
        match decision.overcommitted.filter(|_| self.is_firm()) {
            Some(misfit) if misfit.is_firm() => Err(Waiting {
                key,
                role,
                closest: Some((decision.node, misfit)),
            }),
            _ => Ok(decision.node),
        }
    }

    /// Whether no copy goes where memory, disk or power lacks.
    pub(crate) fn is_firm(&self) -> bool {
        self.format >= Format::FIRM_RESOURCES
    }

    /// Takes up which shards wait after all that may have something to do were looked at.
    pub(crate) fn set_waiting(&mut self, waiting: Vec<Waiting>) {
        if self.is_firm() {
            self.waiting = waiting;
        }
    }

    /// Places what waits after a command that gave something back, and did not settle what it changed.
    pub(crate) fn settle_waiting(&mut self, command: &Command) {
        let gives_back = matches!(
            command,
            Command::Delete { .. }
                | Command::SetPowerCap { .. }
                | Command::Migrate { .. }
                | Command::Orchestrate(_)
        );
        // Shards come together before a merge a few at a time, as far as there is room.
        let gathers = self.format >= Format::WAITS_END
            && self.apps.values().any(|app| app.resharding.is_some());
        if gives_back && (!self.waiting.is_empty() || gathers) {
            self.settle_all();
        }
    }

    /// The copies that wait for room, in the order of applications and shards, at most one of each shard.
    pub fn waiting_for_room(&self) -> &[Waiting] {
        &self.waiting
    }

    /// The copy of a shard that waits for room.
    pub fn waiting_of(&self, key: ShardKey) -> Option<&Waiting> {
        let at = self.waiting.binary_search_by_key(&key, |w| w.key).ok()?;
        Some(&self.waiting[at])
    }

    /// Why a copy waits, in one line: which resource, how much of it is missing, and where least is.
    pub fn why_it_waits(&self, waiting: &Waiting) -> String {
        let what = match waiting.role {
            Role::Primary => "its primary",
            Role::Backup | Role::Joining => "a backup",
        };
        let why = match &waiting.closest {
            None => "no other node may hold it".to_string(),
            Some((node, misfit)) => {
                let missing = misfit.missing();
                let missing = missing.map_or(String::new(), |m| format!(" ({m} missing)"));
                let node = self.node_name(*node);
                format!("no node has room; {node} comes closest: {misfit}{missing}")
            }
        };
        format!("{what} waits: {why}")
    }
}
