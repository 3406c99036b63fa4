//! Bans clocks, sockets, files, threads and random hashing from crates that do no I/O.
//!
//! Clippy enforces the bans through a `clippy.toml` in each of these crates, which is generated from the
//! lists here (as in linkerd2-proxy).

use std::fmt::Write as _;

use crate::architecture::Architecture;
use crate::process::Outcome;
use crate::sources::Sources;
use crate::workspace::{Package, Workspace};

const METHODS: &[(&str, &[&str])] = &[
    (
        "time is an argument",
        &[
            "std::time::Instant::now",
            "std::time::Instant::elapsed",
            "std::time::SystemTime::now",
            "std::time::SystemTime::elapsed",
        ],
    ),
    (
        "a core owns no threads",
        &[
            "std::thread::spawn",
            "std::thread::scope",
            "std::thread::sleep",
            "std::thread::park",
            "std::thread::park_timeout",
            "std::thread::yield_now",
            "std::thread::Builder::new",
        ],
    ),
    (
        "a core reads and writes no files",
        &[
            "std::fs::canonicalize",
            "std::fs::copy",
            "std::fs::create_dir",
            "std::fs::create_dir_all",
            "std::fs::exists",
            "std::fs::metadata",
            "std::fs::read",
            "std::fs::read_dir",
            "std::fs::read_to_string",
            "std::fs::remove_dir_all",
            "std::fs::remove_file",
            "std::fs::rename",
            "std::fs::write",
            "std::io::stdin",
            "std::path::Path::exists",
            "std::path::Path::is_file",
            "std::path::Path::is_dir",
        ],
    ),
    (
        "configuration is an argument",
        &["std::env::args", "std::env::var", "std::env::var_os"],
    ),
];

const TYPES: &[(&str, &[&str])] = &[
    (
        "a core owns no sockets",
        &[
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "std::os::unix::net::UnixDatagram",
            "std::os::unix::net::UnixListener",
            "std::os::unix::net::UnixStream",
        ],
    ),
    (
        "a core reads and writes no files",
        &["std::fs::File", "std::fs::OpenOptions"],
    ),
    ("a core starts no processes", &["std::process::Command"]),
    (
        "its order is random; use BTreeMap, BTreeSet or a fixed hasher",
        &[
            "std::collections::HashMap",
            "std::collections::HashSet",
            "std::hash::RandomState",
        ],
    ),
];

/// Crates whose `clippy.toml` differs, and places that switch the bans off.
pub fn problems(
    architecture: &Architecture,
    workspace: &Workspace,
    sources: &Sources,
) -> Vec<String> {
    let text = clippy_toml();
    let mut found = Vec::new();
    for package in banned(architecture, workspace) {
        let name = format!("crates/{}/clippy.toml", package.short);
        match std::fs::read_to_string(package.dir.join("clippy.toml")) {
            Ok(there) if there == text => {}
            Ok(_) => found.push(format!(
                "{name}: differs from xtask/src/bans.rs; cargo xtask fix"
            )),
            Err(e) => found.push(format!("{name}: {e}; cargo xtask fix writes it")),
        }
        let prefix = format!("crates/{}/src/", package.short);
        for (path, line) in sources.lines_with(&prefix, &["disallowed_methods", "disallowed_types"])
        {
            found.push(format!(
                "{path}:{line}: the bans on I/O cannot be switched off here"
            ));
        }
    }
    found
}

/// Writes the files that are missing or differ.
pub fn write(architecture: &Architecture, workspace: &Workspace) -> Outcome<()> {
    let text = clippy_toml();
    for package in banned(architecture, workspace) {
        let path = package.dir.join("clippy.toml");
        if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("fix: wrote {}", path.display());
        }
    }
    Ok(())
}

fn banned<'a>(
    architecture: &'a Architecture,
    workspace: &'a Workspace,
) -> impl Iterator<Item = &'a Package> {
    let is_banned = |package: &&Package| {
        architecture
            .row(&package.short)
            .is_some_and(|row| row.io_banned)
    };
    workspace.packages.iter().filter(is_banned)
}

/// The file's text.
fn clippy_toml() -> String {
    let mut text = String::from(
        "# Made by `cargo xtask fix` from xtask/src/bans.rs. This crate does no I/O: time, seeds and\n\
         # bytes are arguments. An integration test that reads a fixture may allow the lint.\n",
    );
    for (key, groups) in [("disallowed-methods", METHODS), ("disallowed-types", TYPES)] {
        writeln!(text, "{key} = [").expect("to a string");
        for (reason, paths) in groups {
            for path in *paths {
                writeln!(text, "    {{ path = \"{path}\", reason = \"{reason}\" }},")
                    .expect("to a string");
            }
        }
        text.push_str("]\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_names_each_ban_once() {
        let text = clippy_toml();
        for path in METHODS.iter().chain(TYPES).flat_map(|(_, paths)| *paths) {
            assert_eq!(text.matches(&format!("\"{path}\"")).count(), 1, "{path}");
        }
    }
}
