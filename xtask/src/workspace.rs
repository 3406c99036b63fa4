//! The part of `cargo metadata` that the checks need.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::Outcome;

/// The packages of this repository.
pub struct Workspace {
    /// Directory of the root manifest.
    pub root: PathBuf,
    /// Where cargo builds to.
    pub target: PathBuf,
    /// Every member.
    pub packages: Vec<Package>,
}

/// One member.
pub struct Package {
    /// Its name in the manifest.
    pub name: String,
    /// Its short name: the directory under the root, without a leading `crates/`.
    pub short: String,
    /// Its directory.
    pub dir: PathBuf,
    /// Short names of the members that it depends on, development dependencies left out.
    pub depends_on: Vec<String>,
    /// Name of its `cdylib` target, if it has one.
    pub cdylib: Option<String>,
}

impl Workspace {
    /// Asks cargo; nothing is resolved or downloaded.
    pub fn load() -> Outcome<Self> {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(program)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .map_err(|e| format!("cargo metadata does not start: {e}"))?;
        if !output.status.success() {
            return Err(format!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
        }
        let value = serde_json::from_slice(&output.stdout)
            .map_err(|e| format!("cargo metadata is not JSON: {e}"))?;
        Self::parse(&value).ok_or_else(|| "cargo metadata has an unknown shape".into())
    }

    /// From the JSON of `cargo metadata`.
    pub fn parse(value: &Value) -> Option<Self> {
        let root = PathBuf::from(value["workspace_root"].as_str()?);
        let mut packages = Vec::new();
        for package in value["packages"].as_array()? {
            let dir = PathBuf::from(package["manifest_path"].as_str()?)
                .parent()?
                .to_owned();
            let depends_on = package["dependencies"]
                .as_array()?
                .iter()
                .filter(|d| d["kind"].as_str() != Some("dev"))
                .filter_map(|d| Some(short_name(&root, Path::new(d["path"].as_str()?))))
                .collect();
            let cdylib = package["targets"].as_array()?.iter().find(|target| {
                let types = target["crate_types"].as_array();
                types.is_some_and(|types| types.iter().any(|t| t == "cdylib"))
            });
            packages.push(Package {
                name: package["name"].as_str()?.to_owned(),
                short: short_name(&root, &dir),
                dir,
                depends_on,
                cdylib: cdylib.and_then(|t| Some(t["name"].as_str()?.to_owned())),
            });
        }
        packages.sort_by(|a, b| a.short.cmp(&b.short));
        let target = PathBuf::from(value["target_directory"].as_str()?);
        Some(Self {
            root,
            target,
            packages,
        })
    }
}

fn short_name(root: &Path, dir: &Path) -> String {
    let inside = dir
        .strip_prefix(root)
        .unwrap_or(dir)
        .to_string_lossy()
        .into_owned();
    inside
        .strip_prefix("crates/")
        .map(str::to_owned)
        .unwrap_or(inside)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::json;

    pub fn small() -> Workspace {
        let value = json!({
            "workspace_root": "/r", "target_directory": "/r/target",
            "packages": [
                {"name": "e3-wire", "manifest_path": "/r/crates/wire/Cargo.toml",
                 "dependencies": [
                    {"name": "e3-model", "kind": null, "path": "/r/crates/model"},
                    {"name": "e3-sim", "kind": "dev", "path": "/r/crates/sim"},
                    {"name": "serde", "kind": null}],
                 "targets": [{"name": "e3_wire", "crate_types": ["lib"]}]},
                {"name": "e3-service-ema", "manifest_path": "/r/services/ema/Cargo.toml",
                 "dependencies": [],
                 "targets": [{"name": "e3_service_ema", "crate_types": ["cdylib", "rlib"]}]},
            ],
        });
        Workspace::parse(&value).expect("known shape")
    }

    #[test]
    fn metadata_is_cut_down_to_members() {
        let workspace = small();
        let [ema, wire] = workspace.packages.as_slice() else {
            panic!("two packages")
        };
        assert_eq!(
            (wire.short.as_str(), wire.depends_on.as_slice()),
            ("wire", &["model".into()][..])
        );
        assert_eq!(wire.cdylib, None);
        assert_eq!(
            (ema.short.as_str(), ema.cdylib.as_deref()),
            ("services/ema", Some("e3_service_ema"))
        );
    }

    #[test]
    fn unknown_shape_is_refused() {
        assert!(Workspace::parse(&json!({"workspace_root": "/r"})).is_none());
    }
}
