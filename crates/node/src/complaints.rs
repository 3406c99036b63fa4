//! What a loop that tries again and again has logged, so that a trouble that lasts does not fill the disk.

use crate::limits::COMPLAINTS_MAX;
use std::collections::BTreeSet;

/// The texts that were logged. When there are many, all others are dropped: they differ in each try.
#[derive(Default)]
pub(crate) struct Complaints {
    logged: BTreeSet<String>,
}

impl Complaints {
    /// True if the text is to be logged, which is once.
    pub(crate) fn is_new(&mut self, text: &str) -> bool {
        self.logged.len() < COMPLAINTS_MAX && self.logged.insert(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_logged_once_and_not_too_many_are() {
        let mut complaints = Complaints::default();
        let mut try_both = || ["full", "away"].map(|text| complaints.is_new(text));
        assert_eq!(try_both(), [true, true]);
        assert_eq!(try_both(), [false, false]);
        let varying = (0..1000).map(|n: u32| n.to_string());
        let logged = varying.filter(|text| complaints.is_new(text));
        assert_eq!(logged.count(), COMPLAINTS_MAX - 2);
    }
}
