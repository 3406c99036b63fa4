//! Which meters measure a node, so that nothing is counted twice.

use crate::bluefield;
use crate::hwmon;
use crate::ipmi::{self, Ipmi};
use crate::limits::GROUP_MAX;
use crate::meter::{Meter, MeterError, Reading};
use crate::rapl::{self, Domain};
use crate::redfish::{self, Redfish, RedfishConfig, UrlError};
use crate::sysfs::SYSFS;
use e3_model::meter::MeterScope;
use std::path::{Path, PathBuf};

/// Which meters to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    /// The first that can be read: Redfish if it is configured, the processors' counters, a BlueField's
    /// sensor, ACPI's power meter, IPMI.
    #[default]
    Auto,
    /// None.
    Off,
    /// These, whose figures are added.
    Named(Vec<String>),
}

/// Settings of a node's meters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// Where the kernel shows its devices.
    pub sysfs: PathBuf,
    /// Which meters to read.
    pub choice: Choice,
    /// The server's management controller, if it is asked over HTTP.
    pub redfish: Option<RedfishConfig>,
}

impl Default for MeterConfig {
    fn default() -> MeterConfig {
        MeterConfig {
            sysfs: SYSFS.into(),
            choice: Choice::Auto,
            redfish: None,
        }
    }
}

/// Why a choice makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChoiceError {
    /// No such meter.
    #[error(
        "meter {0:?} is unknown, must be auto, off, rapl, bluefield, ipmi, redfish, or a name that \
         begins with rapl: or hwmon:"
    )]
    Unknown(String),
    /// Named together with another that excludes it.
    #[error("meter {0:?} cannot be combined with others")]
    Alone(String),
    /// Named twice.
    #[error("meter {0:?} is named twice")]
    Twice(String),
    /// Too many.
    #[error("{0} meters are named, must be at most {GROUP_MAX}")]
    TooMany(usize),
    /// Redfish without an address.
    #[error("meter \"redfish\" needs --meter-url, --meter-user and --meter-password-file")]
    NoUrl,
    /// The address of the management controller makes no sense.
    #[error(transparent)]
    Url(#[from] UrlError),
}

/// Meters that are read together and whose figures are added.
pub struct Group {
    /// Names of the meters, joined by `+`.
    pub name: String,
    /// What their sum contains.
    pub scope: MeterScope,
    /// The meters.
    pub meters: Vec<Box<dyn Meter>>,
}

impl Group {
    /// Reads all of them, in the same order each time.
    pub fn read(&mut self) -> Result<Vec<Reading>, MeterError> {
        self.meters.iter_mut().map(|meter| meter.read()).collect()
    }
}

impl Choice {
    /// Reads the words of a list.
    pub fn parse(words: &[String]) -> Result<Choice, ChoiceError> {
        if words.len() > GROUP_MAX {
            return Err(ChoiceError::TooMany(words.len()));
        }
        let is_single = |w: &str| {
            [
                "auto",
                "off",
                "rapl",
                bluefield::NAME,
                ipmi::NAME,
                redfish::NAME,
            ]
            .contains(&w)
        };
        for (i, word) in words.iter().enumerate() {
            let is_one = word.starts_with("rapl:") || word.starts_with("hwmon:");
            if !is_one && !is_single(word) {
                return Err(ChoiceError::Unknown(word.clone()));
            }
            if is_single(word) && words.len() > 1 {
                return Err(ChoiceError::Alone(word.clone()));
            }
            if words[..i].contains(word) {
                return Err(ChoiceError::Twice(word.clone()));
            }
        }
        Ok(match words {
            [] => Choice::Auto,
            [word] if word == "auto" => Choice::Auto,
            [word] if word == "off" => Choice::Off,
            words => Choice::Named(words.to_vec()),
        })
    }
}

impl MeterConfig {
    /// Checks what can be checked without reading a meter.
    pub fn validate(&self) -> Result<(), ChoiceError> {
        if let Some(config) = &self.redfish {
            Redfish::new(config.clone())?;
        }
        match &self.choice {
            Choice::Named(names) if names[..] == [redfish::NAME] && self.redfish.is_none() => {
                Err(ChoiceError::NoUrl)
            }
            _ => Ok(()),
        }
    }

    /// Opens the chosen meters. None if none is to be read, or none is there.
    pub fn open(&self) -> Result<Option<Group>, MeterError> {
        match &self.choice {
            Choice::Off => Ok(None),
            Choice::Auto => self.open_first(),
            Choice::Named(names) => self.open_named(names).map(Some),
        }
    }

    /// The first that can be read; else why the first that is there cannot.
    fn open_first(&self) -> Result<Option<Group>, MeterError> {
        if let Some(redfish) = self.open_redfish() {
            return Ok(Some(redfish));
        }
        let mut error = None;
        for kind in [open_rapl, open_bluefield, open_acpi, open_ipmi] {
            match kind(&self.sysfs) {
                Some(Ok(group)) => return Ok(Some(group)),
                Some(Err(e)) => error = error.or(Some(e)),
                None => {}
            }
        }
        error.map_or(Ok(None), Err)
    }

    fn open_named(&self, names: &[String]) -> Result<Group, MeterError> {
        let absent = |path: PathBuf, why| MeterError::Absent { path, why };
        let powercap = self.sysfs.join("class/powercap");
        match names {
            [name] if name == redfish::NAME => self.open_redfish(),
            [name] if name == ipmi::NAME => return Ok(group(vec![Box::new(Ipmi::local())])),
            [name] if name == bluefield::NAME => open_bluefield(&self.sysfs).transpose()?,
            [name] if name == "rapl" => open_rapl(&self.sysfs).transpose()?,
            names => {
                let mut meters = Vec::new();
                for name in names {
                    meters.push(self.open_one(name)?);
                }
                return Ok(group(meters));
            }
        }
        .ok_or_else(|| match names[0].as_str() {
            "rapl" => absent(powercap, "has no counter of a processor's energy"),
            _ => absent(self.sysfs.clone(), "shows no such meter"),
        })
    }

    /// A single counter or sensor.
    fn open_one(&self, name: &str) -> Result<Box<dyn Meter>, MeterError> {
        if name.starts_with("rapl:") {
            let dir = self.sysfs.join("class/powercap");
            let zone = rapl::zones(&dir).into_iter().find(|z| z.name == name);
            return match zone {
                Some(zone) => Ok(Box::new(zone.meter?)),
                None => Err(unnamed(dir.join(name))),
            };
        }
        let dir = self.sysfs.join("class/hwmon");
        let sensor = hwmon::sensors(&dir).into_iter().find(|s| s.name == name);
        match sensor {
            Some(sensor) => Ok(Box::new(sensor.meter?)),
            None => Err(unnamed(dir.join(name))),
        }
    }

    fn open_redfish(&self) -> Option<Group> {
        let redfish = Redfish::new(self.redfish.clone()?).ok()?;
        Some(group(vec![Box::new(redfish)]))
    }
}

fn unnamed(path: PathBuf) -> MeterError {
    MeterError::Absent {
        path,
        why: "does not exist; e3 doctor lists the meters",
    }
}

/// All packages and their memory. A package that cannot be read makes the sum meaningless; a memory zone
/// that cannot is left out, and the name says which are in.
fn open_rapl(sysfs: &Path) -> Option<Result<Group, MeterError>> {
    let zones = rapl::zones(&sysfs.join("class/powercap"));
    let mut meters: Vec<Box<dyn Meter>> = Vec::new();
    let mut has_package = false;
    for zone in zones {
        match (zone.domain, zone.meter) {
            (Domain::Platform, _) | (Domain::Memory, Err(_)) => {}
            (Domain::Package, Err(error)) => return Some(Err(error)),
            (domain, Ok(meter)) => {
                has_package |= domain == Domain::Package;
                meters.push(Box::new(meter));
            }
        }
    }
    meters.truncate(GROUP_MAX);
    has_package.then(|| Ok(group(meters)))
}

fn open_bluefield(sysfs: &Path) -> Option<Result<Group, MeterError>> {
    let sensor = bluefield::sensor(sysfs)?;
    Some(sensor.map(|sensor| group(vec![Box::new(sensor)])))
}

fn open_acpi(sysfs: &Path) -> Option<Result<Group, MeterError>> {
    let mut all = hwmon::sensors(&sysfs.join("class/hwmon"));
    all.retain(hwmon::Probe::is_acpi);
    match all.len() {
        0 => None,
        1 => Some(all.remove(0).meter.map(|s| group(vec![Box::new(s)]))),
        _ => Some(Err(MeterError::Ambiguous {
            names: all.into_iter().map(|s| s.name).collect(),
        })),
    }
}

fn open_ipmi(sysfs: &Path) -> Option<Result<Group, MeterError>> {
    // A machine's other devices are beside a tree that only imitates /sys.
    let is_here = sysfs == Path::new(SYSFS) && Path::new(ipmi::DEVICE).exists();
    let mut meter = is_here.then(Ipmi::local)?;
    Some(meter.read().map(|_| group(vec![Box::new(meter)])))
}

fn group(meters: Vec<Box<dyn Meter>>) -> Group {
    let names: Vec<&str> = meters.iter().map(|m| m.about().name.as_str()).collect();
    Group {
        name: joined(&names),
        scope: meters.first().map_or(MeterScope::Node, |m| m.about().scope),
        meters,
    }
}

/// `rapl:package-0`, `rapl:package-1` as `rapl:package-0+package-1`.
fn joined(names: &[&str]) -> String {
    let kind = |name: &str| name.split_once(':').map(|(kind, _)| format!("{kind}:"));
    let mut text = String::new();
    let mut last = None;
    for name in names {
        let same = last.is_some() && last == kind(name);
        let kind = kind(name);
        let short = match &kind {
            Some(kind) if same => name.strip_prefix(kind.as_str()).unwrap_or(name),
            _ => name,
        };
        if !text.is_empty() {
            text.push('+');
        }
        text.push_str(short);
        last = kind;
    }
    text
}
