//! `e3 migrate`: moves an instance and waits until it runs on its new node.

use crate::cluster::client::Client;
use crate::limits::POLL_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::values::duration;
use clap::Args;
use e3_model::api::{AppView, InstanceStatus, InstanceView, MigrateRequest, MovePhase};
use e3_model::plan::Role;
use std::time::Duration;
use std::time::Instant;

/// `e3 migrate`.
#[derive(Args, Debug, Clone)]
pub struct Migrate {
    /// APP/SERVICE/SHARD, and /primary (default) or /backup
    pub instance: String,
    /// Target node
    #[arg(long, value_name = "NODE")]
    pub to: String,
    /// Stop the primary first and copy its state then, instead of copying while it serves
    #[arg(long)]
    pub cold: bool,
    /// Maximum wait
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub timeout: Duration,
}

/// Progress of a migration.
#[derive(PartialEq, Eq, Debug)]
enum Progress {
    /// In progress, in this phase.
    Moving(&'static str),
    /// Done. Whether the instance runs now, at the target or where it was moved later.
    Moved { runs: bool },
    /// Cancelled, for this reason.
    Cancelled(String),
    /// The controller has no record of it.
    Unknown,
}

/// `e3 migrate`.
pub fn run(args: &Migrate, settings: &Settings) -> Result<(), Failure> {
    let (app, shard, role) = parse(&args.instance)?;
    let client = Client::connect(settings)?;
    let begin = Instant::now();
    let id = client
        .migrate(&MigrateRequest {
            instance: args.instance.clone(),
            to: args.to.clone(),
            cold: args.cold,
        })?
        .id;
    let spinner = output::spinner(&format!("{} -> {}", args.instance, args.to));
    let outcome = loop {
        let overdue = begin.elapsed() > args.timeout;
        let seen = client.app(&app).and_then(|view| {
            let instances = client.instances()?;
            Ok(progress(&view, &instances, id, &shard, role, &args.to))
        });
        match seen {
            Ok(Progress::Moved { runs: true }) => break Ok(()),
            Ok(Progress::Moving(phase)) if !overdue => spinner.set_message(phase),
            Ok(Progress::Moved { runs: false }) if !overdue => spinner.set_message("starting"),
            // The controller may be restarting; it remembers the migration.
            Err(e) if !overdue && e.may_pass() => {
                spinner.set_message("waiting for the controller");
            }
            Ok(progress) => break Err(not_moved(args, id, &shard, &progress)),
            Err(e) => break Err(e),
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    spinner.finish_and_clear();
    outcome?;
    let ms = begin.elapsed().as_millis();
    let (instance, to) = (&args.instance, &args.to);
    output::print(&format!("{instance} has moved to {to} after {ms} ms\n"))
}

/// Why the command gives up at this progress.
fn not_moved(args: &Migrate, id: u64, shard: &str, progress: &Progress) -> Failure {
    let (instance, to) = (&args.instance, &args.to);
    let seconds = args.timeout.as_secs_f64();
    let (exit, message) = match progress {
        Progress::Moving(_) => (
            Exit::Timeout,
            format!("{instance} is still moving after {seconds:.0} s"),
        ),
        Progress::Moved { .. } => (
            Exit::Timeout,
            format!("{instance} has moved to {to}, but does not run there after {seconds:.0} s"),
        ),
        Progress::Cancelled(reason) => (
            Exit::Unexpected,
            format!("{instance} did not move to {to}: {reason}"),
        ),
        Progress::Unknown => (
            Exit::Unexpected,
            format!(
                "the controller has no record of migration {id} of {instance}; it may have moved"
            ),
        ),
    };
    Failure::new(exit, message).hint(format!("see: e3 describe instance {shard}"))
}

/// The progress of a migration according to the controller's views. The view of the application is
/// older than that of the instances, so a migration that is done in the first shows in the second.
fn progress(
    app: &AppView,
    instances: &[InstanceView],
    id: u64,
    shard: &str,
    role: Role,
    to: &str,
) -> Progress {
    let all = app.migrations.iter().chain(&app.moves);
    let Some(found) = all.into_iter().find(|m| m.id == id) else {
        return Progress::Unknown;
    };
    let of_shard = || instances.iter().filter(|i| i.instance == shard);
    match found.phase {
        MovePhase::Copying | MovePhase::Freezing => Progress::Moving(found.phase.name()),
        MovePhase::Done => {
            let mut here = of_shard().filter(|i| i.node == to && i.role == role);
            let runs = match here.next() {
                Some(i) => i.status == InstanceStatus::Running,
                // Moved on, by another migration or a fail-over.
                None => true,
            };
            Progress::Moved { runs }
        }
        MovePhase::Cancelled => {
            let why = found.reason.as_deref().unwrap_or("it was cancelled");
            let primary = of_shard().find(|i| i.role == Role::Primary);
            let now = primary.map(|i| format!("; the primary is on {} now", i.node));
            Progress::Cancelled(why.to_string() + &now.unwrap_or_default())
        }
    }
}

/// Splits `app/service/shard[/primary|/backup]` into application, shard and role.
pub fn parse(instance: &str) -> Result<(String, String, Role), Failure> {
    let bad = || {
        let message = format!("{instance:?} is not APP/SERVICE/SHARD[/primary|/backup]");
        Failure::new(Exit::Input, message).hint("list them with: e3 get instances")
    };
    let parts: Vec<&str> = instance.split('/').collect();
    let (app, service, shard, role) = match parts[..] {
        [app, service, shard] => (app, service, shard, Role::Primary),
        [app, service, shard, "primary"] => (app, service, shard, Role::Primary),
        [app, service, shard, "backup"] => (app, service, shard, Role::Backup),
        _ => return Err(bad()),
    };
    let number: u16 = e3_model::units::whole(shard).ok_or_else(bad)?;
    Ok((app.to_string(), format!("{app}/{service}/{number}"), role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The progress of a migration in this phase, with one instance.
    fn seen(phase: &str, node: &str, status: &str) -> Progress {
        let entry = json!({"id": 7, "shard": "a/s/0", "from": "n1", "to": "n2", "phase": phase,
            "reason": (phase == "cancelled").then_some("node n2 was lost")});
        let ended = matches!(phase, "done" | "cancelled");
        let app = json!({"name": "a", "id": 1, "codeVersion": 1, "instances": 1,
            "instancesReady": 1, "ready": true, "health": "ready", "problems": [], "stateLost": 0,
            "deadLetters": 0, "deadLetteredLately": 0, "admitted": 0, "overloaded": 0,
            "services": [], "migrations": if ended { vec![] } else { vec![entry.clone()] },
            "moves": if ended { vec![entry] } else { vec![] }});
        let instance = json!({"instance": "a/s/0", "role": "primary", "node": node, "view": 3,
            "status": status, "op": 0, "commit": 0, "queue": 0, "handled": 0, "failed": 0,
            "deadLettered": 0, "expired": 0, "deadLetters": 0, "preemptions": 0,
            "busySeconds": 0.0, "memoryBytes": 0});
        let app = serde_json::from_value(app).unwrap();
        let instance = serde_json::from_value(instance).unwrap();
        progress(&app, &[instance], 7, "a/s/0", Role::Primary, "n2")
    }

    #[test]
    fn progress_is_that_of_the_migration_wherever_the_shard_is() {
        assert_eq!(
            seen("copying", "n1", "running"),
            Progress::Moving("copying")
        );
        assert_eq!(
            seen("freezing", "n1", "frozen"),
            Progress::Moving("freezing")
        );
        // It has moved, however long the new primary takes to start.
        assert_eq!(
            seen("done", "n2", "starting"),
            Progress::Moved { runs: false }
        );
        assert_eq!(
            seen("done", "n2", "running"),
            Progress::Moved { runs: true }
        );
        // Done, then moved on or failed over before this check.
        assert_eq!(
            seen("done", "n3", "running"),
            Progress::Moved { runs: true }
        );
        let why = "node n2 was lost; the primary is on n1 now".to_string();
        assert_eq!(seen("cancelled", "n1", "running"), Progress::Cancelled(why));
        // Cancelled, and moved to the target by a later migration.
        let why = "node n2 was lost; the primary is on n2 now".to_string();
        assert_eq!(seen("cancelled", "n2", "running"), Progress::Cancelled(why));
    }

    #[test]
    fn instances_have_three_or_four_parts() {
        let parsed = parse("iot-ts/sql/3/backup").unwrap();
        assert_eq!(
            parsed,
            ("iot-ts".into(), "iot-ts/sql/3".into(), Role::Backup)
        );
        assert_eq!(parse("a/b/0").unwrap().2, Role::Primary);
        for bad in [
            "",
            "a",
            "a/b",
            "a/b/c",
            "a/b/0/joining",
            "a/b/0/primary/x",
            "a/b/-1",
            "a/b/+1",
            "a/b/01",
        ] {
            assert_eq!(parse(bad).unwrap_err().exit, Exit::Input, "{bad}");
        }
    }
}
