//! Bounds of a document's text, checked before anything is built of it: a small text can stand for
//! gigabytes by aliases of aliases ("billion laughs"), or exhaust the stack by its depth.

use crate::limits::{DOCUMENT_ALIAS_LEN_MAX, DOCUMENT_DEPTH_MAX};
use saphyr_parser::{Event, Parser};
use std::collections::BTreeMap;

/// Bytes of a value beyond its own text.
const VALUE_LEN: usize = 16;

/// Checks the length of a text, how deep it nests, and what its aliases stand for; else the line and
/// what is wrong. What is not YAML is refused here too: other parsers take very long to find out.
pub(crate) fn check(text: &str, len_max: usize) -> Result<(), (usize, String)> {
    if text.len() > len_max {
        let len = text.len();
        let message = format!("{len} bytes, must be at most {len_max}");
        return Err((0, message));
    }
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut lengths: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut total, mut aliased) = (0usize, 0usize);
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(next) => next,
            Err(e) => return Err((e.marker().line(), format!("not YAML: {}", e.info()))),
        };
        let wrong = |message: String| Err((span.start.line(), message));
        match event {
            Event::Alias(anchor) => {
                let Some(length) = lengths.get(&anchor) else {
                    return wrong("an alias refers to a value that contains it".into());
                };
                total = total.saturating_add(*length);
                aliased = aliased.saturating_add(*length);
                if aliased > DOCUMENT_ALIAS_LEN_MAX {
                    return wrong(format!(
                        "aliases stand for more than {DOCUMENT_ALIAS_LEN_MAX} bytes, which is the bound"
                    ));
                }
            }
            Event::Scalar(value, _, anchor, _) => {
                total = total.saturating_add(VALUE_LEN + value.len());
                lengths.insert(anchor, VALUE_LEN + value.len());
            }
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                lengths.remove(&anchor);
                open.push((anchor, total));
                total = total.saturating_add(VALUE_LEN);
                if open.len() > DOCUMENT_DEPTH_MAX {
                    return wrong(format!(
                        "nested deeper than {DOCUMENT_DEPTH_MAX} levels, which is the bound"
                    ));
                }
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((anchor, before)) = open.pop() {
                    lengths.insert(anchor, total - before);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::limits::DOCUMENT_LEN_MAX;

    fn check(text: &str) -> Result<(), (usize, String)> {
        super::check(text, DOCUMENT_LEN_MAX)
    }

    #[track_caller]
    fn refused(text: &str, words: &str) {
        let (_, message) = check(text).unwrap_err();
        assert!(message.contains(words), "{message}");
    }

    /// Aliases of aliases, `levels` deep, each of `width`.
    fn laughs(levels: usize, width: usize, first: &str, list: impl Fn(&str) -> String) -> String {
        let mut text = format!("a0: &a0 {first}\n");
        for level in 1..=levels {
            let items = vec![format!("*a{}", level - 1); width].join(", ");
            text += &format!("a{level}: &a{level} {}\n", list(&items));
        }
        text
    }

    #[test]
    fn aliases_are_bounded_in_all_their_forms() {
        let bound = "aliases stand for more than";
        let sequence = |items: &str| format!("[{items}]");
        refused(&laughs(9, 9, "[lol, lol, lol]", sequence), bound);
        refused(&laughs(100, 2, "x", sequence), bound);
        let mapping = |items: &str| {
            let keys = items.split(", ").enumerate();
            let pairs: Vec<String> = keys.map(|(i, item)| format!("k{i}: {item}")).collect();
            format!("{{{}}}", pairs.join(", "))
        };
        refused(&laughs(9, 9, "{l: lol}", mapping), bound);
        // One long text, often.
        refused(&laughs(1, 1000, &"x".repeat(10_000), sequence), bound);
        // A few are fine.
        check(&laughs(3, 3, "[lol]", sequence)).unwrap();
        check("limits: &l {cpu: 1}\nall: [*l, *l]").unwrap();
        refused("a: &a [*a]", "contains it");
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = "nested deeper than";
        refused(&"[".repeat(100), deep);
        refused(&"{a: ".repeat(100), deep);
        refused(&"- ".repeat(100_000), deep);
        // The scanner has a bound of its own.
        assert!(check(&"[".repeat(1_000_000)).is_err());
        assert!(check(&"{a: ".repeat(1_000_000)).is_err());
        let indented: String = (0..1_000).map(|i| " ".repeat(i) + "a:\n").collect();
        refused(&indented, deep);
        refused(&" ".repeat(DOCUMENT_LEN_MAX + 1), "must be at most");
        check(&format!("{}1{}", "[".repeat(60), "]".repeat(60))).unwrap();
    }
}
