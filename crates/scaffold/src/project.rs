//! New projects.

use crate::ScaffoldError;
use crate::limits::NAME_LEN_MAX;
use std::fs;
use std::path::{Path, PathBuf};

/// Language of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Rust.
    Rust,
    /// C.
    C,
}

macro_rules! template {
    ($name:literal) => {
        include_str!(concat!("templates/", $name, ".in"))
    };
}

macro_rules! sdk {
    ($($name:literal),*) => {
        [$((concat!("e3-sdk/src/", $name), include_str!(concat!("../../../sdk/rust/src/", $name)))),*]
    };
}

/// The SDK for Rust, file by file.
const SDK: [(&str, &str); 28] = sdk![
    "accel.rs",
    "accel_portable.rs",
    "answer.rs",
    "calls.rs",
    "collections.rs",
    "error.rs",
    "export.rs",
    "free_list.rs",
    "lib.rs",
    "limits.rs",
    "logging.rs",
    "math.rs",
    "native.rs",
    "outbound.rs",
    "sys_wasm.rs",
    "sys_wasm_outbound.rs",
    "sys_wasm_raw.rs",
    "testing.rs",
    "testing_calls.rs",
    "testing_outbound.rs",
    "testing_state.rs",
    "testing_types.rs",
    "timers.rs",
    "topic.rs",
    "topics.rs",
    "typed.rs",
    "typed_key.rs",
    "typed_value.rs"
];
/// The manifest of the SDK, from which the dependencies are copied.
const SDK_MANIFEST: &str = include_str!("../../../sdk/rust/Cargo.toml");
const RUST: [(&str, &str); 5] = [
    ("Cargo.toml", template!("Cargo.toml")),
    (".cargo/config.toml", template!("config.toml")),
    (".gitignore", template!("gitignore")),
    ("src/lib.rs", template!("lib.rs")),
    ("e3-sdk/Cargo.toml", template!("sdk.toml")),
];
const C: [(&str, &str); 3] = [
    ("{{name}}.c", template!("service.c")),
    ("e3.h", include_str!("../../../sdk/c/e3.h")),
    (".gitignore", template!("gitignore")),
];
const MANIFEST: (&str, &str) = ("{{name}}.yaml", template!("manifest.yaml"));

/// Creates a project in `parent/name`: a service that counts the requests of each key, its manifest,
/// and a copy of the SDK. Nothing is written if the directory exists.
pub fn create(parent: &Path, name: &str, language: Language) -> Result<PathBuf, ScaffoldError> {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || name.ends_with('-') || name.len() > NAME_LEN_MAX || !name.chars().all(good) {
        return Err(ScaffoldError::Name(name.into()));
    }
    let dir = parent.join(name);
    if dir.exists() {
        return Err(ScaffoldError::Exists(dir));
    }
    let at = SDK_MANIFEST.find("[dependencies]").unwrap_or_default();
    let dependencies = SDK_MANIFEST[at..].trim_end();
    let files: Vec<(&str, &str)> = match language {
        Language::Rust => RUST.iter().chain(&SDK).copied().collect(),
        Language::C => C.to_vec(),
    };
    for (file, text) in files.into_iter().chain([MANIFEST]) {
        let fill = |text: &str| {
            text.replace("{{name}}", name)
                .replace("{{version}}", env!("CARGO_PKG_VERSION"))
                .replace("{{dependencies}}", dependencies)
        };
        write(&dir.join(fill(file)), &fill(text))?;
    }
    Ok(dir)
}

fn write(file: &Path, text: &str) -> Result<(), ScaffoldError> {
    let failed = |source| ScaffoldError::File {
        file: file.to_path_buf(),
        source,
    };
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    fs::write(file, text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_of_the_sdk_is_complete() {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust/src");
        let mut there: Vec<String> = fs::read_dir(sdk)
            .unwrap()
            .map(|e| format!("e3-sdk/src/{}", e.unwrap().file_name().to_string_lossy()))
            .collect();
        there.sort();
        assert_eq!(there, SDK.map(|(name, _)| name));
    }

    #[test]
    fn names_are_those_of_services() {
        let nowhere = Path::new("/nowhere");
        for bad in ["", "A", "1a", "a_b", "a-", "../a", "a b", &"a".repeat(64)] {
            let error = create(nowhere, bad, Language::Rust).unwrap_err();
            assert!(matches!(error, ScaffoldError::Name(_)), "{bad}: {error}");
        }
    }
}
