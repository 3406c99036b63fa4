//! Requests to the controller about events and the orchestrator.

use super::client::Client;
use crate::ui::failure::Failure;
use e3_model::api::{Event, OrchestratorRequest, OrchestratorView, PowerCapRequest, PowerView};

impl Client {
    /// `GET /v1/events`.
    pub fn events(&self, since: u64, wait_s: u64) -> Result<Vec<Event>, Failure> {
        self.get(&format!("/v1/events?since={since}&wait={wait_s}"))
    }

    /// `GET /v1/orchestrator`.
    pub fn orchestrator(&self) -> Result<OrchestratorView, Failure> {
        self.get("/v1/orchestrator")
    }

    /// `POST /v1/orchestrator`.
    pub fn set_orchestrator(
        &self,
        request: &OrchestratorRequest,
    ) -> Result<OrchestratorView, Failure> {
        let post = self.http.post(self.path("/v1/orchestrator"));
        self.answer(self.authorized(post).send_json(request))
    }

    /// `GET /v1/power`.
    pub fn power(&self) -> Result<Vec<PowerView>, Failure> {
        self.get("/v1/power")
    }

    /// `POST /v1/power`.
    pub fn cap_power(&self, request: &PowerCapRequest) -> Result<PowerView, Failure> {
        let post = self.http.post(self.path("/v1/power"));
        self.answer(self.authorized(post).send_json(request))
    }
}
