//! Further versions of an application's code: the same modules, each with a custom section that no
//! engine reads, so that they differ but behave the same.

use crate::commands::deploy;
use crate::documents::Sources;
use crate::documents::builtin;
use crate::settings::Settings;
use crate::ui::failure::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e3_model::api::DeployRequest;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of the section.
const SECTION: &str = "e3.chaos";

/// Makes requests to deploy the next version.
pub struct Updates {
    app: String,
    request: DeployRequest,
    first: u64,
    made: AtomicU64,
}

impl Updates {
    /// Of a manifest, a file or a built-in one. Versions of two runs with other `first` differ.
    pub fn of(
        manifest: &str,
        sources: &Sources,
        settings: &Settings,
        first: u64,
    ) -> Result<Updates, Failure> {
        let (text, app) = builtin::application(manifest)?;
        Ok(Updates {
            request: deploy::request(&text, &app, sources, settings)?,
            app: app.name,
            first,
            made: AtomicU64::new(0),
        })
    }

    /// Name of the application.
    pub fn app(&self) -> &str {
        &self.app
    }

    /// The next version.
    pub fn next(&self) -> DeployRequest {
        let version = self.first + self.made.fetch_add(1, Ordering::Relaxed);
        let mut request = self.request.clone();
        for module in request.modules.values_mut() {
            // It was encoded here, so it decodes.
            let mut wasm = STANDARD.decode(&module).unwrap_or_default();
            append_section(&mut wasm, version);
            *module = STANDARD.encode(wasm);
        }
        request.overcommit = true;
        request
    }
}

/// Appends a custom section (WebAssembly core specification 2.0, 5.5.3).
fn append_section(wasm: &mut Vec<u8>, version: u64) {
    let mut content = vec![SECTION.len() as u8];
    content.extend_from_slice(SECTION.as_bytes());
    content.extend_from_slice(&version.to_le_bytes());
    wasm.extend([0, content.len() as u8]);
    wasm.extend(content);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_differ_and_are_modules() {
        let module = wat::parse_str("(module)").unwrap();
        let made = |version| {
            let mut wasm = module.clone();
            append_section(&mut wasm, version);
            wasm
        };
        assert_ne!(made(1), made(2));
        // Text and sections of the same length: the module, then 0, 17, the name, the number.
        assert_eq!(made(1)[module.len()..][..3], [0, 17, 8]);
    }
}
