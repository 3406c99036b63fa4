//! The credentials of a cluster: two random tokens in files of the state directory. Only the owner of
//! the directory can read them. `token` is the owner's and has the role admin; `node-token` is for the
//! node processes. Other tokens are in the controller's log (`e3 token`).

use crate::cluster::durable;
use crate::cluster::state_dir::{PARTS, StateDir};
use crate::limits::TOKEN_FILE_LEN_MAX;
use crate::ui::failure::{Exit, Failure};
use e3_model::Token;
use e3_model::token::TOKEN_LEN;
use std::fs::{DirBuilder, Metadata, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Permissions of group and others.
const OTHERS: u32 = 0o077;
/// Permissions of the state directory.
const DIR_MODE: u32 = 0o700;

/// Creates a state directory that only its owner can enter. An existing one that others can enter is
/// closed to them if it holds a cluster or nothing; one with other content is refused.
pub fn make_private_dir(dir: &Path) -> Result<(), Failure> {
    let elsewhere = "give another directory with --dir DIR";
    let failed = |e: &std::io::Error| Failure::file("create", dir, e).hint(elsewhere);
    // The directory is created with its mode, so others can never enter it.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(DIR_MODE);
    builder.create(dir).map_err(|e| failed(&e))?;
    let found = std::fs::metadata(dir).map_err(|e| failed(&e))?;
    check_owner(dir, &found)?;
    let mode = found.mode() & 0o777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    if !is_state_dir(dir).map_err(|e| failed(&e))? {
        let message = format!(
            "{} has mode {mode:04o} and holds other files; a state directory holds secrets and must have mode {DIR_MODE:04o}",
            dir.display()
        );
        let hint = format!("{elsewhere}, or close it: chmod 700 {}", dir.display());
        return Err(Failure::new(Exit::Input, message).hint(hint));
    }
    std::fs::set_permissions(dir, Permissions::from_mode(DIR_MODE))
        .map_err(|e| Failure::file("change the mode of", dir, &e).hint(elsewhere))
}

/// Whether a directory holds a cluster's state, or nothing.
fn is_state_dir(dir: &Path) -> std::io::Result<bool> {
    if StateDir::new(dir).topology_file().exists() {
        return Ok(true);
    }
    let mut own = true;
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        own &= name.to_str().is_some_and(|n| PARTS.contains(&n));
    }
    Ok(own)
}

/// Creates missing tokens. The caller must hold the lock of the directory.
pub fn provide(state: &StateDir) -> Result<(), Failure> {
    for path in [state.token_file(), state.node_token_file()] {
        match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => make_token(&path)?,
            Err(e) => return Err(Failure::file("read", &path, &e)),
            Ok(found) => {
                check_file(&path, &found)?;
                if found.mode() & OTHERS == 0 {
                    read_token(&path)?;
                } else {
                    // Others may have read it.
                    make_token(&path)?;
                    let (path, mode) = (path.display(), found.mode() & 0o777);
                    tracing::warn!("{path} had mode {mode:04o}, must be 0600: created a new token");
                }
            }
        }
    }
    Ok(())
}

/// Writes a new token. The file appears complete and readable only by its owner.
fn make_token(path: &Path) -> Result<(), Failure> {
    let mut random = [0; TOKEN_LEN];
    getrandom::fill(&mut random)
        .map_err(|e| Failure::new(Exit::Unexpected, format!("random bytes: {e}")))?;
    let text = format!("{}\n", Token::new(random).expose());
    durable::write(path, 0o600, text.as_bytes()).map_err(|e| Failure::file("write", path, &e))
}

/// Reads a token of the state directory.
pub fn read_token(path: &Path) -> Result<Token, Failure> {
    let found = std::fs::symlink_metadata(path).map_err(|e| Failure::file("read", path, &e))?;
    check_file(path, &found)?;
    let mode = found.mode() & 0o777;
    if mode & OTHERS != 0 {
        let path = path.display();
        let message =
            format!("{path} has mode {mode:04o}, must be 0600: others may have read the token");
        let hint = "restart the cluster to create a new token: e3 down, e3 up";
        return Err(Failure::new(Exit::Input, message).hint(hint));
    }
    read_given_token(path)
}

/// Reads a token from a file that the user names, whatever its mode.
pub fn read_given_token(path: &Path) -> Result<Token, Failure> {
    let failed = |e: &std::io::Error| Failure::file("read the token in", path, e);
    let file = std::fs::File::open(path).map_err(|e| failed(&e))?;
    let mut text = Vec::new();
    file.take(TOKEN_FILE_LEN_MAX)
        .read_to_end(&mut text)
        .map_err(|e| failed(&e))?;
    Token::parse(&String::from_utf8_lossy(&text)).map_err(|e| {
        let path = path.display();
        Failure::new(Exit::Input, format!("the content of {path} {e}"))
    })
}

fn check_file(path: &Path, found: &Metadata) -> Result<(), Failure> {
    if !found.is_file() {
        let message = format!("{} is not a regular file", path.display());
        return Err(Failure::new(Exit::Input, message).hint("remove it; e3 up creates a new token"));
    }
    check_owner(path, found)
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), Failure> {
    let user = rustix::process::geteuid();
    if found.uid() == user.as_raw() || user.is_root() && found.is_file() {
        return Ok(());
    }
    let (path, owner) = (path.display(), found.uid());
    let message = format!("{path} is owned by user {owner}, must be owned by user {user}");
    Err(Failure::new(Exit::Input, message).hint("give another directory with --dir DIR"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn tokens_are_private_and_kept() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(&tmp.path().join("a/b"));
        state.create().unwrap();
        provide(&state).unwrap();
        assert_eq!(mode(state.root()), 0o700);
        let (owner, node) = (state.token_file(), state.node_token_file());
        assert_eq!((mode(&owner), mode(&node)), (0o600, 0o600));
        let read = |path: &Path| read_token(path).unwrap().expose().to_string();
        let before = (read(&owner), read(&node));
        assert_ne!(before.0, before.1);
        state.create().unwrap();
        provide(&state).unwrap();
        assert_eq!((read(&owner), read(&node)), before);
        let names = std::fs::read_dir(state.root()).unwrap();
        let names: Vec<_> = names.map(|e| e.unwrap().file_name()).collect();
        let own = |n: &std::ffi::OsString| PARTS.contains(&n.to_str().unwrap());
        assert!(names.iter().all(own), "{names:?}");
    }

    #[test]
    fn a_token_that_others_may_know_is_replaced() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(tmp.path());
        state.create().unwrap();
        provide(&state).unwrap();
        let path = state.token_file();
        let before = read_token(&path).unwrap();
        set_mode(&path, 0o640);
        let refused = read_token(&path).unwrap_err();
        assert_eq!(refused.exit, Exit::Input);
        assert!(refused.message.contains("mode 0640"), "{refused}");
        provide(&state).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_ne!(read_token(&path).unwrap().expose(), before.expose());
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let state = StateDir::new(tmp.path());
        state.create().unwrap();
        let path = state.node_token_file();
        std::fs::write(&path, "").unwrap();
        set_mode(&path, 0o600);
        let refused = provide(&state).unwrap_err();
        assert!(refused.message.contains("hexadecimal"), "{refused}");
        std::fs::remove_file(&path).unwrap();
        let elsewhere = tmp.path().join("elsewhere");
        std::fs::write(&elsewhere, "ab".repeat(32)).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let refused = provide(&state).unwrap_err();
        assert!(refused.message.contains("regular file"), "{refused}");
    }

    #[test]
    fn an_open_directory_is_closed_only_if_it_is_a_state_directory() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("open");
        let state = StateDir::new(&dir);
        std::fs::create_dir(&dir).unwrap();
        for entry in ["", "controller", "topology.yaml"] {
            set_mode(&dir, 0o755);
            if !entry.is_empty() {
                std::fs::write(dir.join(entry), "").unwrap();
            }
            make_private_dir(&dir).unwrap();
            assert_eq!(mode(&dir), 0o700, "{entry:?}");
        }
        std::fs::remove_file(state.topology_file()).unwrap();
        std::fs::write(dir.join("letter.txt"), "").unwrap();
        make_private_dir(&dir).unwrap();
        set_mode(&dir, 0o750);
        let refused = make_private_dir(&dir).unwrap_err();
        assert_eq!(refused.exit, Exit::Input);
        assert!(refused.message.contains("mode 0750"), "{refused}");
        assert_eq!(mode(&dir), 0o750, "it is left as it was");
    }
}
