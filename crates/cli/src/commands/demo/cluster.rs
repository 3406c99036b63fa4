//! A cluster for a demonstration, removed when dropped.

use crate::cluster::client::Client;
use crate::cluster::removal::Removal;
use crate::cluster::start::{Lifetime, Start};
use crate::cluster::state_dir::{Choices, StateDir};
use crate::cluster::stop::stop;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_model::application::Durability;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// A running cluster.
pub struct DemoCluster {
    /// Its state directory.
    pub state: StateDir,
    /// Its controller.
    pub client: Client,
    /// Time that the start took, in seconds.
    pub up_s: f64,
    /// Removed in the end, with the cluster.
    dir: Option<TempDir>,
    is_kept: bool,
}

impl DemoCluster {
    /// Starts a cluster: in `keep`, where it stays, or in a temporary directory.
    pub fn start(
        topology: Option<&str>,
        keep: Option<&Path>,
        settings: &Settings,
    ) -> Result<DemoCluster, Failure> {
        let (dir, port) = match keep {
            Some(_) => (None, settings.port(None)?),
            None => (Some(temporary()?), 0),
        };
        let root = match (keep, &dir) {
            (None, Some(dir)) => dir.path().to_path_buf(),
            (keep, _) => keep.map(Path::to_path_buf).unwrap_or_default(),
        };
        let state = StateDir::new(&root);
        let is_new = state.topology()?.is_none();
        // A cluster that was there before keeps what was chosen for it.
        let mut start = Start::prepare(&state, topology, port)?.choose(Choices {
            durability: is_new.then_some(Durability::Memory),
            ..Choices::default()
        });
        let removal = dir.as_ref().map(|dir| Removal::of(dir.path()));
        let removal = removal.transpose()?;
        if let Some(removal) = &removal {
            start = start.until(removal.stop());
        }
        output::say(&format!("starting a cluster in {}", root.display()));
        let begin = Instant::now();
        let lifetime = if keep.is_some() {
            Lifetime::UntilStopped
        } else {
            Lifetime::ThisProcess
        };
        let cluster = start.in_background(false, lifetime)?;
        let started = DemoCluster {
            client: Client::of(&state, &cluster)?,
            state,
            up_s: begin.elapsed().as_secs_f64(),
            is_kept: dir.is_none(),
            dir,
        };
        removal.map_or(Ok(()), |removal| removal.arm())?;
        Ok(started)
    }

    /// Stops the cluster, unless it is kept.
    pub fn remove(mut self) -> Result<(), Failure> {
        let Some(dir) = self.dir.take() else {
            return Ok(());
        };
        stop(&self.state)?;
        let path = dir.path().to_path_buf();
        dir.close().map_err(|e| Failure::file("remove", &path, &e))
    }
}

impl Drop for DemoCluster {
    fn drop(&mut self) {
        if self.dir.is_some() {
            // After a failure, which is reported.
            let _ = stop(&self.state);
        } else if self.is_kept {
            output::say(&still_up(&self.state));
        }
    }
}

/// Said of a cluster that is kept, also after a failure.
fn still_up(state: &StateDir) -> String {
    let dir = state.root().display();
    let memory = match state.durability() {
        Durability::Memory => {
            "; it keeps state in memory only, unless a manifest or e3 up --durability disk says otherwise"
        }
        Durability::Disk => "",
    };
    format!("the cluster is still up in {dir}; stop it with: e3 down{memory}")
}

fn temporary() -> Result<TempDir, Failure> {
    let dir = tempfile::Builder::new().prefix("e3-demo-").tempdir();
    dir.map_err(|e| {
        let message = format!("create a temporary directory: {e}");
        Failure::new(Exit::Unexpected, message)
    })
}
