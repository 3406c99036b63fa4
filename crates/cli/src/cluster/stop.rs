//! Stops a cluster.

use crate::cluster::process::Process;
use crate::cluster::state_dir::StateDir;
use crate::limits::{DOWN_GRACE, POLL_INTERVAL};
use crate::ui::failure::{Exit, Failure};
use std::time::Instant;

/// Stops the cluster of a state directory and waits until all its processes have exited; false if
/// none was up. Fails if another cluster was started meanwhile, or if the lock is not released.
pub fn stop(state: &StateDir) -> Result<bool, Failure> {
    let Some(cluster) = state.recorded()? else {
        return Ok(false);
    };
    let up = cluster.supervisor.alive();
    stop_supervisor(&cluster.supervisor);
    let begin = Instant::now();
    let _lock = loop {
        match state.lock() {
            Ok(lock) => break Some(lock),
            Err(failure) if failure.exit == Exit::Conflict => {
                let now = state.running()?;
                if now.is_some_and(|now| now.supervisor != cluster.supervisor) {
                    // The records are its own.
                    let dir = state.root().display();
                    let message =
                        format!("another cluster was started in {dir} meanwhile; it is up");
                    return Err(Failure::new(Exit::Conflict, message).hint("stop it with: e3 down"));
                }
                if begin.elapsed() > DOWN_GRACE {
                    let (waited_s, why) = (DOWN_GRACE.as_secs(), failure.message);
                    let message = format!("the lock is still held after {waited_s} s: {why}");
                    return Err(Failure::new(Exit::Conflict, message).hint("try again: e3 down"));
                }
                // The system releases the lock only when the last thread of the supervisor has ended.
                std::thread::sleep(POLL_INTERVAL);
            }
            // On a full disk nobody can take it.
            Err(_) => break None,
        }
    };
    let left = kill_left(state);
    state.clear_run()?;
    Ok(up || left)
}

/// Stops a supervisor, which itself waits for its processes.
pub(super) fn stop_supervisor(supervisor: &Process) {
    supervisor.terminate();
    if !supervisor.wait(DOWN_GRACE * 2) {
        supervisor.kill();
        supervisor.wait(DOWN_GRACE);
    }
}

/// Kills processes whose supervisor is gone; whether there were any. Whoever calls it holds the lock.
pub(super) fn kill_left(state: &StateDir) -> bool {
    let left = state.processes_alive();
    for (_, process) in &left {
        process.kill();
        process.wait(DOWN_GRACE);
    }
    !left.is_empty()
}
