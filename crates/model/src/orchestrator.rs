//! Settings of the orchestrator, which moves instances away from SmartNICs that are overloaded,
//! applications to where their present load needs the least energy, and scales the number of shards.
//! Design: docs/design/022.

use crate::event::EventKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// What the orchestrator does with its decisions.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OrchestratorMode {
    /// It carries them out.
    #[default]
    On,
    /// It records them as events and moves nothing.
    DryRun,
    /// It makes none.
    Off,
}

impl OrchestratorMode {
    /// As in commands.
    pub fn name(self) -> &'static str {
        match self {
            OrchestratorMode::On => "on",
            OrchestratorMode::DryRun => "dry-run",
            OrchestratorMode::Off => "off",
        }
    }
}

impl fmt::Display for OrchestratorMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Settings of the orchestrator. They can change at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct OrchestratorSettings {
    /// What it does.
    pub mode: OrchestratorMode,
    /// Starvation: requests that wait on the SmartNIC, at least.
    pub starvation_queue_min: u32,
    /// Starvation: use of the SmartNIC's port in percent, less than this.
    pub starvation_port_percent: u32,
    /// Starvation: heartbeats in a row that show both.
    pub starvation_heartbeats: u32,
    /// Overload: how far an execution time exceeds its moving average in percent, at least.
    pub overload_percent: u32,
    /// Overload: requests that wait on the SmartNIC all the time, at least; or its cores are all busy.
    pub overload_queue_min: u32,
    /// Overload: reports in a row that show both. A node reports once a second.
    pub overload_reports: u32,
    /// Migrations in flight in the cluster at which it begins no other.
    pub moves_max: u32,
    /// The same on each server, which the migration leaves or enters.
    pub moves_per_server_max: u32,
    /// How long a SmartNIC is left alone after a decision about it, in seconds. Doubles while no
    /// destination is found.
    pub node_cooldown_s: u32,
    /// Power caps: rounds of a second in a row in which a server or rack draws more than its cap.
    pub power_rounds: u32,
    /// Power caps: how far below its cap instances that leave bring a server or rack, in percent of the cap.
    /// What takes or gets back instances stays as far below its own.
    pub power_margin_percent: u32,
    /// How long an instance stays after it was moved, in seconds. Doubles each time it is moved
    /// back and forth.
    pub instance_cooldown_s: u32,
    /// Most that the cool-downs grow to, in seconds.
    pub cooldown_s_max: u32,
    /// An instance returns if its SmartNIC is at most so busy with it, in percent of its cores.
    pub return_busy_percent: u32,
    /// Following the load: how often it compares the rate of each application with its placement, in
    /// seconds; 0: it does not.
    pub follow_interval_s: u32,
    /// Following: what a placement must carry, in percent of the rate.
    pub follow_reserve_percent: u32,
    /// Following: how long a rate is expected to last, in seconds. Moves must save more energy in that time
    /// than they cost.
    pub follow_horizon_s: u32,
    /// Following: energy that the move of one instance costs, in joules.
    pub follow_move_joules: u32,
    /// Following: how long an application stays after its last move before it is moved to save energy, in
    /// seconds. Doubles each time that its load rises again soon after.
    pub follow_cooldown_s: u32,
    /// Scaling: how often it checks the services whose manifests give bounds of the number of shards, in
    /// seconds; 0: it does not scale.
    pub scale_interval_s: u32,
    /// Scaling: shards are split when the busiest one uses at least this part of a core, in percent.
    pub split_percent: u32,
    /// Scaling: checks in a row that show it.
    pub split_rounds: u32,
    /// Scaling: shards are merged when each would use at most this part of a core afterwards, in percent.
    /// Less than `splitPercent`.
    pub merge_percent: u32,
    /// Scaling: checks in a row that show it.
    pub merge_rounds: u32,
    /// Scaling: how long a service stays after its number of shards has changed, in seconds. Before a
    /// merge it doubles each time that the load rises again soon after one.
    pub scale_cooldown_s: u32,
}

impl Default for OrchestratorSettings {
    fn default() -> OrchestratorSettings {
        OrchestratorSettings {
            mode: OrchestratorMode::On,
            starvation_queue_min: 64,
            starvation_port_percent: 50,
            starvation_heartbeats: 50,
            overload_percent: 20,
            overload_queue_min: 16,
            overload_reports: 5,
            moves_max: 8,
            moves_per_server_max: 1,
            power_rounds: 5,
            power_margin_percent: 3,
            node_cooldown_s: 15,
            instance_cooldown_s: 60,
            cooldown_s_max: 3_600,
            return_busy_percent: 60,
            follow_interval_s: 0,
            follow_reserve_percent: 150,
            follow_horizon_s: 3_600,
            follow_move_joules: 20,
            follow_cooldown_s: 300,
            scale_interval_s: 5,
            split_percent: 60,
            split_rounds: 3,
            merge_percent: 25,
            merge_rounds: 12,
            scale_cooldown_s: 60,
        }
    }
}

/// A setting that is out of bounds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("orchestrator: {name} is {value}, must be {}..={}", bounds.start(), bounds.end())]
pub struct SettingError {
    /// The setting, as in JSON.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
    /// What it may be.
    pub bounds: RangeInclusive<u32>,
}

const DAY_S: u32 = 86_400;

impl OrchestratorSettings {
    /// The numbers, each with its name in JSON and its bounds.
    pub fn numbers(&self) -> [(&'static str, u32, RangeInclusive<u32>); 25] {
        [
            ("starvationQueueMin", self.starvation_queue_min, 1..=1 << 20),
            (
                "starvationPortPercent",
                self.starvation_port_percent,
                1..=100,
            ),
            (
                "starvationHeartbeats",
                self.starvation_heartbeats,
                2..=10_000,
            ),
            ("overloadPercent", self.overload_percent, 1..=1_000),
            ("overloadQueueMin", self.overload_queue_min, 1..=1 << 20),
            ("overloadReports", self.overload_reports, 2..=600),
            ("movesMax", self.moves_max, 1..=1_024),
            ("movesPerServerMax", self.moves_per_server_max, 1..=64),
            ("powerRounds", self.power_rounds, 2..=600),
            ("powerMarginPercent", self.power_margin_percent, 0..=50),
            ("nodeCooldownS", self.node_cooldown_s, 1..=DAY_S),
            ("instanceCooldownS", self.instance_cooldown_s, 1..=DAY_S),
            (
                "cooldownSMax",
                self.cooldown_s_max,
                self.node_cooldown_s.max(self.instance_cooldown_s)..=7 * DAY_S,
            ),
            ("returnBusyPercent", self.return_busy_percent, 1..=90),
            ("followIntervalS", self.follow_interval_s, 0..=DAY_S),
            (
                "followReservePercent",
                self.follow_reserve_percent,
                110..=1_000,
            ),
            ("followHorizonS", self.follow_horizon_s, 10..=7 * DAY_S),
            ("followMoveJoules", self.follow_move_joules, 0..=1_000_000),
            ("followCooldownS", self.follow_cooldown_s, 1..=DAY_S),
            ("scaleIntervalS", self.scale_interval_s, 0..=DAY_S),
            ("splitPercent", self.split_percent, 2..=100),
            ("splitRounds", self.split_rounds, 2..=10_000),
            // Well below, so that a merge is no reason to split again.
            (
                "mergePercent",
                self.merge_percent,
                1..=(self.split_percent / 4 * 3).max(1),
            ),
            ("mergeRounds", self.merge_rounds, 2..=10_000),
            ("scaleCooldownS", self.scale_cooldown_s, 1..=DAY_S),
        ]
    }

    /// Checks the bounds.
    pub fn validate(&self) -> Result<(), SettingError> {
        let out = |(_, value, bounds): &(_, u32, RangeInclusive<u32>)| !bounds.contains(value);
        match self.numbers().into_iter().find(out) {
            None => Ok(()),
            Some((name, value, bounds)) => Err(SettingError {
                name,
                value,
                bounds,
            }),
        }
    }
}

/// Why the orchestrator decides.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Host starvation: a queue stands at a SmartNIC's traffic manager while its port is under-used.
    Starvation,
    /// Microservice overload: a service's execution time exceeds its moving average.
    Overload,
    /// The load of an instance that had been moved away has fallen.
    LoadFell,
    /// The placement of an application does not carry its rate with the reserve.
    Capacity,
    /// Another placement carries the rate of an application with less energy.
    Energy,
    /// A server or rack draws more than its power cap.
    PowerCap,
    /// An instance that left because of a power cap saves power where it came from, and the caps hold there.
    PowerFell,
    /// The shards of a service on one node are busy together.
    ShardsCrowded,
    /// The shards of a service are so busy that they are to be split.
    ShardsBusy,
    /// The shards of a service are so idle that they are to be merged.
    ShardsIdle,
}

/// `POST /v1/orchestrator`. What is not named stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OrchestratorRequest {
    /// What it is to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<OrchestratorMode>,
    /// By name: numbers of the settings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub numbers: BTreeMap<String, u32>,
}

/// `GET /v1/orchestrator`, and the answer to `POST /v1/orchestrator`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrchestratorView {
    /// The settings.
    pub settings: OrchestratorSettings,
    /// Whether it acts by these settings. A cluster that writes format 7 has no orchestrator.
    pub active: bool,
    /// Migrations in flight, whoever asked for them.
    pub moves_in_flight: u32,
    /// Instances that it has moved away from their SmartNIC, or because of a power cap.
    pub displaced: Vec<DisplacedView>,
    /// How many of its decisions are among the events that are kept, by kind.
    pub decisions: BTreeMap<EventKind, u64>,
}

/// An instance that the orchestrator has moved away.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DisplacedView {
    /// `app/service/shard`.
    pub instance: String,
    /// The node that it came from.
    pub home: String,
    /// Where it is.
    pub node: String,
    /// When it moved, in milliseconds since the Unix epoch.
    pub at_unix_ms: u64,
    /// When it may return at the earliest.
    pub rests_until_unix_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_settings_are_valid_and_each_bound_is_checked() {
        let settings = OrchestratorSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        let text = serde_json::to_value(settings).unwrap();
        for (name, _, bounds) in settings.numbers() {
            for value in [bounds.start().wrapping_sub(1), bounds.end() + 1] {
                let mut changed = text.clone();
                changed[name] = value.into();
                let changed: OrchestratorSettings = serde_json::from_value(changed).unwrap();
                let refused = changed.validate().unwrap_err();
                assert!(refused.to_string().starts_with("orchestrator: "), "{name}");
            }
        }
        let wrong = OrchestratorSettings {
            moves_max: 0,
            ..settings
        };
        assert_eq!(
            wrong.validate().unwrap_err().to_string(),
            "orchestrator: movesMax is 0, must be 1..=1024"
        );
    }

    #[test]
    fn a_part_of_the_settings_is_read_with_defaults_for_the_rest() {
        let read = r#"{"mode": "dry-run", "movesMax": 3}"#;
        let read: OrchestratorSettings = serde_json::from_str(read).unwrap();
        assert_eq!((read.mode, read.moves_max), (OrchestratorMode::DryRun, 3));
        assert_eq!(read.overload_percent, 20);
    }
}
