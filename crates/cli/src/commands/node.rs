//! `e3 node`: takes nodes out of service, with the replicas on them, and back.

use crate::cluster::client::Client;
use crate::limits::{DRAIN_BLOCKED_TIME, POLL_INTERVAL};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use crate::ui::values::duration;
use clap::{Args, Subcommand};
use e3_model::api::{NodeView, UndrainedView};
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
    /// Take a node out of service: its replicas move to other nodes, and it gets no new ones
    Drain(Drain),
    /// Take a drained node back into service
    #[command(visible_alias = "undrain")]
    Resume(Resume),
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

/// `e3 node resume`.
#[derive(Args, Debug, Clone)]
pub struct Resume {
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
            output::print(&match client.resume(node)?.changed {
                true => format!("{node} is in service again\n"),
                false => format!("{node} was not drained\n"),
            })
        }
    }
}

fn drain(client: &Client, args: &Drain) -> Result<(), Failure> {
    client.drain(&args.node)?;
    let node = &args.node;
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
            Err(e) if !overdue && matches!(e.exit, Exit::Unreachable | Exit::Timeout) => {
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
    format!("draining {node}: {left} left")
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
