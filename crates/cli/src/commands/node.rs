//! `e3 node`: adds and removes nodes, and takes them out of service, with the replicas on them, and back.

use crate::cluster::client::Client;
use crate::documents::files::read_topology;
use crate::limits::{DRAIN_BLOCKED_TIME, POLL_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use crate::ui::values::duration;
use clap::{Args, Subcommand};
use e3_model::api::{AddNodesRequest, DrainRequest, NodeView, UndrainedView};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `e3 node`.
#[derive(Args, Debug, Clone)]
pub struct Node {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What `e3 node` does.
#[derive(Subcommand, Debug, Clone)]
pub enum Action {
    /// Add racks, servers or nodes to the cluster
    Add(Add),
    /// Place no new instances on a node; it keeps those that it has
    Cordon(OneNode),
    /// Take a node out of service: its replicas move to other nodes, and it gets no new ones
    Drain(Drain),
    /// Take a drained or cordoned node back into service
    #[command(visible_aliases = ["undrain", "uncordon"])]
    Resume(OneNode),
    /// Remove an empty node from the cluster for good
    Remove(Remove),
}

/// `e3 node add`.
#[derive(Args, Debug, Clone)]
pub struct Add {
    /// Topology with what is new, within the racks and servers that it belongs to
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Wait until the new nodes are up (default)
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return at once
    #[arg(long, overrides_with = "wait")]
    pub no_wait: bool,
    /// Longest wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 node remove`.
#[derive(Args, Debug, Clone)]
pub struct Remove {
    /// Node
    pub node: String,
    /// Drain it first, and wait until no replica is on it
    #[arg(long)]
    pub drain: bool,
    /// Wait for the drain (default)
    #[arg(long, requires = "drain")]
    pub wait: bool,
    /// Longest wait
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "TIME", requires = "drain")]
    pub timeout: Duration,
}

/// `e3 node drain`.
#[derive(Args, Debug, Clone)]
pub struct Drain {
    /// Node
    pub node: String,
    /// Wait until no replica is on the node (default)
    #[arg(long, overrides_with = "no_wait")]
    pub wait: bool,
    /// Return at once; the replicas move in the background
    #[arg(long, overrides_with = "wait")]
    pub no_wait: bool,
    /// Longest wait
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
}

/// `e3 node cordon` and `e3 node resume`.
#[derive(Args, Debug, Clone)]
pub struct OneNode {
    /// Node
    pub node: String,
}

/// `e3 node`.
pub fn run(args: &Node, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    match &args.action {
        Action::Drain(args) => drain(&client, args),
        Action::Resume(args) => {
            let node = &args.node;
            output::print(&if client.resume(node)?.changed {
                format!("{node} is in service again\n")
            } else {
                format!("{node} was in service\n")
            })
        }
        Action::Add(args) => add(&client, args),
        Action::Cordon(args) => {
            let node = &args.node;
            let answer = client.cordon(node)?;
            output::print(&match (answer.changed, answer.drained) {
                (true, _) => format!("{node} is cordoned: it gets no new instances\n"),
                (false, true) => format!("{node} is drained, so it gets no new instances\n"),
                (false, false) => format!("{node} was cordoned already\n"),
            })
        }
        Action::Remove(args) => remove(&client, args),
    }
}

fn add(client: &Client, args: &Add) -> Result<(), Failure> {
    let begin = Instant::now();
    let added = client.add_nodes(&AddNodesRequest {
        file: args.file.display().to_string(),
        topology: read_topology(&args.file)?,
    })?;
    let names = added.nodes.join(", ");
    let nodes = plural(added.nodes.len(), "node");
    if args.no_wait {
        return output::print(&format!("added {nodes}: {names}\n"));
    }
    let spinner = output::spinner("waiting for the new nodes");
    let outcome = loop {
        let down = match client.nodes() {
            Ok(mut all) => {
                all.retain(|n| !n.up && added.nodes.contains(&n.name));
                all.into_iter().map(|n| n.name).collect::<Vec<_>>()
            }
            Err(e) if e.may_pass() => vec![e.message],
            Err(e) => break Err(e),
        };
        if down.is_empty() {
            break Ok(());
        }
        if begin.elapsed() > args.timeout {
            let seconds = args.timeout.as_secs_f64();
            let message = format!(
                "{names} are added, but not up after {seconds:.0} s: {}",
                down.join(", ")
            );
            let hint = "the supervisor of a cluster on this machine starts their processes: e3 logs \
                        supervisor; elsewhere, start the node program there";
            break Err(Failure::new(Exit::Timeout, message).hint(hint));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    spinner.finish_and_clear();
    outcome?;
    let ms = begin.elapsed().as_millis();
    output::print(&format!("added {nodes}, up after {ms} ms: {names}\n"))
}

fn remove(client: &Client, args: &Remove) -> Result<(), Failure> {
    let node = &args.node;
    if args.drain {
        drain(
            client,
            &Drain {
                node: node.clone(),
                wait: true,
                no_wait: false,
                timeout: args.timeout,
            },
        )?;
    }
    client.remove_node(node)?;
    output::print(&format!(
        "{node} is removed; its name cannot be used again in this cluster\n"
    ))
}

fn drain(client: &Client, args: &Drain) -> Result<(), Failure> {
    let node = &args.node;
    client.drain(&DrainRequest {
        node: node.clone(),
        best_effort: false,
    })?;
    if args.no_wait {
        let left = client.node(node)?.undrained.len();
        return output::print(&format!(
            "{node} is being drained: {} left\n",
            plural(left, "replica")
        ));
    }
    let begin = Instant::now();
    let spinner = output::spinner(node);
    let mut blocked = Blocked::default();
    let outcome = loop {
        let overdue = begin.elapsed() > args.timeout;
        match client.node(node) {
            Ok(view) if !view.drained => break Err(resumed(node)),
            Ok(view) if view.undrained.is_empty() => break Ok(()),
            Ok(view) if blocked.look(&view) => {
                break Err(not_drained(node, Exit::Check, "cannot leave", &view));
            }
            Ok(view) if overdue => {
                let still = format!("are still there after {:.0} s", args.timeout.as_secs_f64());
                break Err(not_drained(node, Exit::Timeout, &still, &view));
            }
            Ok(view) => spinner.set_message(progress(node, &view)),
            // The controller may be restarting; it remembers which nodes are drained.
            Err(e) if !overdue && e.may_pass() => {
                spinner.set_message("waiting for the controller");
            }
            Err(e) => break Err(e),
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    spinner.finish_and_clear();
    outcome?;
    let ms = begin.elapsed().as_millis();
    output::print(&format!("{node} is drained after {ms} ms\n"))
}

/// Since when nothing that is left can leave.
#[derive(Default)]
struct Blocked {
    since: Option<Instant>,
}

impl Blocked {
    /// Whether that has been so for long enough to give up.
    fn look(&mut self, view: &NodeView) -> bool {
        if view.undrained.iter().all(|left| left.blocked) {
            let since = *self.since.get_or_insert_with(Instant::now);
            return since.elapsed() > DRAIN_BLOCKED_TIME;
        }
        self.since = None;
        false
    }
}

fn progress(node: &str, view: &NodeView) -> String {
    let left = plural(view.undrained.len(), "replica");
    let first = view.undrained.first();
    let why = first.map_or(String::new(), |r| format!(" ({}: {})", r.instance, r.why));
    format!("draining {node}: {left} left{why}")
}

fn resumed(node: &str) -> Failure {
    Failure::new(
        Exit::Conflict,
        format!("{node} was taken back into service meanwhile"),
    )
}

fn not_drained(node: &str, exit: Exit, how: &str, view: &NodeView) -> Failure {
    let left = plural(view.undrained.len(), "replica");
    let reason = |left: &UndrainedView| format!("{}: {}", left.instance, left.why);
    let reasons: Vec<String> = view.undrained.iter().map(reason).collect();
    let message = format!("{left} of {node} {how}: {}", reasons.join("; "));
    Failure::new(exit, message).hint(format!(
        "they leave as soon as they can: e3 describe node {node}; to take the node back: e3 node \
         resume {node}"
    ))
}
