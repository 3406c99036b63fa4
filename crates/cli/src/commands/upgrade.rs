//! `e3 upgrade`: replaces the program of the cluster's processes one by one while applications serve,
//! and raises the cluster's format when that is done. Design: docs/design/019-upgrades.md.

use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::cluster::process::Process;
use crate::cluster::state_dir::{StateDir, Upgrading};
use crate::commands::formats::{self, Release};
use crate::limits::{
    DOWN_GRACE, DRAIN_BLOCKED_TIME, POLL_INTERVAL, RESTART_BACKOFF_MAX, UPGRADE_TIMEOUT,
};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::{interrupt, output};
use clap::Args;
use e3_model::api::{
    AppView, DrainRequest, Health, InstanceStatus, InstanceView, NodeView, UndrainedView,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const INTERRUPTED: &str = "interrupted; not all processes were replaced";
/// Longest time in which the supervisor starts a process that has ended, and records it.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);
const _: () = assert!(RECORDED_WITHIN.as_secs() > RESTART_BACKOFF_MAX.as_secs());

/// `e3 upgrade`.
#[derive(Args, Debug, Clone)]
#[group(required = true, multiple = false)]
pub struct Upgrade {
    /// Run the processes of the cluster on this machine with the program at this path, one after
    /// another; also to go back
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Raise the cluster's format to the newest; earlier releases that lack it cannot join any more
    #[arg(long)]
    pub finish: bool,
}

/// `e3 upgrade`.
pub fn run(args: &Upgrade, settings: &Settings) -> Result<(), Failure> {
    match &args.program {
        Some(program) => replace(program, settings),
        None => finish(&Client::connect(settings)?),
    }
}

fn finish(client: &Client) -> Result<(), Failure> {
    let newest = client.cluster()?.formats.newest();
    let done = client.raise_format(newest)?;
    let (format, before) = (done.format, done.format_before);
    output::print(&if format == before {
        let release = done.release;
        format!("the cluster's format is {format} already, the newest of release {release}\n")
    } else {
        format!(
            "the cluster's format is {format}, it was {before}: releases without it cannot join any more\n"
        )
    })
}

fn replace(program: &Path, settings: &Settings) -> Result<(), Failure> {
    let program = std::fs::canonicalize(program)
        .map_err(|e| Failure::new(Exit::Input, format!("{}: {e}", program.display())))?;
    let release = formats::of(&program)?;
    let state = StateDir::new(&settings.dir);
    let cluster = state.require_running()?;
    settings.check_controller(Some(&cluster))?;
    if cluster.no_restart {
        let message =
            "the cluster was started with --no-restart: its processes would not start again";
        return Err(Failure::new(Exit::Conflict, message).hint("e3 down, then e3 up --detach"));
    }
    let client = Client::of(&state, &cluster)?;
    let stored = state.program()?;
    // An upgrade that was killed may have left a program that does not start.
    let goes_back = stored.as_ref().is_some_and(|stored| *stored != program);
    let active = match client.cluster() {
        Err(e) if e.may_pass() && goes_back => {
            state.write_program(&program)?;
            Patience::new(UPGRADE_TIMEOUT).ask(|| client.cluster())?
        }
        answer => answer?,
    }
    .format;
    if !release.formats.include(active) {
        let (name, formats) = (&release.release, release.formats);
        let message = format!(
            "release {name} has formats {formats}, the cluster writes format {active}: its processes could not join"
        );
        return Err(Failure::new(Exit::Conflict, message));
    }
    let before = stored.clone().or_else(|| cluster.supervisor.program());
    let upgrade = Running {
        client,
        release,
        back: match before {
            Some(path) => format!("to go back: e3 upgrade --program {}", path.display()),
            None => "to go back: e3 upgrade --program PATH, with the earlier program".into(),
        },
        state,
        stop: interrupt::flag()?,
    };
    if goes_back {
        upgrade.state.write_program(&program)?;
        upgrade.wait_until_whole()?;
    } else {
        upgrade.wait_until_whole()?;
        upgrade.state.write_program(&program)?;
    }
    if let Err(failure) = upgrade.all() {
        // What does not start with the new program starts again with the one before.
        if let Err(also) = upgrade.state.restore_program(stored.as_deref()) {
            output::say(&also.message);
        }
        return Err(failure.hint(&upgrade.back));
    }
    let (name, formats) = (&upgrade.release.release, upgrade.release.formats);
    let back = &upgrade.back;
    output::print(&format!(
        "all processes run release {name} (formats {formats}); {back}\n"
    ))?;
    if formats.newest() > active {
        let newest = formats.newest();
        output::print(&format!(
            "to raise the cluster's format from {active} to {newest}, after which there is no way back: e3 upgrade --finish\n"
        ))?;
    }
    Ok(())
}

/// A cluster whose processes are being replaced.
struct Running {
    state: StateDir,
    client: Client,
    /// What they become.
    release: Release,
    /// How to go back.
    back: String,
    /// Set by Ctrl-C: then no node stays drained.
    stop: Arc<AtomicBool>,
}

impl Running {
    fn all(&self) -> Result<(), Failure> {
        self.controller()?;
        // Those that are added from now on start with the new program.
        let mut nodes = self.ask(Client::nodes)?;
        // The node that an upgrade left drained is resumed first: the record has only one.
        let left = self.state.upgrading()?.map(|left| left.node);
        nodes.sort_by_key(|node| Some(&node.name) != left.as_ref());
        for node in nodes {
            self.node(&node.name)?;
        }
        Ok(())
    }

    /// Ends a process, which the supervisor starts again with the stored program.
    fn end(&self, name: &str) -> Result<(), Failure> {
        self.state.remove_start_failure(name);
        let begin = Instant::now();
        // It may be starting at this moment.
        let process = loop {
            match self.state.process(name).filter(Process::alive) {
                Some(process) => break process,
                None if begin.elapsed() < RECORDED_WITHIN => std::thread::sleep(POLL_INTERVAL),
                None => {
                    let message = format!("no process of {name} runs, or it is not recorded");
                    return Err(Failure::new(Exit::NotFound, message).hint("see: e3 logs"));
                }
            }
        };
        process.terminate();
        if !process.wait(DOWN_GRACE) {
            process.kill();
        }
        Ok(())
    }

    /// Asks the controller, which may be starting again.
    fn ask<T>(&self, ask: impl Fn(&Client) -> Result<T, Failure>) -> Result<T, Failure> {
        Patience::new(UPGRADE_TIMEOUT).ask(|| ask(&self.client))
    }

    fn controller(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        let name = "controller";
        self.end(name)?;
        self.wait(name, || {
            let cluster = self.client.cluster()?;
            Ok(cluster.release == self.release.release && cluster.formats == self.release.formats)
        })?;
        // The nodes are heard again before anything is decided.
        self.wait_until_whole()?;
        done(name, begin)
    }

    fn node(&self, name: &str) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut before = self.ask(|c| c.node(name))?;
        // An upgrade that was killed has left it drained.
        if let Some(left) = self.state.upgrading()?.filter(|left| left.node == name) {
            (before.drained, before.cordoned) = (false, left.cordoned);
        }
        if !before.drained {
            self.state.write_upgrading(Some(&Upgrading {
                node: name.into(),
                cordoned: before.cordoned,
            }))?;
        }
        // What can go nowhere stays, if it survives the restart.
        let drain = DrainRequest {
            node: name.into(),
            best_effort: true,
        };
        let replaced = self.ask(|c| c.drain(&drain)).and_then(|_| {
            self.drained(name)?;
            self.end(name)?;
            self.wait(name, || {
                let node = self.client.node(name)?;
                let release = Release {
                    release: node.release,
                    formats: node.formats,
                };
                Ok(node.up && node.incarnation > before.incarnation && release == self.release)
            })
        });
        if !before.drained {
            self.ask(|c| c.resume(name))?;
            if before.cordoned {
                self.ask(|c| c.cordon(name))?;
            }
            self.state.write_upgrading(None)?;
        }
        replaced?;
        self.wait_until_whole()?;
        done(name, begin)
    }

    /// Waits until nothing on the node would be lost with its process.
    fn drained(&self, name: &str) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut blocked: Option<Instant> = None;
        loop {
            interrupt::check(&self.stop, INTERRUPTED)?;
            let node = self.ask(|c| c.node(name))?;
            let left = &node.undrained;
            if left.is_empty() {
                return Ok(());
            }
            // What waits for a node that is away for a moment is not.
            let are_up = self.ask(Client::nodes)?.iter().all(|n| n.up);
            let is_blocked = are_up && left.iter().all(|left| left.blocked);
            blocked = blocked.filter(|_| is_blocked);
            if is_blocked && blocked.get_or_insert_with(Instant::now).elapsed() > DRAIN_BLOCKED_TIME
            {
                return self.check_other_copies(&node);
            }
            if begin.elapsed() > UPGRADE_TIMEOUT {
                return Err(not_drained(name, Exit::Timeout, left.first()));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// What cannot leave the node may be without it for a while if its state is on disk or elsewhere.
    fn check_other_copies(&self, node: &NodeView) -> Result<(), Failure> {
        let (apps, instances) = (self.ask(Client::apps)?, self.ask(Client::instances)?);
        let only = |left: &&UndrainedView| !survives(left, node, &apps, &instances);
        match node.undrained.iter().find(only) {
            None => Ok(()),
            left => Err(not_drained(&node.name, Exit::Check, left)),
        }
    }

    /// Waits until every node is up and every shard has all its copies.
    fn wait_until_whole(&self) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            interrupt::check(&self.stop, INTERRUPTED)?;
            let missing = match self.missing() {
                Ok(None) => return Ok(()),
                Ok(Some(missing)) => missing,
                Err(e) if e.may_pass() => e.message,
                Err(e) => return Err(e),
            };
            if begin.elapsed() > UPGRADE_TIMEOUT {
                let seconds = UPGRADE_TIMEOUT.as_secs();
                let message = format!("the cluster is not complete after {seconds} s: {missing}");
                return Err(Failure::new(Exit::Timeout, message));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn missing(&self) -> Result<Option<String>, Failure> {
        if let Some(node) = self.client.nodes()?.into_iter().find(|n| !n.up) {
            return Ok(Some(format!("node {} is not up", node.name)));
        }
        let apps = self.client.apps()?;
        let app = apps.into_iter().find(|a| a.health == Health::NotReady);
        Ok(app.map(|app| format!("application {} is not ready", app.name)))
    }

    /// Waits until a process has started again.
    fn wait(
        &self,
        name: &str,
        has_started: impl Fn() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        loop {
            interrupt::check(&self.stop, INTERRUPTED)?;
            match has_started() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(e) if e.may_pass() => {}
                Err(e) => return Err(e),
            }
            if let Some(failure) = self.state.start_failure(name) {
                let message = format!("{name} does not start: {}", failure.message);
                return Err(Failure { message, ..failure });
            }
            if begin.elapsed() > UPGRADE_TIMEOUT {
                let seconds = UPGRADE_TIMEOUT.as_secs();
                let release = &self.release.release;
                let message = format!("{name} does not run release {release} after {seconds} s");
                return Err(Failure::new(Exit::Timeout, message));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Whether a shard outlives the process of a node that it cannot leave.
fn survives(
    left: &UndrainedView,
    node: &NodeView,
    apps: &[AppView],
    instances: &[InstanceView],
) -> bool {
    let mut names = left.instance.split('/');
    let (app, service) = (names.next(), names.next());
    let app = apps.iter().find(|a| Some(a.name.as_str()) == app);
    let service = app.and_then(|a| a.services.iter().find(|s| Some(s.name.as_str()) == service));
    let is_kept = service.is_some_and(|s| !s.stateful || s.on_disk);
    is_kept
        || instances.iter().any(|i| {
            i.instance == left.instance
                && i.node != node.name
                && i.status == InstanceStatus::Running
        })
}

fn not_drained(node: &str, exit: Exit, left: Option<&UndrainedView>) -> Failure {
    let what = left.map_or_else(String::new, |left| {
        format!(": {} has its only copy there ({})", left.instance, left.why)
    });
    Failure::new(exit, format!("node {node} cannot be restarted{what}"))
}

fn done(name: &str, begin: Instant) -> Result<(), Failure> {
    let seconds = begin.elapsed().as_secs_f64();
    output::print(&format!("{name}: upgraded in {seconds:.1} s\n"))
}
