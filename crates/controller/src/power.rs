//! What servers and racks draw, and their power caps. Design: docs/design/022.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::refusal::bad_json;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use e3_control::{Command, CommandError, MeterReading};
use e3_http::Refusal;
use e3_model::api::{PowerCapRequest, PowerView};
use e3_model::profile::Provenance;
use e3_model::{NodeId, PowerCaps, Topology};
use e3_placement::check_caps;
use e3_power::PowerModel;

pub(crate) async fn list(State(s): State<Shared>) -> Json<Vec<PowerView>> {
    let core = s.core();
    Json(
        core.hearing
            .orchestrator
            .power(core.clock.now(), &core.control),
    )
}

pub(crate) async fn cap(
    State(s): State<Shared>,
    body: Result<Json<PowerCapRequest>, JsonRejection>,
) -> Result<Json<PowerView>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().cap_power(request).map(Json)
}

/// Refuses caps that not even the idle cluster keeps.
pub(crate) fn check_idle(topology: &Topology, caps: &PowerCaps) -> Result<(), Refusal> {
    check_caps(topology, &PowerModel::paper(), caps).map_err(|e| {
        let hint = "e3 power shows the idle power of servers and racks";
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, e.to_string()).hint(hint)
    })
}

impl Core {
    fn cap_power(&mut self, request: PowerCapRequest) -> Result<PowerView, Refusal> {
        let PowerCapRequest { domain, cap_w } = request;
        let mut alone = PowerCaps::default();
        alone.set(&domain, cap_w);
        check_idle(&self.control.topology, &alone)?;
        self.execute(&Command::SetPowerCap {
            domain: domain.clone(),
            cap_w,
        })?;
        let cap = cap_w.map_or("none".into(), |w| format!("{w} W"));
        tracing::info!(domain = domain.to_string(), cap, "operator set a power cap");
        let now = self.clock.now();
        let view = self
            .hearing
            .orchestrator
            .power_of(now, &self.control, &domain);
        view.ok_or_else(|| {
            let known = Vec::new();
            ExecuteError::Command(CommandError::NoPowerDomain { domain, known }).into()
        })
    }

    /// What the meter of a node shows, if it measures the node's own hardware.
    pub(crate) fn meter(&self, node: NodeId) -> Option<MeterReading> {
        let view = self.counters.metering.node_view(node, true)?;
        let is_own = view.provenance == Provenance::Measured && view.error.is_none();
        is_own.then_some(MeterReading {
            watts: view.watts,
            scope: view.scope,
        })
    }
}
