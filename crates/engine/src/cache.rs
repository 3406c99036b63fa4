//! Compiled code on disk. Processes of one machine share it, and compile each module once: who
//! compiles holds an advisory lock on the directory, which the system releases when its process
//! ends. Where the directory cannot be locked, each process compiles for itself.

use crate::limits::{COMPILE_POLL, COMPILE_WAIT_MAX};
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Instant;

/// Hash that is the same in every process of this build.
#[derive(Default)]
struct Sha(Sha256);

impl Hasher for Sha {
    fn finish(&self) -> u64 {
        let digest: [u8; 32] = self.0.clone().finalize().into();
        u64::from_le_bytes(*digest.first_chunk().expect("32 bytes"))
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// SHA-256 in hexadecimal, by which modules and assets are named.
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes).into())
}

fn hex(sha256: &[u8; 32]) -> String {
    sha256.iter().map(|b| format!("{b:02x}")).collect()
}

/// The file of a module's compiled code.
pub(crate) fn path(engine: &wasmtime::Engine, sha256: &[u8; 32], dir: &Path) -> PathBuf {
    let mut hasher = Sha::default();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    let module = hex(sha256);
    dir.join(format!("{module}-{:016x}.cwasm", hasher.finish()))
}

/// A file is the SHA-256 of the code, then the code.
pub(crate) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let (hash, code) = bytes.split_first_chunk::<32>()?;
    let intact = Sha256::digest(code).as_slice() == hash;
    intact.then(|| bytes.split_off(32))
}

/// With the lock there is one writer, and a file that it left half-written is replaced by the next
/// attempt. Without it, several processes may write at the same time: each its own file, and the
/// last one wins.
pub(crate) fn write(path: &Path, code: &[u8], locked: bool) -> io::Result<()> {
    let mut bytes = Sha256::digest(code).to_vec();
    bytes.extend_from_slice(code);
    let part = path.with_extension(if locked {
        "part".to_owned()
    } else {
        format!("part-{}-{:p}", std::process::id(), &bytes)
    });
    let written = fs::write(&part, &bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

/// What comes of waiting.
pub(crate) enum Turn<T> {
    /// The module is in the cache.
    Found(T),
    /// It is not: compile it, and keep the lock as long, if there is one.
    Compile(Option<File>),
}

/// Waits until the module is in the cache or nobody else compiles into it. A process that was
/// paused while it compiles holds the others up for a bounded time only.
pub(crate) fn wait_for_turn<T>(dir: &Path, cached: impl Fn() -> Option<T>) -> Turn<T> {
    if let Some(found) = cached() {
        return Turn::Found(found);
    }
    let Ok(lock) = fs::create_dir_all(dir).and_then(|()| File::open(dir)) else {
        return Turn::Compile(None);
    };
    let begin = Instant::now();
    loop {
        let tried = lock.try_lock();
        // It may have come just before the lock was released.
        if let Some(found) = cached() {
            return Turn::Found(found);
        }
        match tried {
            Ok(()) => return Turn::Compile(Some(lock)),
            Err(TryLockError::WouldBlock) if begin.elapsed() < COMPILE_WAIT_MAX => {
                sleep(COMPILE_POLL);
            }
            Err(_) => return Turn::Compile(None),
        }
    }
}
