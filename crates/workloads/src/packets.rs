//! Packets as a gateway sees them, from a seed: flows follow Zipf's law, sizes follow the simple IMIX, and
//! some payloads contain an attack.
//!
//! Sources: simple IMIX, 64, 576 and 1500 bytes as 7 : 4 : 1 ("Mixed Packet Size Throughput", Agilent,
//! 2001); the sizes of flows in the Internet follow Zipf's law (Sarrar et al., "Leveraging Zipf's law
//! for traffic offloading", CCR 2012).

use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use std::net::Ipv4Addr;

/// Flows.
pub const FLOWS: u32 = 4000;
/// One packet in so many carries an attack, if its payload is long enough.
const ATTACK_ONE_IN: u64 = 100;
/// Sizes, and how many of 12 packets have them.
const IMIX: [(usize, u64); 3] = [(64, 7), (576, 4), (1500, 1)];
/// What attacks look like; `data/nids-rules.txt` has a rule for each.
pub const ATTACKS: [&str; 6] = [
    "/bin/sh -c",
    "' OR '1'='1",
    "<script>alert(",
    "../../../../etc/passwd",
    "cmd.exe /c",
    "() { :; };",
];
/// Filler of a payload.
const FILLER: &[u8] = b"GET /catalogue/items?page=12&order=price HTTP/1.1 accept: text/html ";

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Its flow's rank, from 0.
    pub flow: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The attack that it carries, by its place among the stream's.
    pub attack: Option<usize>,
}

/// A stream of packets.
#[derive(Clone, Debug)]
pub struct Packets {
    random: Random,
    attacks: &'static [&'static str],
    /// Cumulative frequency by rank.
    cumulative: Vec<f64>,
}

/// The five-tuple of a flow: a client inside, a server outside; four of five are TCP.
pub fn flow(rank: u32) -> Flow {
    let [_, a, b, c] = rank.to_be_bytes();
    Flow {
        source: Ipv4Addr::new(10, a, b, c),
        destination: Ipv4Addr::new(198, 18, c, b),
        protocol: match rank % 5 {
            4 => protocol::UDP,
            _ => protocol::TCP,
        },
        source_port: 1024 + (rank % 50_000) as u16,
        destination_port: [80, 443, 8080, 53][rank as usize % 4],
    }
}

impl Packets {
    /// The stream of a seed, with [`ATTACKS`].
    pub fn new(seed: u64) -> Packets {
        Packets::with(seed, &ATTACKS)
    }

    /// The stream of a seed with these attacks.
    pub fn with(seed: u64, attacks: &'static [&'static str]) -> Packets {
        let mut sum = 0.0;
        let cumulative = (1..=FLOWS)
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        Packets {
            random: Random::new(seed),
            attacks,
            cumulative,
        }
    }

    /// The next packet, of a [`flow`].
    pub fn next_packet(&mut self) -> Sent {
        self.next_of(flow)
    }

    /// The next packet; `flow` says which flow has a rank.
    pub fn next_of(&mut self, flow: impl FnOnce(u32) -> Flow) -> Sent {
        let all = self.cumulative.last().copied().unwrap_or_default();
        let uniform = self.random.unit();
        let rank = self.cumulative.partition_point(|c| *c <= uniform * all) as u32;
        let rank = rank.min(FLOWS - 1);
        let flow = flow(rank);
        let mut of_12 = self.random.below(12);
        let mut size = IMIX[0].0;
        for (bytes, share) in IMIX {
            size = bytes;
            if of_12 < share {
                break;
            }
            of_12 -= share;
        }
        let headers = match flow.protocol {
            protocol::UDP => 28,
            _ => 40,
        };
        let room = size - headers;
        let at = self.random.below(FILLER.len() as u64) as usize;
        let mut payload: Vec<u8> = FILLER.iter().copied().cycle().skip(at).take(room).collect();
        let which = self.random.below(self.attacks.len() as u64) as usize;
        let pattern = self.attacks[which].as_bytes();
        let carries = self.random.one_in(ATTACK_ONE_IN) && room >= pattern.len();
        if carries {
            let at = self.random.below((room - pattern.len() + 1) as u64) as usize;
            payload[at..at + pattern.len()].copy_from_slice(pattern);
        }
        Sent {
            flow: rank,
            bytes: PacketBuilder::new(flow).payload(&payload).build(),
            attack: carries.then_some(which),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_packet::Packet;

    #[test]
    fn packets_are_what_they_should_be() {
        let mut stream = Packets::new(1);
        let (mut sizes, mut attacks, mut first) = ([0u32; 3], 0u32, 0u32);
        for _ in 0..24_000 {
            let sent = stream.next_packet();
            let packet = Packet::parse(&sent.bytes).unwrap();
            packet.check_header().unwrap();
            assert_eq!(packet.flow().unwrap(), flow(sent.flow));
            let size = IMIX.iter().position(|(b, _)| *b == sent.bytes.len());
            sizes[size.unwrap()] += 1;
            attacks += u32::from(sent.attack.is_some());
            first += u32::from(sent.flow == 0);
        }
        for (n, (_, share)) in sizes.iter().zip(IMIX) {
            let expected = share as f64 * 2000.0;
            assert!((f64::from(*n) / expected - 1.0).abs() < 0.1, "{sizes:?}");
        }
        assert!((100..300).contains(&attacks), "{attacks}");
        // the harmonic number of 4000 is 8.87
        assert!((2400..3000).contains(&first), "{first}");
    }

    #[test]
    fn flows_differ() {
        let all: std::collections::BTreeSet<Flow> = (0..FLOWS).map(flow).collect();
        assert_eq!(all.len(), FLOWS as usize);
    }
}
