//! Other programs.

use std::path::Path;
use std::process::Command;

/// What a program prints, run in a directory; its errors go where ours go.
pub fn output(dir: &Path, program: &str, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.current_dir(dir).args(words);
    command.stderr(std::process::Stdio::inherit());
    let name = format!("{program} {}", words.join(" "));
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("{name}: {e}"))
}
