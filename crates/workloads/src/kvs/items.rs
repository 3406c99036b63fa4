//! Items of the key-value store against the ledger.

use e3_loadgen::ledger::Rows;
use std::collections::BTreeMap;

/// Outcome of an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// No answer, or none yet.
    Unknown,
    /// It took effect, says the answer.
    Stored,
    /// It did not, says the answer.
    Refused,
}

/// The numbers of an item in the answer to a `get`; None if it is no such answer.
pub(super) fn numbers(reply: &[u8]) -> Option<Vec<u64>> {
    let text = std::str::from_utf8(reply).ok()?;
    if text == "END\r\n" {
        return Some(Vec::new());
    }
    let mut lines = text.split("\r\n");
    lines.next()?.strip_prefix("VALUE ")?;
    let data = lines.next()?;
    if lines.next()? != "END" {
        return None;
    }
    let all = data.split_terminator(',');
    all.map(|number| number.parse().ok()).collect()
}

/// An item against the fates of its appends; the first append has this number.
pub(super) fn compare(first: usize, fates: &[Fate], found: &[u64]) -> Rows {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    for number in found {
        *times.entry(*number).or_default() += 1;
    }
    let mut rows = Rows::default();
    for (number, fate) in (first as u64..).zip(fates) {
        let there = times.remove(&number).unwrap_or(0);
        rows.expected += u64::from(*fate == Fate::Stored);
        match (fate, there) {
            (Fate::Stored, 0) => rows.missing += 1,
            (Fate::Refused | Fate::Unknown, 0) => {}
            (Fate::Refused, _) => rows.unexpected += there,
            (Fate::Stored | Fate::Unknown, _) => {
                rows.found += 1;
                rows.repeated += there - 1;
            }
        }
    }
    rows.unexpected += times.values().sum::<u64>();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_get_is_a_list_of_numbers() {
        assert_eq!(numbers(b"END\r\n"), Some(vec![]));
        assert_eq!(
            numbers(b"VALUE k 0 5\r\n3,12,\r\nEND\r\n"),
            Some(vec![3, 12])
        );
        for bad in [
            &b""[..],
            b"STORED\r\n",
            b"VALUE k 0 1\r\nx\r\nEND\r\n",
            b"VALUE k 0 1\r\n3,",
            b"\xff",
        ] {
            assert_eq!(numbers(bad), None);
        }
    }

    #[test]
    fn each_fate_has_its_numbers() {
        use Fate::{Refused, Stored, Unknown};
        let of = |fate, found: &[u64]| {
            let rows = compare(5, &[fate], found);
            (rows.missing, rows.repeated, rows.unexpected)
        };
        assert_eq!(of(Stored, &[5]), (0, 0, 0));
        assert_eq!(of(Stored, &[]), (1, 0, 0));
        assert_eq!(of(Stored, &[5, 5]), (0, 1, 0));
        assert_eq!(of(Unknown, &[]), (0, 0, 0));
        assert_eq!(of(Unknown, &[5]), (0, 0, 0));
        assert_eq!(of(Unknown, &[5, 5]), (0, 1, 0));
        assert_eq!(of(Refused, &[]), (0, 0, 0));
        assert_eq!(of(Refused, &[5]), (0, 0, 1));
        assert_eq!(of(Stored, &[5, 6]), (0, 0, 1));
    }
}
