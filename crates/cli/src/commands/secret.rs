//! `e3 secret`: values that services read by name. They are stored encrypted and never shown.

use crate::cluster::client::Client;
use crate::documents::files::read_secret;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output::{self, Output, Table};
use crate::ui::text::time;
use clap::{Args, Subcommand};
use e3_model::api::SecretView;
use std::path::PathBuf;

/// `e3 secret`.
#[derive(Args, Debug, Clone)]
pub struct Secret {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What `e3 secret` does.
#[derive(Subcommand, Debug, Clone)]
pub enum Action {
    /// Give a secret a value, before its application is deployed or while it serves
    Set(Set),
    /// List the secrets of an application, without their values
    List(List),
    /// End the time in which services can still read the value before the present one
    Retire(Name),
    /// Delete a secret that no running application names
    Delete(Name),
}

/// `e3 secret set`.
#[derive(Args, Debug, Clone)]
pub struct Set {
    /// Application
    pub app: String,
    /// Name in the manifest
    pub name: String,
    /// File with the value, byte for byte; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
    /// Retire the value before at once: services cannot read it any more
    #[arg(long)]
    pub retire: bool,
}

/// `e3 secret list`.
#[derive(Args, Debug, Clone)]
pub struct List {
    /// Application
    pub app: String,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 secret retire`, `e3 secret delete`.
#[derive(Args, Debug, Clone)]
pub struct Name {
    /// Application
    pub app: String,
    /// Name in the manifest
    pub name: String,
}

/// `e3 secret`.
pub fn run(args: &Secret, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    match &args.action {
        Action::Set(args) => set(&client, args),
        Action::List(args) => {
            let all = client.secrets(&args.app)?;
            output::show(settings.format(args.output), &all, || table(&all))
        }
        Action::Retire(Name { app, name }) => {
            client.retire_secret(app, name)?;
            output::print(&format!(
                "only the present value of {app}/{name} is readable\n"
            ))
        }
        Action::Delete(Name { app, name }) => {
            client.delete_secret(app, name)?;
            output::print(&format!("deleted {app}/{name}\n"))
        }
    }
}

fn set(client: &Client, args: &Set) -> Result<(), Failure> {
    let value = read_secret(&args.file)?;
    let mut view = client.set_secret(&args.app, &args.name, &value)?;
    if args.retire && view.has_previous {
        view = client.retire_secret(&args.app, &args.name)?;
    }
    let SecretView { app, name, .. } = &view;
    let before = if view.has_previous {
        format!("; services can read the value before until: e3 secret retire {app} {name}")
    } else {
        String::new()
    };
    let unread = if view.services.is_empty() {
        "; no running service reads it"
    } else {
        ""
    };
    output::print(&format!("set {app}/{name}{unread}{before}\n"))
}

fn table(all: &[SecretView]) -> String {
    let mut table = Table::new(&["SECRET", ">VERSION", "SET", "VALUE BEFORE", "SERVICES"]);
    for s in all {
        let before = if s.has_previous { "readable" } else { "-" };
        let services = if s.services.is_empty() {
            "-".into()
        } else {
            s.services.join(", ")
        };
        table.row([
            s.name.clone(),
            s.version.to_string(),
            time(s.set_unix_ms),
            before.into(),
            services,
        ]);
    }
    table.render()
}
