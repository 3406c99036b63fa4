//! Texts of random words.

use e3_random::Random;

/// The word of a rank in a vocabulary: its digits as syllables.
pub(crate) fn word(rank: u64) -> String {
    const SYLLABLES: [&str; 16] = [
        "ka", "lo", "mi", "ru", "te", "so", "na", "vi", "de", "pu", "ga", "ho", "be", "ji", "fa",
        "wo",
    ];
    let digits = format!("{:x}", rank + 16);
    let syllable = |d: char| SYLLABLES[d.to_digit(16).unwrap_or_default() as usize];
    digits.chars().map(syllable).collect()
}

/// About so many bytes of words.
pub(crate) fn text(random: &mut Random, vocabulary: u64, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text += &word(random.zipf(vocabulary));
        text.push(' ');
    }
    text
}
