//! What a request to deploy brings. It is read without the controller's lock: modules and assets may be large.

use super::unprocessable;
use crate::blobs::{Blobs, digest};
use crate::refusal::not_stored;
use crate::staging::Staged;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use e3_control::{Command, Placed};
use e3_http::Refusal;
use e3_model::api::DeployRequest;
use e3_model::backup::Restored;
use e3_model::document::{parse_application, parse_profile};
use e3_model::{Application, Profile};
use std::collections::BTreeMap;

/// What a request brings.
pub(crate) struct Sent {
    pub(super) app: Application,
    pub(super) profiles: BTreeMap<String, Profile>,
    /// Digests by service.
    modules: Vec<String>,
    /// Digests by name.
    assets: BTreeMap<String, String>,
    /// The bytes of modules and assets; none in a dry run.
    pub(super) staged: Option<Staged>,
}

impl Sent {
    /// Reads it, and writes its modules and assets to the disk unless it is a dry run.
    pub(crate) fn read(q: &DeployRequest, blobs: Option<&Blobs>) -> Result<Sent, Refusal> {
        let app =
            parse_application(&q.file, &q.manifest).map_err(|e| unprocessable(e.to_string()))?;
        let mut profiles = BTreeMap::new();
        for (i, text) in q.profiles.iter().enumerate() {
            let profile = parse_profile(&format!("profiles[{i}]"), text)
                .map_err(|e| unprocessable(e.to_string()))?;
            profiles.insert(profile.name.clone(), profile);
        }
        let decode = |of: &BTreeMap<String, String>, name: &str| {
            let text = of.get(name).ok_or_else(|| {
                unprocessable(format!("{}: {name:?} is named but was not sent", q.file))
            })?;
            let bytes = BASE64_STANDARD.decode(text);
            bytes.map_err(|e| unprocessable(format!("{name:?} is not Base64: {e}")))
        };
        let staged = blobs.map(Staged::new).transpose().map_err(not_stored)?;
        let keep = |bytes: &[u8]| {
            let digest = digest(bytes);
            if let Some(staged) = &staged {
                staged.add(&digest, bytes).map_err(not_stored)?;
            }
            Ok::<_, Refusal>(digest)
        };
        let mut modules = Vec::new();
        for service in &app.spec.services {
            let wasm = decode(&q.modules, &service.module)?;
            if !wasm.starts_with(b"\0asm") {
                let (name, path) = (&service.name, &service.module);
                return Err(unprocessable(format!(
                    "service {name:?}: {path:?} is not a WebAssembly module"
                )));
            }
            modules.push(keep(&wasm)?);
        }
        let mut assets = BTreeMap::new();
        for asset in &app.spec.assets {
            let bytes = decode(&q.assets, &asset.name)?;
            assets.insert(asset.name.clone(), keep(&bytes)?);
        }
        Ok(Sent {
            app,
            profiles,
            modules,
            assets,
            staged,
        })
    }

    pub(super) fn command(
        &self,
        overcommit: bool,
        restored: Option<Restored>,
        placed: Vec<Placed>,
    ) -> Command {
        Command::Deploy {
            app: Box::new(self.app.clone()),
            modules: self.modules.clone(),
            assets: self.assets.clone(),
            profiles: self.profiles.clone(),
            overcommit,
            restored,
            placed,
        }
    }
}
