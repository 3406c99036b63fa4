//! Why a controller does not start, and why a command is not carried out.

use crate::seal::SecretKeyError;
use e3_control::CommandError;
use e3_model::{Format, Formats};
use e3_store::StoreError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the hint to move the log away does not say.
const EMPTY_LOG: &str = "; with an empty log a new cluster begins, without the applications of this one and their state, whatever the disks of the nodes hold";

fn warning_for(error: &StoreError) -> &'static str {
    match error {
        StoreError::Corrupt { .. } => EMPTY_LOG,
        _ => "",
    }
}

/// Why a controller does not start, or stops.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// Until the data path is encrypted, nothing listens beyond loopback.
    #[error("address {0} is not loopback; nothing listens beyond loopback yet")]
    NotLoopback(SocketAddr),
    /// The port is taken.
    #[error("address {0} is in use")]
    InUse(SocketAddr),
    /// The port cannot be opened.
    #[error("address {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The files cannot be opened.
    #[error("{0}{warning}", warning = warning_for(.0))]
    Store(#[from] StoreError),
    /// The contents of the files are not what this program wrote.
    #[error(
        "{dir}: {what}; it was written by another version or is damaged: restore it from a copy, or move it away to start with an empty one{EMPTY_LOG}"
    )]
    Unreadable {
        /// The directory.
        dir: PathBuf,
        /// What cannot be read.
        what: String,
    },
    /// The cluster has gone on to a newer release.
    #[error(
        "{dir}: the cluster writes format {found}, this program (release {own}) has formats {formats}; start release {release:?} or a newer one",
        own = e3_model::format::RELEASE
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The cluster's active format.
        found: Format,
        /// What this process has.
        formats: Formats,
        /// The release that made it the active one.
        release: String,
    },
    /// The secrets cannot be read.
    #[error(transparent)]
    SecretKey(#[from] SecretKeyError),
    /// Another error of the system.
    #[error("controller: {0}")]
    Runtime(io::Error),
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExecuteError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("decision cannot be stored: {0}")]
    Store(#[from] StoreError),
    /// The log would hold something else than the command, or nothing that can be read.
    #[error("decision cannot be stored: the log cannot hold it as it is: {0}")]
    Unlogged(String),
    #[error("the controller decides nothing: {0}")]
    Broken(String),
}
