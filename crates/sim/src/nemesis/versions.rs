//! Versions of applications that are no good: the controller goes back by itself from one that does not
//! start, and from one whose attempts fail. What it has counted is lost when it restarts, so an operator goes
//! back where it cannot know.
//!
//! A version says what it is by the names of its modules.

use super::Run;
use super::probation::NOT_STARTING;
use crate::scenario::app_id;
use crate::service::FAILING;
use e3_control::limits::{START_FAILED_TIME, START_GRACE};
use e3_model::{AppId, Nanos};

/// How long after all is whole the controller has gone back from a version that does not start.
const BACK_WITHIN: Nanos = Nanos(START_FAILED_TIME.0 + START_GRACE.0 + 5_000_000_000);

impl Run<'_> {
    /// Deploys a version that does not start, or one whose handlers fail.
    pub(super) fn deploy_bad(&mut self, app: usize, starts: bool) {
        let module = if starts { FAILING } else { NOT_STARTING };
        let manifest = self.next_manifest(app);
        if let Some(manifest) = manifest {
            let (now, modules) = (self.cluster.now, vec![module; manifest.spec.services.len()]);
            self.controller.deploy_modules(now, manifest, &modules);
        }
    }

    /// Whether the version of an application does not start.
    pub(super) fn is_stuck(&self, app: AppId) -> bool {
        let app = self.controller.control.apps.get(&app);
        app.is_some_and(|app| app.plan.modules[0] == NOT_STARTING)
    }

    /// Replaces versions whose handlers fail where clients repeat what expires: they do so for as long as
    /// the attempts of a request take longer than its deadline allows.
    pub(super) fn replace_failing(&mut self) {
        for at in 0..self.scenario.apps.len() {
            let app = self.controller.control.apps.get(&app_id(at));
            let is_failing = app.is_some_and(|app| app.plan.modules[0] == FAILING);
            let mut clients = self.scenario.clients.iter();
            if is_failing && clients.any(|c| c.is_keyed && c.app == at) {
                self.update(at);
            }
        }
    }

    /// Checks that the controller went back from versions that do not start, and does what an operator
    /// does where it cannot know that a version is no good.
    pub(super) fn leave_bad_versions(&mut self) {
        if !self.scenario.has_bad_versions() {
            return;
        }
        self.wait(BACK_WITHIN);
        for at in 0..self.scenario.apps.len() {
            let Some(app) = self.controller.control.apps.get(&app_id(at)) else {
                continue;
            };
            let plan = &app.plan;
            if self.is_stuck(plan.id) && plan.proven.is_some() {
                self.cluster.ledger.violation(format!(
                    "application {at} is still in version {}, which does not start",
                    plan.code_version
                ));
            } else if !plan.modules[0].is_empty() {
                self.update(at);
            }
        }
        let apps = self.controller.control.apps.values();
        let by_itself = apps.flat_map(|app| &app.rollbacks);
        self.went_back = by_itself.filter(|r| r.why.is_some()).count() as u64;
        // What the version that failed had in hand has its end before the next requests come.
        self.wait(super::PROBE);
    }
}
