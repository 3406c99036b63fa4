//! What the tests of meters share: a directory that imitates `/sys` of a machine.
#![allow(dead_code, reason = "each test program uses a part")]

use e3_energy::{Choice, MeterConfig, discover};
use e3_model::{Nanos, Timestamp};
use std::path::{Path, PathBuf};

/// A directory that stands for `/sys`.
pub struct Sysfs(tempfile::TempDir);

impl Sysfs {
    pub fn new() -> Sysfs {
        Sysfs(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// Writes a file; one that exists is replaced.
    pub fn put(&self, file: &str, text: &str) {
        let path = self.file(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A zone of powercap.
    pub fn zone(&self, zone: &str, name: &str, uj: u64, range_uj: u64) {
        let dir = format!("class/powercap/{zone}");
        self.put(&format!("{dir}/name"), &format!("{name}\n"));
        self.put(&format!("{dir}/energy_uj"), &format!("{uj}\n"));
        let range = format!("{range_uj}\n");
        self.put(&format!("{dir}/max_energy_range_uj"), &range);
    }

    /// Sets a zone's counter.
    pub fn count(&self, zone: &str, uj: u64) {
        let file = format!("class/powercap/{zone}/energy_uj");
        self.put(&file, &format!("{uj}\n"));
    }

    /// A server with two packages of Intel, each with memory of its own: layout of Linux 6.1.
    pub fn intel() -> Sysfs {
        let sysfs = Sysfs::new();
        sysfs.put("class/powercap/intel-rapl/enabled", "1\n");
        for package in 0..2 {
            let zone = format!("intel-rapl:{package}");
            let name = format!("package-{package}");
            sysfs.zone(&zone, &name, 100_000_000, 262_143_328_850);
            sysfs.zone(&format!("{zone}:0"), "dram", 20_000_000, 65_712_999_613);
        }
        // The same counter of the first package through memory-mapped registers.
        let zone = "intel-rapl-mmio:0";
        sysfs.zone(zone, "package-0", 100_000_000, 262_143_328_850);
        sysfs.put("devices/system/cpu/online", "0-31\n");
        sysfs
    }

    /// A server with one package of AMD: a zone for its cores, none for its memory.
    pub fn amd() -> Sysfs {
        let sysfs = Sysfs::new();
        sysfs.zone("intel-rapl:0", "package-0", 5_000_000, 65_532_610_987);
        sysfs.zone("intel-rapl:0:0", "core", 1_000_000, 65_532_610_987);
        sysfs.put("devices/system/cpu/online", "0-15\n");
        sysfs
    }

    pub fn config(&self) -> MeterConfig {
        MeterConfig {
            sysfs: self.path().to_path_buf(),
            ..MeterConfig::default()
        }
    }

    pub fn named(&self, names: &[&str]) -> MeterConfig {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        MeterConfig {
            choice: Choice::parse(&names).unwrap(),
            ..self.config()
        }
    }

    /// A line for each meter: its name and why it shows nothing, or its resolution.
    pub fn list(&self) -> Vec<String> {
        let all = discover(&self.config());
        let line = |found: e3_energy::Found| match found.shows {
            Ok(shown) => format!("{}: {}", found.name, shown.about),
            Err(error) => format!("{}: {error}", found.name)
                .replace(&self.path().display().to_string(), "/sys"),
        };
        all.into_iter().map(line).collect()
    }
}

/// A point in time, in milliseconds since the test began.
pub fn ms(ms: u64) -> Timestamp {
    Timestamp(0) + Nanos::from_millis(ms)
}
