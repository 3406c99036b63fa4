//! What the plan says of a backup, and what becomes of it at the primary.

use super::Primary;
use crate::export::Export;
use crate::shard::{Effect, Shard, Turn};
use e3_model::backup::BackupOrder;
use e3_model::plan::NodeEvent;
use e3_wire::entry::Entry;

impl Primary {
    /// Begins, goes on with or drops the shard's part of a backup, as the plan says.
    pub(crate) fn follow_backup(&mut self, turn: &mut Turn<'_>, order: Option<BackupOrder>) {
        let number = order.map(|order| order.number);
        if self.export.as_ref().map(|e| e.number) != number {
            let begin =
                |number| Export::begin(number, &turn.shard.log, turn.cx.format, turn.effects);
            self.export = number.map(begin);
        }
        if self.export.is_some() {
            // In the next tick, when all completions are in: see `Streams`.
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
        self.hold(turn, order);
    }

    /// Stands still for a backup that says so, or for what else the shard waits.
    fn hold(&mut self, turn: &mut Turn<'_>, order: Option<BackupOrder>) {
        let export = self.export.as_mut();
        let export = export.filter(|_| order.is_some_and(|order| order.is_freezing));
        let holds = export.is_some_and(|e| e.may_hold(turn.cx.now, turn.effects));
        self.frozen = self.hands_over || holds;
    }

    /// Bytes up to this one have left the node.
    pub(crate) fn on_exported(&mut self, turn: &mut Turn<'_>, number: u64, len: u64) {
        if let Some(export) = self.export.as_mut().filter(|e| e.number == number) {
            export.on_sent(len);
            turn.effects.push(Effect::WakeAt(turn.cx.now));
        }
    }

    /// Adds an entry that was appended, with its writes.
    pub(crate) fn export_entry(&mut self, effects: &mut Vec<Effect>, entry: &Entry) {
        if let Some(export) = &mut self.export {
            export.add(effects, entry);
        }
    }

    /// Makes more of the snapshot. When that is whole and the primary stands still, fixes the position.
    pub(crate) fn pump_export(&mut self, turn: &mut Turn<'_>) {
        // One that stands still for a move may go on before the others stop.
        let order = turn.cx.app.plan.backup;
        self.hold(turn, order);
        let is_told = order.is_some_and(|order| order.is_freezing);
        let stands_still = is_told && self.writes_nothing(&turn.shard.log);
        if let Some(export) = &mut self.export {
            export.pump(turn, stands_still);
        }
    }

    /// What the controller must hear of it.
    pub(crate) fn export_event(&self, shard: &Shard, order: &BackupOrder) -> Option<NodeEvent> {
        let export = self.export.as_ref();
        export.filter(|e| e.number == order.number)?.event(shard)
    }
}
