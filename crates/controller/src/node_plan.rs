//! The plans that nodes ask for: a node waits for a change, and is sent what of it concerns the node.
//! Design: docs/design/023, docs/design/027.

use crate::core::Core;
use crate::limits::{PLAN_QUIET, PLAN_WAIT_MAX};
use crate::shared::Shared;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use e3_control::{Interest, PlanAnswer, PlanRequest};
use e3_http::Refusal;
use e3_model::plan_change::{PLAN_SOURCE_HEADER, PLAN_VERSION_HEADER};
use e3_model::{AppId, NodeId};
use e3_wire::HEARTBEAT_KEY_HEADER;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

#[derive(Deserialize)]
pub(crate) struct PlanQuery {
    #[serde(default)]
    after: u64,
    incarnation: u32,
    #[serde(default)]
    wait_ms: u64,
    /// Who sent the node its plan. If it was this process, the node can be sent what has changed since.
    /// Nodes of older releases do not say.
    source: Option<u64>,
    /// The same of a node that asks for a whole plan.
    applied_source: Option<u64>,
    /// Number of the cluster that the process belongs to. Nodes of older releases do not say.
    cluster: Option<u64>,
    /// Ids of the applications that the node's plan has, with commas. Nodes of older releases do not
    /// say, and are sent all applications.
    has: Option<String>,
    /// Ids of those that it is asked for.
    #[serde(default)]
    wants: String,
}

pub(crate) async fn plan(
    State(shared): State<Shared>,
    Path(node): Path<u32>,
    Query(q): Query<PlanQuery>,
) -> Result<Response, Refusal> {
    let wait = Duration::from_millis(q.wait_ms);
    if wait > PLAN_WAIT_MAX {
        let wait_ms_max = PLAN_WAIT_MAX.as_millis();
        let error = format!("wait_ms is {}, must be at most {wait_ms_max}", q.wait_ms);
        return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
    }
    let interest = match &q.has {
        Some(has) => Some(Interest {
            has: app_ids("has", has)?.into_iter().collect(),
            wants: app_ids("wants", &q.wants)?,
        }),
        None => None,
    };
    let (number, source, key) = {
        let mut core = shared.core();
        core.note_plan_request(NodeId(node), &q)?;
        let (number, source) = core.begin_plan_request(NodeId(node));
        let keys = core.secret_key.heartbeat_keys();
        (number, source, keys.of(NodeId(node), q.incarnation))
    };
    let wants_whole = q.source.is_none() && q.applied_source.is_some();
    let asked = PlanRequest {
        node: NodeId(node),
        after: if wants_whole { 0 } else { q.after },
        is_known: q.source == Some(source),
        interest,
    };
    let mut response = next(&shared, &asked, number, q.incarnation, wait).await?;
    let key = HeaderValue::from_str(&key.to_hex()).expect("hexadecimal digits");
    response.headers_mut().insert(HEARTBEAT_KEY_HEADER, key);
    Ok(response)
}

/// Waits until the node's plan has changed, but not longer than this.
async fn next(
    shared: &Shared,
    asked: &PlanRequest,
    number: u64,
    incarnation: u32,
    wait: Duration,
) -> Result<Response, Refusal> {
    let until = Instant::now() + wait;
    let mut quiet_until = None;
    let mut version = shared.version.clone();
    loop {
        let seen = *version.borrow_and_update();
        let current = {
            let mut core = shared.core();
            core.check_current(asked.node, incarnation)?;
            if let Some(answer) = core.plan_answer(asked) {
                return Ok(answer);
            }
            if core.plan_requests.get(&asked.node) != Some(&number) {
                // The node has asked again since, with another interest.
                return Ok(StatusCode::NO_CONTENT.into_response());
            }
            core.control.version
        };
        let now = Instant::now();
        if current > asked.after {
            // The versions of a moment are one answer.
            let quiet = *quiet_until.get_or_insert(until.min(now + PLAN_QUIET));
            if now >= quiet {
                let version = [(PLAN_VERSION_HEADER, current.to_string())];
                return Ok((StatusCode::NO_CONTENT, version).into_response());
            }
        }
        if now >= until {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let newer = version.wait_for(|v| *v > seen);
        let _ = timeout_at(quiet_until.unwrap_or(until), newer).await;
    }
}

impl Core {
    /// Notes what a request shows, and refuses it if no present process of the node makes it.
    fn note_plan_request(&mut self, node: NodeId, q: &PlanQuery) -> Result<(), Refusal> {
        if q.cluster
            .is_some_and(|cluster| cluster != self.control.cluster)
        {
            let (name, incarnation) = (self.node_name(node), q.incarnation);
            let error =
                format!("incarnation {incarnation} of node {name} is a member of another cluster");
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        // First: if the log lacks the join of this process, the process must not be expelled.
        if let Some(version) = self.control.missing_version(q.after as u32) {
            self.on_missing(node, version);
        }
        let source = q.source.or(q.applied_source);
        if source.is_some_and(|source| source != self.plan_source) {
            self.on_sent_before(node, q.after);
        }
        let membership = &mut self.hearing.membership;
        membership.on_plan_request(node, q.incarnation, &self.control);
        self.check_current(node, q.incarnation)?;
        self.at_start.on_asked(node);
        Ok(())
    }

    /// Number of a node's request for its plan, and the number of this process.
    fn begin_plan_request(&mut self, node: NodeId) -> (u64, u64) {
        let number = self.plan_requests.entry(node).or_default();
        *number += 1;
        (*number, self.plan_source)
    }

    /// What a node is sent now; none if its plan is as it should be.
    fn plan_answer(&mut self, asked: &PlanRequest) -> Option<Response> {
        let source = [(PLAN_SOURCE_HEADER, self.plan_source.to_string())];
        Some(match self.answer_plan(asked)? {
            PlanAnswer::Change(change) => {
                (StatusCode::IM_USED, source, Json(change)).into_response()
            }
            PlanAnswer::Whole(plan) => (source, Json(plan)).into_response(),
        })
    }
}

/// Ids with commas between them. Those that no application can have are left out.
fn app_ids(field: &str, list: &str) -> Result<BTreeSet<AppId>, Refusal> {
    let ids = list.split(',').filter(|id| !id.is_empty());
    let parse = |id: &str| {
        let error =
            format!("{field} has {id:?}, must be ids of applications with commas between them");
        let refused = |_| Refusal::new(StatusCode::BAD_REQUEST, error);
        id.parse::<u32>().map_err(refused)
    };
    let ids: Vec<u32> = ids.map(parse).collect::<Result<_, _>>()?;
    let ids = ids.into_iter().filter_map(|id| u16::try_from(id).ok());
    Ok(ids.map(AppId).collect())
}
