//! `e3 migrate`.

use crate::args::Migrate;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::limits::POLL_INTERVAL;
use crate::output;
use crate::settings::Settings;
use e3_model::api::MigrateRequest;
use e3_model::plan::Role;
use std::time::Instant;

/// `e3 migrate`.
pub fn run(args: &Migrate, settings: &Settings) -> Result<(), Failure> {
    let (app, shard, role) = parse(&args.instance)?;
    let client = Client::connect(settings)?;
    let begin = Instant::now();
    client.migrate(&MigrateRequest {
        instance: args.instance.clone(),
        to: args.to.clone(),
    })?;
    let wheel = output::spinner(&format!("{} -> {}", args.instance, args.to));
    let outcome = loop {
        // In this order: an arrival between the two looks must not pass for a cancellation.
        let view = client.app(&app)?;
        let there = client.instances()?.into_iter().any(|i| {
            i.instance == shard && i.role == role && i.node == args.to && i.status == "running"
        });
        match view.migrations.iter().find(|m| m.shard == shard) {
            Some(migration) => wheel.set_message(migration.phase.clone()),
            None if there => break Ok(()),
            None if begin.elapsed() > POLL_INTERVAL * 50 => {
                let message = format!("{} did not move to {}", args.instance, args.to);
                let hint = format!("it was given up; see: e3 describe instance {shard}");
                break Err(Failure::new(Exit::Unexpected, message).hint(hint));
            }
            None => {}
        }
        if begin.elapsed() > args.timeout {
            let seconds = args.timeout.as_secs_f64();
            let message = format!("{} is still moving after {seconds:.0} s", args.instance);
            let hint = format!("see: e3 describe instance {shard}");
            break Err(Failure::new(Exit::Timeout, message).hint(hint));
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    wheel.finish_and_clear();
    outcome?;
    let ms = begin.elapsed().as_millis();
    output::print(&format!(
        "{} is on {} after {ms} ms\n",
        args.instance, args.to
    ))
}

/// Splits `app/service/shard[/primary|/backup]` into application, shard and part.
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
