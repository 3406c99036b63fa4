//! A machine as bare services on it show it. It replaces the models of nodes and hops where a prediction is
//! compared with processes on this machine ([design page 030](../../../docs/design/030-twin-and-fidelities.md)).

use e3_model::NodeKind;
use e3_random::Random;

/// Quantiles of a round trip whose time beyond the median is known.
const TAIL_QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 0.9999];

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    /// One-way latency between a client and a node, by kind of node, in nanoseconds.
    pub client_ns: [u64; 2],
    /// One-way latency between two nodes in nanoseconds.
    pub hop_ns: u64,
    /// How much longer than its median a client's round trip takes.
    pub tail: Tail,
    /// What a message costs beside its own time if it wakes the loop of its node, by kind of node, in nanoseconds.
    pub wake_ns: [u64; 2],
    /// Length in nanoseconds from which a turn of the loop ends, whatever waits.
    pub turn_max_ns: u64,
}

impl Measured {
    /// Latency between a client and a node of this kind.
    pub fn client_ns(&self, kind: NodeKind) -> u64 {
        self.client_ns[kind as usize]
    }
}

/// The slow half of a distribution: nanoseconds beyond the median at the quantiles 0.5, 0.99, 0.999 and 0.9999.
/// Between two of them the tail is exponential; the fast half counts as the median.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Tail([f64; 4]);

impl Tail {
    /// From the latencies at the quantiles 0.5, 0.99 and 0.999, and the longest one.
    pub fn new(p50_ns: f64, p99_ns: f64, p99_9_ns: f64, max_ns: f64) -> Tail {
        let mut beyond = [p50_ns, p99_ns, p99_9_ns, max_ns].map(|ns| (ns - p50_ns).max(0.0));
        for i in 1..beyond.len() {
            beyond[i] = beyond[i].max(beyond[i - 1]);
        }
        Tail(beyond)
    }

    /// Draws the nanoseconds beyond the median.
    pub fn sample(&self, random: &mut Random) -> u64 {
        let quantile = random.unit();
        let after = TAIL_QUANTILES.iter().position(|q| *q >= quantile);
        match after {
            Some(0) => 0,
            None => self.0[TAIL_QUANTILES.len() - 1] as u64,
            Some(i) => {
                let left = |q: f64| (1.0 - q).ln();
                let (low, high) = (TAIL_QUANTILES[i - 1], TAIL_QUANTILES[i]);
                let part = (left(low) - left(quantile)) / (left(low) - left(high));
                (self.0[i - 1] + part * (self.0[i] - self.0[i - 1])) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_quantiles_of_the_tail() {
        let tail = Tail::new(100.0, 1_000.0, 5_000.0, 9_000.0);
        let mut random = Random::new(3);
        let mut all: Vec<u64> = (0..400_000).map(|_| tail.sample(&mut random)).collect();
        all.sort_unstable();
        let at = |q: f64| all[(q * all.len() as f64) as usize] as f64;
        assert_eq!(at(0.3), 0.0);
        assert!((at(0.99) / 900.0 - 1.0).abs() < 0.03, "{}", at(0.99));
        assert!((at(0.999) / 4_900.0 - 1.0).abs() < 0.05, "{}", at(0.999));
        assert_eq!(all.last(), Some(&8_900));
    }

    #[test]
    fn a_shorter_later_quantile_counts_as_the_one_before() {
        let tail = Tail::new(100.0, 50.0, 200.0, 150.0);
        assert_eq!(tail.0, [0.0, 0.0, 100.0, 100.0]);
    }
}
