//! `e3 completions`: completion scripts for shells.

use crate::ui::failure::Failure;
use crate::ui::output;
use clap::{Args, Command};

/// `e3 completions`.
#[derive(Args, Debug, Clone)]
pub struct Completions {
    /// Shell
    pub shell: clap_complete::Shell,
}

/// `e3 completions`, for the whole command line.
pub fn run(args: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "e3", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}
