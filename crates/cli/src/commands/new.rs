//! `e3 new`: creates the project of a new service.

use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::{Args, ValueEnum};
use e3_scaffold::ScaffoldError;
use std::path::PathBuf;

/// Languages of `e3 new`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lang {
    /// Rust
    #[default]
    Rust,
    /// C
    C,
}

/// `e3 new`.
#[derive(Args, Debug, Clone)]
pub struct New {
    /// Name of the service and its directory
    pub name: String,
    /// Language
    #[arg(long, value_enum, default_value = "rust")]
    pub lang: Lang,
}

/// `e3 new`.
pub fn run(args: &New) -> Result<(), Failure> {
    let language = match args.lang {
        Lang::Rust => e3_scaffold::Language::Rust,
        Lang::C => e3_scaffold::Language::C,
    };
    let dir = e3_scaffold::create(&PathBuf::new(), &args.name, language)?;
    output::print(&format!(
        "created {0}/: a service that counts the requests of each key\n\
         next: e3 build {0}; e3 run {0}/{0}.wasm --collection visits:counter; e3 deploy {0}/{0}.yaml\n",
        dir.display()
    ))
}

impl From<ScaffoldError> for Failure {
    fn from(error: ScaffoldError) -> Failure {
        let exit = match error {
            ScaffoldError::Exists(_) => Exit::Conflict,
            ScaffoldError::Name(_) | ScaffoldError::NoProject(_) | ScaffoldError::NoModule(_) => {
                Exit::Input
            }
            ScaffoldError::Failed { .. } => Exit::Check,
            _ => Exit::Unexpected,
        };
        Failure::new(exit, error)
    }
}
