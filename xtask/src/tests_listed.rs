//! Where the integration tests of a crate are one program, `tests/all.rs` names every file: one that it
//! leaves out would never run.

use crate::sources::Sources;

/// Files of tests that no program contains.
pub fn problems(sources: &Sources) -> Vec<String> {
    let lists = sources.rust().filter_map(|(path, text)| {
        let dir = path.strip_suffix("all.rs")?;
        dir.ends_with("/tests/").then_some((dir, text))
    });
    let missing = lists.flat_map(|(dir, list)| {
        let names = sources.rust().filter_map(move |(path, _)| {
            let name = path.strip_prefix(dir)?.strip_suffix(".rs")?;
            (name != "all" && !name.contains('/')).then_some(name)
        });
        names
            .filter(move |name| !list.lines().any(|line| line == format!("mod {name};")))
            .map(move |name| format!("{dir}all.rs lacks `mod {name};`: its tests never run"))
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::sources;

    #[test]
    fn a_file_that_is_not_listed_is_found() {
        let files = [
            ("crates/a/tests/all.rs", "mod common;\nmod disk;\n"),
            ("crates/a/tests/disk.rs", ""),
            ("crates/a/tests/moves.rs", ""),
            ("crates/a/tests/common/mod.rs", ""),
            ("crates/b/tests/alone.rs", ""),
        ];
        assert_eq!(
            problems(&sources(&files)),
            ["crates/a/tests/all.rs lacks `mod moves;`: its tests never run"]
        );
    }
}
