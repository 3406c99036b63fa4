//! What can go wrong with a project or its build.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a project is not made or not built.
#[derive(Debug)]
pub enum ScaffoldError {
    /// No such toolchain.
    UnknownToolchain(String),
    /// A toolchain lacks something: what, and what brings it.
    Incomplete {
        /// What is missing.
        missing: String,
        /// What brings it.
        fix: &'static str,
    },
    /// No toolchain builds for WebAssembly: why not rustup's, why not Debian's.
    NoToolchain(Box<ScaffoldError>, Box<ScaffoldError>),
    /// A program does not start.
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed; it has said why itself.
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
    },
    /// A file cannot be read or written.
    File {
        /// Which.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The name cannot be that of a service.
    Name(String),
    /// There is something already.
    Exists(PathBuf),
    /// Neither `Cargo.toml` nor one C file.
    NoProject(PathBuf),
    /// The package gives no module.
    NoModule(PathBuf),
}

impl fmt::Display for ScaffoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScaffoldError::UnknownToolchain(name) => {
                write!(f, "toolchain is {name:?}, must be rustup or debian")
            }
            ScaffoldError::Incomplete { missing, fix } => write!(f, "{missing} ({fix})"),
            ScaffoldError::NoToolchain(rustup, debian) => write!(
                f,
                "no toolchain builds wasm32-unknown-unknown; rustup: {rustup}; debian: {debian}"
            ),
            ScaffoldError::Start { program, source } => {
                write!(f, "{program} does not start: {source}")
            }
            ScaffoldError::Failed { program, status } => write!(f, "{program} failed ({status})"),
            ScaffoldError::File { file, source } => write!(f, "{}: {source}", file.display()),
            ScaffoldError::Name(name) => write!(
                f,
                "name is {name:?}, must be lower-case letters, digits and hyphens, at most 63, \
                 and begin with a letter"
            ),
            ScaffoldError::Exists(dir) => write!(f, "{} already exists", dir.display()),
            ScaffoldError::NoProject(dir) => write!(
                f,
                "{} has neither a Cargo.toml nor a single .c file",
                dir.display()
            ),
            ScaffoldError::NoModule(file) => write!(
                f,
                "{}: no module was built; does [lib] have crate-type = [\"cdylib\"]?",
                file.display()
            ),
        }
    }
}

impl std::error::Error for ScaffoldError {}
