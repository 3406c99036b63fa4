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
use std::path::Path;

/// `e3 down`.
#[derive(Args, Debug, Clone, Default)]
pub struct Down {
    /// Also remove the files of the cluster: applications, state, secrets, tokens, logs, compiled code
    #[arg(long)]
    pub purge: bool,
    /// Do not ask for confirmation when something is lost
    #[arg(short, long)]
    pub yes: bool,
}

/// `e3 down`.
pub fn run(args: &Down, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    let dir = settings.dir.display();
    if args.purge && !holds_cluster(&state) {
        return if holds_part(&state) {
            let message = format!("{dir} holds no cluster; nothing is removed");
            Err(Failure::new(Exit::Input, message).hint("give its state directory with --dir DIR"))
        } else {
            output::print(&format!(
                "no cluster is in {dir}; there is nothing to remove\n"
            ))
        };
    }
    let cluster = state.running()?;
    settings.check_controller(cluster.as_ref())?;
    if !args.yes {
        let apps = cluster.as_ref().map(|cluster| {
            let client = Client::of(&state, cluster)?;
            client.with_timeout(STATUS_INTERVAL * 2).apps()
        });
        let is_up = apps.is_some();
        if let Some(lost) = lost(apps, args.purge.then_some(settings.dir.as_path())) {
            confirm(&lost, is_up, args.purge)?;
        }
    }
    let ended = stop(&state)?;
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

/// Whether the directory is surely that of a cluster. The names of the other parts, and `topology.yaml` alone, may
/// be those of somebody else's files; `run/lock` is a directory in `/`.
fn holds_cluster(state: &StateDir) -> bool {
    let run = state.root().join("run");
    run.join("lock").is_file() || (run.is_dir() && state.topology_file().is_file())
}

/// Whether anything in the directory has the name of a part of a cluster.
fn holds_part(state: &StateDir) -> bool {
    let is_there = |name: &str| state.root().join(name).symlink_metadata().is_ok();
    PARTS.into_iter().any(is_there)
}

/// What is lost; none if nothing is. `apps` is none if no cluster is up; `purged` is the directory whose files are
/// removed.
fn lost(apps: Option<Result<Vec<AppView>, Failure>>, purged: Option<&Path>) -> Option<String> {
    let removed = purged.map(|dir| {
        format!(
            "--purge removes state on disk too: all applications with their state and secrets, the tokens and \
             secret-key in {}",
            dir.display()
        )
    });
    let silent = "the controller does not respond";
    match (apps, removed) {
        (None, removed) => removed,
        (Some(Err(_)), Some(removed)) => Some(format!("{silent}; {removed}")),
        (Some(Err(_)), None) => Some(format!(
            "{silent}; all applications that keep state in memory lose it"
        )),
        (Some(Ok(apps)), Some(removed)) => {
            let keeps = |a: &AppView| a.services.iter().any(|s| s.stateful);
            let names: Vec<String> = apps.into_iter().filter(keeps).map(|a| a.name).collect();
            Some(if names.is_empty() {
                removed
            } else {
                let names = names.join(", ");
                format!("{removed}; these applications lose their state: {names}")
            })
        }
        (Some(Ok(apps)), None) => {
            let names = in_memory(&apps);
            (!names.is_empty()).then(|| {
                let names = names.join(", ");
                format!("state is in memory only; these applications lose theirs: {names}")
            })
        }
    }
}

/// Warns of what is lost; on a terminal, asks for confirmation.
fn confirm(lost: &str, is_up: bool, purge: bool) -> Result<(), Failure> {
    output::say(&format!("warning: {lost}"));
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Ok(());
    }
    let (question, otherwise) = match (is_up, purge) {
        (true, false) => ("Stop the cluster?", "the cluster is still up"),
        (true, true) => (
            "Stop the cluster and remove its files?",
            "the cluster is still up",
        ),
        (false, _) => ("Remove the files of the cluster?", "nothing is removed"),
    };
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => {
            let message = format!("not confirmed; {otherwise}");
            Err(Failure::new(Exit::Unexpected, message).hint("--yes skips the question"))
        }
    }
}

/// Removes the files of the cluster, and nothing else that may be in the directory.
fn purge(state: &StateDir) -> Result<(), Failure> {
    let _lock = match state.lock() {
        // Another cluster was started meanwhile.
        Err(failure) if failure.exit == Exit::Conflict => return Err(failure),
        // On a full disk nobody can take it.
        locked => locked.ok(),
    };
    let root = state.root();
    // The first part is `run`. It goes last: it holds the lock, and shows that the rest is a cluster's.
    for part in PARTS.iter().rev().map(|name| root.join(name)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directory_of_a_cluster_is_purged() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(tmp.path());
        assert!(!holds_cluster(&state) && !holds_part(&state));
        // As in the root directory of a system.
        let lock = tmp.path().join("run/lock");
        std::fs::create_dir_all(&lock).unwrap();
        assert!(!holds_cluster(&state) && holds_part(&state));
        std::fs::remove_dir(&lock).unwrap();
        std::fs::write(state.topology_file(), "").unwrap();
        assert!(holds_cluster(&state));
        std::fs::write(tmp.path().join("mine"), "").unwrap();
        let lock = state.lock().unwrap();
        assert_eq!(purge(&state).unwrap_err().exit, Exit::Conflict);
        assert!(state.topology_file().exists());
        drop(lock);
        purge(&state).unwrap();
        assert!(!holds_part(&state) && tmp.path().join("mine").exists());
    }

    #[test]
    fn what_is_lost_is_said() {
        let dir = Path::new("/d");
        let silent = || Some(Err(Failure::new(Exit::Timeout, "silent")));
        assert_eq!(lost(None, None), None);
        assert_eq!(lost(Some(Ok(Vec::new())), None), None);
        for apps in [None, Some(Ok(Vec::new())), silent()] {
            let text = lost(apps, Some(dir)).unwrap();
            assert!(text.ends_with("secret-key in /d"), "{text}");
        }
        let text = lost(silent(), None).unwrap();
        assert!(
            text.starts_with("the controller does not respond"),
            "{text}"
        );
    }
}
