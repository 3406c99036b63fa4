//! The command's own cluster, in a temporary directory, with the application deployed. It ends with
//! this process.

use crate::cluster::client::Client;
use crate::cluster::removal::Removal;
use crate::cluster::start::{Lifetime, Start};
use crate::cluster::state_dir::{Choices, StateDir};
use crate::cluster::stop::stop;
use crate::commands::deploy;
use crate::documents::Sources;
use crate::documents::builtin::{self, Text};
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_model::Application;
use e3_model::application::Durability;

/// A cluster, removed when it is dropped.
pub struct Own {
    /// Its state directory.
    pub state: StateDir,
    /// Its controller.
    pub client: Client,
    /// Removes it on a signal.
    pub removal: Removal,
    _dir: tempfile::TempDir,
}

impl Own {
    /// Starts it and deploys the application of a manifest.
    pub fn start(manifest: &str, sources: &Sources, settings: &Settings) -> Result<Own, Failure> {
        let (text, app) = builtin::application(manifest)?;
        Own::with(&text, &app, None, sources, settings)
    }

    /// Starts it with this topology, or else the default one, and deploys this application.
    pub fn with(
        text: &Text,
        app: &Application,
        topology: Option<&str>,
        sources: &Sources,
        settings: &Settings,
    ) -> Result<Own, Failure> {
        let request = deploy::request(text, app, sources, settings)?;
        let dir = tempfile::Builder::new()
            .prefix("e3-chaos-")
            .tempdir()
            .map_err(|e| Failure::new(Exit::Unexpected, format!("temporary directory: {e}")))?;
        let state = StateDir::new(dir.path());
        let removal = Removal::of(dir.path())?;
        let start = Start::prepare(&state, topology, 0)?.until(removal.stop());
        let start = start.choose(Choices {
            durability: Some(Durability::Memory),
            ..Choices::default()
        });
        output::say(&format!("starting a cluster in {}", dir.path().display()));
        let cluster = start.in_background(false, Lifetime::ThisProcess)?;
        let own = Own {
            client: Client::of(&state, &cluster)?,
            state,
            removal,
            _dir: dir,
        };
        own.removal.arm()?;
        let version = own.client.deploy(&request)?.code_version;
        deploy::wait_ready(&own.client, &app.name, version, DEPLOY_TIMEOUT)?;
        Ok(own)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = stop(&self.state);
    }
}
