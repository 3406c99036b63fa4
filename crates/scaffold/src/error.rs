//! Errors of a project or its build.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a project cannot be created or built.
#[derive(Debug)]
pub enum ScaffoldError {
    /// No such toolchain.
    UnknownToolchain(String),
    /// A toolchain is incomplete.
    Incomplete {
        /// What is missing.
        missing: String,
        /// How to get it.
        fix: &'static str,
    },
    /// No toolchain builds for WebAssembly: the errors of rustup's and of Debian's.
    NoToolchain(Box<ScaffoldError>, Box<ScaffoldError>),
    /// A program cannot be started.
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A program failed and has printed the reason.
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
    /// The name is not valid for a service.
    Name(String),
    /// The directory exists already.
    Exists(PathBuf),
    /// Neither `Cargo.toml` nor one C file.
    NoProject(PathBuf),
    /// The package builds no module.
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
                write!(f, "{program} cannot be started: {source}")
            }
            ScaffoldError::Failed { program, status } => write!(f, "{program} failed ({status})"),
            ScaffoldError::File { file, source } => write!(f, "{}: {source}", file.display()),
            ScaffoldError::Name(name) => write!(
                f,
                "name is {name:?}, must be at most 63 lower-case letters, digits and hyphens, \
                 and start with a letter"
            ),
            ScaffoldError::Exists(dir) => write!(f, "{} already exists", dir.display()),
            ScaffoldError::NoProject(dir) => write!(
                f,
                "{} has neither a Cargo.toml nor a single .c file",
                dir.display()
            ),
            ScaffoldError::NoModule(file) => write!(
                f,
                "{}: no module was built; set crate-type = [\"cdylib\"] in [lib]",
                file.display()
            ),
        }
    }
}

impl std::error::Error for ScaffoldError {}
