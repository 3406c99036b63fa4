//! `e3 down`.

use crate::args::Down;
use crate::failure::{Exit, Failure};
use crate::limits::DOWN_GRACE;
use crate::output;
use crate::settings::Settings;
use crate::state_dir::StateDir;

/// `e3 down`.
pub fn run(args: &Down, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
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
    for name in ["controller", "nodes", "logs", "run"] {
        let dir = root.join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).map_err(|e| Failure::file("remove", &dir, &e))?;
        }
    }
    let topology = state.topology_file();
    match std::fs::remove_file(&topology) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::file("remove", &topology, &e));
        }
        _ => {}
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
