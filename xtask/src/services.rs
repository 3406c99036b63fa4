//! Builds the services to WebAssembly and copies them to where manifests look for them.

use std::path::Path;

use e3_scaffold::Toolchain;

use crate::process::{Outcome, run};
use crate::wasm::{Abi, border};
use crate::workspace::Workspace;

const PACKAGE_PREFIX: &str = "e3-service-";
const PROFILE: &str = "service";

/// A service to be built.
struct Service<'a> {
    package: &'a str,
    name: &'a str,
    library: &'a str,
}

/// Builds every member that is a service (it has a `cdylib`), as `out/NAME.wasm`.
///
/// A file whose contents do not change keeps its time, so nothing that depends on it is rebuilt.
pub fn build(workspace: &Workspace, toolchain: &Toolchain, out: &Path) -> Outcome<()> {
    let packages = workspace.packages.iter();
    let services: Vec<Service<'_>> = packages
        .filter_map(|package| {
            Some(Service {
                package: &package.name,
                name: service_name(&package.name)?,
                library: package.cdylib.as_deref()?,
            })
        })
        .collect();
    if services.is_empty() {
        return Err(format!("no package named {PACKAGE_PREFIX}* has a cdylib"));
    }
    let target = workspace.target.join(toolchain.dir_name());
    compile(workspace, toolchain, &services, &target)?;

    let page = workspace.root.join("docs/abi.md");
    let page = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let abi = Abi::parse(&page)?;
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let built = target.join("wasm32-unknown-unknown").join(PROFILE);
    let mut changed = 0;
    let mut refused = Vec::new();
    for service in &services {
        let module = built.join(format!("{}.wasm", service.library));
        match install(&module, service.name, &abi, out)? {
            Installed::Changed => changed += 1,
            Installed::Same => {}
            Installed::Refused(why) => refused.push(format!("service {}: {why}", service.name)),
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("\nerror: "));
    }
    let (count, out) = (services.len(), out.display());
    println!("services: {count} in {out}, {changed} changed");
    Ok(())
}

fn compile(
    workspace: &Workspace,
    toolchain: &Toolchain,
    services: &[Service<'_>],
    target: &Path,
) -> Outcome<()> {
    let mut command = toolchain.cargo_build();
    command.current_dir(&workspace.root);
    command.args(["--profile", PROFILE, "--lib", "--target-dir"]);
    command.arg(target);
    for service in services {
        command.args(["-p", service.package]);
    }
    run(&mut command, "cargo build of the services")
}

/// What happened to one module.
enum Installed {
    Changed,
    Same,
    /// It does not follow the ABI, for these reasons.
    Refused(String),
}

/// Checks a module against the ABI and copies it to `out` if it has changed.
fn install(module: &Path, name: &str, abi: &Abi, out: &Path) -> Outcome<Installed> {
    let bytes = std::fs::read(module).map_err(|e| format!("{}: {e}", module.display()))?;
    let border = border(&bytes).ok_or_else(|| format!("{}: not a module", module.display()))?;
    let problems = abi.problems(&border);
    if !problems.is_empty() {
        return Ok(Installed::Refused(problems.join("; ")));
    }
    let to = out.join(format!("{name}.wasm"));
    if std::fs::read(&to).ok().as_ref() == Some(&bytes) {
        return Ok(Installed::Same);
    }
    // renamed into place, so that a reader always sees a complete module
    let temporary = out.join(format!(".{name}.wasm.new"));
    std::fs::write(&temporary, &bytes).map_err(|e| format!("{}: {e}", temporary.display()))?;
    std::fs::rename(&temporary, &to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("services: {name}.wasm, {} bytes", bytes.len());
    Ok(Installed::Changed)
}

/// The name of a service, if a package is one.
fn service_name(package: &str) -> Option<&str> {
    package.strip_prefix(PACKAGE_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_hyphens() {
        let name = service_name("e3-service-flow-monitor");
        assert_eq!(name, Some("flow-monitor"));
        assert_eq!(service_name("other"), None);
    }
}
