//! `e3 get`: lists nodes, applications, instances, channels, dead letters, pending timers, events and commands.

use crate::cluster::client::Client;
use crate::commands::{audit, events, pending, replay};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Paint, Table};
use crate::ui::text::{bytes, count, kind_and_scale, plural};
use crate::ui::values::duration;
use clap::{Args, ValueEnum};
use e3_model::api::{
    AppView, ChannelView, Health, InstanceStatus, InstanceView, NodeView, ServiceView,
};
use e3_model::plan::Role;
use e3_model::profile::Provenance;
use std::time::Duration;

/// Kinds of things that `e3 get` lists.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Things {
    /// Nodes and their state
    #[value(alias = "node")]
    Nodes,
    /// Applications
    #[value(alias = "app")]
    Apps,
    /// Instances: every replica of every shard
    #[value(alias = "instance")]
    Instances,
    /// Channels and the messages waiting in them
    #[value(alias = "channel")]
    Channels,
    /// Dead letters: requests that failed too often or expired
    #[value(alias = "dead-letter")]
    DeadLetters,
    /// Timers, outbound requests and publications that are pending: e3 get timers APP [SERVICE]
    #[value(alias = "timer")]
    Timers,
    /// What happened: migrations, nodes lost, decisions of the orchestrator: e3 get events [APP]
    #[value(alias = "event")]
    Events,
    /// Commands to the controller: who sent each, and its result
    Audit,
}

/// `e3 get`.
#[derive(Args, Debug, Clone)]
pub struct Get {
    /// What to list
    #[arg(value_enum)]
    pub what: Things,
    /// Application whose timers or events are listed
    #[arg(value_name = "APP", conflicts_with = "app")]
    pub of: Option<String>,
    /// Service whose timers are listed [default: all]
    #[arg(value_name = "SERVICE")]
    pub service: Option<String>,
    /// Only this application
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// Only this node
    #[arg(long, value_name = "NODE")]
    pub node: Option<String>,
    /// Only commands of this time until now, such as 1h (audit)
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub since: Option<Duration>,
    /// Print new ones as they come (audit, events)
    #[arg(long)]
    pub watch: bool,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

impl Get {
    /// Refuses what does not apply to the things to list, which would otherwise list more than was wanted.
    fn check(&self) -> Result<(), Failure> {
        use Things::{Apps, Audit, Events, Nodes, Timers};
        let what = self.what;
        if let Some(of) = self
            .of
            .as_ref()
            .filter(|_| !matches!(what, Timers | Events))
        {
            let message =
                format!("{of:?} follows what to list; only timers and events are listed like that");
            return Err(Failure::new(Exit::Input, message).hint("use --app or --node"));
        }
        let wrong = [
            (
                self.service.is_some() && what != Timers,
                "a service is for `e3 get timers` only",
            ),
            (
                self.app.is_some() && matches!(what, Nodes | Audit),
                "--app is not for nodes and audit",
            ),
            (
                self.node.is_some() && matches!(what, Apps | Audit),
                "--node is not for apps and audit",
            ),
            (
                self.since.is_some() && what != Audit,
                "--since is for `e3 get audit` only",
            ),
            (
                self.watch && !matches!(what, Audit | Events),
                "--watch is for `e3 get audit` and `e3 get events` only",
            ),
        ];
        match wrong.iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, message)) => Err(Failure::new(Exit::Input, *message)),
            None => Ok(()),
        }
    }
}

/// `e3 get`.
pub fn run(args: &Get, settings: &Settings) -> Result<(), Failure> {
    args.check()?;
    let client = Client::connect(settings)?;
    let format = settings.format(args.output);
    let paint = settings.paint();
    let wanted =
        |filter: &Option<String>, value: &str| filter.as_deref().is_none_or(|f| f == value);
    // Events may be of what is gone. Of other things, a wrong name would list nothing, as if all were well.
    if !matches!(args.what, Things::Events) {
        if let Some(app) = &args.app {
            client.app(app)?;
        }
        if let Some(node) = &args.node {
            client.node(node)?;
        }
    }
    match args.what {
        Things::Audit => audit::run(&client, format, args.since, args.watch),
        Things::Events => {
            let of = args.of.as_deref().or(args.app.as_deref());
            events::run(&client, format, (of, args.node.as_deref()), args.watch)
        }
        Things::Nodes => {
            let mut all = client.nodes()?;
            all.retain(|n| wanted(&args.node, &n.name));
            output::show(format, &all, || nodes(&all, paint))
        }
        Things::Apps => {
            let mut all = client.apps()?;
            all.retain(|a| wanted(&args.app, &a.name));
            output::show(format, &all, || apps(&all, paint))
        }
        Things::Instances => {
            let mut all = client.instances()?;
            all.retain(|i| wanted(&args.app, app_of(&i.instance)) && wanted(&args.node, &i.node));
            output::show(format, &all, || instances(&all, paint))
        }
        Things::DeadLetters => {
            let replay::Letters { mut all, missing } = replay::views(&client, args.app.as_deref())?;
            if let Some(node) = &args.node {
                let here: Vec<String> = client
                    .instances()?
                    .into_iter()
                    .filter(|i| i.role == Role::Primary && i.node == *node)
                    .map(|i| i.instance)
                    .collect();
                all.retain(|l| here.contains(&l.instance));
            }
            output::show(format, &all, || replay::table(&all))?;
            // The letters of the other shards are shown before.
            missing.map_or(Ok(()), Err)
        }
        Things::Timers => {
            let app = args.of.as_ref().or(args.app.as_ref()).ok_or_else(|| {
                let message = "timers of which application?";
                Failure::new(Exit::Input, message).hint("e3 get timers APP [SERVICE]")
            })?;
            let mut all = client.timers(app, args.service.as_deref())?;
            all.retain(|shard| wanted(&args.node, &shard.node));
            output::show(format, &all, || pending::text(&all))
        }
        Things::Channels => {
            let mut all = client.channels()?;
            all.retain(|c| wanted(&args.app, &c.app) && wanted(&args.node, &c.node));
            output::show(format, &all, || channels(&all))
        }
    }
}

/// The application of `app/service/shard`.
pub fn app_of(instance: &str) -> &str {
    instance.split('/').next().unwrap_or_default()
}

/// Name of a role.
pub fn role(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Backup => "backup",
        Role::Joining => "joining",
    }
}

/// A status in its colour.
pub fn status(status: InstanceStatus, paint: Paint) -> String {
    use InstanceStatus as S;
    match status {
        S::Running => paint.green(status.name()),
        S::Failed | S::Lost | S::Blocked | S::Stalled | S::Silent | S::Waiting => {
            paint.red(status.name())
        }
        S::Starting | S::Updating | S::Joining | S::Syncing | S::Frozen => {
            paint.yellow(status.name())
        }
    }
}

/// The health of an application in its colour.
pub fn health(health: Health, paint: Paint) -> String {
    match health {
        Health::Ready => paint.green("ready"),
        Health::Degraded => paint.yellow("degraded"),
        Health::NotReady => paint.yellow("not ready"),
    }
}

/// Modelled joules. The heading or the text beside them must say that they are modelled.
pub fn joules(joules: f64) -> String {
    match joules {
        0.0 => "0".into(),
        j if j < 1e-3 => format!("{:.1} uJ", j * 1e6),
        j if j < 1.0 => format!("{:.1} mJ", j * 1e3),
        j => format!("{j:.1} J"),
    }
}

/// Whether a node is up and in service.
pub fn node_state(n: &NodeView, paint: Paint) -> String {
    let up = paint.verdict(n.up, if n.up { "up" } else { "down" });
    match (n.drained, n.undrained.len()) {
        (false, _) if n.cordoned => format!("{up}, {}", paint.yellow("cordoned")),
        (false, _) => up,
        (true, 0) => format!("{up}, {}", paint.yellow("drained")),
        (true, left) => {
            let draining = format!("draining, {} left", plural(left, "replica"));
            format!("{up}, {}", paint.yellow(&draining))
        }
    }
}

fn nodes(all: &[NodeView], paint: Paint) -> String {
    let mut table = Table::new(&[
        "NODE",
        "KIND",
        "SERVER",
        "STATE",
        "URL",
        ">INSTANCES",
        ">QUEUE",
        ">REQUESTS",
        ">CPU (s)",
        ">MEMORY",
        ">MODELLED ENERGY",
        ">MEASURED ENERGY",
        ">LAST SEEN",
        "RELEASE",
    ]);
    for n in all {
        let kind = kind_and_scale(n.kind, n.emulated, n.speed);
        table.row([
            n.name.clone(),
            kind,
            n.server.clone(),
            node_state(n, paint),
            n.url.clone().unwrap_or_else(|| "-".into()),
            n.instances.to_string(),
            n.queue.to_string(),
            count(n.admitted),
            format!("{:.1}", n.cpu_seconds),
            bytes(n.resident_bytes),
            n.energy
                .as_ref()
                .map_or_else(|| "-".into(), |e| joules(e.idle_joules + e.active_joules)),
            measured(n),
            n.heard_ms_ago
                .map_or_else(|| "never".into(), |ms| format!("{ms} ms")),
            match n.release.as_str() {
                "" => "-".into(),
                release => release.into(),
            },
        ]);
    }
    table.render()
}

/// Joules of a node's meter, and that they are another machine's if they are.
fn measured(n: &NodeView) -> String {
    match &n.measured {
        None => "-".into(),
        Some(m) if m.provenance == Provenance::Emulated => {
            format!("{} (emulated)", joules(m.joules))
        }
        Some(m) => joules(m.joules),
    }
}

fn apps(all: &[AppView], paint: Paint) -> String {
    let mut table = Table::new(&[
        "APP",
        "STATE",
        ">INSTANCES",
        ">SERVICES",
        ">CODE",
        ">HANDLED",
        ">FAILED ATTEMPTS",
        ">DEAD-LETTERED",
        ">EXPIRED",
        ">OVERLOADED",
        ">DEAD LETTERS KEPT",
        ">WAITING SHARDS",
        ">STATE LOST",
        ">MODELLED ENERGY/REQUEST",
        "PROBLEM",
    ]);
    for a in all {
        let sum = |of: fn(&ServiceView) -> u64| count(a.services.iter().map(of).sum());
        table.row([
            a.name.clone(),
            health(a.health, paint),
            format!("{}/{}", a.instances_ready, a.instances),
            a.services.len().to_string(),
            a.code_version.to_string(),
            sum(|s| s.handled),
            sum(|s| s.failed),
            sum(|s| s.dead_lettered),
            sum(|s| s.expired),
            count(a.overloaded),
            count(a.dead_letters),
            a.waiting.len().to_string(),
            count(a.state_lost),
            a.modelled_joules_per_request
                .map_or_else(|| "-".into(), joules),
            a.problems.first().cloned().unwrap_or_default(),
        ]);
    }
    table.render()
}

/// Instances as a table.
pub fn instances(all: &[InstanceView], paint: Paint) -> String {
    let mut table = Table::new(&[
        "INSTANCE",
        "ROLE",
        "NODE",
        ">VIEW",
        "STATE",
        ">OP",
        ">COMMIT",
        ">QUEUE",
        ">HANDLED",
        ">FAILED ATTEMPTS",
        ">DEAD-LETTERED",
        ">EXPIRED",
        ">STATE SIZE",
        ">STATE QUOTA",
        "REASON",
    ]);
    for i in all {
        table.row([
            i.instance.clone(),
            role(i.role).to_string(),
            i.node.clone(),
            i.view.to_string(),
            status(i.status, paint),
            count(i.op),
            count(i.commit),
            i.queue.to_string(),
            count(i.handled),
            count(i.failed),
            count(i.dead_lettered),
            count(i.expired),
            bytes(i.memory_bytes),
            match i.quota_bytes {
                0 => "-".into(),
                quota => bytes(quota),
            },
            i.reason
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
        ]);
    }
    table.render()
}

fn channels(all: &[ChannelView]) -> String {
    let mut table = Table::new(&[
        "APP", "CHANNEL", "FROM", "TO", "NODE", ">SENT", ">DURABLE", ">WAITING",
    ]);
    for c in all {
        table.row([
            c.app.clone(),
            c.channel.name.clone(),
            c.channel.from.clone(),
            c.channel.to.clone(),
            c.node.clone(),
            count(c.channel.sent),
            count(c.channel.durable),
            c.channel.waiting.to_string(),
        ]);
    }
    table.render()
}
