//! `e3 completions`: scripts for shells.

use crate::args::{Cli, Completions};
use crate::failure::Failure;
use crate::output;
use clap::CommandFactory;

/// `e3 completions`.
pub fn run(args: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "e3", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
