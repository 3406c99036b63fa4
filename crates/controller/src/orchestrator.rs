//! Drives the orchestrator: heartbeats and reports go in, its decisions are executed. And the handlers
//! of its settings.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::refusal::bad_json;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use e3_control::{Command, Displaced, InstanceLoad};
use e3_http::Refusal;
use e3_model::api::{
    DisplacedView, OrchestratorMode, OrchestratorRequest, OrchestratorSettings, OrchestratorView,
};
use e3_model::plan::{NodeReport, Role, ShardCounts};
use e3_model::{Format, ShardKey, Timestamp};
use std::collections::BTreeMap;

pub(crate) async fn view(State(s): State<Shared>) -> Json<OrchestratorView> {
    Json(s.core().orchestrator_view())
}

pub(crate) async fn set(
    State(s): State<Shared>,
    body: Result<Json<OrchestratorRequest>, JsonRejection>,
) -> Result<Json<OrchestratorView>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().set_orchestrator(&request).map(Json)
}

/// Settings with some of them changed.
fn changed(
    settings: OrchestratorSettings,
    request: &OrchestratorRequest,
) -> Result<OrchestratorSettings, String> {
    let mut fields = serde_json::to_value(settings).map_err(|e| e.to_string())?;
    for (name, value) in &request.numbers {
        let known = settings.numbers().map(|(name, _, _)| name);
        if !known.contains(&name.as_str()) {
            let known = known.join(", ");
            return Err(format!(
                "orchestrator: there is no setting {name:?}; there are {known}"
            ));
        }
        fields[name] = (*value).into();
    }
    let changed: OrchestratorSettings =
        serde_json::from_value(fields).map_err(|e| e.to_string())?;
    let mode = request.mode.unwrap_or(settings.mode);
    let changed = OrchestratorSettings { mode, ..changed };
    changed.validate().map_err(|e| e.to_string())?;
    Ok(changed)
}

impl Core {
    fn set_orchestrator(
        &mut self,
        request: &OrchestratorRequest,
    ) -> Result<OrchestratorView, Refusal> {
        let settings = changed(self.control.orchestration.settings, request);
        let settings = settings.map_err(|e| Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, e))?;
        let at = self.clock.now();
        self.execute(&Command::SetOrchestrator { settings, at })?;
        let mode = settings.mode.name();
        tracing::info!(mode, "operator set the orchestrator");
        Ok(self.orchestrator_view())
    }

    /// What it does with its decisions. It makes none in a cluster that writes an older format.
    pub(crate) fn orchestrator_mode(&self) -> OrchestratorMode {
        if self.control.format >= Format::ORCHESTRATED {
            self.control.orchestration.settings.mode
        } else {
            OrchestratorMode::Off
        }
    }

    fn orchestrator_view(&self) -> OrchestratorView {
        let control = &self.control;
        let mut decisions = BTreeMap::new();
        for event in control.events.since(0).filter(|e| e.kind.is_decision()) {
            *decisions.entry(event.kind).or_default() += 1;
        }
        let moves = control.apps.values().map(|app| app.migrations.len());
        let displaced = control.orchestration.displaced().iter();
        OrchestratorView {
            settings: control.orchestration.settings,
            active: control.is_orchestrated(),
            moves_in_flight: moves.sum::<usize>() as u32,
            displaced: displaced.filter_map(|d| self.displaced_view(d)).collect(),
            decisions,
        }
    }

    /// An instance that is away from its SmartNIC.
    fn displaced_view(&self, moved: &Displaced) -> Option<DisplacedView> {
        let shard = self.control.apps.get(&moved.key.app)?.shard(moved.key)?;
        let unix_ms = |at: Timestamp| at.since(Timestamp::ZERO).as_millis();
        (shard.primary != moved.home).then(|| DisplacedView {
            instance: self.shard_name(moved.key),
            home: self.node_name(moved.home),
            node: self.node_name(shard.primary),
            at_unix_ms: unix_ms(moved.at),
            rests_until_unix_ms: unix_ms(self.control.orchestration.rests_until(moved)),
        })
    }

    /// Takes the loads of a node's instances from a report.
    pub(crate) fn on_instance_loads(&mut self, now: Timestamp, report: &NodeReport) {
        let primaries = report.instances.iter().filter(|i| i.role == Role::Primary);
        let states: BTreeMap<ShardKey, u64> = primaries.map(|i| (i.key, i.memory_bytes)).collect();
        let load = |c: &ShardCounts| InstanceLoad {
            key: c.key,
            handled: c.handled.saturating_add(c.calls),
            busy: c.busy,
            state_bytes: states.get(&c.key).copied().unwrap_or(0),
        };
        let stats = &report.stats;
        let datagrams = stats.datagrams_in.saturating_add(stats.datagrams_out);
        let (node, incarnation) = (report.node, report.incarnation);
        let loads = report.counts.iter().map(load);
        let meter = self.meter(node);
        let orchestrator = &mut self.hearing.orchestrator;
        orchestrator.on_report(now, node, incarnation, datagrams, loads);
        orchestrator.on_meter(now, node, meter);
        let ingress = stats.ingress.iter();
        let asked = ingress.map(|(app, c)| (*app, c.admitted.saturating_add(c.overloaded)));
        orchestrator.on_ingress(now, node, incarnation, asked);
    }

    /// Executes what the orchestrator decides.
    pub(crate) fn orchestrate(&mut self, now: Timestamp) {
        if self.is_broken() {
            return;
        }
        self.note_waiting_requests();
        let commands = self.hearing.orchestrator.decide(now, &self.control);
        let executed = match self.execute_each(&commands) {
            Ok(executed) => executed,
            Err(e) => {
                self.complain(format!("decisions of the orchestrator are not stored: {e}"));
                return;
            }
        };
        for (command, executed) in commands.iter().zip(executed) {
            let Command::Orchestrate(decided) = command else {
                continue;
            };
            let node = self.node_name(decided.from);
            let to = decided.to.map(|to| self.node_name(to));
            match executed {
                Ok(_) => tracing::warn!(
                    decision = decided.kind().name(),
                    instance = decided.key.map(|key| self.shard_name(key)),
                    node,
                    to,
                    "{}",
                    decided.why
                ),
                // The instance has changed since the last report, or a decision before this one did it.
                Err(ExecuteError::Command(e)) => {
                    tracing::info!(node, "a decision of the orchestrator does not hold: {e}");
                }
                Err(e) => self.complain(format!(
                    "a decision of the orchestrator about node {node} is not stored: {e}"
                )),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_are_not_named_stay() {
        let settings = OrchestratorSettings {
            overload_reports: 9,
            ..OrchestratorSettings::default()
        };
        let request = OrchestratorRequest {
            mode: Some(OrchestratorMode::DryRun),
            numbers: BTreeMap::from([("movesMax".to_string(), 3)]),
        };
        let next = changed(settings, &request).unwrap();
        assert_eq!((next.mode, next.moves_max), (OrchestratorMode::DryRun, 3));
        assert_eq!(next.overload_reports, 9);
        let unknown = OrchestratorRequest {
            numbers: BTreeMap::from([("mode".to_string(), 3)]),
            ..OrchestratorRequest::default()
        };
        let refused = changed(settings, &unknown).unwrap_err();
        assert!(refused.starts_with("orchestrator: there is no setting \"mode\"; there are"));
    }
}
