//! Nodes that operators add, cordon and remove. Design: docs/design/024.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::power::check_idle;
use crate::refusal::{bad_json, no_node};
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use e3_control::{Applied, Command, CommandError};
use e3_http::Refusal;
use e3_model::NodeId;
use e3_model::api::*;
use e3_model::document::{check_systems, parse_topology};
use e3_placement::check_budgets;
use e3_power::PowerModel;

pub(crate) async fn add(
    State(s): State<Shared>,
    body: Result<Json<AddNodesRequest>, JsonRejection>,
) -> Result<Json<AddNodesResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().add_nodes(&request).map(Json)
}

pub(crate) async fn cordon(
    State(s): State<Shared>,
    body: Result<Json<NodeRequest>, JsonRejection>,
) -> Result<Json<CordonResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().cordon(request.node).map(Json)
}

pub(crate) async fn remove(
    State(s): State<Shared>,
    body: Result<Json<NodeRequest>, JsonRejection>,
) -> Result<Json<RemoveNodeResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().remove_node(request.node).map(Json)
}

impl Core {
    /// The node of that name.
    pub(crate) fn node_named(&self, name: &str) -> Result<NodeId, Refusal> {
        let topology = &self.control.topology;
        if let Some(node) = topology.node_named(name) {
            return Ok(node.id);
        }
        if self.control.removed.values().any(|n| n == name) {
            return Err(ExecuteError::Command(CommandError::Removed(name.into())).into());
        }
        Err(no_node(topology, name))
    }

    /// Everything about the new hardware is checked, alone and together with what is there, before
    /// anything is logged.
    fn add_nodes(&mut self, q: &AddNodesRequest) -> Result<AddNodesResponse, Refusal> {
        let unprocessable = |error: String| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error);
        let new = parse_topology(&q.file, &q.topology);
        let new = new.map_err(|e| unprocessable(e.to_string()))?;
        let power = PowerModel::paper();
        let known: Vec<&str> = power.systems().keys().map(String::as_str).collect();
        check_systems(&q.file, &q.topology, &new, &known)
            .map_err(|e| unprocessable(e.to_string()))?;
        let in_file = |e: CommandError| match e {
            CommandError::Hardware(e) => unprocessable(format!("{}: {e}", q.file)),
            e => ExecuteError::Command(e).into(),
        };
        let grown = self.control.grown(&new.spec.racks).map_err(in_file)?;
        check_budgets(&grown, &power).map_err(|e| {
            let hint = "raise powerBudgetW, or leave it out; the budget of a rack that exists cannot change";
            unprocessable(format!("{}: {e}", q.file)).hint(hint)
        })?;
        check_idle(&grown, &self.control.power_caps)?;
        let racks = new.spec.racks;
        let Applied::Added(ids) = self.execute(&Command::AddNodes { racks })? else {
            unreachable!("hardware is added or refused");
        };
        let nodes: Vec<String> = ids.iter().map(|id| self.node_name(*id)).collect();
        tracing::info!(nodes = nodes.join(", "), "operator added nodes");
        Ok(AddNodesResponse { nodes })
    }

    fn cordon(&mut self, name: String) -> Result<CordonResponse, Refusal> {
        let node = self.node_named(&name)?;
        let changed = self.execute(&Command::Cordon { node })? != Applied::Nothing;
        if changed {
            tracing::info!(node = name, "operator cordoned a node");
        }
        Ok(CordonResponse {
            drained: self.control.drained.contains(&node),
            node: name,
            changed,
        })
    }

    fn remove_node(&mut self, name: String) -> Result<RemoveNodeResponse, Refusal> {
        let node = self.node_named(&name)?;
        let check = self.control.check_remove(node);
        check.map_err(ExecuteError::Command)?;
        self.execute(&Command::RemoveNode { node })?;
        self.forget(node);
        self.counters.on_remove(node);
        tracing::info!(node = name, "operator removed a node");
        Ok(RemoveNodeResponse { node: name })
    }
}
