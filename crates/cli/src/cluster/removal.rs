//! Clusters in temporary directories, which end with the program.

use crate::cluster::process::Process;
use crate::cluster::state_dir::StateDir;
use crate::cluster::stop::stop;
use crate::ui::failure::{Exit, Failure};
use crate::ui::{interrupt, output};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// While it is armed, the first Ctrl-C, SIGTERM or SIGHUP stops the cluster in a directory, removes the directory, and
/// ends the program.
pub struct Removal {
    is_armed: Arc<AtomicBool>,
}

impl Removal {
    /// Arms it, before the cluster is started.
    pub fn arm(root: &Path) -> Result<Removal, Failure> {
        let mut signals = Signals::new(interrupt::signals())
            .map_err(|e| Failure::new(Exit::Unexpected, format!("signal handler: {e}")))?;
        let is_armed = Arc::new(AtomicBool::new(true));
        let (armed, root) = (is_armed.clone(), root.to_path_buf());
        std::thread::spawn(move || {
            let mut caught = signals.forever();
            if let Some(signal) = caught.find(|_| armed.load(Ordering::Relaxed)) {
                remove(&root);
                output::say("\ninterrupted; the cluster is stopped");
                if let Some(this) = Process::this() {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                    this.kill();
                }
            }
        });
        Ok(Removal { is_armed })
    }

    /// From now on somebody else handles the signals.
    pub fn disarm(&self) {
        self.is_armed.store(false, Ordering::Relaxed);
    }
}

fn remove(root: &Path) {
    let state = StateDir::new(root);
    let supervisor = state.running().ok().flatten().map(|c| c.supervisor);
    let alive = state.processes_alive().into_iter().map(|(_, p)| p);
    // A paused process does not stop.
    supervisor.into_iter().chain(alive).for_each(|p| p.resume());
    let _ = stop(&state);
    let _ = std::fs::remove_dir_all(root);
}
