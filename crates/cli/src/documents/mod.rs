//! Manifests, profiles, modules and assets: from files, or built into the program.

pub mod assets;
pub mod builtin;
pub mod files;
pub mod flows;
pub mod modules;

use clap::Args;
use std::path::PathBuf;

/// Sources of modules and profiles.
#[derive(Args, Debug, Clone, Default)]
pub struct Sources {
    /// Directory of modules, searched before the directory of the manifest
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
    /// Directory of profiles [default: the built-in ones, from the paper]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
}
