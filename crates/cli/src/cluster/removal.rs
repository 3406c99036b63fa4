//! Clusters in temporary directories, which end with the program.

use crate::cluster::process::Process;
use crate::cluster::state_dir::StateDir;
use crate::cluster::stop::stop;
use crate::ui::failure::Failure;
use crate::ui::{interrupt, output};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Handles Ctrl-C, SIGTERM and SIGHUP for a program with such a cluster. During the start the first one sets a flag, and
/// the second one ends the program. From then on the first one stops the cluster, removes its directory, and ends the
/// program.
pub struct Removal {
    stop: Arc<AtomicBool>,
    is_armed: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Removal {
    /// Before the cluster is started.
    pub fn of(root: &Path) -> Result<Removal, Failure> {
        let mut signals = interrupt::arriving()?;
        let flag = Arc::<AtomicBool>::default;
        let (stop, is_armed, is_over) = (flag(), flag(), flag());
        let removal = Removal {
            stop: stop.clone(),
            is_armed: is_armed.clone(),
            is_over: is_over.clone(),
        };
        let state = StateDir::new(root);
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let is_second = stop.swap(true, Ordering::SeqCst);
                if is_over.load(Ordering::SeqCst) {
                    continue;
                }
                if is_armed.load(Ordering::SeqCst) {
                    remove(&state);
                    output::say("\ninterrupted; the cluster is stopped");
                } else if !is_second {
                    continue;
                }
                if let Some(this) = Process::this() {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                    this.kill();
                }
            }
        });
        Ok(removal)
    }

    /// The flag, for [`crate::cluster::start::Start::until`].
    pub fn stop(&self) -> Arc<AtomicBool> {
        self.stop.clone()
    }

    /// The cluster has started. Fails if a signal has come meanwhile.
    pub fn arm(&self) -> Result<(), Failure> {
        self.is_armed.store(true, Ordering::SeqCst);
        interrupt::check(&self.stop, "interrupted while starting")
    }

    /// From now on somebody else handles the signals.
    pub fn disarm(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// Stops a cluster and removes its directory.
pub fn remove(state: &StateDir) {
    // A paused process does not stop.
    resume(state);
    let _ = stop(state);
    let _ = std::fs::remove_dir_all(state.root());
}

/// Resumes every process of a cluster.
pub fn resume(state: &StateDir) {
    // After a restart the recorded supervisor is the new one.
    let running = state.running().ok().flatten();
    let supervisor = running.map(|cluster| cluster.supervisor);
    let alive = state.processes_alive().into_iter();
    for process in supervisor.into_iter().chain(alive.map(|(_, p)| p)) {
        process.resume();
    }
}
