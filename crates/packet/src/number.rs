//! Decimal numbers as text: digits only. `str::parse` also accepts a plus sign and leading zeros.

use core::str::FromStr;

/// Reads `0`, or digits that do not begin with 0.
pub fn decimal<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    let leads = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_plain && !leads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        assert_eq!(
            [decimal("0"), decimal("8"), decimal("255")],
            [Some(0u8), Some(8), Some(255)]
        );
        for wrong in [
            "", "+8", "-8", "-0", "08", "00", " 8", "8 ", "0x8", "8.", "1e1", "256", "\u{663}",
        ] {
            assert_eq!(decimal::<u8>(wrong), None, "{wrong:?}");
        }
    }
}
