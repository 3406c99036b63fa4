//! The processes of one cluster, found through its state directory. All are resumed when this is
//! dropped, whatever happens.

use crate::cluster::process::Process;
use crate::cluster::removal::{remove, resume};
use crate::cluster::start::{Lifetime, Start};
use crate::cluster::state_dir::{RunningCluster, StateDir};
use crate::ui::failure::{Exit, Failure};
use std::sync::{Arc, Mutex};

/// Name of the controller's process.
pub const CONTROLLER: &str = "controller";

/// The processes of a cluster.
#[derive(Clone)]
pub struct Processes {
    inner: Arc<Inner>,
}

struct Inner {
    state: StateDir,
    cluster: RunningCluster,
    /// Held while the cluster is being restarted.
    starting: Mutex<()>,
}

impl Processes {
    /// The processes of the cluster that runs in a state directory.
    pub fn of(state: &StateDir) -> Result<Processes, Failure> {
        let cluster = state.require_running()?;
        let state = state.clone();
        Ok(Processes {
            inner: Arc::new(Inner {
                state,
                cluster,
                starting: Mutex::new(()),
            }),
        })
    }

    /// The state directory.
    pub fn state(&self) -> &StateDir {
        &self.inner.state
    }

    /// Port of the controller.
    pub fn controller_port(&self) -> u16 {
        self.inner.cluster.port
    }

    /// Names of the nodes, sorted.
    pub fn nodes(&self) -> Vec<String> {
        let mut nodes = self.inner.cluster.nodes.clone();
        nodes.sort();
        nodes
    }

    /// The running process of a node or of the controller.
    pub fn named(&self, name: &str) -> Result<Process, Failure> {
        let found = self.inner.state.process(name).filter(Process::alive);
        found.ok_or_else(|| Failure::new(Exit::NotFound, format!("{name} is not running")))
    }

    /// The supervisor.
    pub fn supervisor(&self) -> Result<Process, Failure> {
        let running = self.inner.state.running()?;
        let gone = || Failure::new(Exit::NotFound, "the supervisor is not running");
        running.map(|cluster| cluster.supervisor).ok_or_else(gone)
    }

    /// The processes of all nodes.
    pub fn all_nodes(&self) -> Vec<Process> {
        let nodes = self.nodes();
        let alive = self.inner.state.processes_alive().into_iter();
        let nodes = alive.filter(|(name, _)| nodes.contains(name));
        nodes.map(|(_, process)| process).collect()
    }

    /// All processes of the cluster, the supervisor first, so that it does not take paused ones for lost.
    pub fn all(&self) -> Vec<Process> {
        let alive = self.inner.state.processes_alive().into_iter();
        let alive = alive.map(|(_, process)| process);
        self.supervisor().into_iter().chain(alive).collect()
    }

    /// Restarts the cluster at the same port after its supervisor was killed.
    pub fn start_again(&self) -> Result<(), Failure> {
        let _starting = self.inner.starting.lock();
        let start = Start::prepare(&self.inner.state, None, self.inner.cluster.port)?;
        start.in_background(false, Lifetime::UntilStopped).map(drop)
    }

    /// Resumes every process.
    pub fn heal(&self) {
        resume(&self.inner.state);
    }

    /// Stops the cluster and removes its directory. A cluster that was restarted would outlive this
    /// program.
    pub fn remove(&self) {
        let _starting = self.inner.starting.lock();
        remove(&self.inner.state);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        resume(&self.state);
    }
}
