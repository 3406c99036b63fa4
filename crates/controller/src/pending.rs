//! What is pending at the shards of an application: timers, outbound requests, publications. Only their
//! primaries know, so the controller asks for it in its answers to their nodes' reports, and waits for
//! the next ones.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::limits::{PENDING_CHECK_INTERVAL, PENDING_WAIT_MAX};
use crate::shared::Shared;
use axum::Json;
use axum::extract::{Path, Query, State};
use e3_control::CommandError;
use e3_http::Refusal;
use e3_model::api::{PendingAsked, PendingView};
use e3_model::pending::{PendingReport, ShardPending};
use e3_model::plan::ShardPlan;
use e3_model::{AppId, NodeId, ShardKey};
use serde::Deserialize;
use std::collections::BTreeMap;
use tokio::time::Instant;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    service: Option<String>,
}

/// Questions of owners that wait for an answer.
#[derive(Default)]
pub(crate) struct Questions {
    last: u64,
    /// By number: the shards that have not answered.
    open: BTreeMap<u64, BTreeMap<ShardKey, Option<ShardPending>>>,
}

/// Ends a question when its request is over, also if the owner has gone.
struct Asking {
    shared: Shared,
    number: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.shared.core().questions.open.remove(&self.number);
    }
}

pub(crate) async fn timers(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(Of { service }): Query<Of>,
) -> Result<Json<Vec<PendingView>>, Refusal> {
    let (number, id) = shared.core().ask_pending(&name, service.as_deref())?;
    let asking = Asking {
        shared: shared.clone(),
        number,
    };
    let until = Instant::now() + PENDING_WAIT_MAX;
    while Instant::now() < until && shared.core().questions.is_open(number) {
        tokio::time::sleep(PENDING_CHECK_INTERVAL).await;
    }
    let views = shared.core().pending_views(number, id);
    drop(asking);
    Ok(Json(
        views.ok_or(CommandError::NoApp(name)).map_err(refused)?,
    ))
}

impl Questions {
    fn is_open(&self, number: u64) -> bool {
        let shards = self.open.get(&number);
        shards.is_some_and(|shards| shards.values().any(Option::is_none))
    }

    /// What is asked of these shards.
    fn asked(&self, is_here: impl Fn(&ShardKey) -> bool) -> Option<PendingAsked> {
        let open = self.open.values().flatten();
        let open = open.filter(|(key, known)| known.is_none() && is_here(key));
        let mut shards: Vec<ShardKey> = open.map(|(key, _)| *key).collect();
        shards.sort_unstable();
        shards.dedup();
        (!shards.is_empty()).then_some(PendingAsked {
            number: self.last,
            shards,
        })
    }
}

impl Core {
    fn ask_pending(&mut self, name: &str, service: Option<&str>) -> Result<(u64, AppId), Refusal> {
        let id = self.control.app_named(name);
        let id = id.ok_or_else(|| refused(CommandError::NoApp(name.into())))?;
        let plan = &self.control.apps[&id].plan;
        let only = match service {
            None => None,
            Some(service) => {
                let found = plan.app.service_named(service).map(|(id, _)| id);
                let services = plan.app.spec.services.iter();
                let none = || CommandError::NoService {
                    app: name.into(),
                    service: service.into(),
                    known: services.map(|s| s.name.clone()).collect(),
                };
                Some(found.ok_or_else(none).map_err(refused)?)
            }
        };
        let is_asked = |s: &&ShardPlan| {
            let is_wanted = only.is_none_or(|only| only == s.service);
            plan.app.service(s.service).stateful && is_wanted
        };
        let shards = plan.shards.iter().filter(is_asked);
        let shards = shards.map(|s| (plan.key(s), None)).collect();
        self.questions.last += 1;
        let number = self.questions.last;
        self.questions.open.insert(number, shards);
        Ok((number, id))
    }

    /// What the primaries on a node are asked.
    pub(crate) fn pending_asked(&self, node: NodeId) -> Option<PendingAsked> {
        let is_here = |key: &ShardKey| self.primary(*key).is_some_and(|s| s.primary == node);
        self.questions.asked(is_here)
    }

    fn primary(&self, key: ShardKey) -> Option<&ShardPlan> {
        self.control.apps.get(&key.app)?.shard(key)
    }

    /// Takes the answers of a node. An answer counts for questions that were asked before it was, and
    /// only of the primary that the plan has.
    pub(crate) fn on_pending(&mut self, node: NodeId, report: PendingReport) {
        let control = &self.control;
        for shard in report.shards {
            let app = control.apps.get(&shard.key.app);
            let plan = app.and_then(|app| app.shard(shard.key));
            if !plan.is_some_and(|s| s.primary == node && s.view == shard.view) {
                continue;
            }
            for (_, shards) in self.questions.open.range_mut(..=report.number) {
                if let Some(known @ None) = shards.get_mut(&shard.key) {
                    *known = Some(shard.clone());
                }
            }
        }
    }

    fn pending_views(&self, number: u64, id: AppId) -> Option<Vec<PendingView>> {
        let shards = self.questions.open.get(&number)?;
        self.control.apps.get(&id)?;
        let view = |(key, known): (&ShardKey, &Option<ShardPending>)| {
            let primary = self.primary(*key).map(|s| s.primary);
            let node = primary.map_or_else(String::new, |node| self.node_name(node));
            let (seconds, pending) = (PENDING_WAIT_MAX.as_secs(), known.as_ref());
            let listed = pending.map_or(0, |p| p.first.len() as u64);
            PendingView {
                instance: self.shard_name(*key),
                count: pending.map(|p| p.count),
                left_out: pending.map_or(0, |p| p.count.saturating_sub(listed)),
                pending: pending.map_or_else(Vec::new, |p| p.first.clone()),
                error: pending.is_none().then(|| {
                    format!("its primary on node {node} did not answer within {seconds} s, or may not serve")
                }),
                node,
            }
        };
        Some(shards.iter().map(view).collect())
    }
}

fn refused(error: CommandError) -> Refusal {
    ExecuteError::Command(error).into()
}
