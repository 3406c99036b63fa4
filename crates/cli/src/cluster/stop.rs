//! Stops a cluster.

use crate::cluster::state_dir::StateDir;
use crate::limits::DOWN_GRACE;
use crate::ui::failure::Failure;

/// Stops the cluster of a state directory and waits until all its processes have exited; false if
/// none was up.
pub fn stop(state: &StateDir) -> Result<bool, Failure> {
    let Some(cluster) = state.recorded()? else {
        return Ok(false);
    };
    let up = cluster.supervisor.alive();
    // The supervisor itself waits for its processes.
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
