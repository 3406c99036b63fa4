//! `e3 orchestrator`: whether instances move by themselves, away from overloaded SmartNICs and with the
//! load, and when.

use crate::cluster::client::Client;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use crate::ui::output::{self, Output, Table};
use crate::ui::text::{plural, time};
use clap::{Args, ValueEnum};
use e3_model::api::{OrchestratorMode, OrchestratorRequest, OrchestratorView};
use std::collections::BTreeMap;

/// What it is to do.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Move instances away from overloaded SmartNICs and back, and with the load if that is set
    On,
    /// Record as events what would be moved, and move nothing
    DryRun,
    /// Do neither
    Off,
}

impl Mode {
    fn mode(self) -> OrchestratorMode {
        match self {
            Mode::On => OrchestratorMode::On,
            Mode::DryRun => OrchestratorMode::DryRun,
            Mode::Off => OrchestratorMode::Off,
        }
    }
}

/// `e3 orchestrator`.
#[derive(Args, Debug, Clone)]
pub struct Orchestrator {
    /// What it is to do [default: stays as it is]
    #[arg(value_enum)]
    pub mode: Option<Mode>,
    /// Starvation: requests that wait on the SmartNIC, at least
    #[arg(long, value_name = "COUNT")]
    pub starvation_queue_min: Option<u32>,
    /// Starvation: the SmartNIC's port is used less than this
    #[arg(long, value_name = "PERCENT")]
    pub starvation_port_percent: Option<u32>,
    /// Starvation: heartbeats in a row that show both
    #[arg(long, value_name = "COUNT")]
    pub starvation_heartbeats: Option<u32>,
    /// Overload: an execution time exceeds its moving average by this
    #[arg(long, value_name = "PERCENT")]
    pub overload_percent: Option<u32>,
    /// Overload: requests that wait on the SmartNIC all the time, if its cores are not all busy
    #[arg(long, value_name = "COUNT")]
    pub overload_queue_min: Option<u32>,
    /// Overload: reports in a row that show both
    #[arg(long, value_name = "COUNT")]
    pub overload_reports: Option<u32>,
    /// Migrations in flight in the cluster at which it begins no other
    #[arg(long, value_name = "COUNT")]
    pub moves_max: Option<u32>,
    /// The same for each server
    #[arg(long, value_name = "COUNT")]
    pub moves_per_server_max: Option<u32>,
    /// Power caps: rounds of a second in a row above a cap before instances leave
    #[arg(long, value_name = "COUNT")]
    pub power_rounds: Option<u32>,
    /// Power caps: how far below the cap the power is brought, in percent of the cap
    #[arg(long, value_name = "PERCENT")]
    pub power_margin_percent: Option<u32>,
    /// How long a SmartNIC is left alone after a decision
    #[arg(long, value_name = "SECONDS")]
    pub node_cooldown: Option<u32>,
    /// How long an instance stays after it was moved
    #[arg(long, value_name = "SECONDS")]
    pub instance_cooldown: Option<u32>,
    /// Most that the cool-downs grow to
    #[arg(long, value_name = "SECONDS")]
    pub cooldown_max: Option<u32>,
    /// An instance returns if its SmartNIC's cores are at most so busy with it
    #[arg(long, value_name = "PERCENT")]
    pub return_busy_percent: Option<u32>,
    /// Following the load: how often applications are compared with their present rate; 0: never
    #[arg(long, value_name = "SECONDS")]
    pub follow_interval: Option<u32>,
    /// Following: what a placement must carry, in percent of the rate
    #[arg(long, value_name = "PERCENT")]
    pub follow_reserve_percent: Option<u32>,
    /// Following: how long a rate is expected to last; moves must pay back in this time
    #[arg(long, value_name = "SECONDS")]
    pub follow_horizon: Option<u32>,
    /// Following: energy that the move of an instance costs
    #[arg(long, value_name = "JOULES")]
    pub follow_move_joules: Option<u32>,
    /// Following: how long an application stays after it was moved, before it is moved to save energy
    #[arg(long, value_name = "SECONDS")]
    pub follow_cooldown: Option<u32>,
    /// Scaling: how often services with bounds of the number of shards are looked at; 0: never
    #[arg(long, value_name = "SECONDS")]
    pub scale_interval: Option<u32>,
    /// Scaling: shards are split when the busiest one uses at least this part of a core
    #[arg(long, value_name = "PERCENT")]
    pub split_percent: Option<u32>,
    /// Scaling: checks in a row that show it
    #[arg(long, value_name = "COUNT")]
    pub split_rounds: Option<u32>,
    /// Scaling: shards are merged when each would use at most this part of a core afterwards
    #[arg(long, value_name = "PERCENT")]
    pub merge_percent: Option<u32>,
    /// Scaling: checks in a row that show it
    #[arg(long, value_name = "COUNT")]
    pub merge_rounds: Option<u32>,
    /// Scaling: how long a service stays after its number of shards has changed
    #[arg(long, value_name = "SECONDS")]
    pub scale_cooldown: Option<u32>,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 orchestrator`.
pub fn run(args: &Orchestrator, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let request = request(args);
    let view = if request == OrchestratorRequest::default() {
        client.orchestrator()?
    } else {
        client.set_orchestrator(&request)?
    };
    output::show(settings.format(args.output), &view, || text(&view))
}

/// What the options change.
fn request(args: &Orchestrator) -> OrchestratorRequest {
    let numbers = [
        ("starvationQueueMin", args.starvation_queue_min),
        ("starvationPortPercent", args.starvation_port_percent),
        ("starvationHeartbeats", args.starvation_heartbeats),
        ("overloadPercent", args.overload_percent),
        ("overloadQueueMin", args.overload_queue_min),
        ("overloadReports", args.overload_reports),
        ("movesMax", args.moves_max),
        ("movesPerServerMax", args.moves_per_server_max),
        ("powerRounds", args.power_rounds),
        ("powerMarginPercent", args.power_margin_percent),
        ("nodeCooldownS", args.node_cooldown),
        ("instanceCooldownS", args.instance_cooldown),
        ("cooldownSMax", args.cooldown_max),
        ("returnBusyPercent", args.return_busy_percent),
        ("followIntervalS", args.follow_interval),
        ("followReservePercent", args.follow_reserve_percent),
        ("followHorizonS", args.follow_horizon),
        ("followMoveJoules", args.follow_move_joules),
        ("followCooldownS", args.follow_cooldown),
        ("scaleIntervalS", args.scale_interval),
        ("splitPercent", args.split_percent),
        ("splitRounds", args.split_rounds),
        ("mergePercent", args.merge_percent),
        ("mergeRounds", args.merge_rounds),
        ("scaleCooldownS", args.scale_cooldown),
    ];
    let given = numbers.into_iter();
    let given = given.filter_map(|(name, value)| Some((name.to_string(), value?)));
    OrchestratorRequest {
        mode: args.mode.map(Mode::mode),
        numbers: given.collect::<BTreeMap<_, _>>(),
    }
}

fn text(view: &OrchestratorView) -> String {
    let moves = plural(view.moves_in_flight as usize, "migration");
    let mut text = format!("orchestrator: {}, {moves} in flight\n", view.settings.mode);
    if !view.active && view.settings.mode != OrchestratorMode::Off {
        text += "it is inactive: the cluster writes an older format (e3 upgrade --finish)\n";
    }
    let mut settings = Table::new(&["SETTING", ">VALUE", "BOUNDS"]);
    for (name, value, bounds) in view.settings.numbers() {
        let bounds = format!("{}..={}", bounds.start(), bounds.end());
        settings.row([name.to_string(), value.to_string(), bounds]);
    }
    text += &format!("\n{}", settings.render());
    if !view.displaced.is_empty() {
        let head = [
            "INSTANCE",
            "HOME",
            "NODE",
            "MOVED",
            "RETURNS AT THE EARLIEST",
        ];
        let mut table = Table::new(&head);
        for d in &view.displaced {
            let (at, until) = (time(d.at_unix_ms), time(d.rests_until_unix_ms));
            table.row([
                d.instance.clone(),
                d.home.clone(),
                d.node.clone(),
                at,
                until,
            ]);
        }
        text += &format!("\n{}", table.render());
    }
    if !view.decisions.is_empty() {
        let mut table = Table::new(&["DECISION", ">EVENTS"]);
        for (kind, count) in &view.decisions {
            table.row([kind.to_string(), count.to_string()]);
        }
        text += &format!("\n{}", table.render());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use e3_model::api::OrchestratorSettings;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: Orchestrator,
    }

    #[test]
    fn every_setting_has_an_option() {
        let words = [
            "e3",
            "dry-run",
            "--starvation-queue-min=1",
            "--starvation-port-percent=2",
            "--starvation-heartbeats=3",
            "--overload-percent=4",
            "--overload-queue-min=5",
            "--overload-reports=6",
            "--moves-max=7",
            "--moves-per-server-max=8",
            "--power-rounds=9",
            "--power-margin-percent=10",
            "--node-cooldown=11",
            "--instance-cooldown=12",
            "--cooldown-max=13",
            "--return-busy-percent=14",
            "--follow-interval=15",
            "--follow-reserve-percent=16",
            "--follow-horizon=17",
            "--follow-move-joules=18",
            "--follow-cooldown=19",
            "--scale-interval=20",
            "--split-percent=21",
            "--split-rounds=22",
            "--merge-percent=23",
            "--merge-rounds=24",
            "--scale-cooldown=25",
        ];
        let request = request(&Words::parse_from(words).args);
        assert_eq!(request.mode, Some(OrchestratorMode::DryRun));
        let numbers = OrchestratorSettings::default().numbers();
        let values = numbers.map(|(name, _, _)| request.numbers[name]);
        assert_eq!(values.to_vec(), (1..=25).collect::<Vec<u32>>());
    }
}
