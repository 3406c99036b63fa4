//! The anti-replay window of a security association. Source: RFC 4303, section 3.4.3.

/// Sequence numbers below the highest that are still distinguished.
pub const WINDOW_LEN: u32 = 64;

/// What has been received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Highest sequence number; 0 = none yet.
    pub highest: u32,
    /// Bit i: `highest - i` was received.
    pub received: u64,
}

impl Window {
    /// Bytes that it is stored in.
    pub const BYTES: usize = 12;

    /// Whether a number is new: to the right of the window, or within it and not received.
    pub fn is_new(&self, sequence: u32) -> bool {
        match self.highest.checked_sub(sequence) {
            _ if sequence == 0 => false,
            None => true,
            Some(age) => age < WINDOW_LEN && self.received >> age & 1 == 0,
        }
    }

    /// The window after a number that is new and whose packet was authentic.
    #[must_use]
    pub fn with(self, sequence: u32) -> Window {
        match self.highest.checked_sub(sequence) {
            Some(age) => Window {
                received: self.received | 1 << age,
                ..self
            },
            None => {
                let step = sequence - self.highest;
                // a step over the whole window leaves nothing of it
                let kept = self.received.checked_shl(step).unwrap_or(0);
                Window {
                    highest: sequence,
                    received: kept | 1,
                }
            }
        }
    }

    /// As stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.highest.to_le_bytes());
        bytes[4..].copy_from_slice(&self.received.to_le_bytes());
        bytes
    }

    /// From what was stored.
    pub fn from_bytes(bytes: &[u8]) -> Option<Window> {
        let (highest, received) = bytes.split_first_chunk()?;
        Some(Window {
            highest: u32::from_le_bytes(*highest),
            received: u64::from_le_bytes(received.try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_testkit::{Random, seeds};
    use std::collections::BTreeSet;

    /// Against the set of all that was received, on numbers that wander, jump and come again.
    #[test]
    fn it_is_the_set_of_what_came_within_64_of_the_highest() {
        for seed in seeds(200) {
            let mut random = Random::new(seed);
            let (mut window, mut seen) = (Window::default(), BTreeSet::new());
            let mut base = if seed % 2 == 0 { 1 } else { u32::MAX - 4000 };
            for step in 0..2000 {
                base = base.saturating_add(random.below(4) as u32);
                if random.one_in(100) {
                    base = base.saturating_add(random.below(200) as u32);
                }
                let sequence = base.saturating_sub(random.below(100) as u32);
                let highest = seen.last().copied().unwrap_or(0);
                let new = sequence > 0
                    && !seen.contains(&sequence)
                    && u64::from(sequence) + 64 > u64::from(highest);
                assert_eq!(window.is_new(sequence), new, "seed {seed}, step {step}");
                if new {
                    seen.insert(sequence);
                    window = window.with(sequence);
                    assert!(!window.is_new(sequence));
                }
                assert_eq!(Window::from_bytes(&window.to_bytes()), Some(window));
            }
        }
    }

    #[test]
    fn edges() {
        let window = Window::default().with(100);
        assert!(!window.is_new(0) && !window.is_new(100) && !window.is_new(36));
        assert!(window.is_new(37) && window.is_new(101) && window.is_new(u32::MAX));
        let left = window.with(37);
        assert!(!left.is_new(37));
        assert_eq!(left.received, 1 | 1 << 63);
        assert_eq!(left.with(101).received, 0b11);
        assert_eq!(window.with(163).received, 1 | 1 << 63);
        assert_eq!(window.with(164).received, 1);
        assert_eq!(window.with(u32::MAX).received, 1);
    }
}
