//! The handlers for nodes: joining, silence and reports.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::limits::{HEARD_CHECK_INTERVAL, HEARD_WAIT, WATCH_INTERVAL};
use crate::refusal::{bad_json, no_node};
use crate::shared::Shared;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use e3_control::limits::{PROGRESS_TIMEOUT, RESHARD_TIMEOUT, START_SILENCE};
use e3_control::{Applied, Command, Member, Migration};
use e3_http::Refusal;
use e3_model::api::{ExitedRequest, ExitedResponse, NodeView, ReportResponse};
use e3_model::plan::{NodeEvent, NodeHello, NodeReport, NodeWelcome, pid_of};
use e3_model::{NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;
use std::time::Instant;

pub(crate) async fn node(
    State(s): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<NodeView>, Refusal> {
    let core = s.core();
    let mut views = core.node_views();
    match views.iter().position(|n| n.name == name) {
        Some(at) => Ok(Json(views.swap_remove(at))),
        None => Err(no_node(&core.control.topology, &name)),
    }
}

pub(crate) async fn hello(
    State(shared): State<Shared>,
    Json(hello): Json<NodeHello>,
) -> Result<Json<NodeWelcome>, Refusal> {
    shared.core().note_hello(&hello);
    until_heard(&shared).await?;
    let mut core = shared.core();
    let joined = core.join(&hello);
    if let Some(node) = core.control.topology.node_named(&hello.name).map(|n| n.id) {
        match &joined {
            Ok(_) => core.refused.remove(&node),
            Err(e) => core.refused.insert(node, e.to_string()),
        };
    }
    Ok(Json(joined?))
}

/// Whoever started a node's process has seen its end.
pub(crate) async fn exited(
    State(shared): State<Shared>,
    body: Result<Json<ExitedRequest>, JsonRejection>,
) -> Result<Json<ExitedResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    let Some((node, incarnation)) = shared.core().ended(&request)? else {
        return Ok(Json(ExitedResponse { incarnation: None }));
    };
    until_heard(&shared).await?;
    let mut core = shared.core();
    let at = core.clock.now();
    let exit = Command::Exit {
        node,
        incarnation,
        at,
    };
    if core.execute(&exit)? != Applied::Nothing {
        tracing::warn!(node = request.node, incarnation, "node process ended");
        core.forget(node);
    }
    let incarnation = Some(incarnation);
    Ok(Json(ExitedResponse { incarnation }))
}

impl Core {
    /// Makes a process a member.
    fn join(&mut self, hello: &NodeHello) -> Result<NodeWelcome, ExecuteError> {
        let now = self.clock.now();
        let named = self.control.topology.node_named(&hello.name);
        let member = named.and_then(|n| self.control.members.get(&n.id));
        let before = member.map(|m| m.incarnation);
        if let Some(end) = self.control.end_before_refusal(hello, now) {
            self.execute(&end)?;
        }
        // A log that lacks decisions says nothing of disks.
        if !self.is_broken() {
            self.control.check_disk(hello)?;
        }
        let join = Command::Join {
            hello: self.control.without_doubtful_copies(hello.clone()),
            at: now,
        };
        match self.execute(&join)? {
            Applied::Joined(welcome) => {
                let (node, incarnation) = (welcome.node, welcome.incarnation);
                self.hearing.membership.on_joined(now, node, incarnation);
                self.at_start.on_asked(node);
                if before != Some(incarnation) {
                    self.forget(node);
                    self.counters.on_join(now, node, incarnation);
                    tracing::info!(node = hello.name, incarnation, "node joined");
                }
                Ok(welcome)
            }
            other => unreachable!("a node joins or is refused, not {other:?}"),
        }
    }

    /// Notes what a hello shows: that the process of a member has ended, or that the log lacks decisions.
    fn note_hello(&mut self, hello: &NodeHello) {
        self.hearing.membership.on_hello(hello, &self.control);
        let later = self.control.later_copy(hello);
        if let Some(later) = later.or_else(|| self.at_start.later_copy(hello)) {
            self.on_later_copy(&hello.name, later);
        }
    }

    /// The member whose process has ended: the node and the process's incarnation.
    fn ended(&self, request: &ExitedRequest) -> Result<Option<(NodeId, u32)>, Refusal> {
        let named = self.control.topology.node_named(&request.node);
        let Some(node) = named.map(|n| n.id) else {
            return Err(no_node(&self.control.topology, &request.node));
        };
        let member = self.control.members.get(&node);
        let is_meant = |m: &&Member| pid_of(m.process) == request.pid;
        Ok(member.filter(is_meant).map(|m| (node, m.incarnation)))
    }

    /// Refuses processes that are not the node's present one.
    pub(crate) fn check_current(&self, node: NodeId, incarnation: u32) -> Result<(), Refusal> {
        let member = self.control.members.get(&node);
        // A silent process stays a member until another one takes its place.
        if member.is_some_and(|m| m.incarnation == incarnation) {
            return Ok(());
        }
        let name = self.node_name(node);
        // A process that is expelled loses what it holds. A log that may lack the process's own join
        // does not justify that.
        if self.is_broken() || !self.has_heard_nodes() {
            let error = format!(
                "it is not known yet whether incarnation {incarnation} of node {name} is a member; try again"
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
        let error = format!("incarnation {incarnation} of node {name} is not a member; say hello");
        Err(Refusal::new(StatusCode::CONFLICT, error))
    }

    fn on_report(&mut self, report: NodeReport) {
        let now = self.clock.now();
        self.progress.on_report(now, &report, &self.control);
        self.counters.on_report(now, &report, &self.control);
        self.on_instance_loads(now, &report);
        self.on_reach(now, &report);
        // Late positions are not taken: their shards may have gone on.
        self.look_at_backups(now);
        let events = report.events.iter().map(|e| Command::Event(*e));
        let events: Vec<Command> = events.collect();
        match self.execute_all(&events) {
            Ok(applied) => {
                let events = applied.iter().zip(&report.events);
                for (_, event) in events.filter(|(a, _)| **a != Applied::Nothing) {
                    self.log_event(event);
                }
            }
            Err(e) => {
                let name = self.node_name(report.node);
                self.complain(format!("agent events of node {name} are not stored: {e}"));
            }
        }
        self.look_at_backups(now);
        self.progress.look(now, &self.control);
        self.reports.insert(report.node, (now, report));
        self.confirm_versions();
    }

    /// Confirms the versions of applications that have started at every primary.
    fn confirm_versions(&mut self) {
        let starting = self.control.apps.iter().filter(|(_, a)| !a.has_started);
        let version = |key, node| Some(self.instance_report(key, node)?.code_version);
        let started = starting.filter(|(_, a)| a.runs_everywhere(version));
        let started = started.map(|(id, a)| Command::Started {
            app: *id,
            code_version: a.plan.code_version,
        });
        let started: Vec<Command> = started.collect();
        if let Err(e) = self.execute_all(&started) {
            self.complain(format!("that a version started is not stored: {e}"));
        }
    }

    /// Takes which peers a node reaches, if that has changed.
    fn on_reach(&mut self, now: Timestamp, report: &NodeReport) {
        let unreachable = report.unreachable.iter().copied().collect();
        let member = self.control.members.get(&report.node);
        if member.is_none_or(|m| m.unreachable == unreachable) {
            return;
        }
        let name = self.node_name(report.node);
        let peers: Vec<String> = report
            .unreachable
            .iter()
            .map(|n| self.node_name(*n))
            .collect();
        let reach = Command::Reach {
            node: report.node,
            incarnation: report.incarnation,
            unreachable,
            at: now,
        };
        match self.execute(&reach) {
            Ok(_) => {
                tracing::warn!(
                    node = name,
                    unreachable = peers.join(", "),
                    "reachability changed"
                );
            }
            Err(e) => self.complain(format!("what node {name} reaches is not stored: {e}")),
        }
    }

    /// Declares lost who is silent.
    pub(crate) fn look(&mut self, now: Timestamp) {
        self.receipts.on_turn(now);
        let nodes = self.hearing.membership.lost(now, &self.control);
        if !self.has_heard_nodes() {
            return;
        }
        self.lose(now, &nodes, "nodes are silent");
        self.import_secrets();
        self.progress.look(now, &self.control);
        self.cancel_stalled_migrations(now);
        self.cancel_stalled_resharding(now);
        self.look_at_backups(now);
        if now.since(self.watched_at) >= WATCH_INTERVAL {
            self.watched_at = now;
            self.watch_receipts(now);
            self.watch_versions(now);
        }
        self.orchestrate(now);
    }

    /// Counts processes as silent.
    fn lose(&mut self, now: Timestamp, nodes: &BTreeMap<NodeId, u32>, why: &str) {
        if nodes.is_empty() {
            return;
        }
        let names: Vec<String> = nodes.keys().map(|n| self.node_name(*n)).collect();
        let names = names.join(", ");
        let lose = Command::Lose {
            nodes: nodes.clone(),
            at: now,
        };
        match self.execute(&lose) {
            Ok(_) => {
                tracing::warn!(nodes = names, "{why}");
                for node in nodes.keys() {
                    self.forget(*node);
                }
            }
            Err(e) => self.complain(format!("the silence of {names} is not stored: {e}")),
        }
    }

    /// Counts nodes as silent that do not receive the plan, where others can take their place.
    fn watch_receipts(&mut self, now: Timestamp) {
        if self.is_broken() {
            return;
        }
        let taken = |node: NodeId, key: ShardKey| {
            let report = self.reports.get(&node);
            let instances = report.map_or(&[][..], |(_, report)| &report.instances);
            let instance = instances.iter().find(|i| i.key == key);
            instance.map_or(0, |i| i.view)
        };
        let membership = &self.hearing.membership;
        let nodes = self.receipts.overdue(now, &self.control, membership, taken);
        self.lose(
            now,
            &nodes,
            "heartbeats arrive, but plans do not reach the nodes",
        );
        let version = self.control.version;
        for (node, incarnation) in nodes.into_iter().filter(|(n, _)| !self.control.is_up(*n)) {
            self.receipts.withhold(node, incarnation, version);
        }
    }

    /// Cancels moves that make no progress, because a frozen shard serves no requests.
    fn cancel_stalled_migrations(&mut self, now: Timestamp) {
        let (stuck, _) = self.progress.stuck(now, PROGRESS_TIMEOUT);
        for key in stuck {
            let moves = |m: &Migration| m.key == key && m.is_frozen();
            let app = self.control.apps.get(&key.app);
            if !app.is_some_and(|a| a.migrations.iter().any(moves)) {
                continue;
            }
            let name = self.shard_name(key);
            match self.execute(&Command::Cancel { key }) {
                Ok(_) => {
                    let stalled_s = PROGRESS_TIMEOUT.as_secs();
                    tracing::warn!(shard = name, stalled_s, "migration stalled, cancelled");
                }
                Err(e) => self.complain(format!(
                    "the stalled migration of {name} cannot be cancelled: {e}"
                )),
            }
        }
    }

    /// Cancels changes of the number of shards for which a shard does not stop.
    fn cancel_stalled_resharding(&mut self, now: Timestamp) {
        let (stuck, _) = self.progress.stuck(now, RESHARD_TIMEOUT);
        for key in stuck {
            let app = self.control.apps.get(&key.app);
            if !app.is_some_and(|app| app.is_resharding(key)) {
                continue;
            }
            let name = self.shard_name(key);
            match self.execute(&Command::Cancel { key }) {
                Ok(_) => {
                    let stalled_s = RESHARD_TIMEOUT.as_secs();
                    tracing::warn!(
                        shard = name,
                        stalled_s,
                        "shard does not stop, change of the number of shards cancelled"
                    );
                }
                Err(e) => self.complain(format!(
                    "the stalled change of the number of shards of {name} cannot be cancelled: {e}"
                )),
            }
        }
    }

    fn log_event(&self, event: &NodeEvent) {
        match event {
            NodeEvent::Synced { key, backup, .. } => {
                let (shard, node) = (self.shard_name(*key), self.node_name(*backup));
                tracing::info!(shard, node, "backup has a complete copy");
            }
            NodeEvent::Frozen { key, .. } => {
                tracing::info!(
                    shard = self.shard_name(*key),
                    "primary stopped for cut-over"
                );
            }
            NodeEvent::Ahead { key, backup, .. } => {
                let (shard, node) = (self.shard_name(*key), self.node_name(*backup));
                tracing::warn!(
                    shard,
                    node,
                    "the primary's disk lacks entries that its backup has; the backup takes over"
                );
            }
            NodeEvent::Installed { key, view } => {
                let shard = self.shard_name(*key);
                tracing::info!(shard, view, "primary confirms that copies leave");
            }
            NodeEvent::Copied { key, number, .. } => {
                let shard = self.shard_name(*key);
                tracing::info!(shard, number, "state copied for a backup");
            }
            NodeEvent::Cut {
                key, number, op, ..
            } => {
                let shard = self.shard_name(*key);
                tracing::info!(shard, number, op, "position in a backup is fixed");
            }
            NodeEvent::Restored { key, .. } => {
                tracing::info!(
                    shard = self.shard_name(*key),
                    "state restored from a backup"
                );
            }
            NodeEvent::Filled { key, .. } => {
                tracing::info!(shard = self.shard_name(*key), "first entry committed");
            }
        }
    }

    pub(crate) fn complain(&mut self, text: String) {
        if self.complaint.as_ref() != Some(&text) {
            tracing::warn!("{text}");
            self.complaint = Some(text);
        }
    }
}

pub(crate) async fn report(
    State(shared): State<Shared>,
    Path(node): Path<u32>,
    Json(mut report): Json<NodeReport>,
) -> Result<Json<ReportResponse>, Refusal> {
    let mut core = shared.core();
    if report.node != NodeId(node) {
        let (of, as_node) = (core.node_name(report.node), core.node_name(NodeId(node)));
        let error = format!("report of {of} sent as {as_node}");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
    }
    core.check_current(report.node, report.incarnation)?;
    let pending = report.pending.take();
    core.on_report(report);
    if let Some(pending) = pending {
        core.on_pending(NodeId(node), pending);
    }
    Ok(Json(ReportResponse {
        plan_version: core.control.version,
        pending: core.pending_asked(NodeId(node)),
    }))
}

/// After a start, requests that change something wait until the members are heard.
pub(crate) async fn wait_for_nodes(
    State(shared): State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    if !request.method().is_safe()
        && let Err(refusal) = until_heard(&shared).await
    {
        return refusal.into_response();
    }
    next.run(request).await
}

/// Waits for a heartbeat of every member, which shows whether the log lacks plans that the member has
/// applied. Silent members are waited for as long as they may be silent after a start. If none is
/// heard, nothing can be changed yet.
async fn until_heard(shared: &Shared) -> Result<(), Refusal> {
    let deadline = Instant::now() + HEARD_WAIT;
    while !shared.core().has_heard_nodes() {
        if Instant::now() > deadline {
            let error = format!(
                "no node has been heard since the controller started, so its log may lack decisions that \
                 nodes know of; start a node, or try again {START_SILENCE} after the controller's start"
            );
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error));
        }
        tokio::time::sleep(HEARD_CHECK_INTERVAL).await;
    }
    Ok(())
}
