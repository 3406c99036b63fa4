//! `e3 rollback`: deploys the version before the running one again.

use crate::cluster::client::Client;
use crate::commands::deploy::wait_ready;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output;
use crate::ui::values::duration;
use clap::Args;
use std::time::Duration;

/// `e3 rollback`.
#[derive(Args, Debug, Clone)]
pub struct Rollback {
    /// Application
    pub app: String,
    /// Wait until all instances run
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 rollback`.
pub fn run(args: &Rollback, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let done = client.rollback(&args.app)?;
    let (app, from, to, version) = (&done.app, done.from, done.to, done.code_version);
    output::print(&format!(
        "rolled back {app} from version {from} to version {to}, which is now version {version}\n"
    ))?;
    if args.wait {
        wait_ready(&client, app, version, args.timeout)?;
        output::print(&format!("{app} is ready\n"))?;
    }
    Ok(())
}
