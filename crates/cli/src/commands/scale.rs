//! `e3 scale`: changes how many replicas each shard of a service has, or how many shards.

use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::commands::deploy::wait_ready;
use crate::limits::POLL_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use crate::ui::values::duration;
use clap::Args;
use e3_model::api::{ReshardRequest, ScaleRequest};
use std::time::Duration;

/// `e3 scale`.
#[derive(Args, Debug, Clone)]
pub struct Scale {
    /// APP/SERVICE
    pub service: String,
    /// Copies of each shard, the primary included
    #[arg(long, value_name = "COUNT", required_unless_present = "shards")]
    pub replicas: Option<u16>,
    /// Shards: a multiple or a divisor of what the service has
    #[arg(long, value_name = "COUNT")]
    pub shards: Option<u16>,
    /// Wait until all instances run
    #[arg(long)]
    pub wait: bool,
    /// Maximum wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 scale`.
pub fn run(args: &Scale, settings: &Settings) -> Result<(), Failure> {
    let Some((app, service)) = args.service.split_once('/') else {
        let message = format!("{:?} is not APP/SERVICE", args.service);
        return Err(Failure::new(Exit::Input, message).hint("e3 scale iot-ts/sql --replicas 3"));
    };
    let client = Client::connect(settings)?;
    if let Some(shards) = args.shards {
        let before = reshard(&client, app, service, shards, args.timeout)?;
        let (name, count) = (&args.service, plural(usize::from(shards), "shard"));
        output::print(&if before == shards {
            format!("{name} has {count}, as before\n")
        } else {
            format!("{name} had {before} and now has {count}\n")
        })?;
    }
    if let Some(replicas) = args.replicas {
        scale(&client, &args.service, replicas)?;
    }
    if args.wait {
        let version = client.app(app)?.code_version;
        wait_ready(&client, app, version, args.timeout)?;
        output::print(&format!("{app} is ready\n"))?;
    }
    Ok(())
}

fn scale(client: &Client, service: &str, replicas: u16) -> Result<(), Failure> {
    let service = service.to_string();
    let done = client.scale(&ScaleRequest { service, replicas })?;
    let (service, now, before) = (&done.service, done.replicas, done.replicas_before);
    let copies = plural(usize::from(now), "replica");
    let mut text = if now == before {
        format!("{service} has {copies} of each shard, as before")
    } else {
        format!("scaled {service} from {before} to {copies} of each shard")
    };
    if done.replicas_in_manifest != now {
        let manifest = done.replicas_in_manifest;
        text += &format!("; the manifest says {manifest}, which holds after the next deployment");
    }
    output::print(&(text + "\n"))
}

/// Changes the number of shards, and waits until it has changed; gives the number before.
pub fn reshard(
    client: &Client,
    app: &str,
    service: &str,
    shards: u16,
    timeout: Duration,
) -> Result<u16, Failure> {
    let name = format!("{app}/{service}");
    let begun = client.reshard(&ReshardRequest {
        service: name.clone(),
        shards,
    })?;
    let before = begun.shards_before;
    if !begun.changed {
        return Ok(before);
    }
    let patience = Patience::new(timeout);
    loop {
        let view = patience.ask(|| client.app(app))?;
        let now = view.services.iter().find(|s| s.name == service);
        let now = now.map(|s| (s.shards, s.shards_wanted));
        match now {
            Some((now, _)) if now == shards => return Ok(before),
            Some((_, Some(_))) => {}
            _ => {
                let message = format!("{name} still has {before} shards: one did not stop in time");
                let hint =
                    "its messages may not arrive downstream: see e3 get channels, then retry";
                return Err(Failure::new(Exit::Unexpected, message).hint(hint));
            }
        }
        if patience.begin.elapsed() > timeout {
            let waited_s = timeout.as_secs();
            let message = format!(
                "{name} still has {before} shards after {waited_s} s, and changes when all its copies are in place"
            );
            let hint = format!("see e3 describe app {app}");
            return Err(Failure::new(Exit::Timeout, message).hint(hint));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
