//! Modules, assets and secrets on disk. Modules and assets are named by their SHA-256 and written
//! before the decision that names them.

use crate::limits::SECRET_LEN;
use e3_model::check_name;
use e3_store::StoreError;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Clone)]
pub(crate) struct Blobs {
    pub(crate) blobs: PathBuf,
    /// See [`crate::staging`].
    pub(crate) staging: PathBuf,
    /// Deployments since this process started.
    pub(crate) staged: Arc<AtomicU64>,
    secrets: PathBuf,
}

/// Why a blob that is there cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BlobError {
    #[error(
        "{file}: its content has the SHA-256 {found} and not the one that it is named by; deploy an application with the module or asset again, which repairs it"
    )]
    Rotten { file: PathBuf, found: String },
    #[error(
        "{file} cannot be read: {source}; check the disk, or deploy an application with the module or asset again"
    )]
    Unreadable { file: PathBuf, source: io::Error },
}

pub(crate) fn system(file: &Path, source: io::Error) -> StoreError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full(file.to_path_buf())
        }
        _ => StoreError::System {
            file: file.to_path_buf(),
            source,
        },
    }
}

/// Writes a file whole or not at all.
pub(crate) fn write_whole(file: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let new = file.with_extension("new");
    let write = || -> io::Result<()> {
        let options = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new);
        let mut f = options?;
        f.write_all(bytes)?;
        f.sync_all()?;
        fs::rename(&new, file)?;
        match file.parent() {
            Some(dir) => fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&new);
        system(file, e)
    })
}

/// SHA-256 in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|b| format!("{b:02x}")).collect()
}

impl Blobs {
    pub(crate) fn open(dir: &Path) -> Result<Blobs, StoreError> {
        let (blobs, secrets) = (dir.join("blobs"), dir.join("secrets"));
        let staging = dir.join("staging");
        match fs::remove_dir_all(&staging) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(system(&staging, e)),
            _ => {}
        }
        for d in [&blobs, &staging, &secrets] {
            fs::create_dir_all(d).map_err(|e| system(d, e))?;
        }
        fs::set_permissions(&secrets, fs::Permissions::from_mode(0o700))
            .map_err(|e| system(&secrets, e))?;
        Ok(Blobs {
            blobs,
            staging,
            staged: Arc::default(),
            secrets,
        })
    }

    /// A blob by its digest, which its content has; none if there is none.
    pub(crate) fn get(&self, named: &str) -> Result<Option<Vec<u8>>, BlobError> {
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if named.len() != 64 || !named.bytes().all(is_hex) {
            return Ok(None);
        }
        let file = self.blobs.join(named);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(BlobError::Unreadable { file, source }),
        };
        let found = digest(&bytes);
        if found != named {
            return Err(BlobError::Rotten { file, found });
        }
        Ok(Some(bytes))
    }

    /// Bytes of a blob that a plan names; none if there is none.
    pub(crate) fn len(&self, digest: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.file(digest)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(|found| Some(found.len())),
        }
    }

    /// The file of a blob that a plan names.
    pub(crate) fn file(&self, digest: &str) -> PathBuf {
        self.blobs.join(digest)
    }

    /// Removes all blobs except these.
    pub(crate) fn keep(&self, named: &BTreeSet<&str>) -> io::Result<()> {
        for entry in fs::read_dir(&self.blobs)? {
            let entry = entry?;
            if !entry
                .file_name()
                .to_str()
                .is_some_and(|n| named.contains(n))
            {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// The file of a secret. Its name has been checked: lower-case letters, digits, hyphens.
    pub(crate) fn secret_file(&self, app: &str, name: &str) -> PathBuf {
        self.secrets.join(app).join(name)
    }

    /// A secret's value.
    pub(crate) fn secret(&self, app: &str, name: &str) -> Option<Vec<u8>> {
        fs::read(self.secret_file(app, name)).ok()
    }

    /// Applications and names of the secrets that are files.
    pub(crate) fn secret_names(&self) -> Vec<(String, String)> {
        let names = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            let names = entries.filter_map(|e| e.file_name().into_string().ok());
            names.filter(|name| check_name(name).is_ok()).collect()
        };
        let apps = names(&self.secrets).into_iter();
        apps.flat_map(|app| {
            let of_app = names(&self.secrets.join(&app)).into_iter();
            of_app.map(move |name| (app.clone(), name))
        })
        .collect()
    }

    /// Removes the file of a secret, and the directory of its application if it is empty then.
    pub(crate) fn remove_secret(&self, app: &str, name: &str) -> io::Result<()> {
        fs::remove_file(self.secret_file(app, name))?;
        let _ = fs::remove_dir(self.secrets.join(app));
        Ok(())
    }

    /// Removes the files of an application's secrets.
    pub(crate) fn remove_secrets(&self, app: &str) {
        let all = self.secret_names();
        for (app, name) in all.iter().filter(|(of, _)| of == app) {
            if let Err(e) = self.remove_secret(app, name) {
                tracing::warn!(app, name, error = %e, "the file of a secret cannot be removed");
            }
        }
    }

    /// Makes a random secret if there is none.
    pub(crate) fn generate_secret(&self, app: &str, name: &str) -> Result<(), StoreError> {
        let file = self.secret_file(app, name);
        if file.exists() {
            return Ok(());
        }
        let dir = self.secrets.join(app);
        fs::create_dir_all(&dir).map_err(|e| system(&dir, e))?;
        let mut value = [0; SECRET_LEN];
        getrandom::fill(&mut value).map_err(|e| system(&file, io::Error::other(e.to_string())))?;
        write_whole(&file, &value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::Staged;

    fn put(blobs: &Blobs, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let staged = Staged::new(blobs).unwrap();
        // Two services may have one module.
        for _ in 0..2 {
            staged.add(&digest, bytes).unwrap();
        }
        staged.name().unwrap();
        digest
    }

    #[test]
    fn a_staged_blob_is_kept_while_others_are_swept_and_nothing_stays_of_one_that_is_dropped() {
        let tmp = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(tmp.path()).unwrap();
        let digest = put(&blobs, b"module");
        let staged = Staged::new(&blobs).unwrap();
        staged.add(&digest, b"module").unwrap();
        // Its application is deleted.
        blobs.keep(&BTreeSet::new()).unwrap();
        assert_eq!(blobs.get(&digest).unwrap(), None);
        staged.name().unwrap();
        drop(staged);
        assert_eq!(blobs.get(&digest).unwrap().unwrap(), b"module");
        let refused = Staged::new(&blobs).unwrap();
        refused.add(&digest, b"module").unwrap();
        drop(refused);
        assert_eq!(blobs.get(&digest).unwrap().unwrap(), b"module");
        assert!(fs::read_dir(&blobs.staging).unwrap().next().is_none());
        // What a crash leaves goes.
        std::mem::forget(Staged::new(&blobs).unwrap());
        let blobs = Blobs::open(tmp.path()).unwrap();
        assert!(fs::read_dir(&blobs.staging).unwrap().next().is_none());
    }

    #[test]
    fn a_rotten_blob_is_named_and_repaired() {
        let tmp = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(tmp.path()).unwrap();
        let digest = put(&blobs, b"module");
        assert_eq!(blobs.get(&digest).unwrap().unwrap(), b"module");
        let file = blobs.blobs.join(&digest);
        for rotten in [&b""[..], b"modul", b"moduld"] {
            fs::write(&file, rotten).unwrap();
            let error = blobs.get(&digest).unwrap_err().to_string();
            assert!(error.starts_with(&file.display().to_string()), "{error}");
            assert!(error.contains("deploy"), "{error}");
            assert_eq!(put(&blobs, b"module"), digest);
            assert_eq!(blobs.get(&digest).unwrap().unwrap(), b"module");
        }
        fs::remove_file(&file).unwrap();
        assert_eq!(blobs.get(&digest).unwrap(), None);
        assert_eq!(blobs.get("../secrets").unwrap(), None);
        fs::create_dir(&file).unwrap();
        let error = blobs.get(&digest).unwrap_err();
        assert!(matches!(error, BlobError::Unreadable { .. }), "{error}");
    }
}
