//! `e3 down`.

use crate::args::Down;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::limits::{DOWN_GRACE, STATUS_INTERVAL};
use crate::output;
use crate::settings::Settings;
use crate::state_dir::{PARTS, StateDir};
use crate::up::stateful;
use std::io::{IsTerminal, Write};

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

/// Stops the cluster of a state directory and waits for its end; false if none was up.
pub fn stop(state: &StateDir) -> Result<bool, Failure> {
    let Some(cluster) = state.recorded()? else {
        return Ok(false);
    };
    let up = cluster.supervisor.alive();
    // The supervisor gives its processes a grace of their own.
    cluster.supervisor.terminate();
    if !cluster.supervisor.wait(DOWN_GRACE * 2) {
        cluster.supervisor.kill();
        cluster.supervisor.wait(DOWN_GRACE);
    }
    let mut left = false;
    for (_, process) in state.processes_alive() {
        left = true;
        process.kill();
        process.wait(DOWN_GRACE);
    }
    state.clear_run()?;
    Ok(up || left)
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
