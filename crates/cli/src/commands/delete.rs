//! `e3 delete`.

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output;
use clap::Args;

/// `e3 delete`.
#[derive(Args, Debug, Clone)]
pub struct Delete {
    /// Application
    pub app: String,
}

/// `e3 delete`.
pub fn run(args: &Delete, settings: &Settings) -> Result<(), Failure> {
    Client::connect(settings)?.delete(&args.app)?;
    output::print(&format!("deleted {}\n", args.app))
}
