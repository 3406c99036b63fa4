//! Sensors of power and energy that the kernel shows through hwmon
//! (Linux, Documentation/hwmon/sysfs-interface.rst).
//!
//! The kernel does not say what a sensor measures, and sensors of one machine often contain each other
//! (a module, its processor, its memory). So only ACPI's power meter, which is the whole machine's, and
//! a machine's only sensor are read without being named.

use crate::meter::{About, Meter, MeterError, Reading, Step, plausible};
use crate::sysfs::{entries, file_name, read_number, read_text};
use e3_model::meter::MeterScope;
use std::path::{Path, PathBuf};

/// ACPI's power meter (Linux, drivers/hwmon/acpi_power_meter.c).
const ACPI_METER: &str = "power_meter";

/// A sensor's file.
pub struct Sensor {
    about: About,
    file: PathBuf,
    is_counter: bool,
}

/// A sensor that was found, or why it cannot be read.
pub struct Probe {
    /// Name, such as `hwmon:power_meter:power1_average`.
    pub name: String,
    /// Label that the driver gives it, if any.
    pub label: Option<String>,
    /// The sensor.
    pub meter: Result<Sensor, MeterError>,
}

impl Probe {
    /// Whether it is ACPI's power meter.
    pub fn is_acpi(&self) -> bool {
        self.name.starts_with(&format!("hwmon:{ACPI_METER}:"))
    }
}

impl Meter for Sensor {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        let value = read_number(&self.file)?;
        if self.is_counter {
            Ok(Reading::Counter {
                uj: value,
                range_uj: None,
            })
        } else {
            plausible(&self.about.name, value as f64 / 1e6)
        }
    }
}

/// The sensors below a directory `class/hwmon`. Of a power sensor that shows the present value and an
/// average, the average.
pub fn sensors(dir: &Path) -> Vec<Probe> {
    let mut probes: Vec<Probe> = Vec::new();
    for device in entries(dir) {
        for place in [device.clone(), device.join("device")] {
            // Old drivers have their files in the device's own directory.
            let chip = read_text(&place.join("name"));
            let chip = chip.or_else(|_| read_text(&device.join("name")));
            let chip = chip.unwrap_or_else(|_| file_name(&device));
            let found: Vec<Probe> = entries(&place)
                .iter()
                .filter_map(|file| probe(&chip, file))
                .collect();
            if !found.is_empty() {
                probes.extend(found);
                break;
            }
        }
    }
    number_equal_names(&mut probes);
    probes
}

/// Two devices of one driver have the same name: the second and later ones get a number.
fn number_equal_names(probes: &mut [Probe]) {
    for i in 1..probes.len() {
        let (before, rest) = probes.split_at_mut(i);
        let base = rest[0].name.clone();
        let mut number = 2;
        while before.iter().any(|p| p.name == rest[0].name) {
            rest[0].name = format!("{base}#{number}");
            number += 1;
        }
        let name = rest[0].name.clone();
        if let Ok(sensor) = &mut rest[0].meter {
            sensor.about.name = name;
        }
    }
}

fn probe(chip: &str, file: &Path) -> Option<Probe> {
    let own = file_name(file);
    let (channel, kind) = own.split_once('_')?;
    let digits = channel.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let is_numbered = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let is_counter = channel.starts_with("energy") && kind == "input";
    let is_power = channel.starts_with("power") && (kind == "input" || kind == "average");
    let average = file.with_file_name(format!("{channel}_average"));
    let shadowed = is_power && kind == "input" && average.exists();
    if !is_numbered || shadowed || !(is_counter || is_power) {
        return None;
    }
    let beside = |what: &str| file.with_file_name(format!("{channel}_{what}"));
    let label = read_text(&beside("label")).ok();
    let label = label.or_else(|| read_text(&beside("oem_info")).ok());
    let average_ms = read_number(&beside("average_interval")).ok();
    let name = format!("hwmon:{chip}:{own}");
    let about = About {
        name: name.clone(),
        scope: match chip {
            ACPI_METER => MeterScope::Server,
            _ => MeterScope::Node,
        },
        step: if is_counter {
            Step::Joules(1e-6)
        } else {
            Step::Watts(1e-6)
        },
        average_s: average_ms.map(|ms| ms as f64 / 1e3),
    };
    let mut sensor = Sensor {
        about,
        file: file.to_path_buf(),
        is_counter,
    };
    Some(Probe {
        name,
        label: label.filter(|l| !l.is_empty()),
        meter: sensor.read().map(|_| sensor),
    })
}
