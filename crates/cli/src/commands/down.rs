//! `e3 down`.

use crate::cluster::client::Client;
use crate::cluster::state_dir::{PARTS, StateDir};
use crate::cluster::stop::stop;
use crate::commands::up::stateful;
use crate::limits::STATUS_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::Args;
use std::io::{IsTerminal, Write};

/// `e3 down`.
#[derive(Args, Debug, Clone, Default)]
pub struct Down {
    /// Also remove the cluster's state: applications, logs, compiled code
    #[arg(long)]
    pub purge: bool,
    /// Do not ask before the state of applications is lost
    #[arg(short, long)]
    pub yes: bool,
}

/// `e3 down`.
pub fn run(args: &Down, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    if !args.yes
        && let Some(cluster) = state.running()?
    {
        confirm(Client::of(&state, &cluster))?;
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

/// Says which state is lost, and asks on a terminal whether that is meant.
fn confirm(client: Result<Client, Failure>) -> Result<(), Failure> {
    let lost = match client.and_then(|c| c.patience(STATUS_INTERVAL * 2).apps()) {
        Ok(apps) => stateful(&apps).join(", "),
        Err(_) => "of every stateful application (the controller does not answer)".into(),
    };
    if lost.is_empty() {
        return Ok(());
    }
    output::say(&format!(
        "warning: state is kept in memory and ends with the cluster: {lost}"
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
            let message = "not confirmed; the cluster goes on";
            Err(Failure::new(Exit::Unexpected, message).hint("--yes stops it without a question"))
        }
    }
}

/// Removes what a cluster keeps, and nothing else that may be in the directory.
fn purge(state: &StateDir) -> Result<(), Failure> {
    let root = state.root();
    for part in PARTS.map(|name| root.join(name)) {
        let removed = match part.is_dir() {
            true => std::fs::remove_dir_all(&part),
            false => std::fs::remove_file(&part),
        };
        match removed {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::file("remove", &part, &e));
            }
            _ => {}
        }
    }
    // Only goes if nothing else is in it.
    match std::fs::remove_dir(root) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err(Failure::new(
            Exit::Unexpected,
            format!("remove {}: {e}", root.display()),
        )),
        _ => Ok(()),
    }
}
