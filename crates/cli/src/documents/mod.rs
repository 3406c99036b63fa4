//! Manifests, profiles, modules and assets: built into the program, or in files.

pub mod assets;
pub mod builtin;
pub mod files;
pub mod modules;

use clap::Args;
use std::path::PathBuf;

/// Where modules and profiles come from.
#[derive(Args, Debug, Clone, Default)]
pub struct Sources {
    /// Directory of modules; searched before the manifest's own
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Directory of profiles [default: the paper's, built in]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
}
