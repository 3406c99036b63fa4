//! Runs other programs; their output goes where ours goes.

use std::process::Command;

/// The result of a task; an error is the complete message.
pub type Outcome<T> = Result<T, String>;

/// Runs cargo in the workspace with arguments separated by spaces.
pub fn cargo(args: &str) -> Outcome<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args.split(' '));
    run(&mut command, &format!("cargo {args}"))
}

/// Runs a command to its end; `name` stands for it in errors.
pub fn run(command: &mut Command, name: &str) -> Outcome<()> {
    let status = command
        .status()
        .map_err(|e| format!("{name} does not start: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{name} failed ({status})"))
    }
}
