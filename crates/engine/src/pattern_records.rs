//! How large the automaton of a set of patterns becomes, before it is built: each of its states lists all
//! patterns that end there, and patterns within patterns make these lists long.

use std::collections::{BTreeMap, VecDeque};

/// A state: what of the patterns has been read.
#[derive(Default)]
struct State {
    next: BTreeMap<u8, usize>,
    /// The longest end of what was read with which a pattern begins.
    fail: usize,
    /// Patterns that end here.
    records: usize,
}

/// Patterns that end in each state, over all states. `folds`: without regard to case.
pub(crate) fn records<'a>(patterns: impl Iterator<Item = &'a [u8]>, folds: bool) -> usize {
    let mut states = vec![State::default()];
    for pattern in patterns {
        let mut at = 0;
        for byte in pattern {
            let byte = if folds {
                byte.to_ascii_lowercase()
            } else {
                *byte
            };
            let new = states.len();
            let next = *states[at].next.entry(byte).or_insert(new);
            if next == new {
                states.push(State::default());
            }
            at = next;
        }
        states[at].records += 1;
    }
    let mut all = 0usize;
    let mut open = VecDeque::from([0]);
    while let Some(at) = open.pop_front() {
        all = all.saturating_add(states[at].records);
        let children: Vec<(u8, usize)> = states[at].next.iter().map(|(b, n)| (*b, *n)).collect();
        for (byte, next) in children {
            let fail = if at == 0 {
                0
            } else {
                let mut fail = states[at].fail;
                while fail != 0 && !states[fail].next.contains_key(&byte) {
                    fail = states[fail].fail;
                }
                states[fail].next.get(&byte).copied().unwrap_or(0)
            };
            states[next].fail = fail;
            states[next].records = states[next].records.saturating_add(states[fail].records);
            open.push_back(next);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(patterns: &[&str], folds: bool) -> usize {
        records(patterns.iter().map(|p| p.as_bytes()), folds)
    }

    #[test]
    fn patterns_within_patterns_are_counted_in_each_state() {
        assert_eq!(of(&[], false), 0);
        // he: he; she: she, he; hers: hers; his: his.
        assert_eq!(of(&["he", "she", "his", "hers"], false), 5);
        assert_eq!(of(&["a", "aa", "aaa"], false), 6);
        assert_eq!(of(&["a", "a", "xa"], false), 5);
        assert_eq!((of(&["A", "xa"], false), of(&["A", "xa"], true)), (2, 3));
        // ab has b, cab has ab and b.
        assert_eq!(of(&["b", "ab", "cab"], false), 6);
    }
}
