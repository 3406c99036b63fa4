//! Compares the dependencies that `ARCHITECTURE.md` allows with those that cargo reports.

use crate::architecture::Architecture;
use crate::workspace::Workspace;

/// Dependencies that are not allowed, and rows and members without a counterpart.
pub fn problems(architecture: &Architecture, workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    let members: Vec<&str> = workspace
        .packages
        .iter()
        .map(|p| p.short.as_str())
        .collect();
    for (name, row) in architecture.rows() {
        let there = match name.strip_suffix('*') {
            Some(prefix) => members.iter().any(|m| m.starts_with(prefix)),
            None => members.contains(&name),
        };
        if !there {
            found.push(format!(
                "ARCHITECTURE.md: {name} is not a member of the workspace"
            ));
        }
        for target in &row.may_depend_on {
            match architecture.row(target) {
                None => found.push(format!(
                    "ARCHITECTURE.md: {name} may depend on {target}, which has no row"
                )),
                Some(to) if to.layer > row.layer => found.push(format!(
                    "ARCHITECTURE.md: {name} -> {target} points to a higher layer"
                )),
                Some(_) => {}
            }
        }
    }
    for package in &workspace.packages {
        let Some(row) = architecture.row(&package.short) else {
            found.push(format!("{}: has no row in ARCHITECTURE.md", package.short));
            continue;
        };
        for target in &package.depends_on {
            if !row.may_depend_on.contains(target) {
                found.push(format!(
                    "{}: depends on {target}, allowed by ARCHITECTURE.md: {}",
                    package.short,
                    if row.may_depend_on.is_empty() {
                        "none".into()
                    } else {
                        row.may_depend_on.join(", ")
                    }
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::small;

    fn architecture(rows: &str) -> Architecture {
        let header =
            "| crate | layer | I/O banned | unsafe | may depend on |\n|---|---|---|---|---|\n";
        Architecture::parse(&format!("{header}{rows}")).expect("valid")
    }

    #[test]
    fn allowed_dependencies_pass_and_development_dependencies_do_not_count() {
        let mut workspace = small();
        workspace.packages[1].depends_on.clear();
        let table = architecture(
            "| `wire` | ground | no | no | |\n| `services/*` | around | no | no | |\n",
        );
        assert_eq!(problems(&table, &workspace), [""; 0]);
    }

    #[test]
    fn extra_dependencies_and_unknown_crates_fail() {
        let table =
            architecture("| `wire` | ground | no | no | `gone` |\n| `old` | core | no | no | |\n");
        assert_eq!(
            problems(&table, &small()),
            [
                "ARCHITECTURE.md: old is not a member of the workspace",
                "ARCHITECTURE.md: wire may depend on gone, which has no row",
                "services/ema: has no row in ARCHITECTURE.md",
                "wire: depends on model, allowed by ARCHITECTURE.md: gone",
            ]
        );
    }

    #[test]
    fn dependencies_never_point_up() {
        let table = architecture(
            "| `wire` | ground | no | no | `services/ema`, `model` |\n| `model` | ground | no | no | |\n| `services/*` | around | no | no | |\n",
        );
        assert!(
            problems(&table, &small())
                .contains(&"ARCHITECTURE.md: wire -> services/ema points to a higher layer".into())
        );
    }
}
