//! `e3 deploy`. Everything is checked before anything is sent, so that errors name file and line.

use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::cluster::state_dir::StateDir;
use crate::commands::place;
use crate::documents::Sources;
use crate::documents::assets::read_asset;
use crate::documents::builtin::{self, TOPOLOGY_DEFAULT, Text};
use crate::documents::modules::{self, Module};
use crate::limits::{API_TIMEOUT, POLL_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use crate::ui::values::duration;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use e3_model::Application;
use e3_model::api::{AppView, DeployRequest, NodeView, RollbackView};
use e3_node::INSTANCE_MEMORY_LEN_MAX;
use e3_placement::{PLACER_DEFAULT, Placer, by_name};
use e3_solver::Timed;
use e3_solver::limits::SOLVES_MAX;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `e3 deploy`.
#[derive(Args, Debug, Clone)]
pub struct Deploy {
    /// Manifest: a file or a built-in one such as hello or iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub file: String,
    /// Wait until all instances run
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
    /// Check manifest, modules and placement, but deploy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Accept a placement that needs more cores or bandwidth than the nodes have free; some requests
    /// then take longer
    #[arg(long)]
    pub overcommit: bool,
    /// Algorithm that places a new application [default: joules]
    #[arg(long, value_parser = place::placers())]
    pub placer: Option<String>,
    /// Time limit of annealing [default: 500ms] and ilp [default: 10s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub time_limit: Option<Duration>,
    /// Program of the solver HiGHS, which ilp needs for --dry-run without a cluster
    #[arg(long, env = "E3_HIGHS", default_value = "highs", value_name = "FILE")]
    pub highs: PathBuf,
    /// Make --dry-run check against this topology, empty, instead of the running cluster [env: E3_TOPOLOGY]
    // Not by `env`: a deployment must go on working where the variable is set for other commands.
    #[arg(long, requires = "dry_run", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Where modules and profiles come from.
    #[command(flatten)]
    pub sources: Sources,
}

/// `e3 deploy`.
pub fn run(args: &Deploy, settings: &Settings) -> Result<(), Failure> {
    let (text, app) = builtin::application(&args.file)?;
    if args.dry_run {
        return dry_run(args, settings, &text, &app);
    }
    let (client, request) = checked(args, settings, &text, &app)?;
    let response = client.deploy(&request)?;
    let (name, version) = (response.app, response.code_version);
    let instances = plural(app.instances() as usize, "instance");
    output::print(&match (response.changed, version) {
        (false, _) => format!("{name} is unchanged\n"),
        (true, 1) => format!("deployed {name}: {instances}\n"),
        (true, _) => format!("updated {name} to version {version}: {instances}\n"),
    })?;
    if args.wait {
        wait_ready(&client, &name, version, args.timeout)?;
        output::print(&format!("{name} is ready\n"))?;
    }
    Ok(())
}

/// Makes the checks and nothing else. If a cluster is up, its controller makes them: it knows which
/// nodes are up and what runs there. Otherwise they are made against an empty topology.
fn dry_run(
    args: &Deploy,
    settings: &Settings,
    text: &Text,
    app: &Application,
) -> Result<(), Failure> {
    let instances = plural(app.instances() as usize, "instance");
    let name = &app.name;
    let is_up = settings.controller.is_some() || StateDir::new(&settings.dir).running()?.is_some();
    let variable = || std::env::var("E3_TOPOLOGY").ok().filter(|v| !v.is_empty());
    let given = args.topology.clone().or_else(variable);
    if given.is_none() && is_up {
        let (client, request) = checked(args, settings, text, app)?;
        let would = client.dry_run(&request)?;
        return output::print(&match (would.changed, would.code_version) {
            (false, _) => format!("{name} is unchanged; nothing was deployed\n"),
            (true, 1) => format!(
                "{name} would be deployed on the running cluster: {instances}; nothing was deployed\n"
            ),
            (true, version) => format!(
                "{name} would be updated to version {version}: {instances}; nothing was deployed\n"
            ),
        });
    }
    let wanted = given.as_ref().or(settings.file.topology.as_ref());
    let stored = StateDir::new(&settings.dir).topology()?;
    let topology = match (wanted, stored) {
        (None, Some(topology)) => topology,
        (wanted, _) => builtin::topology(wanted.map_or(TOPOLOGY_DEFAULT, String::as_str))?.1,
    };
    let profiles = builtin::profiles(profiles_dir(&args.sources, settings))?;
    let name = args.placer.as_deref().unwrap_or(PLACER_DEFAULT);
    let solver = Timed::by_name(name, args.time_limit, &args.highs);
    let placer: Box<dyn Placer> = match solver {
        Some(solver) => Box::new(solver),
        None => by_name(name).expect("checked when parsed"),
    };
    place::admitted(
        text,
        app,
        &topology,
        &profiles.by_name,
        &*placer,
        args.overcommit,
    )?;
    request(text, app, &args.sources, settings)?;
    let topology = &topology.name;
    output::print(&format!(
        "{name} would be deployed on an empty cluster with topology {topology} (no running cluster \
         was asked): {instances}; nothing was deployed\n",
    ))
}

/// The request to the controller, after the checks that are made here.
fn checked(
    args: &Deploy,
    settings: &Settings,
    text: &Text,
    app: &Application,
) -> Result<(Client, DeployRequest), Failure> {
    let client = Client::connect(settings)?;
    let mut request = request(text, app, &args.sources, settings)?;
    request.overcommit = args.overcommit;
    request.placer.clone_from(&args.placer);
    let limit_ms = args.time_limit.map(|limit| limit.as_millis());
    request.time_limit_ms = limit_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX));
    let name = args.placer.as_deref().unwrap_or(PLACER_DEFAULT);
    Ok(match Timed::by_name(name, args.time_limit, &args.highs) {
        // The controller answers when the search is over, which may be repeated.
        Some(solver) => {
            let most = solver.limit().saturating_mul(SOLVES_MAX);
            let timeout = API_TIMEOUT.saturating_add(most);
            (client.with_timeout(timeout), request)
        }
        None => (client, request),
    })
}

/// Everything that the controller needs to deploy an application.
pub fn request(
    text: &Text,
    app: &Application,
    sources: &Sources,
    settings: &Settings,
) -> Result<DeployRequest, Failure> {
    let profiles = builtin::profiles(profiles_dir(sources, settings))?;
    let services = sources
        .services
        .clone()
        .or_else(|| settings.file.services.clone());
    let mut uploads = BTreeMap::new();
    for service in &app.spec.services {
        let Module { origin, wasm } = modules::find(text, &service.module, services.as_deref())?;
        let memory_max = service.resources.memory.0;
        e3_engine::check(&wasm, memory_max.min(INSTANCE_MEMORY_LEN_MAX as u64)).map_err(|e| {
            let (of, name) = (&text.file, &service.name);
            Failure::new(
                Exit::Input,
                format!("{of}: service {name:?}: {origin}: {e}"),
            )
            .hint("build services with the SDK: e3 new, e3 build")
        })?;
        if !uploads.contains_key(&service.module) {
            uploads.insert(service.module.clone(), STANDARD.encode(wasm));
        }
    }
    let mut assets = BTreeMap::new();
    for asset in &app.spec.assets {
        let content = read_asset(text, asset)?;
        assets.insert(asset.name.clone(), STANDARD.encode(content));
    }
    Ok(DeployRequest {
        file: text.file.clone(),
        manifest: text.text.clone(),
        modules: uploads,
        assets,
        profiles: profiles.texts,
        overcommit: false,
        placer: None,
        time_limit_ms: None,
        restore: None,
    })
}

/// The directory of profiles that the user has chosen, if any.
pub fn profiles_dir<'a>(sources: &'a Sources, settings: &'a Settings) -> Option<&'a Path> {
    sources
        .profiles
        .as_deref()
        .or(settings.file.profiles.as_deref())
}

/// Waits until all instances of an application run and all nodes accept requests for it.
/// Fails if the controller goes back from this version meanwhile.
pub fn wait_ready(
    client: &Client,
    name: &str,
    code_version: u32,
    timeout: Duration,
) -> Result<AppView, Failure> {
    let patience = Patience::new(timeout);
    let bar = output::progress(0, "starting");
    let version = patience.ask(|| client.cluster())?.plan_version;
    loop {
        let app = patience.ask(|| client.app(name))?;
        if let Some(back) = app.rollbacks.iter().find(|r| r.from == code_version) {
            bar.finish_and_clear();
            return Err(rolled_back(name, back));
        }
        bar.set_length(app.instances.into());
        bar.set_position(app.instances_ready.into());
        // A node without instances of the application accepts requests for it too, once it has the plan.
        let behind = |n: &NodeView| n.up && n.plan_version < version;
        let behind = patience.ask(|| client.nodes())?.into_iter().find(behind);
        if app.ready && behind.is_none() {
            bar.finish_and_clear();
            return Ok(app);
        }
        if patience.begin.elapsed() > timeout {
            bar.finish_and_clear();
            return Err(not_ready(&app, behind.as_ref(), timeout));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The controller, or an operator, has gone back from a version.
fn rolled_back(name: &str, back: &RollbackView) -> Failure {
    let (from, to, version) = (back.from, back.to, back.code_version);
    let why = back.why.as_deref().unwrap_or("an operator asked for it");
    let message = format!(
        "version {from} of {name} was rolled back to version {to}, which is now version {version}: {why}"
    );
    Failure::new(Exit::Check, message).hint(format!("see: e3 describe app {name}, e3 logs"))
}

/// The application is not ready in time; `behind` is a node without its plan.
fn not_ready(app: &AppView, behind: Option<&NodeView>, timeout: Duration) -> Failure {
    let errors = app.services.iter().filter_map(|s| {
        let error = s.error.as_ref()?;
        Some(format!("service {:?}: {error}", s.name))
    });
    let behind = behind.map(|n| format!("node {:?} does not have the plan yet", n.name));
    let mut reasons = errors.chain(app.problems.iter().cloned()).chain(behind);
    let message = format!(
        "{} is not ready after {:.0} s, {} of {} instances run: {}",
        app.name,
        timeout.as_secs_f64(),
        app.instances_ready,
        app.instances,
        reasons
            .next()
            .unwrap_or_else(|| "the reason is unknown".into()),
    );
    let hint = format!("see: e3 describe app {}, e3 logs", app.name);
    Failure::new(Exit::Timeout, message).hint(hint)
}
