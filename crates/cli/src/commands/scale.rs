//! `e3 scale`: changes how many replicas each shard of a service has.

use crate::cluster::client::Client;
use crate::commands::deploy::wait_ready;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use crate::ui::values::duration;
use clap::Args;
use e3_model::api::ScaleRequest;
use std::time::Duration;

/// `e3 scale`.
#[derive(Args, Debug, Clone)]
pub struct Scale {
    /// APP/SERVICE
    pub service: String,
    /// Copies of each shard, the primary included
    #[arg(long, value_name = "COUNT")]
    pub replicas: u16,
    /// Wait until all instances run
    #[arg(long)]
    pub wait: bool,
    /// Timeout of --wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 scale`.
pub fn run(args: &Scale, settings: &Settings) -> Result<(), Failure> {
    let Some((app, _)) = args.service.split_once('/') else {
        let message = format!("{:?} is not APP/SERVICE", args.service);
        return Err(Failure::new(Exit::Input, message).hint("e3 scale iot-ts/sql --replicas 3"));
    };
    let client = Client::connect(settings)?;
    let done = client.scale(&ScaleRequest {
        service: args.service.clone(),
        replicas: args.replicas,
    })?;
    let (service, now, before) = (&done.service, done.replicas, done.replicas_before);
    let copies = plural(usize::from(now), "replica");
    let mut text = match now == before {
        true => format!("{service} has {copies} of each shard, as before"),
        false => format!("scaled {service} from {before} to {copies} of each shard"),
    };
    if done.replicas_in_manifest != now {
        let manifest = done.replicas_in_manifest;
        text += &format!("; the manifest says {manifest}, which holds after the next deployment");
    }
    output::print(&(text + "\n"))?;
    if args.wait {
        let version = client.app(app)?.code_version;
        wait_ready(&client, app, version, args.timeout)?;
        output::print(&format!("{app} is ready\n"))?;
    }
    Ok(())
}
