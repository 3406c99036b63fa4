//! The status of replicas and applications, and their problems.

use crate::core::Core;
use crate::limits::{LATELY, PROBLEMS_MAX, REPORT_TIMEOUT};
use e3_control::AppState;
use e3_control::limits::PROGRESS_TIMEOUT;
use e3_model::api::{Health, InstanceStatus, InstanceView, Reason};
use e3_model::application::WhenAlone;
use e3_model::plan::{BackupReport, InstanceReport, NodeReport, Role, ShardPlan};
use e3_model::{AppId, Nanos, NodeId, ShardKey};

/// What is known of a replica beside the plan.
struct Known<'a> {
    key: ShardKey,
    node: NodeId,
    app: &'a AppState,
    shard: &'a ShardPlan,
    /// The report of its node.
    own: Option<&'a InstanceReport>,
    /// The report of the shard's primary in the current view.
    primary: Option<&'a InstanceReport>,
}

impl Core {
    /// The last report of the process that is a member now.
    pub(crate) fn report(&self, node: NodeId) -> Option<&NodeReport> {
        let member = self.control.members.get(&node)?;
        let (_, report) = self.reports.get(&node)?;
        (report.incarnation == member.incarnation).then_some(report)
    }

    pub(crate) fn instance_report(&self, key: ShardKey, node: NodeId) -> Option<&InstanceReport> {
        self.report(node)?.instances.iter().find(|i| i.key == key)
    }

    /// The age of a node's last report, if it is too old.
    fn report_overdue(&self, node: NodeId) -> Option<Nanos> {
        let (at, _) = self.reports.get(&node)?;
        let age = self.clock.now().since(*at);
        (age > REPORT_TIMEOUT).then_some(age)
    }

    /// The status of a replica, and why it is not `running`.
    pub(crate) fn status(
        &self,
        app: &AppState,
        shard: &ShardPlan,
        node: NodeId,
    ) -> (InstanceStatus, Option<Reason>) {
        let key = app.plan.key(shard);
        let primary = self.instance_report(key, shard.primary);
        let known = Known {
            key,
            node,
            app,
            shard,
            own: self.instance_report(key, node),
            primary: primary.filter(|r| r.view == shard.view && r.role == Role::Primary),
        };
        match self.not_running(&known) {
            None => (InstanceStatus::Running, None),
            Some((status, reason)) => (status, Some(reason)),
        }
    }

    fn not_running(&self, k: &Known<'_>) -> Option<(InstanceStatus, Reason)> {
        use InstanceStatus as S;
        let is_primary = k.shard.primary == k.node;
        let waits_for = self.control.waits_for(k.app, k.shard);
        if is_primary && !waits_for.is_empty() {
            let nodes = waits_for.iter().map(|n| self.node_name(*n)).collect();
            return Some((S::Waiting, Reason::CopiesSilent { nodes }));
        }
        if let Some(waiting) = self.control.waiting_of(k.key)
            && is_primary
            && waiting.role == Role::Primary
        {
            let why = self.control.why_it_waits(waiting);
            return Some((S::Waiting, Reason::NoRoom { why }));
        }
        if !self.is_heard(k.node) || (is_primary && k.app.is_orphan(k.shard)) {
            return Some((S::Lost, Reason::NodeDown));
        }
        if let Some(age) = self.report_overdue(k.node) {
            let for_ms = age.as_millis();
            return Some((S::Silent, Reason::ReportsEnded { for_ms }));
        }
        let Some(own) = k.own else {
            let reason = match self.report(k.node) {
                None => Reason::NoReport,
                Some(_) => Reason::PlanPending,
            };
            return Some((S::Starting, reason));
        };
        if own.view != k.shard.view {
            return Some((S::Starting, Reason::PlanPending));
        }
        if let Some(message) = own.error.clone() {
            return Some((S::Failed, Reason::Error { message }));
        }
        if is_primary && k.app.is_restoring(k.key) {
            return Some((S::Frozen, Reason::Restoring));
        }
        match k.shard.role(k.node) {
            Some(Role::Primary) => self.primary_not_running(k, own),
            role => self.backup_not_running(k, role == Some(Role::Joining)),
        }
    }

    fn primary_not_running(
        &self,
        k: &Known<'_>,
        own: &InstanceReport,
    ) -> Option<(InstanceStatus, Reason)> {
        use InstanceStatus as S;
        let names = |of: &dyn Fn(&&BackupReport) -> bool| -> Vec<String> {
            let required = own.backups.iter().filter(|b| b.required);
            required
                .filter(of)
                .map(|b| self.node_name(b.node))
                .collect()
        };
        let wanted = k.app.plan.code_version;
        if k.shard.frozen {
            let reason = match k.app.is_resharding(k.key) {
                true => Reason::ChangesShards,
                false => Reason::HandsOver,
            };
            return Some((S::Frozen, reason));
        }
        if !own.serving {
            let nodes = names(&|b| !b.leased);
            let service = k.app.plan.app.service(k.key.service);
            let alone = service.when_alone == WhenAlone::Refuse
                && service.replicas > 1
                && !own.backups.iter().any(|b| b.required);
            let reason = if own.clock_off {
                Reason::ClockOff
            } else if !nodes.is_empty() {
                Reason::NoLease { nodes }
            } else if alone {
                Reason::Alone
            } else {
                Reason::PredecessorLeased
            };
            return Some((S::Blocked, reason));
        }
        if own.stalled > Nanos::ZERO {
            let nodes = names(&|b| b.acked < own.op);
            let for_ms = own.stalled.as_millis();
            return Some((S::Stalled, Reason::NoCommit { nodes, for_ms }));
        }
        match own.code_version {
            0 => Some((S::Starting, Reason::NotStarted)),
            runs if runs != wanted => Some((S::Updating, Reason::OldVersion { runs, wanted })),
            _ => None,
        }
    }

    fn backup_not_running(&self, k: &Known<'_>, joining: bool) -> Option<(InstanceStatus, Reason)> {
        let status = if joining {
            InstanceStatus::Joining
        } else {
            InstanceStatus::Syncing
        };
        let Some(primary) = k.primary else {
            return Some((status, Reason::PrimarySilent));
        };
        let (acked, synced) = primary
            .backups
            .iter()
            .find(|b| b.node == k.node)
            .map_or((0, false), |b| (b.acked, b.synced));
        let op = primary.op;
        (joining || !synced).then_some((status, Reason::Incomplete { acked, op }))
    }

    /// What is wrong with a shard, in one line.
    pub(crate) fn shard_problem(
        &self,
        key: ShardKey,
        replicas: &[InstanceView],
        wanted: u16,
    ) -> Option<String> {
        let running = |r: &&InstanceView| r.status == InstanceStatus::Running;
        let running = replicas.iter().filter(running).count();
        if running >= usize::from(wanted) && replicas[0].status == InstanceStatus::Running {
            return None;
        }
        let state = |r: &InstanceView| {
            let reason = r.reason.as_ref()?;
            let why = self.why_silent(reason);
            Some(format!("{} on {}: {reason}{why}", r.status, r.node))
        };
        let mut states: Vec<String> = replicas.iter().filter_map(state).collect();
        let missing = usize::from(wanted).saturating_sub(replicas.len());
        if missing > 0 {
            let waiting = self.control.waiting_of(key);
            let why = waiting.filter(|w| w.role != Role::Primary);
            let why = why.map_or(String::new(), |w| {
                format!(": {}", self.control.why_it_waits(w))
            });
            states.push(format!("{missing} more find no node with room{why}"));
        }
        let (name, states) = (&replicas[0].instance, states.join("; "));
        Some(format!(
            "{name}: {running} of {wanted} replicas run ({states})"
        ))
    }

    /// Why silent nodes for which a shard waits cannot join.
    fn why_silent(&self, reason: &Reason) -> String {
        let Reason::CopiesSilent { nodes } = reason else {
            return String::new();
        };
        let refused = self.refused.iter();
        let refused = refused.filter(|(node, _)| nodes.contains(&self.node_name(**node)));
        refused.map(|(_, why)| format!("; {why}")).collect()
    }

    /// Says if requests of an application were dead-lettered lately.
    pub(crate) fn dead_letter_problem(&self, id: AppId) -> Option<String> {
        let (dead, expired) = self.counters.dead_lettered_lately(self.clock.now(), id);
        let name = &self.control.apps[&id].plan.app.name;
        let span = LATELY.as_secs_f64();
        let (were, of) = match dead {
            0 => return None,
            1 => ("request was", "of it"),
            _ => ("requests were", "of them"),
        };
        let expired = match expired {
            0 => String::new(),
            n => format!(", {n} {of} because the deadline had passed"),
        };
        Some(format!(
            "{name}: {dead} {were} dead-lettered in the last {span} s{expired}"
        ))
    }

    /// The problems that `/readyz` names.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(broken) = self.broken() {
            problems.push(broken);
        }
        if self.hearing.membership.is_deaf() {
            let text = "no node sends heartbeats: the controller may be cut off from them and makes no decisions";
            problems.push(text.into());
        }
        let nodes = self.node_views();
        for node in nodes.iter().filter(|n| !n.up) {
            let why = self.refused.get(&NodeId(node.id));
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            problems.push(format!("node {} is not up{why}", node.name));
        }
        for node in nodes.iter().filter(|n| !n.unreachable.is_empty()) {
            let peers = node.unreachable.join(", ");
            problems.push(format!("node {} cannot reach {peers}", node.name));
        }
        for app in self.app_views() {
            let more = app.problems.len().saturating_sub(PROBLEMS_MAX);
            problems.extend(app.problems.into_iter().take(PROBLEMS_MAX));
            if more > 0 {
                problems.push(format!("{}: {more} more problems", app.name));
            }
        }
        let (shards, channels) = self.progress.stuck(self.clock.now(), PROGRESS_TIMEOUT);
        let seconds = PROGRESS_TIMEOUT.as_secs_f64();
        for key in shards {
            let name = self.shard_name(key);
            problems.push(format!(
                "{name}: its new copy has made no progress for {seconds} s"
            ));
        }
        for channel in channels.into_iter().take(PROBLEMS_MAX) {
            problems.push(format!(
                "channel {channel} has made no progress for {seconds} s"
            ));
        }
        problems
    }
}

/// The health of an application.
pub(crate) fn health(ready: bool, dead_lettered_lately: u64) -> Health {
    match (ready, dead_lettered_lately) {
        (false, _) => Health::NotReady,
        (true, 0) => Health::Ready,
        (true, _) => Health::Degraded,
    }
}
