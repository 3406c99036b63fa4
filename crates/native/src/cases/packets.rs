//! Services that handle packets: TCP and UDP of 512 bytes, flows by Zipf's law.

use super::case::{BYTES, Case, REQUESTS, SEED};
use crate::words;
use e3_collections::Kind;
use e3_packet::{Flow, PacketBuilder, protocol};
use e3_random::Random;
use e3_service_ddos::Ddos;
use e3_service_flowmon::Flowmon;
use e3_service_ipsec::Ipsec;
use e3_service_natv4::Natv4;
use e3_service_nids::Nids;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// Flows.
const FLOWS: u64 = 4000;
/// Rules beside those of the example applications.
const RULES: u64 = 100;
/// Routes.
const ROUTES: u64 = 10_000;
/// One packet in so many carries an attack.
const ATTACK_ONE_IN: u64 = 100;

fn flow(rank: u64) -> Flow {
    let [_, a, b, c] = (rank as u32).to_be_bytes();
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

/// Packets, each under a key that says which inside host it is of.
fn packets() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random::new(SEED);
    let packet = |_| {
        let flow = flow(random.zipf(FLOWS));
        let headers = match flow.protocol {
            protocol::UDP => 28,
            _ => 40,
        };
        let mut content = words::text(&mut random, 20_000, BYTES - headers);
        if random.below(ATTACK_ONE_IN) == 0 {
            content.insert_str(100, "' OR '1'='1");
        }
        content.truncate(BYTES - headers);
        let packet = PacketBuilder::new(flow).payload(content.as_bytes()).build();
        (flow.source.octets().to_vec(), packet)
    };
    (0..REQUESTS).map(packet).collect()
}

pub(super) fn ipsec() -> Case {
    let about = "packets of 4000 flows sealed into a tunnel (AES-128-CBC, HMAC-SHA1-96)";
    Case::new::<Ipsec>("ipsec", about)
        .accelerated()
        .passes_on()
        .collection("sequences", Kind::HashMap)
        .secret("master", &[7; 32])
        .config("direction", "out")
        .config("source", "192.0.2.1")
        .config("destination", "192.0.2.2")
        .requests(packets())
}

pub(super) fn nids() -> Case {
    let about = "packets of 4000 flows against 112 rules, one of 100 with an attack";
    let mut rules = include_str!("../../../../data/nids-rules.txt").to_string();
    let mut random = Random::new(SEED);
    for sid in 0..RULES {
        let content = words::text(&mut random, 1 << 40, 12);
        let content = content.trim();
        let _ = writeln!(
            rules,
            "alert ip any any -> any any (msg:\"drawn\"; content:\"{content}\"; nocase; sid:{};)",
            10_000 + sid
        );
    }
    Case::new::<Nids>("nids", about)
        .accelerated()
        .passes_on()
        .collection("alerts", Kind::OrderedMap)
        .asset("rules", rules.into_bytes())
        .requests(packets())
}

pub(super) fn natv4() -> Case {
    let about = "packets of 4000 inside flows on their way out, 10,001 routes";
    let mut routes = String::from("0.0.0.0/0 192.0.2.254\n");
    let mut random = Random::new(SEED);
    let mut prefixes = std::collections::BTreeSet::new();
    while prefixes.len() < ROUTES as usize {
        let len = 8 + random.below(18) as u32;
        let address = (random.next_u64() as u32) & (u32::MAX << (32 - len));
        prefixes.insert((Ipv4Addr::from_bits(address), len));
    }
    for (address, len) in prefixes {
        let hop = Ipv4Addr::from_bits(0xc000_0200 + random.below(200) as u32);
        let _ = writeln!(routes, "{address}/{len} {hop}");
    }
    let table = e3_packet::routes::compile(&routes).expect("the routes are well formed");
    Case::new::<Natv4>("natv4", about)
        .passes_on()
        .collection("mappings", Kind::HashMap)
        .collection("ports", Kind::HashMap)
        .asset("routes", table)
        .config("public", "203.0.113.0/24")
        .requests(packets())
}

pub(super) fn flowmon() -> Case {
    let about = "packets of 4000 flows, a sketch of 4 x 2048 for each slot";
    Case::new::<Flowmon>("flowmon", about)
        .passes_on()
        .collection("cells", Kind::Counter)
        .collection("heavy", Kind::OrderedMap)
        .requests(packets())
}

pub(super) fn ddos() -> Case {
    let about = "packets of 4000 flows, windows of 10 s with 1,000,000 packets";
    Case::new::<Ddos>("ddos", about)
        .passes_on()
        .collection("addresses", Kind::Counter)
        .collection("seen", Kind::Array)
        .collection("now", Kind::HashMap)
        .collection("past", Kind::OrderedMap)
        .requests(packets())
}
