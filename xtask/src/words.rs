//! Words of our own that have a standard term, which `docs/glossary.md` explains.

use crate::sources::Sources;

/// What may not be said, and what to say.
const WORDS: [(&str, &str); 15] = [
    ("anew", "again, or retry"),
    ("by and by", "later"),
    ("come to pass", "happen"),
    ("lest", "so that ... not"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("tidings", "report"),
    ("told apart", "distinguished"),
    ("under way", "in flight"),
    ("underway", "in flight"),
    ("way on", "route"),
    ("ways on", "routes"),
    ("wedged", "stalled"),
    ("yardstick", "reference"),
];

/// Documents and Rust files that use such a word.
pub fn problems(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    // this file lists the words
    let rust = sources
        .rust()
        .filter(|(path, _)| *path != "xtask/src/words.rs");
    for (path, text) in sources.documents().chain(rust) {
        for (n, line) in text.lines().enumerate() {
            for (word, better) in WORDS {
                if contains(line, word) {
                    found.push(format!("{path}:{}: {word:?}, say {better}", n + 1));
                }
            }
        }
    }
    found
}

/// Whether a line contains a word, or several in a row, as whole words.
fn contains(line: &str, word: &str) -> bool {
    let line = line.to_lowercase();
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut hits = line.match_indices(word);
    hits.any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::tests::sources;

    #[test]
    fn whole_words_of_documents_and_code_count() {
        let text = "To amend is not to\nMend. It is wedged.\n";
        let code = "/// Mended.\nfn mend_all() {}\n";
        let files = [("a.md", text), ("b.rs", code), ("c.py", "mend")];
        assert_eq!(
            problems(&sources(&files)),
            [
                "a.md:2: \"mend\", say fix",
                "a.md:2: \"wedged\", say stalled",
                "b.rs:1: \"mended\", say fixed"
            ]
        );
    }
}
