//! The locks of a state directory: of its supervisor, and of the loads on its applications.

use crate::cluster::state_dir::StateDir;
use crate::limits::{LOCK_PATIENCE, POLL_INTERVAL};
use crate::ui::failure::{Exit, Failure};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Instant;

/// The lock of a running supervisor, released when it is dropped or its process exits.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    root: PathBuf,
}

impl Lock {
    /// Fails if the state directory was removed or replaced, since other processes then do not see this
    /// lock.
    pub fn check(&self) -> Result<(), Failure> {
        let identity = |m: std::fs::Metadata| (m.dev(), m.ino());
        let held = self.file.metadata().map(identity);
        let there = std::fs::metadata(&self.path).map(identity);
        let gone = match (held, there) {
            (Ok(held), Ok(there)) if held == there => return Ok(()),
            (_, Err(e)) if e.kind() == std::io::ErrorKind::NotFound => "is gone",
            (_, Ok(_)) => "was replaced",
            // A temporary failure, such as no free file descriptors.
            _ => return Ok(()),
        };
        let message = format!("the state directory {} {gone}", self.root.display());
        Err(Failure::new(Exit::Unexpected, message))
    }
}

impl StateDir {
    /// Fails if a supervisor holds the lock. Creates no file.
    pub fn check_unlocked(&self) -> Result<(), Failure> {
        if self.lock_path().exists() {
            self.lock().map(drop)
        } else {
            Ok(())
        }
    }

    fn lock_path(&self) -> PathBuf {
        self.run_dir().join("lock")
    }

    /// Takes the lock of the supervisor. The error names the process that holds it.
    pub fn lock(&self) -> Result<Lock, Failure> {
        let path = self.lock_path();
        let failed = |e: &std::io::Error| Failure::file("lock", &path, e);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(|e| failed(&e))?;
        match patiently(|| file.try_lock()) {
            Ok(()) => {}
            Err(TryLockError::Error(e)) => return Err(failed(&e)),
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                let mut message = format!("a cluster is already up in {}", self.root.display());
                if !pid.trim().is_empty() {
                    message += &format!(" (process {})", pid.trim());
                }
                let hint = "stop it with: e3 down, or start another one with --dir DIR --port PORT";
                return Err(Failure::new(Exit::Conflict, message).hint(hint));
            }
        }
        let pid = format!("{}\n", std::process::id());
        // On a full disk the lock is held all the same.
        let _ = file
            .set_len(0)
            .and_then(|()| file.write_all(pid.as_bytes()));
        Ok(Lock {
            file,
            path,
            root: self.root.clone(),
        })
    }

    /// Takes the lock of a load on an application until the result is dropped: a load that reads
    /// state back cannot distinguish the updates of another one from repeated updates. Loads that read
    /// nothing back share the lock. None if this directory has no cluster.
    pub fn lock_load(&self, app: &str, shared: bool) -> Result<Option<File>, Failure> {
        if !self.run_dir().is_dir() {
            return Ok(None);
        }
        let path = self.run_dir().join(format!("load-{app}.lock"));
        let failed = |e: &std::io::Error| Failure::file("lock", &path, e);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(&path).map_err(|e| failed(&e))?;
        let locked = || match shared {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        match patiently(locked) {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::Error(e)) => Err(failed(&e)),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another load of application {app:?} is running");
                let hint = "wait until it ends: two loads at once could not be checked";
                Err(Failure::new(Exit::Conflict, message).hint(hint))
            }
        }
    }
}

/// The system releases the lock of a killed process only when its last thread has ended, and tells nobody.
fn patiently(lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let begin = Instant::now();
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(POLL_INTERVAL);
            }
            locked => return locked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_lock_that_is_released_at_once_is_waited_for() {
        let held = Cell::new(true);
        let lock = || match held.replace(false) {
            true => Err(TryLockError::WouldBlock),
            false => Ok(()),
        };
        patiently(lock).unwrap();
    }
}
