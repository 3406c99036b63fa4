//! Seeded random numbers: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).

/// A stream of numbers that follows from its seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A rank below `count` by Zipf's law, more or less: the density falls as 1 / rank.
    pub(crate) fn zipf(&mut self, count: u64) -> u64 {
        let drawn = (count as f64 + 1.0).powf(self.unit());
        (drawn as u64 - 1).min(count - 1)
    }

    /// A word of a vocabulary: every rank has one, made of its digits in syllables.
    pub(crate) fn word(rank: u64) -> String {
        const SYLLABLES: [&str; 16] = [
            "ka", "lo", "mi", "ru", "te", "so", "na", "vi", "de", "pu", "ga", "ho", "be", "ji",
            "fa", "wo",
        ];
        let digits = format!("{:x}", rank + 16);
        let syllable = |d: char| SYLLABLES[d.to_digit(16).unwrap_or_default() as usize];
        digits.chars().map(syllable).collect()
    }

    /// About so many bytes of words.
    pub(crate) fn text(&mut self, vocabulary: u64, bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < bytes {
            text += &Random::word(self.zipf(vocabulary));
            text.push(' ');
        }
        text
    }
}
