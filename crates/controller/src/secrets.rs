//! Secrets: set by users, generated at deployments, read by the nodes that run a service that may.
//! The log and its snapshots hold them encrypted. Before format 8 they are files in the clear, which
//! are moved into the log when the cluster has that format. Design: docs/design/020.

use crate::core::Core;
use crate::limits::SECRET_LEN;
use crate::seal::{hex, random};
use crate::shared::Shared;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use e3_control::limits::{SECRET_LEN_MAX, SECRETS_MAX};
use e3_control::{Command, CommandError, SecretState};
use e3_http::Refusal;
use e3_model::api::{DeleteSecretResponse, SecretValue, SecretView};
use e3_model::{Application, Format, NodeId, Sealed, Timestamp, check_name};
use serde::Deserialize;
use std::io;

impl Core {
    /// Whether a secret has a value.
    pub(crate) fn has_secret(&self, app: &str, name: &str) -> bool {
        self.control.secret(app, name).is_some() || self.blobs.secret(app, name).is_some()
    }

    /// The commands that generate the missing secrets of an application.
    pub(crate) fn generate_secrets(&self, app: &Application) -> io::Result<Vec<Command>> {
        let generated = app.spec.secrets.iter().filter(|s| s.generate);
        let missing = generated.filter(|s| !self.has_secret(&app.name, &s.name));
        let value = || random::<SECRET_LEN>();
        missing
            .map(|s| self.set_command(&app.name, &s.name, &value()?))
            .collect()
    }

    fn set_command(&self, app: &str, name: &str, value: &[u8]) -> io::Result<Command> {
        Ok(Command::SetSecret {
            app: app.into(),
            name: name.into(),
            value: self.secret_key.seal(app, name, value)?,
            at: self.clock.now(),
        })
    }

    /// Moves secrets from files in the clear into the log, once the cluster's format has them there.
    pub(crate) fn import_secrets(&mut self) {
        if !self.secret_files || self.control.format < Format::ACCESS || self.is_broken() {
            return;
        }
        self.secret_files = false;
        for (app, name) in self.blobs.secret_names() {
            if let Err(e) = self.import_secret(&app, &name) {
                self.complain(format!(
                    "secret {name:?} of application {app:?} stays in its file: {e}"
                ));
                // There may be room on the disk later.
                self.secret_files = true;
            }
        }
    }

    /// Why secrets in files cannot move into the log when the cluster has this format.
    pub(crate) fn not_importable(&self, to: Format) -> Option<String> {
        if self.control.format >= Format::ACCESS || to < Format::ACCESS {
            return None;
        }
        let names = self.blobs.secret_names();
        if names.len() > SECRETS_MAX {
            let count = names.len();
            return Some(format!(
                "there are {count} secrets, must be at most {SECRETS_MAX}"
            ));
        }
        names.into_iter().find_map(|(app, name)| {
            let len = self.blobs.secret(&app, &name)?.len();
            (len > SECRET_LEN_MAX).then(|| {
                format!(
                    "secret {name:?} of application {app:?} has {len} bytes, must be at most {SECRET_LEN_MAX}"
                )
            })
        })
    }

    fn import_secret(&mut self, app: &str, name: &str) -> Result<(), String> {
        let Some(value) = self.blobs.secret(app, name) else {
            return Ok(());
        };
        if value.len() > SECRET_LEN_MAX {
            let len = value.len();
            return Err(format!(
                "it has {len} bytes, must be at most {SECRET_LEN_MAX}"
            ));
        }
        if let Some(secret) = self.control.secret(app, name) {
            let known = self.secret_key.open(app, name, &secret.value);
            if known.map_err(|e| e.to_string())? != value {
                return Err("it has another value already; remove the file".into());
            }
        } else {
            let set = self.set_command(app, name, &value);
            let set = set.map_err(|e| e.to_string())?;
            self.execute(&set).map_err(|e| e.to_string())?;
        }
        let removed = self.blobs.remove_secret(app, name);
        removed.map_err(|e| e.to_string())?;
        tracing::info!(
            app,
            name,
            "secret moved from its file into the log, encrypted"
        );
        Ok(())
    }

    fn secret_view(&self, app: &str, name: &str, secret: &SecretState) -> SecretView {
        let running = self.control.app_named(app);
        let running = running.map(|id| &self.control.apps[&id].plan.app);
        let services = running.into_iter().flat_map(|a| &a.spec.services);
        let readers = services.filter(|s| s.secrets.iter().any(|n| n == name));
        SecretView {
            app: app.into(),
            name: name.into(),
            version: secret.version,
            set_unix_ms: secret.set.since(Timestamp::ZERO).as_millis(),
            has_previous: secret.previous.is_some(),
            services: readers.map(|s| s.name.clone()).collect(),
        }
    }

    fn known_secret(&self, app: &str, name: &str) -> Result<&SecretState, Refusal> {
        let (app, name) = (app.to_string(), name.to_string());
        let found = self.control.secret(&app, &name);
        found.ok_or_else(|| no_secret(app, name))
    }
}

fn no_secret(app: String, name: String) -> Refusal {
    let error = CommandError::NoSecret { app, name };
    Refusal::new(StatusCode::NOT_FOUND, error.to_string())
}

fn check_names(app: &str, secret: &str) -> Result<(), Refusal> {
    for (what, name) in [("application", app), ("secret", secret)] {
        if let Err(why) = check_name(name) {
            let error = format!("name of the {what}: {why}");
            return Err(Refusal::new(StatusCode::NOT_FOUND, error));
        }
    }
    Ok(())
}

pub(crate) async fn list(
    State(s): State<Shared>,
    Path(app): Path<String>,
) -> Result<Json<Vec<SecretView>>, Refusal> {
    let core = s.core();
    let secrets = core.control.secrets.get(&app).into_iter().flatten();
    let views = secrets.map(|(name, secret)| core.secret_view(&app, name, secret));
    let views: Vec<SecretView> = views.collect();
    if views.is_empty() && core.control.app_named(&app).is_none() {
        let error = format!("there is no application {app:?} and no secret for it");
        return Err(Refusal::new(StatusCode::NOT_FOUND, error));
    }
    Ok(Json(views))
}

pub(crate) async fn set(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
    value: Bytes,
) -> Result<Json<SecretView>, Refusal> {
    check_names(&app, &name)?;
    if value.is_empty() || value.len() > SECRET_LEN_MAX {
        let len = value.len();
        let error = format!(
            "secret {name:?} of application {app:?} has {len} bytes, must be 1..={SECRET_LEN_MAX}"
        );
        return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error));
    }
    let mut core = s.core();
    core.import_secrets();
    // A repeat must not take the place of the value before.
    if let Ok(secret) = core.known_secret(&app, &name) {
        let known = core.secret_key.open(&app, &name, &secret.value);
        if known.is_ok_and(|known| known == value) {
            return Ok(Json(core.secret_view(&app, &name, secret)));
        }
    }
    let set = core
        .set_command(&app, &name, &value)
        .map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    core.execute(&set)?;
    tracing::info!(app, name, "secret set");
    let secret = core.known_secret(&app, &name)?;
    Ok(Json(core.secret_view(&app, &name, secret)))
}

pub(crate) async fn retire(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
) -> Result<Json<SecretView>, Refusal> {
    let mut core = s.core();
    core.execute(&Command::RetireSecret {
        app: app.clone(),
        name: name.clone(),
    })?;
    tracing::info!(
        app,
        name,
        "value of a secret before its present one retired"
    );
    let secret = core.known_secret(&app, &name)?;
    Ok(Json(core.secret_view(&app, &name, secret)))
}

pub(crate) async fn delete(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
) -> Result<Json<DeleteSecretResponse>, Refusal> {
    s.core().execute(&Command::DeleteSecret {
        app: app.clone(),
        name: name.clone(),
    })?;
    tracing::info!(app, name, "secret deleted");
    Ok(Json(DeleteSecretResponse { app, name }))
}

/// A secret as it is stored: of use only to who has the key.
pub(crate) async fn sealed(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
) -> Result<Json<Sealed>, Refusal> {
    let core = s.core();
    let secret = core.known_secret(&app, &name)?;
    Ok(Json(secret.value.clone()))
}

#[derive(Deserialize)]
pub(crate) struct OfProcess {
    incarnation: u32,
}

/// A node that runs an instance of a service that may read the secret fetches it.
pub(crate) async fn for_node(
    State(s): State<Shared>,
    Path((node, app, name)): Path<(u32, String, String)>,
    Query(q): Query<OfProcess>,
) -> Result<Json<SecretValue>, Refusal> {
    let core = s.core();
    let node = NodeId(node);
    core.check_current(node, q.incarnation)?;
    let secret = core.known_secret(&app, &name)?;
    let runs = core.control.app_named(&app).is_some_and(|id| {
        let plan = &core.control.apps[&id].plan;
        let here = plan.shards.iter().filter(|s| s.role(node).is_some());
        let mut services = here.map(|s| plan.app.service(s.service));
        services.any(|s| s.secrets.contains(&name))
    });
    if !runs {
        let node = core.node_name(node);
        let error = format!(
            "node {node} runs no service of application {app:?} that may read secret {name:?}"
        );
        return Err(Refusal::new(StatusCode::FORBIDDEN, error));
    }
    let open = |sealed: &Sealed| {
        let value = core.secret_key.open(&app, &name, sealed);
        value
            .map(|value| hex(&value))
            .map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
    };
    Ok(Json(SecretValue {
        version: secret.version,
        value: open(&secret.value)?,
        previous: secret.previous.as_ref().map(open).transpose()?,
    }))
}

/// The same for nodes of the release before, whose clusters have secrets in files.
pub(crate) async fn for_older_node(
    State(s): State<Shared>,
    Path((app, name)): Path<(String, String)>,
) -> Result<Vec<u8>, Refusal> {
    let core = s.core();
    if core.control.format >= Format::ACCESS {
        let format = core.control.format;
        let error = format!(
            "in format {format} a node fetches secrets as itself; start a release with that format on it"
        );
        return Err(Refusal::new(StatusCode::CONFLICT, error));
    }
    let declared = core.control.app_named(&app).is_some_and(|id| {
        let secrets = &core.control.apps[&id].plan.app.spec.secrets;
        secrets.iter().any(|s| s.name == name)
    });
    let value = declared.then(|| core.blobs.secret(&app, &name)).flatten();
    value.ok_or_else(|| no_secret(app, name))
}
