//! Deploying: everything is checked before anything is written.

mod checks;
mod sent;

pub(crate) use sent::Sent;

use crate::core::Core;
use crate::error::ExecuteError;
use crate::refusal::not_stored;
use crate::restores::EXISTS_HINT;
use crate::solve::Problem;
use axum::http::StatusCode;
use e3_control::{Applied, Command, CommandError, Control, PLACER_UNDECIDED, Placed, explain};
use e3_http::Refusal;
use e3_model::api::{DeployRequest, DeployResponse};
use e3_model::backup::Restored;
use e3_model::document::check_fit;
use e3_model::plan::Release;
use e3_model::{Application, Format};
use e3_placement::{
    AdmitError, PLACER_DEFAULT, PLACERS, PlaceError, Placer, Request, admit, by_name,
};
use e3_solver::Timed;
use e3_solver::limits::TIME_MAX;
use std::time::Duration;

/// How far a deployment has come without waiting for anything.
pub(crate) enum Begun {
    /// It is done.
    Done(DeployResponse),
    /// A solver is to decide where the instances go; see [`Core::submit`].
    Solve(Box<Sent>, Box<Problem>),
}

/// What became of the decisions of a solver.
pub(crate) enum Submitted {
    /// They hold.
    Done(DeployResponse),
    /// The state has changed so that they do not fit, for this reason. This is the problem now.
    Overtaken(String, Box<Problem>),
}

/// Who decides where the instances go.
enum Chosen {
    /// Nobody: the application runs, or the log's format has no decisions.
    Nobody,
    /// A placer that answers at once.
    Placer(Box<dyn Placer>),
    /// A placer with a time budget.
    Solver(Timed),
}

/// Why a deployment was not carried out.
enum CommitError {
    /// The state machine refuses the command.
    Command(CommandError),
    /// Another reason.
    Other(Refusal),
}

impl From<Refusal> for CommitError {
    fn from(refusal: Refusal) -> CommitError {
        CommitError::Other(refusal)
    }
}

impl CommitError {
    fn refusal(self, q: &DeployRequest) -> Refusal {
        match self {
            CommitError::Command(e) => refused(q, e),
            CommitError::Other(refusal) => refusal,
        }
    }
}

impl Core {
    /// Deploys an application, or begins to: a solver decides beside the state machine. A refused
    /// deployment leaves nothing on the disk. A dry run makes the same checks and changes nothing.
    pub(crate) fn begin_deploy(
        &mut self,
        q: &DeployRequest,
        sent: Sent,
        dry_run: bool,
    ) -> Result<Begun, Refusal> {
        self.import_secrets();
        let begun = self.try_deploy(q, sent, dry_run);
        self.swept(dry_run, begun)
    }

    /// Carries out a deployment that a solver has decided on, from the state with the version `base`. What
    /// it decided is checked against the present state.
    pub(crate) fn submit(
        &mut self,
        q: &DeployRequest,
        dry_run: bool,
        sent: &Sent,
        (base, placed): (u64, Vec<Placed>),
    ) -> Result<Submitted, Refusal> {
        self.import_secrets();
        let submitted = self.try_submit(q, dry_run, sent, (base, placed));
        self.swept(dry_run, submitted)
    }

    fn swept<T>(&self, dry_run: bool, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_err() && !dry_run {
            self.sweep();
        }
        result
    }

    /// Removes modules and assets that no version names that runs or is kept, and no backup.
    pub(crate) fn sweep(&self) {
        // If the contents of the disk are unknown, the log may name what was refused; if it lacks decisions, they
        // may name what seems unused.
        if !self.knows_all() {
            return;
        }
        let apps = self.control.apps.values();
        let kept = apps.flat_map(|a| a.plan.releases().chain(a.history.iter().cloned()));
        let releases: Vec<Release> = kept.collect();
        let modules = releases.iter().flat_map(|r| &r.modules);
        let assets = releases.iter().flat_map(|r| r.assets.values());
        let heads = self.taking.iter().filter_map(|t| t.head.as_ref());
        let backed_up = heads.flat_map(|head| head.files.iter().map(|f| &f.digest));
        let all = modules.chain(assets).chain(backed_up);
        let named = all.map(String::as_str).collect();
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

    /// Who decides where the instances of a new application go. It is decided before the command is
    /// logged, so that the log holds the decisions whatever placers become.
    fn chosen(&self, app: &Application, q: &DeployRequest) -> Result<Chosen, Refusal> {
        let name = q.placer.as_deref();
        if self.control.app_named(&app.name).is_some() {
            return match name {
                None => Ok(Chosen::Nobody),
                Some(_) => Err(unprocessable(format!(
                    "application {:?} runs; a placer is for new applications",
                    app.name
                ))
                .hint("leave out --placer: an update changes no placement")),
            };
        }
        let name = name.unwrap_or(PLACER_DEFAULT);
        let limit = q.time_limit_ms.map(Duration::from_millis);
        let chosen = match Timed::by_name(name, limit, &self.highs) {
            Some(solver) => Chosen::Solver(solver),
            None => Chosen::Placer(by_name(name).ok_or_else(|| {
                let known = PLACERS.into_iter().chain([e3_solver::NAME]);
                let known = known.collect::<Vec<_>>().join(", ");
                unprocessable(format!("no placer {name:?}, there are {known}"))
            })?),
        };
        check_limit(&chosen, name, limit)?;
        if self.control.format < Format::PLACED {
            if q.placer.is_none() || name == PLACER_UNDECIDED {
                return Ok(Chosen::Nobody);
            }
            let error = format!(
                "placer {name:?}: the cluster writes format {}, which has only {PLACER_UNDECIDED}",
                self.control.format
            );
            return Err(
                unprocessable(error).hint("raise the cluster's format first: e3 upgrade --finish")
            );
        }
        Ok(chosen)
    }

    fn try_deploy(
        &mut self,
        q: &DeployRequest,
        mut sent: Sent,
        dry_run: bool,
    ) -> Result<Begun, Refusal> {
        self.fit(q, &mut sent.app)?;
        let restored = self.check(&sent, q, dry_run)?;
        self.note_waiting_requests();
        let placed = match self.chosen(&sent.app, q)? {
            Chosen::Nobody => Vec::new(),
            Chosen::Placer(placer) => {
                let request = Request::new(&sent.app, &sent.profiles);
                place(&self.control, &*placer, &request, q.overcommit)
                    .map_err(|why| not_admitted(q, &why))?
            }
            Chosen::Solver(solver) => {
                let problem = self.problem(q, &sent, solver);
                return Ok(Begun::Solve(Box::new(sent), Box::new(problem)));
            }
        };
        let committed = self.commit(q, dry_run, &sent, restored, placed);
        committed.map(Begun::Done).map_err(|e| e.refusal(q))
    }

    /// What a solver needs of the state. The copy shares its values with the state, and its index is made
    /// where it is solved, so this takes the controller little time.
    fn problem(&self, q: &DeployRequest, sent: &Sent, solver: Timed) -> Problem {
        let mut state = self.control.clone();
        state.set_waiting_requests(self.hearing.orchestrator.waiting());
        Problem {
            state,
            app: sent.app.clone(),
            profiles: sent.profiles.clone(),
            overcommit: q.overcommit,
            solver,
        }
    }

    fn try_submit(
        &mut self,
        q: &DeployRequest,
        dry_run: bool,
        sent: &Sent,
        (base, placed): (u64, Vec<Placed>),
    ) -> Result<Submitted, Refusal> {
        check_fit(&q.file, &q.manifest, &sent.app, &self.control.topology)
            .map_err(|e| unprocessable(e.to_string()))?;
        let restored = self.check(sent, q, dry_run)?;
        let Chosen::Solver(solver) = self.chosen(&sent.app, q)? else {
            unreachable!("only its solver's decisions are submitted");
        };
        let has_changed = self.control.version != base;
        match self.commit(q, dry_run, sent, restored, placed) {
            Ok(response) => Ok(Submitted::Done(response)),
            Err(CommitError::Command(
                e @ (CommandError::Placed { .. } | CommandError::Admit(_)),
            )) if has_changed => {
                let problem = self.problem(q, sent, solver);
                Ok(Submitted::Overtaken(e.to_string(), Box::new(problem)))
            }
            Err(e) => Err(e.refusal(q)),
        }
    }

    fn commit(
        &mut self,
        q: &DeployRequest,
        dry_run: bool,
        sent: &Sent,
        restored: Option<Restored>,
        placed: Vec<Placed>,
    ) -> Result<DeployResponse, CommitError> {
        let mut commands = Vec::new();
        if self.control.format >= Format::ACCESS {
            let generated = self.generate_secrets(&sent.app);
            commands = generated
                .map_err(|e| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
        }
        commands.push(sent.command(q.overcommit, restored, placed));
        let mut after = self.control.clone();
        let mut would = Applied::Nothing;
        for command in &commands {
            would = after.apply(command).map_err(CommitError::Command)?;
        }
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
        let applied = self.carry_out(q, sent, &commands)?;
        Ok(response(&applied, &self.control))
    }

    /// Completes what a request brings, and checks that it fits together and the topology.
    fn fit(&self, q: &DeployRequest, app: &mut Application) -> Result<(), Refusal> {
        self.complete(app);
        check_fit(&q.file, &q.manifest, app, &self.control.topology)
            .map_err(|e| unprocessable(e.to_string()))
    }

    /// Stores what was sent, then the commands. What nothing names is swept later.
    fn carry_out(
        &mut self,
        q: &DeployRequest,
        sent: &Sent,
        commands: &[Command],
    ) -> Result<Applied, Refusal> {
        if let Some(staged) = &sent.staged {
            staged.name().map_err(not_stored)?;
        }
        let app = &sent.app;
        if self.control.format < Format::ACCESS {
            for secret in app.spec.secrets.iter().filter(|s| s.generate) {
                let generated = self.blobs.generate_secret(&app.name, &secret.name);
                generated.map_err(not_stored)?;
            }
        }
        if let Some(restore) = &q.restore {
            // The request has done so before, without the lock.
            self.restores.syncing(restore.restore, &restore.parts)()?;
        }
        let applied = self.execute_all(commands)?.pop();
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

/// Where a placer puts the instances of a new application, with the reasons.
pub(crate) fn place(
    control: &Control,
    placer: &dyn Placer,
    request: &Request<'_>,
    overcommit: bool,
) -> Result<Vec<Placed>, AdmitError> {
    let placement = control.try_resources(|cluster| admit(placer, request, cluster, overcommit))?;
    Ok(control.try_resources(|cluster| explain(request, cluster, &placement)))
}

/// Whether the time that a request gives its placer is one that it can have.
fn check_limit(chosen: &Chosen, name: &str, limit: Option<Duration>) -> Result<(), Refusal> {
    match (chosen, limit) {
        (_, None) => Ok(()),
        (Chosen::Solver(_), Some(limit)) => {
            let (ms, ms_max) = (limit.as_millis(), TIME_MAX.as_millis());
            if (1..=ms_max).contains(&ms) {
                return Ok(());
            }
            Err(unprocessable(format!(
                "timeLimitMs is {ms}, must be 1..={ms_max}"
            )))
        }
        (_, Some(_)) => Err(unprocessable(format!("placer {name:?} has no time limit"))
            .hint("leave out --time-limit, or choose annealing or ilp")),
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

pub(crate) fn not_admitted(q: &DeployRequest, why: &AdmitError) -> Refusal {
    let error = format!("{}: {why}", q.file);
    let hint = match why {
        AdmitError::Place(PlaceError::Solver(_)) => {
            "choose another placer, such as joules, or start the cluster with E3_HIGHS=FILE e3 up"
        }
        _ => why.hint(),
    };
    Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error).hint(hint)
}
