//! Finds a toolchain that builds `wasm32-unknown-unknown`.
//!
//! Normally that is the one in use, with the target added by rustup. Where rustup cannot download,
//! Debian's `rustc-web cargo-web rust-web-src lld-19` serve instead: a second compiler under `/usr`
//! with its own sources of `core` and `alloc`, called by path, which does not need rustup.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ScaffoldError;

/// The oldest compiler that builds the workspace; Debian's package must be at least this.
const VERSION_MIN: (u32, u32) = (1, 95);
const LINKERS: [&str; 5] = [
    "wasm-ld-19",
    "wasm-ld",
    "wasm-ld-20",
    "wasm-ld-21",
    "wasm-ld-22",
];

/// A complete toolchain.
#[derive(Debug)]
pub enum Toolchain {
    /// The compiler in use has the target's library.
    Rustup {
        /// Version as the compiler prints it.
        version: String,
    },
    /// Debian's, which builds the library from source.
    Debian {
        /// Version as the compiler prints it.
        version: String,
        /// The linker for WebAssembly.
        linker: PathBuf,
    },
}

/// The named toolchain, or the first that is complete.
pub fn find(wanted: Option<&str>) -> Result<Toolchain, ScaffoldError> {
    match wanted {
        Some("rustup") => rustup(),
        Some("debian") => debian(),
        Some(other) => Err(ScaffoldError::UnknownToolchain(other.into())),
        None => rustup().or_else(|first| {
            debian().map_err(|second| ScaffoldError::NoToolchain(Box::new(first), Box::new(second)))
        }),
    }
}

impl Toolchain {
    /// A line for the user.
    pub fn describe(&self) -> String {
        match self {
            Self::Rustup { version } => {
                format!("the installed wasm32-unknown-unknown of {version}")
            }
            Self::Debian { version, linker } => {
                format!(
                    "Debian's {version}, core and alloc from source, {}",
                    linker.display()
                )
            }
        }
    }

    /// Name of the build directory. Two compilers in one directory would rebuild each other's output.
    pub fn dir_name(&self) -> &'static str {
        match self {
            Self::Rustup { .. } => "wasm-rustup",
            Self::Debian { .. } => "wasm-debian",
        }
    }

    /// `cargo build` for the target; the caller adds packages and profile.
    pub fn cargo_build(&self) -> Command {
        let mut command = match self {
            Self::Rustup { .. } => {
                Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            }
            Self::Debian { .. } => Command::new("/usr/bin/cargo"),
        };
        command.arg("build");
        if let Self::Debian { linker, .. } = self {
            command
                .arg("-Zbuild-std=core,alloc")
                .env("RUSTC", "/usr/bin/rustc")
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        }
        // flags for the host would replace those of .cargo/config.toml
        command
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS");
        command.args(["--target", "wasm32-unknown-unknown"]);
        command
    }
}

fn rustup() -> Result<Toolchain, ScaffoldError> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let rustc = Path::new(&program);
    let library = sysroot(rustc)?.join("lib/rustlib/wasm32-unknown-unknown/lib");
    if !library.is_dir() {
        return incomplete(
            "the target is not installed",
            "rustup target add wasm32-unknown-unknown",
        );
    }
    Ok(Toolchain::Rustup {
        version: version(rustc)?,
    })
}

fn debian() -> Result<Toolchain, ScaffoldError> {
    let rustc = Path::new("/usr/bin/rustc");
    if !rustc.exists() || !Path::new("/usr/bin/cargo").exists() {
        return incomplete(
            "/usr/bin/rustc or /usr/bin/cargo is missing",
            "apt-get install rustc-web cargo-web",
        );
    }
    let version = version(rustc)?;
    if number(&version) < Some(VERSION_MIN) {
        let (major, minor) = VERSION_MIN;
        return incomplete(
            &format!("/usr/bin/rustc is {version}, must be at least {major}.{minor}"),
            "apt-get install rustc-web",
        );
    }
    let library = sysroot(rustc)?.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    if !library.is_file() {
        return incomplete(
            "the library's source is missing",
            "apt-get install rust-web-src",
        );
    }
    let in_usr = LINKERS.iter().map(|name| Path::new("/usr/bin").join(name));
    match in_usr.into_iter().find(|path| path.exists()) {
        Some(linker) => Ok(Toolchain::Debian { version, linker }),
        None => incomplete("the linker wasm-ld is missing", "apt-get install lld-19"),
    }
}

fn incomplete<T>(missing: &str, fix: &'static str) -> Result<T, ScaffoldError> {
    Err(ScaffoldError::Incomplete {
        missing: missing.into(),
        fix,
    })
}

fn version(rustc: &Path) -> Result<String, ScaffoldError> {
    output(Command::new(rustc).arg("--version"))
}

fn sysroot(rustc: &Path) -> Result<PathBuf, ScaffoldError> {
    output(Command::new(rustc).args(["--print", "sysroot"])).map(PathBuf::from)
}

fn output(command: &mut Command) -> Result<String, ScaffoldError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| ScaffoldError::Start {
        program: name.clone(),
        source,
    })?;
    if !output.status.success() {
        return Err(ScaffoldError::Failed {
            program: name,
            status: output.status,
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Major and minor of `rustc 1.96.0 (...)`.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(' ').nth(1)?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert_eq!(number("rustc 1.96.0 (ac68faa20 2026-05-25)"), Some((1, 96)));
        assert!(number("rustc 1.100.0-nightly") > Some(VERSION_MIN));
        assert_eq!(number("no compiler"), None);
    }

    #[test]
    fn unknown_names_are_refused() {
        assert!(find(Some("gcc")).is_err_and(|e| e.to_string().contains("\"gcc\"")));
    }
}
