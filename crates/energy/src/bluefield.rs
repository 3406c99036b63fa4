//! Power of a BlueField, as its driver `mlxbf-ptm` shows it in debugfs: the two voltage regulators of the
//! system on the chip together, in whole watts. Ports and memory of the card are not contained.

use crate::meter::{About, Meter, MeterError, Reading, Step, plausible};
use crate::sysfs::read_number;
use e3_model::meter::MeterScope;
use std::path::{Path, PathBuf};

/// Where the driver shows the power, below `/sys`.
const TOTAL_POWER: &str = "kernel/debug/mlxbf-ptm/monitors/status/total_power";
/// Name of the meter.
pub const NAME: &str = "bluefield";

/// The sensor.
pub struct Bluefield {
    about: About,
    file: PathBuf,
}

impl Meter for Bluefield {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        match read_number(&self.file)? {
            // The driver shows 0 if neither regulator answers.
            0 => Err(MeterError::Answer {
                name: NAME.into(),
                text: "no voltage regulator answers".into(),
            }),
            watts => plausible(NAME, watts as f64),
        }
    }
}

/// The sensor below `sysfs`; none where the driver is absent.
pub fn sensor(sysfs: &Path) -> Option<Result<Bluefield, MeterError>> {
    let file = sysfs.join(TOTAL_POWER);
    // Only root may enter debugfs: whether the driver is there is then unknown.
    let mut sensor = Bluefield {
        about: About {
            name: NAME.into(),
            scope: MeterScope::Processor,
            step: Step::Watts(1.0),
            average_s: None,
        },
        file,
    };
    match sensor.read() {
        Ok(_) => Some(Ok(sensor)),
        Err(MeterError::Absent { .. }) => None,
        Err(MeterError::Forbidden { .. }) if !is_bluefield(sysfs) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Whether the firmware lists a device of a BlueField (ACPI ids of Mellanox's system on a chip).
fn is_bluefield(sysfs: &Path) -> bool {
    let devices = crate::sysfs::entries(&sysfs.join("bus/acpi/devices"));
    let named = |d: &PathBuf| crate::sysfs::file_name(d).starts_with("MLNXBF");
    devices.iter().any(named)
}
