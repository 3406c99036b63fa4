//! Systems that E3 is compared with, as programs of this machine: started on loopback, loaded by
//! clients that wait for each answer, and ended.

pub mod etcd;
mod load;
pub mod redis;

pub use load::Load;

use crate::peers::load::Protocol;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest time that a peer may take to be ready.
const READY_MAX: Duration = Duration::from_secs(30);
/// Time between two looks whether it is.
const READY_INTERVAL: Duration = Duration::from_millis(50);

/// Keys that are written, drawn evenly.
pub const KEYS: u64 = 10_000;
/// Bytes of a value.
pub const VALUE_LEN: usize = 64;

/// A key, the same for all systems.
pub fn key(number: u64) -> String {
    format!("key{number:013}")
}

/// Why a peer was not measured.
#[derive(Debug, Error)]
pub enum PeerError {
    /// It is not installed.
    #[error("{program} is not installed; on Debian: apt-get install {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// It did not begin to serve in time.
    #[error("{program} was not ready after {s} s", s = READY_MAX.as_secs())]
    NotReady {
        /// The program.
        program: &'static str,
    },
    /// It answered something else than that the write is done.
    #[error("{program} answered {answer}")]
    Answer {
        /// The program.
        program: &'static str,
        /// What it answered.
        answer: String,
    },
    /// The operating system refused, or a connection ended.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// A peer that serves; its processes end when it is dropped.
pub trait Peer {
    /// What is measured, with its version and how it is asked.
    fn about(&self) -> String;
    /// Writes of so many clients for so long; each client waits for its answer before its next write.
    fn load(&mut self, clients: usize, length: Duration) -> Result<Load, PeerError>;
}

/// A process of a peer, ended when this is dropped.
struct Server(Child);

impl Server {
    fn start(
        program: &'static str,
        package: &'static str,
        args: &[String],
    ) -> Result<Server, PeerError> {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => Ok(Server(child)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(PeerError::Missing { program, package })
            }
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of loopback that was free just now.
fn free_port() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

/// The first line that a program prints about its version.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let text = text.unwrap_or_default();
    text.lines().next().unwrap_or(program).trim().to_string()
}

/// Tries until it succeeds.
fn wait_ready<T>(
    program: &'static str,
    mut attempt: impl FnMut() -> Option<T>,
) -> Result<T, PeerError> {
    let begin = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return Ok(found);
        }
        if begin.elapsed() > READY_MAX {
            return Err(PeerError::NotReady { program });
        }
        std::thread::sleep(READY_INTERVAL);
    }
}

/// A path as an argument.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let started = Server::start("e3-no-such-program", "e3-no-such-package", &[]);
        let error = started.err().map(|e| e.to_string());
        let expected =
            "e3-no-such-program is not installed; on Debian: apt-get install e3-no-such-package";
        assert_eq!(error.as_deref(), Some(expected));
    }
}
