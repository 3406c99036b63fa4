//! `e3 build`: builds a service and checks its module.

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
        Failure::new(Exit::Input, message).hint("docs/abi.md says what a module must export")
    })?;
    if let Ok(Some((used, opens))) = e3_engine::unopened(&wasm) {
        let module = module.display();
        let message = format!("{module}: calls e3_{used} but never opens a handle with e3_{opens}");
        let hint = "export e3_init, as the e3.h of `e3 new --lang c` does";
        return Err(Failure::new(Exit::Input, message).hint(hint));
    }
    output::print(&format!(
        "{}: {}, built with {with}\n",
        module.display(),
        bytes(wasm.len() as u64)
    ))
}
