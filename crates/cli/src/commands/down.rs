//! `e3 down`.

use crate::cluster::client::Client;
use crate::cluster::state_dir::{PARTS, StateDir};
use crate::cluster::stop::stop;
use crate::commands::up::in_memory;
use crate::limits::STATUS_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::Args;
use e3_model::api::AppView;
use std::io::{IsTerminal, Write};

/// `e3 down`.
#[derive(Args, Debug, Clone, Default)]
pub struct Down {
    /// Also remove the cluster's state: applications, logs, compiled code
    #[arg(long)]
    pub purge: bool,
    /// Do not ask for confirmation when applications lose state
    #[arg(short, long)]
    pub yes: bool,
}

/// `e3 down`.
pub fn run(args: &Down, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    if !args.yes
        && let Some(cluster) = state.running()?
    {
        confirm(Client::of(&state, &cluster), args.purge)?;
    }
    let ended = stop(&state)?;
    let dir = settings.dir.display();
    if args.purge {
        purge(&state)?;
    }
    output::print(&match (ended, args.purge) {
        (true, false) => format!("stopped the cluster in {dir}\n"),
        (true, true) => format!("stopped the cluster in {dir} and removed its state\n"),
        (false, false) => format!("no cluster is up in {dir}\n"),
        (false, true) => format!("no cluster was up in {dir}; removed its state\n"),
    })
}

/// Warns of the state that is lost; on a terminal, asks for confirmation.
fn confirm(client: Result<Client, Failure>, purge: bool) -> Result<(), Failure> {
    let apps = client.and_then(|c| c.with_timeout(STATUS_INTERVAL * 2).apps());
    let (lost, why) = match (apps, purge) {
        (Ok(apps), false) => (in_memory(&apps), "state is in memory only"),
        (Ok(apps), true) => {
            let keeps = |a: &AppView| a.services.iter().any(|s| s.stateful);
            let apps = apps.into_iter().filter(keeps).map(|a| a.name);
            (apps.collect(), "--purge removes state on disk too")
        }
        (Err(_), _) => (
            vec!["all that keep state in memory".to_string()],
            "the controller does not respond",
        ),
    };
    if lost.is_empty() {
        return Ok(());
    }
    output::say(&format!(
        "warning: {why}; these applications lose theirs: {}",
        lost.join(", ")
    ));
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(());
    }
    let _ = write!(std::io::stderr(), "Stop the cluster? [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => {
            let message = "not confirmed; the cluster is still up";
            Err(Failure::new(Exit::Unexpected, message).hint("--yes skips the question"))
        }
    }
}

/// Removes the files of the cluster, and nothing else that may be in the directory.
fn purge(state: &StateDir) -> Result<(), Failure> {
    let root = state.root();
    for part in PARTS.map(|name| root.join(name)) {
        let removed = if part.is_dir() {
            std::fs::remove_dir_all(&part)
        } else {
            std::fs::remove_file(&part)
        };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file("remove", &part, &e));
            }
            _ => {}
        }
    }
    // Fails if anything else is in it, which is fine.
    match std::fs::remove_dir(root) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(Failure::new(
            Exit::Unexpected,
            format!("remove {}: {e}", root.display()),
        )),
        _ => Ok(()),
    }
}
