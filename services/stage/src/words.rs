//! Words of a text, the same for every service that reads text and for the tools that make their
//! assets.
//!
//! A word is a run, as long as possible, of ASCII letters, ASCII digits, `_` and bytes of characters
//! beyond ASCII, of at least two bytes; the letters A to Z count as a to z. On ASCII text these are the
//! words of scikit-learn's `CountVectorizer`. In Python:
//! `re.findall(rb"[A-Za-z0-9_\x80-\xff]{2,}", text.encode().lower())`.

use alloc::vec::Vec;

/// Fewest bytes of a word.
const WORD_BYTES_MIN: usize = 2;

/// Splits texts into words; what it returns lies in room of its own.
#[derive(Debug, Default)]
pub struct Words {
    lowered: Vec<u8>,
}

impl Words {
    /// The words of a text, in order.
    pub fn of<'a>(&'a mut self, text: &str) -> impl Iterator<Item = &'a [u8]> {
        self.lowered.clear();
        let lowered = text.bytes().map(|b| b.to_ascii_lowercase());
        self.lowered.extend(lowered);
        let parts = self.lowered.split(|b| !belongs(*b));
        parts.filter(|w| w.len() >= WORD_BYTES_MIN)
    }
}

fn belongs(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};

    #[test]
    fn words_are_runs_of_two_bytes_or_more() {
        let mut words = Words::default();
        let mut of = |text: &str| -> Vec<String> {
            let words = words.of(text);
            words
                .map(|w| String::from_utf8_lossy(w).to_string())
                .collect()
        };
        assert_eq!(of("It's a Test_9, (TEST)!x"), ["it", "test_9", "test"]);
        assert_eq!(of("é ÄB-c naïve"), ["é", "Äb", "naïve"]);
        assert_eq!(of(" .,"), [""; 0]);
    }
}
