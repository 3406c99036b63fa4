//! RAPL: counters of the energy of processors, through powercap
//! (Linux, Documentation/power/powercap/powercap.rst; Intel SDM volume 3B, 15.10).
//!
//! A package's counter contains its cores and graphics, but not its memory, although the kernel shows
//! the memory's zone inside the package's. A platform's counter (`psys`) contains the packages; many
//! boards leave it without meaning, so it is read only if an operator names it.

use crate::meter::{About, Meter, MeterError, Reading, Step};
use crate::sysfs::{entries, file_name, read_number, read_text};
use e3_model::meter::MeterScope;
use std::path::{Path, PathBuf};

/// What a zone counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// A processor package.
    Package,
    /// The memory of a package.
    Memory,
    /// The platform.
    Platform,
}

/// A zone's counter.
pub struct Rapl {
    about: About,
    file: PathBuf,
    range_uj: u64,
}

/// A zone that was found, and its counter or why it cannot be read.
pub struct Zone {
    /// Name, such as `rapl:package-0` or `rapl:package-0:dram`.
    pub name: String,
    /// What it counts.
    pub domain: Domain,
    /// The counter.
    pub meter: Result<Rapl, MeterError>,
}

impl Meter for Rapl {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        Ok(Reading::Counter {
            uj: read_number(&self.file)?,
            range_uj: Some(self.range_uj),
        })
    }
}

/// The zones below a directory `class/powercap`.
pub fn zones(dir: &Path) -> Vec<Zone> {
    let is_zone = |dir: &PathBuf| {
        let name = file_name(dir);
        // The same counters through another interface would be counted twice.
        name.contains(':') && !name.contains("mmio") && dir.join("energy_uj").exists()
    };
    let found = entries(dir).into_iter().filter(is_zone);
    found.filter_map(|dir| zone(&dir)).collect()
}

fn zone(dir: &Path) -> Option<Zone> {
    let own = read_text(&dir.join("name")).unwrap_or_default();
    let (name, domain) = match file_name(dir).matches(':').count() {
        1 if own == "psys" => (own, Domain::Platform),
        1 if own.is_empty() => (file_name(dir), Domain::Package),
        1 => (own, Domain::Package),
        2 if own == "dram" => (format!("{}:dram", package(dir)), Domain::Memory),
        // Cores and graphics are in the package.
        _ => return None,
    };
    let name = format!("rapl:{name}");
    Some(Zone {
        meter: open(dir, &name, domain),
        name,
        domain,
    })
}

/// Name of the package of a zone `intel-rapl:0:1`.
fn package(dir: &Path) -> String {
    let own = file_name(dir);
    let parent = own.rsplit_once(':').map_or("", |(parent, _)| parent);
    let beside = dir.parent().unwrap_or(dir).join(parent).join("name");
    match read_text(&beside) {
        Ok(name) if !name.is_empty() => name,
        _ => parent.to_string(),
    }
}

fn open(dir: &Path, name: &str, domain: Domain) -> Result<Rapl, MeterError> {
    let file = dir.join("energy_uj");
    let range_uj = read_number(&dir.join("max_energy_range_uj"))?;
    read_number(&file)?;
    // The counter has 32 bits, so its range tells the processor's unit. The kernel shows microjoules.
    let unit_uj = (range_uj as f64 / f64::from(u32::MAX)).max(1.0);
    let scope = match domain {
        Domain::Package | Domain::Memory => MeterScope::Processor,
        Domain::Platform => MeterScope::Node,
    };
    Ok(Rapl {
        about: About {
            name: name.to_string(),
            scope,
            step: Step::Joules(unit_uj / 1e6),
            average_s: None,
        },
        file,
        range_uj,
    })
}
