//! A set of patterns, compiled so that one pass over a text finds all occurrences of all of them.
//!
//! Source: Aho and Corasick, "Efficient string matching" (1975). One automaton serves patterns
//! with and without regard to case: if there is any of the latter, it folds case for all, and what
//! a pattern of the former found is compared again.

use crate::codes::{BOUND, LENGTH};
use crate::limits::{
    CANDIDATES_FACTOR, DFA_ALL_PATTERN_BYTES_MAX, DFA_PATTERN_BYTES_MAX, MATCH_RECORDS_MAX,
    PATTERN_BYTES_MAX, PATTERNS_MAX,
};
use crate::pattern_records::records;
use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// A compiled set.
pub(crate) struct PatternSet {
    automaton: AhoCorasick,
    /// Patterns to be compared again, by index; empty if the automaton does not fold case.
    exact: Vec<Option<Box<[u8]>>>,
    pattern_bytes: usize,
}

impl PatternSet {
    /// Reads `u32 flags (1 = nocase), u32 len, bytes`, repeated. `others` are the bytes of the
    /// instance's other sets.
    pub(crate) fn parse(mut packed: &[u8], others: usize) -> Result<PatternSet, i32> {
        let mut patterns: Vec<(&[u8], bool)> = Vec::new();
        let mut pattern_bytes = 0;
        while !packed.is_empty() {
            let (flags, rest) = packed.split_first_chunk().ok_or(LENGTH)?;
            let (len, rest) = rest.split_first_chunk().ok_or(LENGTH)?;
            let len = u32::from_le_bytes(*len) as usize;
            let (pattern, rest) = rest.split_at_checked(len).ok_or(LENGTH)?;
            if len == 0 {
                return Err(LENGTH);
            }
            pattern_bytes += len;
            if patterns.len() == PATTERNS_MAX || others + pattern_bytes > PATTERN_BYTES_MAX {
                return Err(BOUND);
            }
            patterns.push((pattern, u32::from_le_bytes(*flags) & 1 == 1));
            packed = rest;
        }
        let fold = patterns.iter().any(|(_, nocase)| *nocase);
        let kind = if pattern_bytes <= DFA_PATTERN_BYTES_MAX
            && others + pattern_bytes <= DFA_ALL_PATTERN_BYTES_MAX
        {
            AhoCorasickKind::DFA
        } else {
            AhoCorasickKind::ContiguousNFA
        };
        if records(patterns.iter().map(|(p, _)| *p), fold) > MATCH_RECORDS_MAX {
            return Err(BOUND);
        }
        let automaton = AhoCorasick::builder()
            .ascii_case_insensitive(fold)
            .kind(Some(kind))
            .build(patterns.iter().map(|(p, _)| p))
            .map_err(|_| BOUND)?;
        let exact = if fold {
            let exact = |(p, nocase): &(&[u8], bool)| (!nocase).then(|| (*p).into());
            patterns.iter().map(exact).collect()
        } else {
            Vec::new()
        };
        Ok(PatternSet {
            automaton,
            exact,
            pattern_bytes,
        })
    }

    /// Bytes of its patterns.
    pub(crate) fn pattern_bytes(&self) -> usize {
        self.pattern_bytes
    }

    /// All occurrences, overlapping ones too, as (end, pattern), in that order; false if there are
    /// more than `max`, or if far more differ from their patterns in case alone.
    pub(crate) fn find(&self, text: &[u8], max: usize, out: &mut Vec<(u32, u32)>) -> bool {
        if self.automaton.patterns_len() == 0 {
            return true;
        }
        for (looked, found) in self.automaton.find_overlapping_iter(text).enumerate() {
            if looked == max.saturating_mul(CANDIDATES_FACTOR) {
                return false;
            }
            let pattern = found.pattern().as_usize();
            let exact = self.exact.get(pattern).and_then(Option::as_deref);
            if exact.is_some_and(|p| *p != text[found.range()]) {
                continue;
            }
            if out.len() == max {
                return false;
            }
            out.push((found.end() as u32, pattern as u32));
        }
        // by end already: this only orders what ends at the same place
        out.sort_unstable();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(patterns: &[(&[u8], u32)]) -> Vec<u8> {
        let of = |(pattern, flags): &(&[u8], u32)| {
            let len = pattern.len() as u32;
            [&flags.to_le_bytes()[..], &len.to_le_bytes(), pattern].concat()
        };
        patterns.iter().flat_map(of).collect()
    }

    #[test]
    fn a_set_whose_automaton_would_fill_the_memory_is_refused() {
        let long = vec![b'a'; 196_609];
        let mut patterns: Vec<(&[u8], u32)> = vec![(b"a", 0); PATTERNS_MAX - 1];
        patterns.push((&long, 0));
        let refused = PatternSet::parse(&packed(&patterns), 0);
        assert_eq!(refused.err(), Some(BOUND));
        patterns.truncate(5);
        patterns.push((&long, 0));
        assert!(PatternSet::parse(&packed(&patterns), 0).is_ok());
    }

    #[test]
    fn occurrences_in_another_case_take_bounded_time() {
        let mut patterns: Vec<(&[u8], u32)> = vec![(b"A", 0); 1_000];
        patterns.push((b"b", 1));
        let set = PatternSet::parse(&packed(&patterns), 0).unwrap();
        let mut out = Vec::new();
        assert!(!set.find(b"aaB", 10, &mut out), "too many to look at");
        out.clear();
        assert!(set.find(b"xxB", 10, &mut out));
        assert_eq!(out, [(3, 1_000)]);
    }
}
