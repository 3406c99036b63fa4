//! Lists the meters of a machine: what each measures, how finely, how long a reading takes, or why it
//! cannot be read.

use crate::choice::MeterConfig;
use crate::ipmi::{self, Ipmi};
use crate::limits::METERS_MAX;
use crate::meter::{About, Meter, MeterError, Reading};
use crate::redfish::{self, Redfish};
use crate::sysfs::SYSFS;
use crate::{bluefield, hwmon, rapl};
use std::path::Path;
use std::time::{Duration, Instant};

/// A meter that was found.
pub struct Found {
    /// Name.
    pub name: String,
    /// The driver's label of it, if there is one.
    pub label: Option<String>,
    /// What it shows, or why nothing.
    pub shows: Result<Shown, MeterError>,
}

/// A meter that can be read.
#[derive(Clone, PartialEq, Debug)]
pub struct Shown {
    /// What is known of it.
    pub about: About,
    /// A reading.
    pub reading: Reading,
    /// Time of that reading: the second one, when files and connections have been used once.
    pub overhead: Duration,
}

/// Looks for the meters of this machine, whichever of them are read.
pub fn discover(config: &MeterConfig) -> Vec<Found> {
    let sysfs = config.sysfs.as_path();
    let mut all: Vec<Found> = Vec::new();
    for zone in rapl::zones(&sysfs.join("class/powercap")) {
        all.push(found(zone.name, None, zone.meter));
    }
    if let Some(sensor) = bluefield::sensor(sysfs) {
        all.push(found(bluefield::NAME.into(), None, sensor));
    }
    for sensor in hwmon::sensors(&sysfs.join("class/hwmon")) {
        all.push(found(sensor.name, sensor.label, sensor.meter));
    }
    all.truncate(METERS_MAX);
    if sysfs == Path::new(SYSFS) && Path::new(ipmi::DEVICE).exists() {
        all.push(found(ipmi::NAME.into(), None, Ok(Ipmi::local())));
    }
    if let Some(redfish) = config.redfish.clone()
        && let Ok(meter) = Redfish::new(redfish)
    {
        all.push(found(redfish::NAME.into(), None, Ok(meter)));
    }
    all
}

fn found(name: String, label: Option<String>, meter: Result<impl Meter, MeterError>) -> Found {
    let shows = meter.and_then(|mut meter| {
        meter.read()?;
        let start = Instant::now();
        let reading = meter.read()?;
        Ok(Shown {
            overhead: start.elapsed(),
            about: meter.about().clone(),
            reading,
        })
    });
    Found { name, label, shows }
}
