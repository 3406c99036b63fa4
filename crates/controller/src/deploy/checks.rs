//! What a deployment needs beside a place for its instances.

use super::{Sent, unprocessable};
use crate::core::Core;
use axum::http::StatusCode;
use e3_http::Refusal;
use e3_model::api::{DeployRequest, RestoreRequest};
use e3_model::backup::Restored;
use e3_model::dag::{Dag, DagError};
use e3_model::{Application, Format};

impl Core {
    /// Checks what depends on the state beside the placement; the state that the application begins with.
    pub(super) fn check(
        &self,
        sent: &Sent,
        q: &DeployRequest,
        dry_run: bool,
    ) -> Result<Option<Restored>, Refusal> {
        self.check_values(&sent.app)?;
        self.check_calls(&sent.app)?;
        let Some(restore) = &q.restore else {
            return Ok(None);
        };
        self.check_secrets(&sent.app, restore)?;
        self.restored(&sent.app, restore, dry_run).map(Some)
    }

    /// Whether the secrets that operators set have values.
    fn check_values(&self, app: &Application) -> Result<(), Refusal> {
        let mut set = app.spec.secrets.iter().filter(|s| !s.generate);
        let Some(secret) = set.find(|s| !self.has_secret(&app.name, &s.name)) else {
            return Ok(());
        };
        let error = format!("secret {:?} has no value", secret.name);
        let hint = self.how_to_set(&app.name, &secret.name, "set it");
        Err(unprocessable(error).hint(hint))
    }

    /// During an update handlers of both versions run. If the calls of both together formed a cycle, they
    /// could wait for each other.
    fn check_calls(&self, app: &Application) -> Result<(), Refusal> {
        let Some(running) = self.control.app_named(&app.name) else {
            return Ok(());
        };
        for release in self.control.apps[&running].plan.releases() {
            let mut both = app.clone();
            for service in &mut both.spec.services {
                if let Some((_, old)) = release.app.service_named(&service.name) {
                    service.calls.extend(old.calls.iter().cloned());
                }
            }
            if let Err(DagError::CallCycle(cycle)) = Dag::new(&both) {
                let error = format!(
                    "calls and channels of the new version and of version {}, which runs until the new one \
                     has started, form a cycle: {}",
                    release.code_version,
                    cycle.join(" -> ")
                );
                return Err(Refusal::new(StatusCode::CONFLICT, error)
                    .hint("deploy a version without one of these calls first"));
            }
        }
        Ok(())
    }

    /// What was encrypted under a generated secret cannot be read under another one, so a restored
    /// application gets a new one only if its owner says so.
    fn check_secrets(&self, app: &Application, q: &RestoreRequest) -> Result<(), Refusal> {
        let mut generated = app.spec.secrets.iter().filter(|s| s.generate);
        let missing = generated.find(|s| !self.has_secret(&app.name, &s.name));
        let Some(secret) = missing.filter(|_| !q.new_secrets) else {
            return Ok(());
        };
        let error = format!(
            "secret {:?}, which was generated, has no value here; a backup holds no secrets",
            secret.name
        );
        let hint = format!(
            "{}, or make another with --new-secrets: what was encrypted under it is lost then",
            self.how_to_set(
                &app.name,
                &secret.name,
                "set the one that the application had"
            )
        );
        Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error).hint(hint))
    }

    /// How a user gives a secret its value.
    fn how_to_set(&self, app: &str, name: &str, what: &str) -> String {
        if self.control.format >= Format::ACCESS {
            return format!("{what}: e3 secret set {app} {name} --file FILE");
        }
        let file = self.blobs.secret_file(app, name);
        format!("{what}: write it to {} (mode 0600)", file.display())
    }
}
