//! Decisions of the orchestrator become changes of the state. What it observes to decide is soft state
//! (`orchestrator`). Design: docs/design/022.

use crate::command::{Applied, CommandError};
use crate::orchestration::{Act, Decided, Displaced};
use crate::state::Control;
use e3_model::orchestrator::{OrchestratorMode, OrchestratorSettings};
use e3_model::{Format, Nanos, NodeId, ShardKey, Timestamp};
use e3_placement::{Misfit, Request, fits_firmly};

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
        // What the log has was accepted.
        if self.is_firm() && !self.choices.are_given() {
            self.check_power(key, from, to)?;
        }
        let applied = self.migrate(key, from, to, cold)?;
        self.orchestration.displaced.retain(|d| d.key != key);
        Ok(applied)
    }

    /// Whether a move exceeds what a server or rack may draw. Where that is exceeded already, a move within
    /// it may at least not add to it.
    fn check_power(&self, key: ShardKey, from: NodeId, to: NodeId) -> Result<(), CommandError> {
        let app = self.apps.get(&key.app);
        let found = app.and_then(|app| Some((app, app.shard(key)?.role(from)?)));
        // The move itself is refused.
        let Some((app, role)) = found else {
            return Ok(());
        };
        let request = Request::new(&app.plan.app, &app.profiles);
        let exceeded = self.try_resources(|cluster| {
            cluster.remove(&request, key.service, role, from);
            let power = |node| {
                let fits = fits_firmly(&request, cluster, key.service, role, node, &[]);
                fits.err()
                    .filter(|misfit| matches!(misfit, Misfit::Power { .. }))
            };
            let there = power(to)?;
            match (&there, power(from)) {
                (
                    Misfit::Power { what, need_w, .. },
                    Some(Misfit::Power {
                        what: here,
                        need_w: before_w,
                        ..
                    }),
                ) if *what == here && *need_w <= before_w => None,
                _ => Some(there),
            }
        });
        exceeded.map_or(Ok(()), |misfit| {
            Err(CommandError::Misfit {
                shard: self.shard_name(key),
                node: self.node_name(to),
                misfit,
            })
        })
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
