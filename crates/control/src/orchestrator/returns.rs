//! The way back: an instance that was moved away returns when its load has fallen and its SmartNIC can
//! hold it with a margin.

use super::moving::Moving;
use super::round::Round;
use super::watch::NodeWatch;
use super::{Budget, Orchestrator};
use crate::limits::RETURN_LOAD_PERCENT_MAX;
use crate::orchestration::{Act, CPU_PERMILLE, Decided, Displaced};
use crate::state::Control;
use e3_model::orchestrator::Cause;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, Timestamp};
use e3_placement::fits_fully;
use std::collections::BTreeMap;

impl Orchestrator {
    /// Instances whose SmartNIC can hold them again.
    pub(super) fn decide_returns(
        &mut self,
        now: Timestamp,
        control: &Control,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Vec<Decided> {
        let mut due = Vec::new();
        self.note_peaks(now, control);
        for moved in control.orchestration.displaced.iter().filter(|d| !d.shed) {
            if budget.left == 0 {
                break;
            }
            let home = self.nodes.get(moved.home.index());
            let rests_until = control.orchestration.rests_until(moved);
            if now < rests_until || home.is_none_or(|h| now < h.rests_until) {
                continue;
            }
            if let Some(decided) = self.decide_return(now, control, moved, budget, round) {
                budget.left = budget.left.saturating_sub(1);
                // Returns do not follow each other before the load of the last one shows.
                let settings = self.settings;
                self.nodes[moved.home.index()].rest(now, decided.act, &settings);
                due.push(decided);
            }
        }
        due
    }

    fn note_peaks(&mut self, now: Timestamp, control: &Control) {
        let before = std::mem::take(&mut self.peaks);
        for moved in &control.orchestration.displaced {
            let known = before.get(&moved.key).filter(|(at, _)| *at == moved.at);
            let peak = known.map_or(moved.cpu_permille, |(_, peak)| *peak);
            let used = self.displaced(now, control, moved);
            let used = used.map_or(0, |(moving, _)| self.cpu_permille_at_home(&moving, moved));
            self.peaks.insert(moved.key, (moved.at, peak.max(used)));
        }
    }

    /// An instance that is away from its SmartNIC, and where it is.
    fn displaced<'a>(
        &self,
        now: Timestamp,
        control: &'a Control,
        moved: &Displaced,
    ) -> Option<(Moving<'a>, NodeId)> {
        let at = control.apps.get(&moved.key.app)?.shard(moved.key)?.primary;
        let reports = self.reports.get(at.index())?;
        if at == moved.home || !reports.is_known(now) {
            return None;
        }
        let load = reports.of(moved.key)?;
        let moving = Moving::new(control, moved.key, at, load.cpu_permille)?;
        Some((moving, at))
    }

    fn cpu_permille_at_home(&self, moving: &Moving<'_>, moved: &Displaced) -> u64 {
        let kind = |n: NodeId| {
            self.nodes
                .get(n.index())
                .map_or(NodeKind::Host, NodeWatch::kind)
        };
        moving.cpu_permille_on(kind(moving.shard.primary), kind(moved.home))
    }

    fn decide_return(
        &self,
        now: Timestamp,
        control: &Control,
        moved: &Displaced,
        budget: &mut Budget,
        round: &mut Round<'_>,
    ) -> Option<Decided> {
        let home = &self.nodes[moved.home.index()];
        let is_calm = home.is_known(now) && home.starved == 0 && !home.is_queued;
        if !is_calm || home.is_full(&self.settings) {
            return None;
        }
        let (moving, from) = self.displaced(now, control, moved)?;
        let cpu_permille = self.cpu_permille_at_home(&moving, moved);
        let (_, peak_permille) = self.peaks[&moved.key];
        let has_fallen = cpu_permille.saturating_mul(100)
            <= peak_permille.saturating_mul(RETURN_LOAD_PERCENT_MAX);
        let percent = u64::from(self.settings.return_busy_percent);
        let servers = self.servers(&[from, moved.home]);
        if !has_fallen || !home.holds(cpu_permille, percent) || !budget.allows(&servers) {
            return None;
        }
        let (service, backups) = (moved.key.service, &moving.shard.backups);
        let fits = round.with(|cluster| {
            let request = &moving.request;
            fits_fully(
                request,
                cluster,
                service,
                Role::Primary,
                moved.home,
                backups,
            )
        });
        fits.ok()?;
        round.move_primary(&moving, from, moved.home);
        budget.note(servers);
        let busy = u64::from(home.load.busy_permille);
        let (now_cores, peak_cores) = (cpu_permille as f64 / 1e3, peak_permille as f64 / 1e3);
        let mut decided = Decided {
            at: now,
            cause: Cause::LoadFell,
            act: self.act(Act::Back),
            key: Some(moved.key),
            from,
            to: Some(moved.home),
            shards: None,
            why: format!(
                "load fell: it would use {now_cores:.2} cores there, {peak_cores:.2} at most since it left"
            ),
            figures: BTreeMap::new(),
        };
        decided.note(CPU_PERMILLE, cpu_permille);
        decided.note("cpuPermillePeak", peak_permille);
        decided.note("busyPermille", busy);
        Some(decided)
    }
}
