//! Finds knots: files of one crate that import each other in a circle.
//!
//! Such files can only be read, tested and moved together. Up to three of them may be one thing in
//! several files; more are a design that grew.

use std::collections::BTreeSet;
use std::path::Path;

use crate::modules::Crate;
use crate::process::Outcome;
use crate::workspace::{Package, Workspace};

/// The most files that may import each other in a circle.
const FILES_MAX: usize = 3;
/// Crates that still have a knot; the list only gets shorter.
const KNOTTED: &[&str] = &[];

/// What was found.
#[derive(Default)]
pub struct Knots {
    /// Knots, each with its imports.
    pub problems: Vec<String>,
    /// Knots that are known, and crates that have lost theirs.
    pub warnings: Vec<String>,
}

/// The knots of all crates.
pub fn find(workspace: &Workspace) -> Outcome<Knots> {
    let mut all = Knots::default();
    for package in &workspace.packages {
        let knots = of_package(package)?;
        let short = package.short.as_str();
        if !KNOTTED.contains(&short) {
            all.problems.extend(knots);
        } else if knots.is_empty() {
            all.warnings.push(format!(
                "xtask/src/knots.rs: {short} has no knot any more, remove it from KNOTTED"
            ));
        } else {
            all.warnings.extend(knots);
        }
    }
    Ok(all)
}

fn of_package(package: &Package) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for root in ["src/lib.rs", "src/main.rs"] {
        let root = package.dir.join(root);
        if !root.exists() {
            continue;
        }
        let one = Crate::load(&root)?;
        let imports = one.imports();
        for knot in knots(&imports) {
            found.push(describe(package, &one, &imports, &knot));
        }
    }
    Ok(found)
}

/// Sets of more than `FILES_MAX` files in which each file leads to every other.
fn knots(imports: &[BTreeSet<usize>]) -> Vec<BTreeSet<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..imports.len())
        .map(|from| {
            let mut reached = BTreeSet::new();
            let mut ahead = vec![from];
            while let Some(file) = ahead.pop() {
                ahead.extend(imports[file].iter().filter(|to| reached.insert(**to)));
            }
            reached
        })
        .collect();
    let circle = |file: usize| -> BTreeSet<usize> {
        let back = |to: &usize| reached[*to].contains(&file);
        reached[file].iter().copied().filter(back).collect()
    };
    let circles: BTreeSet<_> = (0..imports.len()).map(circle).collect();
    circles
        .into_iter()
        .filter(|circle| circle.len() > FILES_MAX)
        .collect()
}

fn describe(
    package: &Package,
    one: &Crate,
    imports: &[BTreeSet<usize>],
    knot: &BTreeSet<usize>,
) -> String {
    let src = package.dir.join("src");
    let name = |file: &usize| {
        let path: &Path = &one.files[*file];
        path.strip_prefix(&src)
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let mut text = format!(
        "{}: {} files import each other in a circle, at most {FILES_MAX} may",
        package.short,
        knot.len()
    );
    for file in knot {
        let to: Vec<String> = imports[*file].intersection(knot).map(name).collect();
        text.push_str(&format!("\n  {} imports {}", name(file), to.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(pairs: &[(usize, usize)], files: usize) -> Vec<BTreeSet<usize>> {
        let of = |from| pairs.iter().filter(move |p| p.0 == from).map(|p| p.1);
        (0..files).map(|from| of(from).collect()).collect()
    }

    #[test]
    fn circles_of_more_than_three_are_knots() {
        let four = imports(&[(0, 1), (1, 2), (2, 3), (3, 0), (4, 0), (3, 5)], 6);
        assert_eq!(knots(&four), [BTreeSet::from([0, 1, 2, 3])]);
    }

    #[test]
    fn small_circles_and_chains_are_none() {
        let small = imports(&[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 3)], 5);
        assert_eq!(knots(&small), [] as [BTreeSet<usize>; 0]);
    }
}
