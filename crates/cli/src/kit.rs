//! `e3 new` and `e3 build`: services of one's own.

use crate::assets::read_blob;
use crate::failure::{Exit, Failure};
use crate::output;
use crate::text::bytes;
use clap::{Args, ValueEnum};
use e3_kit::KitError;
use e3_node::INSTANCE_MEMORY_LEN_MAX;
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
    /// Name of the service and of its directory
    pub name: String,
    /// Language
    #[arg(long, value_enum, default_value = "rust")]
    pub lang: Lang,
}

/// `e3 build`.
#[derive(Args, Debug, Clone)]
pub struct Build {
    /// Directory of the service
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
}

/// `e3 new`.
pub fn new(args: &New) -> Result<(), Failure> {
    let language = match args.lang {
        Lang::Rust => e3_kit::Language::Rust,
        Lang::C => e3_kit::Language::C,
    };
    let dir = e3_kit::create(&PathBuf::new(), &args.name, language).map_err(failure)?;
    output::print(&format!(
        "made {0}/: a service that counts the requests of each key\n\
         next: e3 build {0}; e3 run {0}/{0}.wasm --collection visits:counter; e3 deploy {0}/{0}.yaml\n",
        dir.display()
    ))
}

/// `e3 build`.
pub fn build(args: &Build) -> Result<(), Failure> {
    let (with, module) = e3_kit::build(&args.dir).map_err(failure)?;
    let wasm = read_blob(&module)?;
    e3_engine::check(&wasm, INSTANCE_MEMORY_LEN_MAX as u64).map_err(|e| {
        let message = format!("{}: {e}", module.display());
        Failure::new(Exit::Input, message).hint("what a module must have is in docs/abi.md")
    })?;
    if let Ok(Some((used, opens))) = e3_engine::unopened(&wasm) {
        let module = module.display();
        let message = format!("{module}: calls e3_{used}, but never e3_{opens} for a handle");
        let hint = "e3_init must be exported; the e3.h that `e3 new --lang c` writes does so";
        return Err(Failure::new(Exit::Input, message).hint(hint));
    }
    output::print(&format!(
        "{}: {}, built with {with}\n",
        module.display(),
        bytes(wasm.len() as u64)
    ))
}

fn failure(error: KitError) -> Failure {
    let exit = match error {
        KitError::Exists(_) => Exit::Conflict,
        KitError::Name(_) | KitError::NoProject(_) | KitError::NoModule(_) => Exit::Input,
        KitError::Failed { .. } => Exit::Check,
        _ => Exit::Unexpected,
    };
    Failure::new(exit, error)
}
