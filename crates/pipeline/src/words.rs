//! Splits a text into words, in the same way for all services that read text and for the tools that make
//! their assets.
//!
//! A word is a run, as long as possible, of ASCII letters, ASCII digits, `_` and bytes of characters
//! beyond ASCII, of at least two bytes; the letters A to Z count as a to z. On ASCII text these are the
//! words of scikit-learn's `CountVectorizer`. In Python:
//! `re.findall(rb"[A-Za-z0-9_\x80-\xff]{2,}", text.encode().lower())`.

use alloc::vec::Vec;

/// Fewest bytes of a word.
const WORD_BYTES_MIN: usize = 2;

/// Splits texts into words, which it stores in a buffer of its own.
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
        let mut rest = &*self.lowered;
        core::iter::from_fn(move || {
            while !rest.is_empty() {
                rest = &rest[run(rest, false)..];
                let (word, after) = rest.split_at(run(rest, true));
                rest = after;
                if word.len() >= WORD_BYTES_MIN {
                    return Some(word);
                }
            }
            None
        })
    }
}

/// How many bytes at the beginning of a lowered text belong to a word, or do not.
fn run(text: &[u8], belong: bool) -> usize {
    let end = |eight: u64| {
        let belonging = belonging(eight);
        let others = if belong { !belonging } else { belonging };
        (others & EACH_HIGH).trailing_zeros() as usize / 8
    };
    let (eights, rest) = text.as_chunks::<8>();
    for (n, eight) in eights.iter().enumerate() {
        match end(u64::from_le_bytes(*eight)) {
            8 => {}
            at => return n * 8 + at,
        }
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    eights.len() * 8 + end(u64::from_le_bytes(last)).min(rest.len())
}

/// The high bit of each byte.
const EACH_HIGH: u64 = 0x8080_8080_8080_8080;

/// Sets the high bit of each of eight bytes that belongs to a word, if there are no capitals: eight
/// at once, as "Bit Twiddling Hacks" by S. E. Anderson tells zero bytes.
fn belonging(eight: u64) -> u64 {
    let low = eight & !EACH_HIGH;
    let each = |byte: u8| u64::from(byte) * 0x0101_0101_0101_0101;
    // a sum reaches the high bit from the first byte of the range on, the other only beyond the last
    let within = |first: u8, last: u8| (low + each(0x80 - first)) & !(low + each(0x7f - last));
    (eight | within(b'a', b'z') | within(b'0', b'9') | within(b'_', b'_')) & EACH_HIGH
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

    #[test]
    fn words_are_those_found_byte_by_byte() {
        let belongs = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
        let mut random = e3_testkit::Random::new(1);
        for _ in 0..5000 {
            let len = random.index(40);
            let text: String = (0..len)
                .map(|_| match random.index(8) {
                    0 => ' ',
                    1 => '\u{e4}',
                    _ => char::from(random.byte() & 0x7f),
                })
                .collect();
            let lowered = text.to_ascii_lowercase();
            let parts = lowered.as_bytes().split(|b| !belongs(b));
            let expected: Vec<&[u8]> = parts.filter(|w| w.len() >= 2).collect();
            let mut words = Words::default();
            let found: Vec<&[u8]> = words.of(&text).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
