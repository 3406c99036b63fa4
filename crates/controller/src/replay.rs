//! The state of the cluster from its log, and the first record of a new one.

use crate::config::ControllerConfig;
use crate::error::ControllerError;
use e3_control::{Command, Control, Genesis};
use e3_model::format::RELEASE;
use e3_model::{Format, Formats};
use e3_store::{Recovered, Store};
use serde::Deserialize;
use std::io;
use std::path::PathBuf;

/// Creates a cluster; it is on disk when this returns.
pub(crate) fn found(
    store: &mut Store,
    config: &ControllerConfig,
) -> Result<Control, ControllerError> {
    let cluster = random_number()? | 1;
    let topology = config.topology.clone();
    let genesis = Genesis::Init {
        cluster,
        topology,
        format: config.formats.newest(),
        release: RELEASE.into(),
    };
    let bytes = serde_json::to_vec(&genesis).expect("topologies have text keys only");
    store.append(&bytes)?;
    store.sync()?;
    Ok(Control::founded(genesis))
}

/// Why a log cannot be used.
#[derive(Debug)]
pub(crate) enum LogError {
    Unreadable(String),
    /// The active format, which this process does not have, and the release that chose it.
    Newer {
        found: Format,
        formats: Formats,
        release: String,
    },
}

impl LogError {
    pub(crate) fn in_dir(self, dir: PathBuf) -> ControllerError {
        match self {
            LogError::Unreadable(what) => ControllerError::Unreadable { dir, what },
            LogError::Newer {
                found,
                formats,
                release,
            } => ControllerError::Newer {
                dir,
                found,
                formats,
                release,
            },
        }
    }
}

/// What every snapshot says of its format, whatever else it holds.
#[derive(Deserialize)]
struct FormatOfSnapshot {
    #[serde(default)]
    format: Format,
    #[serde(default)]
    format_release: String,
}

/// The state that follows from the snapshot and the records after it; None if the log is new. Nothing
/// is read that follows a change to a format that this process does not have.
pub(crate) fn replay(recovered: &Recovered, formats: Formats) -> Result<Option<Control>, LogError> {
    let read = |i: usize, e| LogError::Unreadable(format!("command {} cannot be read: {e}", i + 1));
    let check = |found: Format, release: &str| {
        if formats.include(found) {
            Ok(())
        } else {
            Err(LogError::Newer {
                found,
                formats,
                release: release.to_string(),
            })
        }
    };
    let mut entries = recovered.entries.iter().enumerate();
    let mut control: Control = if let Some(snapshot) = &recovered.snapshot {
        let of = |e| LogError::Unreadable(format!("snapshot cannot be read: {e}"));
        let head: FormatOfSnapshot = serde_json::from_slice(snapshot).map_err(of)?;
        check(head.format, &head.format_release)?;
        serde_json::from_slice(snapshot).map_err(of)?
    } else if let Some((i, first)) = entries.next() {
        Control::founded(serde_json::from_slice(first).map_err(|e| read(i, e))?)
    } else {
        return Ok(None);
    };
    check(control.format, &control.format_release)?;
    for (i, entry) in entries {
        let command: Command = serde_json::from_slice(entry).map_err(|e| read(i, e))?;
        let applied = control.replay(&command);
        applied.map_err(|e| {
            LogError::Unreadable(format!("command {} cannot be replayed: {e}", i + 1))
        })?;
        check(control.format, &control.format_release)?;
    }
    Ok(Some(control))
}

/// A number that no other process has.
pub(crate) fn random_number() -> Result<u64, ControllerError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| ControllerError::Runtime(io::Error::other(e.to_string())))?;
    Ok(u64::from_le_bytes(bytes))
}
