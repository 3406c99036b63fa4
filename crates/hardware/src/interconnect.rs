//! Links between servers: Ethernet, or RoCE with hardware-assisted batching.
//!
//! Source: Ma, Kim, Moon, "Exploring Low-latency Interconnect for Scaling Out Software Routers"
//! (HiPINEB 2016): one-hop latencies at 40 Gb/s by packet size, and for batches of 8 and 16 packets
//! that the card combines into one RoCE message. A hop that Fig. 3 of E3 gives is made shorter by what
//! RoCE saves over Ethernet in that source, but not below RoCE's own latency. The card needs
//! `roce_message_us` (a guess) for each message; batches of 16 carry 3.7 to 4.8 times as many small
//! packets, here 4.25 times.

use crate::guesses::Guesses;

/// Packet sizes of the source in bytes.
const BYTES: [f64; 6] = [64.0, 128.0, 256.0, 512.0, 1024.0, 1500.0];
const ETHERNET_US: [f64; 6] = [2.9, 3.3, 4.0, 5.3, 7.9, 10.3];
const ROCE_US: [(f64, [f64; 6]); 3] = [
    (1.0, [1.5, 1.5, 1.5, 2.0, 2.0, 2.5]),
    (8.0, [3.0, 3.0, 3.5, 4.5, 6.0, 7.5]),
    (16.0, [4.0, 4.0, 5.0, 6.5, 10.5, 13.5]),
];
/// Packets of the best batch.
pub const BATCH_MAX: usize = 16;
/// Messages that the card carries in batches of [`BATCH_MAX`], against single ones.
const BATCH_GAIN: f64 = 4.25;

/// Kind of link between servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interconnect {
    /// As in E3.
    Ethernet,
    /// RoCE; with batching, messages that wait for the port are sent together.
    Roce {
        /// Combine them.
        batching: bool,
    },
}

impl Interconnect {
    /// One-way latency of a hop in microseconds that takes `hop_us` by Fig. 3, with a batch of so many
    /// messages.
    pub fn latency_us(self, hop_us: f64, bytes: u32, batch: usize) -> f64 {
        match self {
            Interconnect::Ethernet => hop_us,
            Interconnect::Roce { .. } => {
                let own = roce_us(bytes, batch);
                let saved = at(&ETHERNET_US, f64::from(bytes)) - own;
                hop_us.min((hop_us - saved).max(own))
            }
        }
    }

    /// How many messages are sent together if so many wait.
    pub fn batch(self, waiting: usize) -> usize {
        match self {
            Interconnect::Roce { batching: true } => (waiting + 1).min(BATCH_MAX),
            _ => 1,
        }
    }

    /// Time in nanoseconds that the card needs for one message of a batch, beside the bytes on the wire.
    pub fn message_ns(self, batch: usize, guesses: &Guesses) -> f64 {
        match self {
            Interconnect::Ethernet => 0.0,
            Interconnect::Roce { .. } => {
                let part = (batch as f64 - 1.0) / (BATCH_MAX as f64 - 1.0);
                guesses.roce_message_us * 1e3 / (1.0 + part * (BATCH_GAIN - 1.0))
            }
        }
    }
}

fn roce_us(bytes: u32, batch: usize) -> f64 {
    let batch = (batch as f64).clamp(1.0, BATCH_MAX as f64);
    let after = ROCE_US.iter().position(|(b, _)| *b >= batch).unwrap_or(2);
    let (high, of_high) = &ROCE_US[after];
    let (low, of_low) = &ROCE_US[after.saturating_sub(1)];
    let bytes = f64::from(bytes);
    let part = if high > low {
        (batch - low) / (high - low)
    } else {
        0.0
    };
    let (a, b) = (at(of_low, bytes), at(of_high, bytes));
    a + part * (b - a)
}

/// Linear between the sizes; beyond them, as at the last one.
fn at(values: &[f64; 6], bytes: f64) -> f64 {
    let bytes = bytes.clamp(BYTES[0], BYTES[5]);
    let after = BYTES.iter().position(|b| *b >= bytes).unwrap_or(5).max(1);
    let part = (bytes - BYTES[after - 1]) / (BYTES[after] - BYTES[after - 1]);
    values[after - 1] + part * (values[after] - values[after - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_source_come_out() {
        for (i, bytes) in BYTES.into_iter().enumerate() {
            for (batch, values) in ROCE_US {
                let us = roce_us(bytes as u32, batch as usize);
                assert!((us - values[i]).abs() < 1e-9, "{bytes} B, {batch}: {us}");
            }
        }
        let roce = Interconnect::Roce { batching: true };
        assert_eq!(roce.latency_us(10.0, 512, 1), 10.0 - 3.3);
        assert_eq!(
            roce.latency_us(1.4, 512, 1),
            1.4,
            "never longer than without"
        );
        assert_eq!(Interconnect::Ethernet.latency_us(10.0, 512, 16), 10.0);
    }

    #[test]
    fn messages_are_batched_only_if_some_wait() {
        let roce = Interconnect::Roce { batching: true };
        assert_eq!([roce.batch(0), roce.batch(3), roce.batch(99)], [1, 4, 16]);
        assert_eq!(Interconnect::Roce { batching: false }.batch(99), 1);
        let guesses = Guesses::default();
        let (one, many) = (roce.message_ns(1, &guesses), roce.message_ns(16, &guesses));
        assert!((one / many - BATCH_GAIN).abs() < 1e-9);
    }
}
