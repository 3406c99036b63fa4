//! Small files that must survive a power cut.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file whole or not at all, in place of what is there; returns when its content and its name are
/// durable.
pub(super) fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let dir = dir_of(path);
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(dir)?;
    file.write_all(content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    File::open(dir)?.sync_all()
}

/// The directory of a file.
pub fn dir_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("a");
        for content in ["first and long", "second"] {
            write(&path, 0o600, content.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(tmp.path()).unwrap().count(), 1);
        let error = write(&tmp.path().join("no/a"), 0o600, b"a").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
