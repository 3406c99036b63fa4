//! Whose journal a directory holds. A node that is given the disk of another one would remove what is on it, since the
//! copies are not its own.

use crate::config::NodeError;
use e3_model::check_name;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Has the node's name in it. Journals of older releases do not have it yet.
const FILE: &str = "node";

/// Refuses the journal of another node.
pub(crate) fn check(dir: &Path, node: &str) -> Result<(), NodeError> {
    let file = dir.join(FILE);
    let found = match fs::read_to_string(&file) {
        Ok(found) => found.trim().to_string(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => {
            tracing::warn!(file = %file.display(), error = %e, "cannot read whose journal it is");
            return Ok(());
        }
    };
    // A crash may leave it empty, and a damaged name keeps nobody from a sound journal.
    if found == node || check_name(&found).is_err() {
        return Ok(());
    }
    Err(NodeError::OtherNode {
        dir: dir.to_path_buf(),
        found,
        node: node.to_string(),
    })
}

/// Notes that it is this node's journal. The node starts even if the disk is full.
pub(crate) fn note(dir: &Path, node: &str) {
    let file = dir.join(FILE);
    let is_noted = fs::read_to_string(&file).is_ok_and(|found| found.trim() == node);
    if is_noted {
        return;
    }
    if let Err(e) = write(&file, node) {
        tracing::warn!(file = %file.display(), error = %e, "cannot write the name of the node beside its journal");
    }
}

fn write(file: &Path, node: &str) -> io::Result<()> {
    fs::write(file, format!("{node}\n"))?;
    fs::File::open(file)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_of_another_node_is_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = tmp.path().join("journal");
        check(&dir, "n1").unwrap();
        fs::create_dir(&dir).unwrap();
        note(&dir, "n1");
        check(&dir, "n1").unwrap();
        let refused = check(&dir, "n2").unwrap_err().to_string();
        assert!(refused.contains("of node n1"), "{refused}");
        for unknown in [&b""[..], b"n\xff1\n", b"n!\n"] {
            fs::write(dir.join(FILE), unknown).unwrap();
            check(&dir, "n2").unwrap();
        }
        note(&dir, "n2");
        assert!(check(&dir, "n1").is_err());
    }
}
