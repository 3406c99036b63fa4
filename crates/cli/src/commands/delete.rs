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
    let client = Client::connect(settings)?;
    // Asked only for what is said in the end: whether there is such an application, the deletion decides.
    let app = client.app(&args.app);
    let has_state = app.is_ok_and(|app| app.services.iter().any(|s| s.stateful));
    let has_secrets = client.secrets(&args.app).is_ok_and(|all| !all.is_empty());
    client.delete(&args.app)?;
    let with = match (has_state, has_secrets) {
        (true, true) => " with its state and secrets",
        (true, false) => " with its state",
        (false, true) => " with its secrets",
        (false, false) => "",
    };
    output::print(&format!("deleted {}{with}\n", args.app))
}
