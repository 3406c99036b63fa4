//! Backups: a consistent cut over all shards of an application, and applications that begin with one.
//!
//! The primaries send their states while they serve. When all have sent a snapshot, all stop; each fixes
//! its position; then all go on. If a shard changes its primary meanwhile, or the application its
//! version, the backup is cancelled. docs/design/017.

use crate::command::{Applied, CommandError};
use crate::cut::Backup;
use crate::state::{AppState, Control};
use e3_model::backup::{BackupOrder, Part};
use e3_model::plan::{Role, ShardPlan};
use e3_model::{AppId, ShardKey};
use std::collections::BTreeSet;

impl Control {
    /// Begins a backup of an application.
    pub(crate) fn backup(&mut self, id: AppId) -> Result<Applied, CommandError> {
        let app = self.apps.get(&id);
        let app = app.ok_or_else(|| CommandError::NoApp(id.to_string()))?;
        let name = || app.plan.app.name.clone();
        let busy = |what: String| Err(CommandError::Busy { app: name(), what });
        if app.is_backing_up() {
            return busy("a backup of it is being taken".into());
        }
        if let Some(restored) = app.plan.restored.as_ref().filter(|r| !r.parts.is_empty()) {
            return busy(format!(
                "{} of its shards are being restored",
                restored.parts.len()
            ));
        }
        if let Some(m) = app.migrations.first() {
            return busy(format!("{} is moving", self.shard_name(m.key)));
        }
        if let Some(r) = &app.resharding {
            let service = self.service_name(app, r.service);
            return busy(format!("the number of shards of {service} is changing"));
        }
        if let Some(shard) = app.stateful().find(|s| !self.is_served(app, s)) {
            let shard = self.shard_name(app.plan.key(shard));
            return busy(format!("the primary of {shard} sends no heartbeats"));
        }
        let number = self.next_migration();
        let app = self.apps.get_mut(&id).expect("just seen");
        let primaries = app.stateful();
        let primaries = primaries.map(|s| (s.service, s.shard, s.incarnation));
        let primaries: Vec<_> = primaries.collect();
        // Without state there is nothing to wait for.
        let outcome = primaries.is_empty().then_some(Ok(()));
        app.plan.backup = outcome.is_none().then_some(BackupOrder {
            number,
            is_freezing: false,
        });
        app.backup = Some(Backup {
            number,
            code_version: app.plan.code_version,
            primaries,
            copied: BTreeSet::new(),
            cut: Vec::new(),
            outcome,
        });
        Ok(Applied::BackingUp(number))
    }

    /// Gives up a backup.
    pub(crate) fn cancel_backup(&mut self, id: AppId, number: u64, why: &str) -> Applied {
        let app = self.apps.get_mut(&id);
        let app = app.filter(|app| app.plan.backup.is_some_and(|b| b.number == number));
        let Some(app) = app else {
            return Applied::Nothing;
        };
        app.end_backup(Err(why.into()));
        Applied::Changed
    }

    /// Cancels a backup whose shards are not where it found them, and stops shards again that have to
    /// wait for their state.
    pub(crate) fn settle_backup(&mut self, id: AppId) {
        let app = &self.apps[&id];
        if let Some(why) = self.broken_backup(app) {
            let app = self.apps.get_mut(&id).expect("just seen");
            return app.end_backup(Err(why));
        }
        if app.plan.restored.is_none() {
            return;
        }
        let orphans = app.orphans.clone();
        let app = self.apps.get_mut(&id).expect("just seen");
        let Some(restored) = &app.plan.restored else {
            return;
        };
        for shard in &mut app.plan.shards {
            let waits = restored.part(shard.service, shard.shard).is_some();
            if waits && !shard.frozen && !orphans.contains(&shard.id()) {
                shard.frozen = true;
                shard.view += 1;
            }
        }
    }

    fn broken_backup(&self, app: &AppState) -> Option<String> {
        let backup = app.backup.as_ref().filter(|b| b.outcome.is_none())?;
        if backup.code_version != app.plan.code_version {
            return Some("another version of the application was deployed meanwhile".into());
        }
        let mut shards = app.stateful();
        let is_same = |s: &ShardPlan| {
            let of = (s.service, s.shard, s.incarnation);
            backup.primaries.contains(&of) && self.is_served(app, s)
        };
        let moved = shards.find(|s| !is_same(s))?;
        let shard = self.shard_name(app.plan.key(moved));
        Some(format!("{shard} lost or changed its primary meanwhile"))
    }

    fn is_served(&self, app: &AppState, shard: &ShardPlan) -> bool {
        shard.role(shard.primary) == Some(Role::Primary)
            && !app.is_orphan(shard)
            && self.is_up(shard.primary)
    }
}

impl AppState {
    fn stateful(&self) -> impl Iterator<Item = &ShardPlan> {
        let shards = self.plan.shards.iter();
        shards.filter(|s| self.plan.app.service(s.service).stateful)
    }

    /// Whether a backup is being taken.
    pub fn is_backing_up(&self) -> bool {
        self.plan.backup.is_some()
    }

    /// Whether a shard does not have its state yet, which is that of a backup.
    pub fn is_restoring(&self, key: ShardKey) -> bool {
        self.plan.is_restoring(key)
    }

    fn end_backup(&mut self, outcome: Result<(), String>) {
        self.plan.backup = None;
        if let Some(backup) = &mut self.backup {
            backup.outcome = Some(outcome);
        }
    }

    /// A primary has sent a snapshot. When all have, all stop. True if that changed anything.
    pub(crate) fn on_copied(&mut self, key: ShardKey, incarnation: u32, number: u64) -> bool {
        let (Some(order), Some(backup)) = (&mut self.plan.backup, &mut self.backup) else {
            return false;
        };
        let is_news = order.number == number
            && backup.is_of(key, incarnation)
            && backup.copied.insert((key.service, key.shard));
        order.is_freezing |= is_news && backup.copied.len() == backup.shards();
        is_news
    }

    /// A primary that has stopped has fixed its position. When all have, all go on. True if that
    /// changed anything.
    pub(crate) fn on_cut(
        &mut self,
        key: ShardKey,
        incarnation: u32,
        number: u64,
        part: Part,
    ) -> bool {
        let (Some(order), Some(backup)) = (&self.plan.backup, &mut self.backup) else {
            return false;
        };
        let is_known = backup.cut.iter().any(|p| p.id() == part.id());
        let is_due = order.is_freezing && order.number == number;
        if !is_due || is_known || !backup.is_of(key, incarnation) {
            return false;
        }
        backup.cut.push(part);
        backup.cut.sort_by_key(Part::id);
        if backup.cut.len() == backup.shards() {
            self.end_backup(Ok(()));
        }
        true
    }

    /// A shard has its state from a backup, with all its copies. True if that changed anything.
    pub(crate) fn on_restored(&mut self, key: ShardKey, view: u32) -> bool {
        let is_waiting = self.is_restoring(key);
        let shard = self.shard_mut(key);
        let is_whole = |s: &&mut ShardPlan| s.view == view && s.frozen && s.joining.is_empty();
        let Some(shard) = shard.filter(|s| is_waiting && is_whole(s)) else {
            return false;
        };
        shard.view += 1;
        (shard.frozen, shard.filled) = (false, true);
        if let Some(restored) = &mut self.plan.restored {
            let id = (key.service, key.shard);
            restored.parts.retain(|part| part.id() != id);
        }
        true
    }
}
