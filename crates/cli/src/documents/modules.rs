//! Finds the modules of services: beside the manifest, in the directory where services are built,
//! or in the program itself, which contains the services that E3 ships.

use crate::documents::builtin::Text;
use crate::documents::files::read_blob;
use crate::ui::failure::{Exit, Failure};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The modules that existed when the program was built (`build.rs`).
const BUILTIN: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/services.rs"));

/// A module.
pub struct Module {
    /// Its file, or `NAME.wasm (built in)`.
    pub origin: String,
    /// Its content.
    pub wasm: Cow<'static, [u8]>,
}

/// Directories in which modules are searched that are not beside their manifest.
pub fn dirs(given: Option<&Path>) -> Vec<PathBuf> {
    if let Some(dir) = given {
        return vec![dir.to_path_buf()];
    }
    // In a checkout the program is at target/PROFILE/e3 and the modules at target/services.
    let program = std::env::current_exe().unwrap_or_default();
    let above = |skip, take| program.ancestors().skip(skip).take(take);
    let mut dirs: Vec<PathBuf> = above(1, 2).map(|d| d.join("services")).collect();
    dirs.extend(above(1, 4).map(|d| d.join("target/services")));
    dirs.push(PathBuf::from("target/services"));
    dirs
}

/// The module that a manifest names, found in this order: in `services` if that is given, beside
/// the manifest, where services are built, in the program.
pub fn find(text: &Text, module: &str, services: Option<&Path>) -> Result<Module, Failure> {
    let name = Path::new(module).file_name().unwrap_or_default();
    let beside = text.dir.iter().map(|d| d.join(module));
    let built = dirs(services).into_iter().map(|d| d.join(name));
    let mut candidates: Vec<PathBuf> = beside.chain(built).collect();
    if services.is_some() {
        candidates.reverse();
    }
    if let Some(file) = candidates.iter().find(|c| c.is_file()) {
        return Ok(Module {
            origin: file.display().to_string(),
            wasm: read_blob(file)?.into(),
        });
    }
    let stem = Path::new(name).file_stem().unwrap_or_default();
    let builtin = BUILTIN.iter().find(|(n, _)| stem == *n);
    if let (None, Some((_, wasm))) = (services, builtin) {
        return Ok(Module {
            origin: format!("{} (built in)", name.display()),
            wasm: Cow::Borrowed(wasm),
        });
    }
    let message = format!("{}: module {module:?} is not found", text.file);
    let hint = match (services, BUILTIN.is_empty()) {
        (Some(dir), _) => format!(
            "build the services with: cargo xtask build-services; searched beside the manifest \
             and in {}",
            dir.display()
        ),
        (None, true) => "this program was built without modules; build them with: cargo xtask \
                         build-services, or give their directory with --services DIR"
            .into(),
        (None, false) => "build the services with: cargo xtask build-services, or give their \
                          directory with --services DIR"
            .into(),
    };
    Err(Failure::new(Exit::NotFound, message).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::builtin;

    #[test]
    fn the_program_holds_what_its_applications_need_or_nothing() {
        if BUILTIN.is_empty() {
            println!("SKIPPED: built without modules (cargo xtask build-services)");
            return;
        }
        for name in builtin::app_names() {
            let (text, app) = builtin::application(name).unwrap();
            for service in &app.spec.services {
                let stem = service.module.strip_suffix(".wasm").unwrap();
                let found = BUILTIN.iter().find(|(n, _)| *n == stem);
                assert!(found.is_some(), "{}: {}", text.file, service.module);
            }
        }
    }
}
