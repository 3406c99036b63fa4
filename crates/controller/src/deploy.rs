//! Deploying: everything is checked before anything is written.

use crate::backups::EXISTS_HINT;
use crate::blobs::digest;
use crate::core::Core;
use crate::error::ExecuteError;
use crate::refusal::not_stored;
use axum::http::StatusCode;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use e3_control::{Applied, Command, CommandError, Control, PLACER_UNDECIDED, Placed, explain};
use e3_http::Refusal;
use e3_model::api::{DeployRequest, DeployResponse, RestoreRequest};
use e3_model::backup::Restored;
use e3_model::document::{check_fit, parse_application, parse_profile};
use e3_model::plan::Release;
use e3_model::{Application, Format, Profile};
use e3_placement::{AdmitError, PLACER_DEFAULT, PLACERS, Request, admit, by_name};
use std::collections::BTreeMap;

impl Core {
    /// Deploys an application. A refused deployment leaves nothing on the disk. A dry run makes the same
    /// checks and changes nothing.
    pub(crate) fn deploy(
        &mut self,
        q: &DeployRequest,
        dry_run: bool,
    ) -> Result<DeployResponse, Refusal> {
        self.import_secrets();
        let deployed = self.try_deploy(q, dry_run);
        if deployed.is_err() && !dry_run {
            self.sweep();
        }
        deployed
    }

    /// Removes modules and assets that no version names that runs or is kept.
    pub(crate) fn sweep(&self) {
        // If the contents of the disk are unknown, the log may name what was refused.
        if self.is_broken() {
            return;
        }
        let apps = self.control.apps.values();
        let kept = apps.flat_map(|a| a.plan.releases().chain(a.history.iter().cloned()));
        let releases: Vec<Release> = kept.collect();
        let modules = releases.iter().flat_map(|r| &r.modules);
        let assets = releases.iter().flat_map(|r| r.assets.values());
        let named = modules.chain(assets).map(String::as_str).collect();
        // They only take space.
        if let Err(e) = self.blobs.keep(&named) {
            tracing::warn!(error = %e, "unused modules cannot be removed");
        }
    }

    /// Fills in what the manifest leaves to the cluster: as the application runs, or by default.
    fn complete(&self, app: &mut Application) {
        let running = self.control.app_named(&app.name);
        let running = running.map(|id| self.control.apps[&id].plan.app.clone());
        for service in app.spec.services.iter_mut().filter(|s| s.stateful) {
            let services = running.iter().flat_map(|app| &app.spec.services);
            let same = services.into_iter().find(|s| s.name == service.name);
            let default = match same {
                Some(same) => same.durability,
                None => Some(self.durability),
            };
            service.durability = service.durability.or(default);
        }
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

    /// Where the instances of a new application go: decided here, so that the log holds the decisions
    /// whatever placers become. Empty for one that runs, and where the log's format has no decisions.
    fn place(
        &self,
        app: &Application,
        profiles: &BTreeMap<String, Profile>,
        q: &DeployRequest,
    ) -> Result<Vec<Placed>, Refusal> {
        let name = q.placer.as_deref();
        if self.control.app_named(&app.name).is_some() {
            return match name {
                None => Ok(Vec::new()),
                Some(_) => Err(unprocessable(format!(
                    "application {:?} runs; a placer is for new applications",
                    app.name
                ))
                .hint("leave out --placer: an update changes no placement")),
            };
        }
        let name = name.unwrap_or(PLACER_DEFAULT);
        let placer = by_name(name).ok_or_else(|| {
            let known = PLACERS.join(", ");
            unprocessable(format!("no placer {name:?}, there are {known}"))
        })?;
        if self.control.format < Format::PLACED {
            if q.placer.is_none() || name == PLACER_UNDECIDED {
                return Ok(Vec::new());
            }
            let error = format!(
                "placer {name:?}: the cluster writes format {}, which has only {PLACER_UNDECIDED}",
                self.control.format
            );
            return Err(
                unprocessable(error).hint("raise the cluster's format first: e3 upgrade --finish")
            );
        }
        let request = Request::new(app, profiles);
        let control = &self.control;
        let placed =
            control.try_resources(|cluster| admit(&*placer, &request, cluster, q.overcommit));
        let placement = placed.map_err(|why| not_admitted(q, &why))?;
        Ok(control.try_resources(|cluster| explain(&request, cluster, &placement)))
    }

    fn try_deploy(&mut self, q: &DeployRequest, dry_run: bool) -> Result<DeployResponse, Refusal> {
        let sent = self.read(q)?;
        self.check_values(&sent.app)?;
        let restored = match &q.restore {
            None => None,
            Some(restore) => {
                self.check_secrets(&sent.app, restore)?;
                Some(self.restored(&sent.app, restore, dry_run)?)
            }
        };
        let placed = self.place(&sent.app, &sent.profiles, q)?;
        let command = sent.command(q.overcommit, restored, placed);
        let mut after = self.control.clone();
        let would = after.apply(&command).map_err(|e| refused(q, e))?;
        let response = |applied: &Applied, control: &Control| {
            let id = control.app_named(&sent.app.name);
            let id = id.expect("it has been deployed");
            DeployResponse {
                app: sent.app.name.clone(),
                changed: *applied != Applied::Nothing,
                code_version: control.apps[&id].plan.code_version,
                dry_run,
            }
        };
        if dry_run {
            return Ok(response(&would, &after));
        }
        let applied = self.carry_out(q, &sent, command)?;
        Ok(response(&applied, &self.control))
    }

    /// Reads what a request brings, and checks that it fits together and the topology.
    fn read(&self, q: &DeployRequest) -> Result<Sent, Refusal> {
        let mut app =
            parse_application(&q.file, &q.manifest).map_err(|e| unprocessable(e.to_string()))?;
        self.complete(&mut app);
        let topology = &self.control.topology;
        check_fit(&q.file, &q.manifest, &app, topology)
            .map_err(|e| unprocessable(e.to_string()))?;
        let mut profiles = BTreeMap::new();
        for (i, text) in q.profiles.iter().enumerate() {
            let profile = parse_profile(&format!("profiles[{i}]"), text)
                .map_err(|e| unprocessable(e.to_string()))?;
            profiles.insert(profile.name.clone(), profile);
        }
        let decode = |of: &BTreeMap<String, String>, name: &str| {
            let text = of.get(name).ok_or_else(|| {
                unprocessable(format!("{}: {name:?} is named but was not sent", q.file))
            })?;
            let bytes = BASE64_STANDARD.decode(text);
            bytes.map_err(|e| unprocessable(format!("{name:?} is not Base64: {e}")))
        };
        let mut modules = Vec::new();
        for service in &app.spec.services {
            let wasm = decode(&q.modules, &service.module)?;
            if !wasm.starts_with(b"\0asm") {
                let (name, path) = (&service.name, &service.module);
                return Err(unprocessable(format!(
                    "service {name:?}: {path:?} is not a WebAssembly module"
                )));
            }
            modules.push(wasm);
        }
        let mut assets = Vec::new();
        for asset in &app.spec.assets {
            assets.push((asset.name.clone(), decode(&q.assets, &asset.name)?));
        }
        Ok(Sent {
            app,
            profiles,
            modules,
            assets,
        })
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

    /// Stores what was sent, then the commands. What nothing names is swept later.
    fn carry_out(
        &mut self,
        q: &DeployRequest,
        sent: &Sent,
        command: Command,
    ) -> Result<Applied, Refusal> {
        let assets = sent.assets.iter().map(|(_, bytes)| bytes);
        for blob in sent.modules.iter().chain(assets) {
            self.blobs.put(blob).map_err(not_stored)?;
        }
        let app = &sent.app;
        let mut commands = Vec::new();
        if self.control.format >= Format::ACCESS {
            let generated = self.generate_secrets(app);
            commands = generated
                .map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        } else {
            for secret in app.spec.secrets.iter().filter(|s| s.generate) {
                let generated = self.blobs.generate_secret(&app.name, &secret.name);
                generated.map_err(not_stored)?;
            }
        }
        if let Some(restore) = &q.restore {
            for part in &restore.parts {
                self.restores.sync(restore.restore, &part.file())?;
            }
        }
        commands.push(command);
        let applied = self.execute_all(&commands)?.pop();
        let applied = applied.expect("one for each command");
        if let Some(restore) = &q.restore {
            // From here on the shards that wait for them keep them.
            self.uploads.remove(&restore.restore);
        }
        if applied != Applied::Nothing {
            self.sweep();
        }
        Ok(applied)
    }
}

/// What a request brings.
struct Sent {
    app: Application,
    profiles: BTreeMap<String, Profile>,
    /// By service.
    modules: Vec<Vec<u8>>,
    /// With their names.
    assets: Vec<(String, Vec<u8>)>,
}

impl Sent {
    fn command(
        &self,
        overcommit: bool,
        restored: Option<Restored>,
        placed: Vec<Placed>,
    ) -> Command {
        let named = self.assets.iter();
        Command::Deploy {
            app: Box::new(self.app.clone()),
            modules: self.modules.iter().map(|b| digest(b)).collect(),
            assets: named.map(|(name, b)| (name.clone(), digest(b))).collect(),
            profiles: self.profiles.clone(),
            overcommit,
            restored,
            placed,
        }
    }
}

fn refused(q: &DeployRequest, e: CommandError) -> Refusal {
    match &e {
        CommandError::Admit(why) => not_admitted(q, why),
        CommandError::Exists(_) => {
            Refusal::new(StatusCode::CONFLICT, e.to_string()).hint(EXISTS_HINT)
        }
        _ => ExecuteError::from(e).into(),
    }
}

fn unprocessable(error: String) -> Refusal {
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error)
}

fn not_admitted(q: &DeployRequest, why: &AdmitError) -> Refusal {
    let error = format!("{}: {why}", q.file);
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error).hint(why.hint())
}
