//! The network: the four hop kinds of Fig. 3, the ToR and the FatTree above it, and ECMP.
//!
//! Fig. 3 of E3 (USENIX ATC 2019) gives round trips as ratios: between SmartNICs through the ToR up to
//! 86.2 % below that between hosts through the ToR with kernel bypass, between a SmartNIC and its host
//! over PCIe up to 83.3 % below. A SmartNIC and the host of another server are the sum of both. The
//! round trip between hosts is a guess. Half a round trip is the fixed part of a hop: the stacks on both
//! sides and the ToR. Time in ports, uplinks and DMA engines comes on top, as queues.
//!
//! The scale study has racks of 40 servers in a FatTree. A flow takes one uplink of its rack and one
//! link down to the other rack, both by a hash of its two nodes (ECMP); each switch beyond the first ToR
//! adds `switch_us`.

use crate::guesses::Guesses;
use e3_model::NodeKind;
use e3_power::limits::WIRE_OVERHEAD_BYTES;

/// Servers of a rack in the scale study.
pub const SERVERS_PER_RACK: usize = 40;
/// Round trip between SmartNICs through the ToR, against that between hosts.
pub const ROUND_TRIP_SMARTNICS: f64 = 1.0 - 0.862;
/// Round trip between a SmartNIC and its host over PCIe, against that between hosts.
pub const ROUND_TRIP_PCIE: f64 = 1.0 - 0.833;
/// Switches between two racks of a FatTree beyond the first ToR: one up, one on top, one down, the
/// other ToR.
const SWITCHES_BETWEEN_RACKS: f64 = 4.0;

/// Kind of hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// Within a node: a queue in shared memory.
    Local,
    /// Between a SmartNIC and its host.
    Pcie,
    /// Between SmartNICs, of one server too: E3 takes the ToR.
    SmartNics,
    /// Between a SmartNIC and the host of another server.
    Mixed,
    /// Between hosts.
    Hosts,
}

impl Hop {
    /// The hop from one node to another one.
    pub fn of(from: NodeKind, to: NodeKind, same_server: bool, same_node: bool) -> Hop {
        let hosts = [from, to].iter().filter(|k| **k == NodeKind::Host).count();
        match (same_node, same_server, hosts) {
            (true, _, _) => Hop::Local,
            (_, _, 0) => Hop::SmartNics,
            (_, true, _) => Hop::Pcie,
            (_, false, 1) => Hop::Mixed,
            _ => Hop::Hosts,
        }
    }

    /// Hosts at its ends whose network stacks it passes.
    pub fn hosts(self) -> u32 {
        match self {
            Hop::Local | Hop::Pcie | Hop::SmartNics => 0,
            Hop::Mixed => 1,
            Hop::Hosts => 2,
        }
    }

    /// Fixed part of its one-way latency in microseconds.
    pub fn latency_us(self, guesses: &Guesses) -> f64 {
        let ratio = match self {
            Hop::Local => 0.0,
            Hop::Pcie => ROUND_TRIP_PCIE,
            Hop::SmartNics => ROUND_TRIP_SMARTNICS,
            Hop::Mixed => ROUND_TRIP_SMARTNICS + ROUND_TRIP_PCIE,
            Hop::Hosts => 1.0,
        };
        ratio * guesses.round_trip_hosts_us / 2.0
    }
}

/// What the way between two racks adds, in microseconds.
pub fn between_racks_us(guesses: &Guesses) -> f64 {
    SWITCHES_BETWEEN_RACKS * guesses.switch_us
}

/// Bytes on the wire of a message.
pub fn wire_bytes(bytes: u32) -> u32 {
    bytes + WIRE_OVERHEAD_BYTES
}

/// The path of a flow between two nodes out of `paths`.
#[inline]
pub fn ecmp(from: u32, to: u32, paths: usize) -> usize {
    // Finaliser of MurmurHash3; the switch's own function is not known.
    let mut h = u64::from(from) << 16 | u64::from(to);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    h ^= h >> 33;
    ((u128::from(h) * paths as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use NodeKind::{Host, SmartNic};

    #[test]
    fn hops_are_ordered_as_in_fig_3() {
        let guesses = Guesses::default();
        let us = |from, to, server| Hop::of(from, to, server, false).latency_us(&guesses);
        let nics = us(SmartNic, SmartNic, false);
        let pcie = us(SmartNic, Host, true);
        let mixed = us(SmartNic, Host, false);
        let hosts = us(Host, Host, false);
        assert!(nics < pcie && pcie < mixed && mixed < hosts);
        assert!((nics / hosts - 0.138).abs() < 1e-9 && (pcie / hosts - 0.167).abs() < 1e-9);
        assert_eq!(us(SmartNic, SmartNic, true), nics, "the ToR, not the host");
        assert_eq!(Hop::of(Host, Host, true, true).latency_us(&guesses), 0.0);
    }

    #[test]
    fn flows_spread_over_all_paths() {
        let mut counts = [0u32; 20];
        for from in 0..200 {
            for to in 0..200 {
                counts[ecmp(from, to, 20)] += 1;
            }
        }
        assert!(
            counts.iter().all(|n| (1_700..2_300).contains(n)),
            "{counts:?}"
        );
    }
}
