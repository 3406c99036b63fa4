//! `e3 describe`: the details of a node, application, service or instance.

mod app;
mod instance;
mod layout;
mod node;
mod service;
pub mod why;

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output::{self, Output};
use clap::{Args, ValueEnum};
use instance::InstanceDetails;
use node::NodeDetails;
use service::ServiceDetails;

/// Kinds of things that `e3 describe` shows.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Thing {
    /// NAME is NODE
    Node,
    /// NAME is APP
    App,
    /// NAME is APP/SERVICE
    Service,
    /// NAME is APP/SERVICE/SHARD
    Instance,
}

/// `e3 describe`.
#[derive(Args, Debug, Clone)]
pub struct Describe {
    /// Kind of thing
    #[arg(value_enum)]
    pub kind: Thing,
    /// NODE, APP, APP/SERVICE or APP/SERVICE/SHARD
    pub name: String,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 describe`.
pub fn run(args: &Describe, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let format = settings.format(args.output);
    let paint = settings.paint();
    let name = args.name.trim_end_matches('/');
    match args.kind {
        Thing::Node => {
            let details = NodeDetails::get(&client, name)?;
            output::show(format, &details, || details.text(paint))
        }
        Thing::App => {
            let app = client.app(name)?;
            let nodes = client.nodes()?;
            output::show(format, &app, || app::text(&app, &nodes, paint))
        }
        Thing::Service => {
            let details = ServiceDetails::get(&client, name)?;
            output::show(format, &details, || details.text(paint))
        }
        Thing::Instance => {
            let details = InstanceDetails::get(&client, name)?;
            output::show(format, &details, || details.text(paint))
        }
    }
}
