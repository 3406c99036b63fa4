//! Meters of the machine at hand: RAPL through powercap, and sensors through hwmon
//! (Linux, Documentation/power/powercap/powercap.rst and hwmon/sysfs-interface.rst).
//!
//! Virtual machines rarely have either; then the reason is what [`discover`] returns.

use crate::limits::METERS_MAX;
use e3_model::{Joules, Watts};
use std::io;
use std::path::{Path, PathBuf};

/// Where Linux shows its devices.
pub const SYSFS: &str = "/sys";

/// What a meter shows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reading {
    /// Energy since the meter was opened.
    Energy(Joules),
    /// Power now.
    Power(Watts),
}

/// A meter.
pub trait Meter {
    /// Name, such as `rapl:package-0`.
    fn name(&self) -> &str;
    /// Reads it.
    fn read(&mut self) -> Result<Reading, MeterError>;
}

/// Why a meter shows nothing.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// Not there.
    #[error("not available: {} {why}", .path.display())]
    Absent {
        /// Where it was looked for.
        path: PathBuf,
        /// What is the matter with it.
        why: &'static str,
    },
    /// There, but cannot be read.
    #[error("{} cannot be read: {error}", .path.display())]
    Unreadable {
        /// File.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
    /// There, but not a number.
    #[error("{} holds {value:?}, must be a whole number", .path.display())]
    Malformed {
        /// File.
        path: PathBuf,
        /// Content.
        value: String,
    },
}

/// A kind of meter that was looked for.
pub struct Probe {
    /// Kind and name.
    pub name: String,
    /// The meter, or why there is none.
    pub meter: Result<Box<dyn Meter>, MeterError>,
}

/// Looks for meters below `sysfs` ([`SYSFS`]); opens each by reading it once.
pub fn discover(sysfs: &Path) -> Vec<Probe> {
    let mut found = rapl(&sysfs.join("class/powercap"));
    found.extend(hwmon(&sysfs.join("class/hwmon")));
    found.truncate(METERS_MAX);
    found
}

/// A counter of microjoules that wraps.
struct Counter {
    name: String,
    file: PathBuf,
    /// Value at which it goes back to 0, if known; else a smaller value means that it was reset.
    range_uj: Option<u64>,
    last_uj: u64,
    total_uj: u64,
}

/// A sensor of microwatts.
struct Sensor {
    name: String,
    file: PathBuf,
}

impl Counter {
    fn open(
        name: String,
        file: PathBuf,
        range_uj: Option<u64>,
    ) -> Result<Box<dyn Meter>, MeterError> {
        let last_uj = read_number(&file)?;
        Ok(Box::new(Counter {
            name,
            file,
            range_uj,
            last_uj,
            total_uj: 0,
        }))
    }
}

impl Meter for Counter {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        let now = read_number(&self.file)?;
        let since = if now >= self.last_uj {
            now - self.last_uj
        } else {
            let before = self.range_uj.map_or(0, |r| r.saturating_sub(self.last_uj));
            before.saturating_add(now)
        };
        self.last_uj = now;
        self.total_uj = self.total_uj.saturating_add(since);
        Ok(Reading::Energy(Joules(self.total_uj as f64 / 1e6)))
    }
}

impl Meter for Sensor {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        Ok(Reading::Power(Watts(read_number(&self.file)? as f64 / 1e6)))
    }
}

/// RAPL: one meter for each top-level zone (package, or psys, which contains the packages).
fn rapl(dir: &Path) -> Vec<Probe> {
    let mut probes = Vec::new();
    for zone in entries(dir) {
        let file_name = zone.file_name().unwrap_or_default().to_string_lossy();
        let top = file_name.matches(':').count() == 1 && !file_name.contains("mmio");
        if !top || !zone.join("energy_uj").exists() {
            continue;
        }
        let name = format!("rapl:{}", read_text(&zone.join("name")).unwrap_or_default());
        let range = read_number(&zone.join("max_energy_range_uj"));
        let open = |range| Counter::open(name.clone(), zone.join("energy_uj"), Some(range));
        let meter = range.and_then(open);
        probes.push(Probe { name, meter });
    }
    if probes.is_empty() {
        probes.push(absent("rapl", dir, "has no zone of a processor's energy"));
    }
    probes
}

fn hwmon(dir: &Path) -> Vec<Probe> {
    let mut probes = Vec::new();
    for device in entries(dir) {
        let chip = read_text(&device.join("name")).unwrap_or_default();
        for file in entries(&device) {
            let file_name = file.file_name().unwrap_or_default().to_string_lossy();
            let name = format!("hwmon:{chip}:{file_name}");
            let meter = if file_name.starts_with("energy") && file_name.ends_with("_input") {
                Counter::open(name.clone(), file.clone(), None)
            } else if file_name.starts_with("power")
                && (file_name.ends_with("_input") || file_name.ends_with("_average"))
            {
                let open = |_| -> Box<dyn Meter> {
                    Box::new(Sensor {
                        name: name.clone(),
                        file: file.clone(),
                    })
                };
                read_number(&file).map(open)
            } else {
                continue;
            };
            probes.push(Probe { name, meter });
        }
    }
    if probes.is_empty() {
        probes.push(absent("hwmon", dir, "has no sensor of power or energy"));
    }
    probes
}

fn absent(name: &str, dir: &Path, otherwise: &'static str) -> Probe {
    let why = if dir.exists() {
        otherwise
    } else {
        "does not exist (in a virtual machine or container it rarely does)"
    };
    Probe {
        name: name.to_string(),
        meter: Err(MeterError::Absent {
            path: dir.to_path_buf(),
            why,
        }),
    }
}

/// Entries of a directory in order; none if there is no such directory.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    all.sort();
    all
}

fn read_text(path: &Path) -> Result<String, MeterError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_string()),
        Err(error) => Err(MeterError::Unreadable {
            path: path.to_path_buf(),
            error,
        }),
    }
}

fn read_number(path: &Path) -> Result<u64, MeterError> {
    let value = read_text(path)?;
    value.parse().map_err(|_| MeterError::Malformed {
        path: path.to_path_buf(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands for `/sys`, removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let id = std::process::id();
            let dir = std::env::temp_dir().join(format!("e3-energy-{name}-{id}"));
            std::fs::create_dir_all(&dir).unwrap();
            Tree(dir)
        }
        fn put(&self, file: &str, text: &str) {
            let path = self.0.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_energy_counter_wraps() {
        let tree = Tree::new("wrap");
        let zone = "class/powercap/intel-rapl:0";
        tree.put(&format!("{zone}/name"), "package-0\n");
        tree.put(&format!("{zone}/max_energy_range_uj"), "10000000\n");
        tree.put(&format!("{zone}/energy_uj"), "9000000\n");
        // A zone within the package would be counted twice.
        tree.put("class/powercap/intel-rapl:0:0/energy_uj", "5\n");
        let mut probes = discover(&tree.0);
        assert_eq!(probes.len(), 2, "one package, no hwmon");
        let meter = probes[0].meter.as_mut().ok().unwrap();
        assert_eq!(meter.name(), "rapl:package-0");
        assert_eq!(meter.read().unwrap(), Reading::Energy(Joules(0.0)));
        tree.put(&format!("{zone}/energy_uj"), "2000000\n");
        assert_eq!(meter.read().unwrap(), Reading::Energy(Joules(3.0)));
        tree.put(&format!("{zone}/energy_uj"), "lots");
        let error = meter.read().unwrap_err().to_string();
        assert!(
            error.ends_with("holds \"lots\", must be a whole number"),
            "{error}"
        );
    }

    #[test]
    fn sensors_are_found_and_absence_has_a_reason() {
        let tree = Tree::new("hwmon");
        tree.put("class/hwmon/hwmon0/name", "acpi");
        tree.put("class/hwmon/hwmon0/power1_average", "98500000");
        let mut probes = discover(&tree.0);
        let text = |p: &Probe| p.meter.as_ref().err().unwrap().to_string();
        assert_eq!(probes[0].name, "rapl");
        assert!(text(&probes[0]).contains("powercap does not exist"));
        let sensor = probes[1].meter.as_mut().ok().unwrap();
        assert_eq!(sensor.name(), "hwmon:acpi:power1_average");
        assert_eq!(sensor.read().unwrap(), Reading::Power(Watts(98.5)));
    }
}
