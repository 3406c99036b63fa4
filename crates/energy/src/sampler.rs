//! Reads the chosen meters again and again.

use crate::choice::{Choice, Group, MeterConfig};
use crate::integrator::Integrator;
use crate::limits::{BACKOFF_MAX, SAMPLE_INTERVAL};
use crate::meter::{MeterError, Reading};
use crate::sysfs::{processors_online, read_text};
use e3_model::meter::{MeterScope, MeteredEnergy};
use e3_model::{Nanos, Timestamp};
use std::path::Path;
use std::time::Duration;

/// A random number that the kernel chooses when it starts (Linux, random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Meters of a node and what they have measured.
pub struct Sampler {
    config: MeterConfig,
    group: Option<Group>,
    name: String,
    scope: MeterScope,
    integrator: Integrator,
    cores: u32,
    machine: String,
    failures: u32,
    error: Option<MeterError>,
}

impl Sampler {
    /// Opens the chosen meters. None if there is nothing to read: no meter was asked for, or none is
    /// there. If one is there and cannot be read, without having been asked for, that is an error.
    pub fn open(config: MeterConfig, now: Timestamp) -> Result<Option<Sampler>, MeterError> {
        let (group, error) = match config.open() {
            Ok(None) => return Ok(None),
            Ok(group) => (group, None),
            Err(error) if config.choice == Choice::Auto => return Err(error),
            // It was asked for, and may come: its driver may be loaded later.
            Err(error) => (None, Some(error)),
        };
        let asked = match &config.choice {
            Choice::Named(names) => names.join("+"),
            _ => String::new(),
        };
        Ok(Some(Sampler {
            name: group.as_ref().map_or(asked, |g| g.name.clone()),
            scope: group.as_ref().map_or(MeterScope::Node, |g| g.scope),
            integrator: Integrator::new(now),
            cores: processors_online(&config.sysfs),
            // All containers of a machine have one kernel, and so one number of its start.
            machine: read_text(Path::new(BOOT_ID)).unwrap_or_default(),
            failures: u32::from(error.is_some()),
            config,
            group,
            error,
        }))
    }

    /// Name of the meter.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why the last reading failed, if it did.
    pub fn error(&self) -> Option<&MeterError> {
        self.error.as_ref()
    }

    /// Reads all meters once. `clock` tells the time before and after: a slow meter shows the power
    /// of some point between.
    pub fn sample(&mut self, clock: impl Fn() -> Timestamp) -> MeteredEnergy {
        let before = clock();
        match self.read() {
            Ok(readings) => {
                let took = clock().since(before);
                let at = before + Nanos(took.0 / 2);
                self.integrator.on_readings(at, &readings);
                (self.failures, self.error) = (0, None);
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.error = Some(error);
            }
        }
        let totals = self.integrator.totals(clock());
        MeteredEnergy {
            meter: self.name.clone(),
            scope: self.scope,
            joules: totals.joules.0,
            metered_seconds: totals.metered.as_secs_f64(),
            unmetered_seconds: totals.unmetered.as_secs_f64(),
            watts: totals.watts.0,
            cores: self.cores,
            machine: self.machine.clone(),
            error: self.error.as_ref().map(ToString::to_string),
        }
    }

    /// Time until the next sample: longer after failures.
    pub fn pause(&self) -> Duration {
        let doubled = 1 << self.failures.saturating_sub(1).min(16);
        (SAMPLE_INTERVAL * doubled).min(BACKOFF_MAX)
    }

    fn read(&mut self) -> Result<Vec<Reading>, MeterError> {
        let group = match &mut self.group {
            Some(group) => group,
            None => {
                let Some(group) = self.config.open()? else {
                    return Ok(Vec::new());
                };
                (self.name, self.scope) = (group.name.clone(), group.scope);
                self.group.insert(group)
            }
        };
        group.read()
    }
}
