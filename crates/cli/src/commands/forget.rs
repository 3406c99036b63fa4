//! `e3 forget`: gives up the state of shards whose only copies are on silent nodes.

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::plural;
use clap::Args;
use e3_model::api::WaitingView;
use std::io::{IsTerminal, Write};

/// `e3 forget`.
#[derive(Args, Debug, Clone)]
pub struct Forget {
    /// APP, APP/SERVICE or APP/SERVICE/SHARD
    pub shards: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
}

/// `e3 forget`.
pub fn run(args: &Forget, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let app = args.shards.split('/').next().unwrap_or_default();
    let mut waiting = client.app(app)?.waiting;
    waiting.retain(|w| is_part(&w.shard, &args.shards));
    if waiting.is_empty() {
        let message = format!(
            "no shard of {} waits for a silent node; nothing is given up",
            args.shards
        );
        return Err(Failure::new(Exit::Conflict, message).hint("see: e3 get instances"));
    }
    if !args.yes {
        confirm(&waiting)?;
    }
    for w in &waiting {
        client.forget(&w.shard)?;
        output::print(&format!("{} begins empty\n", w.shard))?;
    }
    Ok(())
}

/// Whether a shard is what the user named, or a part of it.
fn is_part(shard: &str, named: &str) -> bool {
    let rest = shard.strip_prefix(named);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Says what is lost, and asks on a terminal. Elsewhere somebody must have said --yes.
fn confirm(waiting: &[WaitingView]) -> Result<(), Failure> {
    let shards = plural(waiting.len(), "shard");
    output::say(&format!("warning: the state of {shards} is lost for good:"));
    for w in waiting {
        let (shard, nodes) = (&w.shard, w.nodes.join(", "));
        let what = if w.had_state {
            "its only copies are on"
        } else {
            "empty as far as is known; it was on"
        };
        output::say(&format!("  {shard}: {what} {nodes}"));
    }
    output::say("It comes back without loss if one of its nodes' processes does.");
    let unconfirmed = |message: &str| {
        Err(Failure::new(Exit::Unexpected, message.to_string()).hint("--yes skips the question"))
    };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return unconfirmed("no terminal to ask for confirmation; no state is given up");
    }
    let _ = write!(std::io::stderr(), "Give it up? [y/N] ");
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => unconfirmed("not confirmed; nothing is given up"),
    }
}

#[cfg(test)]
mod tests {
    use super::is_part;

    #[test]
    fn shards_are_named_alone_or_by_what_they_are_part_of() {
        for named in ["a", "a/s", "a/s/1"] {
            assert!(is_part("a/s/1", named));
        }
        for named in ["a/s/11", "a/s/", "b", "", "a/s/1/primary", "a/t"] {
            assert!(!is_part("a/s/1", named), "{named}");
        }
        assert!(!is_part("a/s/11", "a/s/1"));
    }
}
