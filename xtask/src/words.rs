//! Words of our own that have a standard term, which `docs/glossary.md` explains.

use crate::sources::Sources;

/// What may not be said, and what to say.
const WORDS: [(&str, &str); 12] = [
    ("anew", "again, or retry"),
    ("come to pass", "happen"),
    ("mend", "fix"),
    ("mended", "fixed"),
    ("mends", "fixes"),
    ("tidings", "report"),
    ("under way", "in flight"),
    ("underway", "in flight"),
    ("way on", "route"),
    ("ways on", "routes"),
    ("wedged", "stalled"),
    ("yardstick", "reference"),
];

/// Documents that use such a word.
pub fn problems(sources: &Sources) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources.documents() {
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
    fn whole_words_of_documents_count() {
        let text = "To amend is not to\nMend. It is wedged.\n";
        let found = problems(&sources(&[("a.md", text), ("b.rs", "mend")]));
        assert_eq!(
            found,
            [
                "a.md:2: \"mend\", say fix",
                "a.md:2: \"wedged\", say stalled"
            ]
        );
    }
}
