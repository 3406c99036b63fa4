//! What operators change in a running cluster: nodes in and out of service, copies of a service,
//! versions that go back, the cluster's format. And the watch over new versions.

use crate::core::Core;
use crate::error::ExecuteError;
use crate::limits::{KEPT_BACK_RETRY, TAGLESS_AFTER_RAISE};
use crate::refusal::bad_json;
use crate::shared::Shared;
use axum::Json;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use e3_control::{Applied, Command, CommandError, RolledBack, Seen, Stays, Undrained};
use e3_http::Refusal;
use e3_model::api::*;
use e3_model::application::Pin;
use e3_model::format::RELEASE;
use e3_model::{AppId, Format, NodeId, ServiceId, Timestamp};

pub(crate) async fn drain(
    State(s): State<Shared>,
    body: Result<Json<DrainRequest>, JsonRejection>,
) -> Result<Json<DrainResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    let (node, best_effort) = (request.node, request.best_effort);
    s.core().set_drained(node, true, best_effort).map(Json)
}

pub(crate) async fn resume(
    State(s): State<Shared>,
    body: Result<Json<NodeRequest>, JsonRejection>,
) -> Result<Json<DrainResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().set_drained(request.node, false, true).map(Json)
}

pub(crate) async fn raise_format(
    State(s): State<Shared>,
    body: Result<Json<FormatRequest>, JsonRejection>,
) -> Result<Json<FormatResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().raise_format(request.format).map(Json)
}

pub(crate) async fn scale(
    State(s): State<Shared>,
    body: Result<Json<ScaleRequest>, JsonRejection>,
) -> Result<Json<ScaleResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().scale(request).map(Json)
}

pub(crate) async fn reshard(
    State(s): State<Shared>,
    body: Result<Json<ReshardRequest>, JsonRejection>,
) -> Result<Json<ReshardResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().reshard(request).map(Json)
}

pub(crate) async fn rollback(
    State(s): State<Shared>,
    body: Result<Json<RollbackRequest>, JsonRejection>,
) -> Result<Json<RollbackResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().rollback(request.app).map(Json)
}

impl Core {
    fn set_drained(
        &mut self,
        name: String,
        drained: bool,
        best_effort: bool,
    ) -> Result<DrainResponse, Refusal> {
        let node = self.node_named(&name)?;
        if !best_effort {
            let check = self.control.check_drain(node);
            check.map_err(ExecuteError::Command)?;
        }
        let command = if drained {
            Command::Drain { node }
        } else {
            Command::Resume { node }
        };
        let changed = self.execute(&command)? != Applied::Nothing;
        if changed {
            tracing::info!(
                node = name,
                drained,
                "operator changed the service of a node"
            );
        }
        Ok(DrainResponse {
            node: name,
            drained,
            changed,
        })
    }

    /// Makes a format the active one. It does not go back.
    fn raise_format(&mut self, to: Format) -> Result<FormatResponse, Refusal> {
        let format_before = self.control.format;
        if to < format_before || !self.formats.include(to) {
            let error = format!(
                "format {to} cannot become the cluster's: it is {format_before} now, and the controller has formats {}",
                self.formats
            );
            return Err(Refusal::new(StatusCode::CONFLICT, error));
        }
        if let Some(why) = self.not_importable(to) {
            let error = format!("format {to} cannot become the cluster's: {why}");
            let hint = "put a shorter value into its file, or remove it if no application needs it";
            return Err(Refusal::new(StatusCode::CONFLICT, error).hint(hint));
        }
        let raise = Command::RaiseFormat {
            to,
            release: RELEASE.into(),
        };
        if self.execute(&raise)? != Applied::Nothing {
            let (format, release) = (self.control.format.0, RELEASE);
            tracing::info!(format, release, "operator raised the cluster's format");
            self.import_secrets();
            if format_before < Format::HEARTBEAT_TAGS {
                self.tagless_until = self.clock.now() + TAGLESS_AFTER_RAISE;
            }
        }
        Ok(FormatResponse {
            format: self.control.format,
            format_before,
            release: RELEASE.into(),
        })
    }

    fn scale(&mut self, q: ScaleRequest) -> Result<ScaleResponse, Refusal> {
        let (app, service) = self.service_named(&q.service)?;
        let replicas = |core: &Core| {
            let state = &core.control.apps[&app];
            let now = state.plan.app.service(service).replicas;
            (now, state.scaled.get(&service).copied().unwrap_or(now))
        };
        let (before, _) = replicas(self);
        let command = Command::Scale {
            app,
            service,
            replicas: q.replicas,
        };
        self.execute(&command)?;
        let (after, in_manifest) = replicas(self);
        tracing::info!(
            service = q.service,
            before,
            after,
            "operator scaled a service"
        );
        Ok(ScaleResponse {
            service: q.service,
            replicas: after,
            replicas_before: before,
            replicas_in_manifest: in_manifest,
        })
    }

    fn reshard(&mut self, q: ReshardRequest) -> Result<ReshardResponse, Refusal> {
        let (app, service) = self.service_named(&q.service)?;
        let state = &self.control.apps[&app];
        let before = state.plan.app.service(service).shards;
        let change = state.resharding.as_ref();
        let waits = change.is_some_and(|r| r.service == service && !r.is_freezing);
        let command = if waits && q.shards == before {
            // The present number withdraws a change that waits. Logs of all formats have this command.
            let key = state.plan.key_of(service, 0);
            Command::Cancel { key }
        } else {
            let shards = q.shards;
            Command::Reshard {
                app,
                service,
                shards,
            }
        };
        let spec = self.control.apps[&app].plan.app.service(service);
        if let (Some(Pin::Node(node)), Command::Reshard { shards: 2.., .. }) = (&spec.pin, &command)
        {
            let error = format!(
                "service {:?} is pinned to node {node}, which can have one shard of it",
                q.service
            );
            return Err(Refusal::new(StatusCode::CONFLICT, error)
                .hint("pins cannot change: deploy it without the pin under another name"));
        }
        let refused = |e: ExecuteError| match e {
            ExecuteError::Command(_) if waits => {
                let service = &q.service;
                let hint = format!("to withdraw that change: e3 scale {service} --shards {before}");
                Refusal::from(e).hint(hint)
            }
            e => e.into(),
        };
        let changed = self.execute(&command).map_err(refused)? != Applied::Nothing;
        if changed {
            let (service, after) = (&q.service, q.shards);
            tracing::info!(
                service,
                before,
                after,
                "operator changes the number of shards"
            );
        }
        Ok(ReshardResponse {
            service: q.service,
            shards: q.shards,
            shards_before: before,
            changed,
        })
    }

    /// The service that `app/service` names.
    fn service_named(&self, name: &str) -> Result<(AppId, ServiceId), Refusal> {
        let Some((app, service)) = name.split_once('/') else {
            let error = format!("{name:?} names no service");
            return Err(Refusal::new(StatusCode::NOT_FOUND, error)
                .hint("services are named app/service, see e3 describe app"));
        };
        let none = |e: CommandError| Refusal::new(StatusCode::NOT_FOUND, e.to_string());
        let id = self.control.app_named(app);
        let id = id.ok_or_else(|| none(CommandError::NoApp(app.into())))?;
        let application = &self.control.apps[&id].plan.app;
        let found = application.service_named(service).map(|(id, _)| id);
        let services = application.spec.services.iter();
        let service = found.ok_or_else(|| {
            none(CommandError::NoService {
                app: app.into(),
                service: service.into(),
                known: services.map(|s| s.name.clone()).collect(),
            })
        })?;
        Ok((id, service))
    }

    fn rollback(&mut self, name: String) -> Result<RollbackResponse, Refusal> {
        let none = || CommandError::NoApp(name.clone()).to_string();
        let id = self.control.app_named(&name);
        let id = id.ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, none()))?;
        self.check_goes_back(id)?;
        if let Some(missing) = self.not_stored(id) {
            let error = format!("application {name:?} cannot go back: {missing}");
            let hint = "deploy the earlier version from its files: e3 deploy";
            return Err(Refusal::new(StatusCode::CONFLICT, error).hint(hint));
        }
        let command = Command::Rollback {
            app: id,
            code_version: self.control.apps[&id].plan.code_version,
            why: None,
            at: self.clock.now(),
        };
        self.execute(&command)?;
        self.sweep();
        let done = self.control.apps[&id].rollbacks.back();
        let done = done.expect("it has just been rolled back");
        let (from, to) = (done.from, done.to);
        tracing::info!(app = name, from, to, "operator rolled back");
        Ok(RollbackResponse {
            from,
            to,
            code_version: done.code_version,
            app: name,
        })
    }

    /// Refuses a rollback while another one takes place: it would return to the version that was left. A repeat whose
    /// first answer was lost, or that the controller anticipated, must not. It is for a version that does not start.
    fn check_goes_back(&self, id: AppId) -> Result<(), Refusal> {
        let state = &self.control.apps[&id];
        let last = state.rollbacks.back().filter(|_| !state.has_started);
        let Some(last) = last.filter(|r| r.code_version == state.plan.code_version) else {
            return Ok(());
        };
        if self.seen(id).error.is_some() {
            return Ok(());
        }
        let (name, from, to) = (&state.plan.app.name, last.from, last.to);
        let error = format!(
            "application {name:?} goes back from version {from} to version {to} already, which has not started at every primary yet"
        );
        let hint = format!("wait until it has: e3 describe app {name}");
        Err(Refusal::new(StatusCode::CONFLICT, error).hint(hint))
    }

    /// What the earlier version of an application needs and the disk does not have.
    fn not_stored(&self, app: AppId) -> Option<String> {
        let state = &self.control.apps[&app];
        let release = state.earlier()?;
        let services = state.plan.app.spec.services.iter();
        let modules = services.map(|s| format!("the module of service {:?}", s.name));
        let assets = release.assets.keys().map(|name| format!("asset {name:?}"));
        let digests = release.modules.iter().chain(release.assets.values());
        let mut needed = modules.chain(assets).zip(digests);
        let version = release.code_version;
        needed.find_map(|(what, digest)| match self.blobs.get(digest) {
            Ok(Some(_)) => None,
            Ok(None) => Some(format!("{what} in version {version} is no longer stored")),
            Err(e) => Some(format!("{what} in version {version}: {e}")),
        })
    }

    /// Rolls back versions that do not start, or that fail most of their requests.
    pub(crate) fn watch_versions(&mut self, now: Timestamp) {
        let mut probation = std::mem::take(&mut self.probation);
        let due = probation.look(now, &self.control, |app| self.seen(app));
        self.probation = probation;
        let apps = &self.control.apps;
        self.kept_back.retain(|app, _| apps.contains_key(app));
        for command in due {
            let Command::Rollback { app, why, .. } = &command else {
                continue;
            };
            let version = self.control.apps[app].plan.code_version;
            let kept_back = self.kept_back.get(app).filter(|(v, _)| *v == version);
            if kept_back.is_some_and(|(_, at)| now < *at + KEPT_BACK_RETRY) {
                continue;
            }
            let name = self.control.apps[app].plan.app.name.clone();
            let why = why.clone().unwrap_or_default();
            if let Some(missing) = self.not_stored(*app) {
                self.kept_back.insert(*app, (version, now));
                self.complain(format!("{name} should go back ({why}), but {missing}"));
                continue;
            }
            match self.execute(&command) {
                Ok(_) => tracing::warn!(app = name, why, "rolled back to the version before"),
                Err(e) => self.complain(format!("the rollback of {name} is not stored: {e}")),
            }
        }
    }

    /// What reports say of an application.
    fn seen(&self, id: AppId) -> Seen {
        let app = &self.control.apps[&id];
        let wanted = app.plan.code_version;
        let mut seen = Seen::default();
        for (service, _) in (0..).zip(&app.plan.app.spec.services) {
            let totals = self.counters.service(id, ServiceId(service));
            let succeeded = totals.handled.saturating_sub(totals.dead_lettered);
            seen.succeeded = seen.succeeded.saturating_add(succeeded);
            seen.failed = seen.failed.saturating_add(totals.failed);
        }
        for shard in &app.plan.shards {
            let key = app.plan.key(shard);
            let report = self.instance_report(key, shard.primary);
            let report = report.filter(|r| r.code_version != wanted);
            if let Some(error) = report.and_then(|r| r.error.as_ref())
                && seen.error.is_none()
            {
                seen.error = Some(format!("{}: {error}", self.shard_name(key)));
            }
        }
        seen
    }

    /// The replicas that are still on a drained node.
    pub(crate) fn undrained(&self, node: NodeId) -> Vec<UndrainedView> {
        let left = self.control.undrained(node);
        let view = |left: &Undrained| {
            let mut view = self.undrained_view(left);
            let report = self.instance_report(left.key, node);
            if let Some(error) = report.and_then(|r| r.error.as_ref()) {
                view.why = format!("{}; there: {error}", view.why);
            }
            view
        };
        left.iter().map(view).collect()
    }

    fn undrained_view(&self, left: &Undrained) -> UndrainedView {
        let name = |node: &NodeId| self.node_name(*node);
        let (blocked, why) = match &left.stays {
            Stays::Moving { to } => (false, format!("moving to {}", name(to))),
            Stays::OtherMoves => (false, "another replica of the shard is moving".into()),
            Stays::Settling => (false, "a copy of the shard is joining or leaving".into()),
            Stays::Queued => (false, "other shards move first".into()),
            Stays::Waits { node } => (
                true,
                format!("the primary is on {}, which is silent", name(node)),
            ),
            Stays::Stalled => (
                true,
                "its last move made no progress; it is tried again when a node comes back".into(),
            ),
            Stays::NoRoom(misfits) => {
                let of = |(node, misfit): &(NodeId, _)| format!("{}: {misfit}", name(node));
                let all: Vec<String> = misfits.iter().map(of).collect();
                (
                    true,
                    format!("no other node can take it ({})", all.join("; ")),
                )
            }
        };
        UndrainedView {
            instance: self.shard_name(left.key),
            blocked,
            why,
        }
    }
}

/// A rollback as the API shows it.
pub(crate) fn rollback_view(r: &RolledBack) -> RollbackView {
    RollbackView {
        from: r.from,
        to: r.to,
        code_version: r.code_version,
        why: r.why.clone(),
        at_unix_ms: r.at.since(Timestamp::ZERO).as_millis(),
    }
}
