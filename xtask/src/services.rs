//! Builds the services to WebAssembly and lays them where manifests look for them.

use std::path::Path;

use e3_scaffold::Toolchain;

use crate::process::{Outcome, run};
use crate::wasm::{Abi, border};
use crate::workspace::Workspace;

const PACKAGE_PREFIX: &str = "e3-service-";
const PROFILE: &str = "service";

/// Builds every member that is a service (it has a `cdylib`), as `out/NAME.wasm`.
///
/// A file whose contents would not change keeps its time, so that nothing after it is redone.
pub fn build(workspace: &Workspace, toolchain: &Toolchain, out: &Path) -> Outcome<()> {
    let services: Vec<(&str, &str, &str)> = workspace
        .packages
        .iter()
        .filter(|package| package.name.starts_with(PACKAGE_PREFIX))
        .filter_map(|p| Some((p.name.as_str(), service_name(&p.name), p.cdylib.as_deref()?)))
        .collect();
    if services.is_empty() {
        return Err("no package named e3-service-* has a cdylib".into());
    }
    let target = workspace.target.join(toolchain.dir_name());
    let mut command = toolchain.cargo_build();
    command.current_dir(&workspace.root);
    command
        .args(["--profile", PROFILE, "--lib"])
        .arg("--target-dir")
        .arg(&target);
    for (package, ..) in &services {
        command.args(["-p", package]);
    }
    run(&mut command, "cargo build of the services")?;

    let page = workspace.root.join("docs/abi.md");
    let page = std::fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let abi = Abi::parse(&page)?;
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let built = target.join("wasm32-unknown-unknown").join(PROFILE);
    let mut changed = 0;
    let mut refused = Vec::new();
    for (_, name, library) in &services {
        let from = built.join(format!("{library}.wasm"));
        let bytes = std::fs::read(&from).map_err(|e| format!("{}: {e}", from.display()))?;
        let border = border(&bytes).ok_or_else(|| format!("{}: no module", from.display()))?;
        let problems = abi.problems(&border);
        if !problems.is_empty() {
            refused.push(format!("service {name}: {}", problems.join("; ")));
            continue;
        }
        let to = out.join(format!("{name}.wasm"));
        if std::fs::read(&to).ok().as_ref() != Some(&bytes) {
            // renamed into place: a reader sees the old module or the new one, never half of it
            let half = out.join(format!(".{name}.wasm.new"));
            std::fs::write(&half, &bytes).map_err(|e| format!("{}: {e}", half.display()))?;
            std::fs::rename(&half, &to).map_err(|e| format!("{}: {e}", to.display()))?;
            println!("services: {name}.wasm, {} bytes", bytes.len());
            changed += 1;
        }
    }
    if !refused.is_empty() {
        return Err(refused.join("\nerror: "));
    }
    println!(
        "services: {} in {}, {changed} changed",
        services.len(),
        out.display()
    );
    Ok(())
}

fn service_name(package: &str) -> &str {
    package.strip_prefix(PACKAGE_PREFIX).unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_hyphens() {
        assert_eq!(service_name("e3-service-flow-monitor"), "flow-monitor");
        assert_eq!(service_name("other"), "other");
    }
}
