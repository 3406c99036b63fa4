//! Reading of files that show one value, as those of sysfs.

use crate::limits::FILE_LEN_MAX;
use crate::meter::MeterError;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where Linux shows its devices.
pub const SYSFS: &str = "/sys";

/// Entries of a directory in order; none if there is no such directory.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = match std::fs::read_dir(dir) {
        Ok(entries) => entries.filter_map(|e| Some(e.ok()?.path())).collect(),
        Err(_) => Vec::new(),
    };
    all.sort();
    all
}

/// The last part of a path.
pub(crate) fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Content without surrounding space. What is not UTF-8 is replaced.
pub(crate) fn read_text(path: &Path) -> Result<String, MeterError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|f| f.take(FILE_LEN_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim().to_string()),
        Err(error) => Err(MeterError::of_file(path, error)),
    }
}

/// A whole number that is not negative.
pub(crate) fn read_number(path: &Path) -> Result<u64, MeterError> {
    let value = read_text(path)?;
    value.parse().map_err(|_| MeterError::Malformed {
        path: path.to_path_buf(),
        value: value.chars().take(64).collect(),
    })
}

/// Processors that are online, from a list such as `0-3,8`; at least 1.
pub(crate) fn processors_online(sysfs: &Path) -> u32 {
    let text = read_text(&sysfs.join("devices/system/cpu/online")).unwrap_or_default();
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let here = || std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let online: Option<u32> = text.split(',').map(count).sum();
    online.filter(|n| *n > 0).unwrap_or_else(here)
}
