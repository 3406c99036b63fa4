//! Encryption of secrets at rest: AES-256-GCM (NIST SP 800-38D) with a random nonce, under a key that is
//! in a file of its own. The names of application and secret are authenticated with the value, so that
//! one secret cannot be put in place of another.

use crate::config::ControllerConfig;
use aes_gcm::{AeadInOut, Aes256Gcm, KeyInit};
use e3_control::Control;
use e3_model::Sealed;
use e3_wire::HeartbeatKeys;
use sha2::{Digest, Sha256};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of the key.
const KEY_LEN: usize = 32;
/// Bytes of a nonce.
const NONCE_LEN: usize = 12;
/// Bytes read of a key file, at most.
const FILE_LEN_MAX: u64 = 1024;
/// Permissions of group and others.
const OTHERS: u32 = 0o077;

/// The key that secrets are encrypted under. Never printed.
pub struct SecretKey {
    cipher: Aes256Gcm,
    id: String,
    heartbeat_keys: HeartbeatKeys,
}

/// Why secrets cannot be encrypted or read.
#[derive(Debug, thiserror::Error)]
pub enum SecretKeyError {
    /// The file of the key is not there.
    #[error(
        "the key of the secrets is missing: {0} does not exist; put it back from its copy, or name its place with --secret-key-file or E3_SECRET_KEY_FILE"
    )]
    Missing(PathBuf),
    /// The file cannot be read or written.
    #[error("key of the secrets {file}: {source}")]
    System {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Others can read the file.
    #[error("key of the secrets {file} has mode {mode:04o}, must be 0600: chmod 600 {file}")]
    Mode {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file holds something else.
    #[error("{0} holds no key: it must be 64 hexadecimal digits (openssl rand -hex 32)")]
    NoKey(PathBuf),
    /// The secrets were encrypted under another key.
    #[error(
        "{file} holds key {found}, but secret {secret:?} of application {app:?} is encrypted under key {expected}; put that key in its place, or name its file with --secret-key-file or E3_SECRET_KEY_FILE"
    )]
    Other {
        /// The file.
        file: PathBuf,
        /// The key in it.
        found: String,
        /// The key that is needed.
        expected: String,
        /// The application.
        app: String,
        /// The secret.
        secret: String,
    },
    /// The encrypted bytes were changed, or belong to another secret.
    #[error("secret {secret:?} of application {app:?} is damaged")]
    Damaged {
        /// The application.
        app: String,
        /// The secret.
        secret: String,
    },
}

impl SecretKey {
    fn new(bytes: &[u8; KEY_LEN]) -> SecretKey {
        let derived = |label: &[u8]| {
            Sha256::new()
                .chain_update(label)
                .chain_update(bytes)
                .finalize()
        };
        let heartbeats = derived(b"e3 key of heartbeats\0");
        SecretKey {
            cipher: Aes256Gcm::new(bytes.into()),
            id: hex(&derived(b"e3 id of a secret key\0")[..8]),
            heartbeat_keys: HeartbeatKeys::new(heartbeats.first_chunk().expect("32 bytes")),
        }
    }

    /// The keys of heartbeats, which follow from it.
    pub(crate) fn heartbeat_keys(&self) -> &HeartbeatKeys {
        &self.heartbeat_keys
    }

    /// Which key this is: it does not show the key.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Reads the key of a file that only its owner can read.
    pub fn read(file: &Path) -> Result<SecretKey, SecretKeyError> {
        let system = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => SecretKeyError::Missing(file.into()),
            _ => SecretKeyError::System {
                file: file.into(),
                source,
            },
        };
        let opened = fs::File::open(file).map_err(system)?;
        let mode = opened.metadata().map_err(system)?.mode() & 0o777;
        if mode & OTHERS != 0 {
            let file = file.into();
            return Err(SecretKeyError::Mode { file, mode });
        }
        let mut text = String::new();
        let read = opened.take(FILE_LEN_MAX).read_to_string(&mut text);
        read.map_err(|_| SecretKeyError::NoKey(file.into()))?;
        let bytes = unhex(text.trim()).and_then(|b| <[u8; KEY_LEN]>::try_from(b).ok());
        let bytes = bytes.ok_or_else(|| SecretKeyError::NoKey(file.into()))?;
        Ok(SecretKey::new(&bytes))
    }

    /// Makes a random key and writes it to a new file.
    pub(crate) fn create(file: &Path) -> Result<SecretKey, SecretKeyError> {
        let system = |source| SecretKeyError::System {
            file: file.into(),
            source,
        };
        let bytes: [u8; KEY_LEN] = random().map_err(system)?;
        let new = file.with_extension("new");
        let write = || -> io::Result<()> {
            let mut options = OpenOptions::new();
            options.create(true).truncate(true).write(true).mode(0o600);
            let mut opened = options.open(&new)?;
            writeln!(opened, "{}", hex(&bytes))?;
            opened.sync_all()?;
            // Fails if there is a key by now.
            fs::hard_link(&new, file)?;
            fs::remove_file(&new)?;
            match file.parent() {
                Some(dir) => fs::File::open(dir)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(system)?;
        Ok(SecretKey::new(&bytes))
    }

    /// Encrypts the value of a secret.
    pub(crate) fn seal(&self, app: &str, secret: &str, value: &[u8]) -> io::Result<Sealed> {
        let nonce: [u8; NONCE_LEN] = random()?;
        let mut bytes = value.to_vec();
        let tag = self
            .cipher
            .encrypt_inout_detached(
                &nonce.into(),
                &authenticated(app, secret),
                (&mut bytes[..]).into(),
            )
            .map_err(|_| io::Error::other("a secret cannot be encrypted"))?;
        bytes.extend_from_slice(&tag);
        Ok(Sealed {
            key: self.id.clone(),
            nonce: hex(&nonce),
            bytes: hex(&bytes),
        })
    }

    /// Decrypts the value of a secret.
    pub fn open(
        &self,
        app: &str,
        secret: &str,
        sealed: &Sealed,
    ) -> Result<Vec<u8>, SecretKeyError> {
        let open = || -> Option<Vec<u8>> {
            let nonce = <[u8; NONCE_LEN]>::try_from(unhex(&sealed.nonce)?).ok()?;
            let mut bytes = unhex(&sealed.bytes)?;
            let (value, tag) = bytes.split_last_chunk_mut::<16>()?;
            let len = value.len();
            self.cipher
                .decrypt_inout_detached(
                    &nonce.into(),
                    &authenticated(app, secret),
                    value.into(),
                    &(*tag).into(),
                )
                .ok()?;
            bytes.truncate(len);
            Some(bytes)
        };
        open().ok_or_else(|| SecretKeyError::Damaged {
            app: app.into(),
            secret: secret.into(),
        })
    }
}

/// The key that the secrets of a log are encrypted under. A missing one is made only if nothing is
/// encrypted yet.
pub(crate) fn provide_key(
    config: &ControllerConfig,
    control: Option<&Control>,
) -> Result<SecretKey, SecretKeyError> {
    let file = &config.secret_key_file;
    let secrets = control.iter().flat_map(|c| &c.secrets);
    let mut sealed = secrets.flat_map(|(app, of_app)| {
        of_app
            .iter()
            .flat_map(move |(name, s)| s.all().map(move |sealed| (app, name, sealed)))
    });
    let key = match SecretKey::read(file) {
        Err(SecretKeyError::Missing(_)) if config.makes_secret_key && sealed.next().is_none() => {
            return SecretKey::create(file);
        }
        read => read?,
    };
    for (app, name, sealed) in sealed {
        if sealed.key != key.id() {
            return Err(SecretKeyError::Other {
                file: file.clone(),
                found: key.id().into(),
                expected: sealed.key.clone(),
                app: app.clone(),
                secret: name.clone(),
            });
        }
        key.open(app, name, sealed)?;
    }
    Ok(key)
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretKey({})", self.id)
    }
}

/// What is authenticated with a value. Names hold no zero bytes.
fn authenticated(app: &str, secret: &str) -> Vec<u8> {
    format!("e3 secret\0{app}\0{secret}").into_bytes()
}

/// Random bytes of the system.
pub(crate) fn random<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Bytes of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..text.len()).step_by(2);
    pairs
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_secret_is_read_under_its_key_and_names_only() {
        let tmp = tempfile::tempdir().unwrap();
        let (one, other) = (tmp.path().join("one"), tmp.path().join("other"));
        let key = SecretKey::create(&one).unwrap();
        let value = b"a value that nobody reads";
        let sealed = key.seal("app", "name", value).unwrap();
        assert!(!sealed.bytes.contains(&hex(&value[..8])));
        let again = SecretKey::read(&one).unwrap();
        assert_eq!(again.id(), sealed.key);
        assert_eq!(again.open("app", "name", &sealed).unwrap(), value);
        assert!(again.open("app", "other", &sealed).is_err());
        assert!(again.open("appn", "ame", &sealed).is_err());
        let stranger = SecretKey::create(&other).unwrap();
        assert!(stranger.open("app", "name", &sealed).is_err());
        for i in 0..sealed.bytes.len() {
            let mut damaged = sealed.clone();
            let digit = if &damaged.bytes[i..=i] == "0" {
                "1"
            } else {
                "0"
            };
            damaged.bytes.replace_range(i..=i, digit);
            assert!(again.open("app", "name", &damaged).is_err(), "{i}");
        }
        assert_ne!(key.seal("app", "name", value).unwrap().nonce, sealed.nonce);
        assert_eq!(format!("{key:?}"), format!("SecretKey({})", key.id()));
    }

    #[test]
    fn a_key_file_is_private_whole_and_never_overwritten() {
        let tmp = tempfile::tempdir().unwrap();
        let file = tmp.path().join("secret-key");
        assert!(matches!(
            SecretKey::read(&file),
            Err(SecretKeyError::Missing(_))
        ));
        let id = SecretKey::create(&file).unwrap().id().to_string();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert!(SecretKey::create(&file).is_err());
        assert_eq!(SecretKey::read(&file).unwrap().id(), id);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let why = SecretKey::read(&file).unwrap_err().to_string();
        assert!(why.contains("mode 0640, must be 0600"), "{why}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        for bad in ["", "ab", &"xy".repeat(32), &"ab".repeat(33)] {
            fs::write(&file, bad).unwrap();
            let why = SecretKey::read(&file).unwrap_err().to_string();
            assert!(why.contains("holds no key"), "{why}");
        }
    }
}
