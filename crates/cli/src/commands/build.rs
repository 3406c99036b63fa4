//! `e3 build`.

use crate::documents::files::read_blob;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::text::bytes;
use clap::Args;
use e3_node::INSTANCE_MEMORY_LEN_MAX;
use std::path::PathBuf;

/// `e3 build`.
#[derive(Args, Debug, Clone)]
pub struct Build {
    /// Directory of the service
    #[arg(default_value = ".", value_name = "DIR")]
    pub dir: PathBuf,
}

/// `e3 build`.
pub fn run(args: &Build) -> Result<(), Failure> {
    let (with, module) = e3_scaffold::build(&args.dir)?;
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
