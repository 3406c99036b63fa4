//! Decisions of the orchestrator become changes of the state. What it observes to decide is soft state
//! (`orchestrator`). Design: docs/design/022.

use crate::command::{Applied, CommandError};
use crate::orchestration::{Act, Decided, Displaced};
use crate::state::Control;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::{Format, Nanos, NodeId, ShardKey, Timestamp};

/// What older logs do not have.
const DECISIONS: &str = "settings and decisions of the orchestrator";

impl Control {
    /// Whether the orchestrator makes decisions.
    pub fn is_orchestrated(&self) -> bool {
        let mode = self.orchestration.settings.mode;
        self.format >= Format::ORCHESTRATED && mode != OrchestratorMode::Off
    }

    pub(crate) fn set_orchestrator(
        &mut self,
        settings: &OrchestratorSettings,
        at: Timestamp,
    ) -> Result<Applied, CommandError> {
        self.check_format(Format::ORCHESTRATED, DECISIONS)?;
        settings.validate()?;
        if self.orchestration.settings == *settings {
            return Ok(Applied::Nothing);
        }
        self.now = self.now.max(at);
        self.orchestration.settings = *settings;
        Ok(Applied::Changed)
    }

    /// Carries out a decision.
    pub(crate) fn orchestrate(&mut self, decided: &Decided) -> Result<Applied, CommandError> {
        self.check_format(Format::ORCHESTRATED, DECISIONS)?;
        let Decided {
            at, act, from, key, ..
        } = *decided;
        if let (Act::Split | Act::Merge, Some(key), Some(shards)) = (act, key, decided.shards) {
            let applied = self.reshard(key.app, key.service, shards)?;
            if applied != Applied::Nothing {
                self.now = self.now.max(at);
                let merged = act == Act::Merge;
                (self.orchestration).on_scale(key.app, key.service, merged, at);
            }
            return Ok(applied);
        }
        let moves = matches!(
            act,
            Act::Away | Act::Back | Act::Follow | Act::Shed | Act::Spread
        );
        let (Some(key), Some(to), true) = (key, decided.to, moves) else {
            self.now = self.now.max(at);
            return Ok(Applied::Changed);
        };
        let applied = self.migrate(key, from, to, false)?;
        self.now = self.now.max(at);
        self.forget_returned();
        let moved = Displaced {
            key,
            home: from,
            at,
            cpu_permille: decided.cpu_permille(),
            repeats: 0,
            shed: act == Act::Shed,
        };
        match act {
            Act::Away | Act::Shed => self.orchestration.on_away(moved),
            Act::Spread => self.orchestration.on_spread(moved),
            Act::Follow => {
                self.orchestration.displaced.retain(|d| d.key != key);
                self.orchestration.on_follow(key.app, decided.cause, at);
            }
            _ => self.orchestration.on_back(key, at),
        }
        Ok(applied)
    }

    /// Moves a replica as an operator wants it: the orchestrator does not bring it back.
    pub(crate) fn migrate_by_hand(
        &mut self,
        key: ShardKey,
        from: NodeId,
        to: NodeId,
        cold: bool,
    ) -> Result<Applied, CommandError> {
        let applied = self.migrate(key, from, to, cold)?;
        self.orchestration.displaced.retain(|d| d.key != key);
        Ok(applied)
    }

    /// Forgets instances that returned long ago, and those that are gone.
    fn forget_returned(&mut self) {
        let (now, apps) = (self.now, &self.apps);
        let kept = Nanos::from_secs(self.orchestration.settings.cooldown_s_max.into());
        self.orchestration.displaced.retain(|d| {
            let primary = apps.get(&d.key.app).and_then(|app| app.shard(d.key));
            primary.is_some_and(|s| s.primary != d.home || now.since(d.at) <= kept)
        });
    }
}
