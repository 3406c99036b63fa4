//! PCIe between a SmartNIC and its host: eight DMA engines that work in parallel (E3, ATC 2019,
//! section 4). A message takes an engine that is free, else the one that is free first. The fixed part of the latency is that
//! of Fig. 3 ([`crate::network`]); the time of a transfer follows from the guess `dma_engine_gbps`.

use crate::guesses::Guesses;
use crate::link::Link;

/// Engines of a SmartNIC.
pub const DMA_ENGINES: usize = 8;

/// The engines of one SmartNIC.
#[derive(Clone, Debug)]
pub struct DmaEngines {
    engines: [Link; DMA_ENGINES],
    /// When each is free; apart from them, since all are looked at.
    free_at: [u64; DMA_ENGINES],
    ns_per_byte: f64,
}

impl DmaEngines {
    /// Idle engines.
    pub fn new(guesses: &Guesses) -> DmaEngines {
        DmaEngines {
            engines: Default::default(),
            free_at: [0; DMA_ENGINES],
            ns_per_byte: 8.0 / guesses.dma_engine_gbps,
        }
    }

    /// A message of `bytes` is transferred. The result is when it has arrived, in nanoseconds.
    pub fn push(&mut self, now: u64, bytes: u32) -> u64 {
        let first = (0..DMA_ENGINES).min_by_key(|i| self.free_at[*i].max(now));
        let first = first.unwrap_or(0);
        let time = (f64::from(bytes) * self.ns_per_byte).round() as u64;
        self.free_at[first] = self.engines[first].push(now, time);
        self.free_at[first]
    }

    /// Part of the engines' time that they were busy, in nanoseconds of one engine.
    pub fn busy(&self, now: u64) -> u64 {
        self.engines.iter().map(|e| e.busy(now)).sum()
    }

    /// Whether Little's law holds on each.
    pub fn obeys_little(&mut self, now: u64) -> bool {
        self.engines.iter_mut().all(|e| e.obeys_little(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_transfers_go_on_at_once_and_the_ninth_waits() {
        let mut dma = DmaEngines::new(&Guesses::default());
        let ends: Vec<u64> = (0..9).map(|_| dma.push(0, 1000)).collect();
        assert_eq!(ends, [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 2000]);
        assert_eq!(dma.busy(1000), 8000);
        assert!(dma.obeys_little(1500));
    }
}
