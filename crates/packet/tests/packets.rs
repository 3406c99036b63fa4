//! Packets written by hand, built, rewritten and broken.

use std::net::Ipv4Addr;

use e3_packet::{Flow, Packet, PacketBuilder, PacketError, Transport, checksum, protocol, rewrite};

use e3_testkit::{Random, seeds};

const A: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const B: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 77);

fn random_packet(random: &mut Random) -> Vec<u8> {
    let payload: Vec<u8> = (0..random.index(64)).map(|_| random.byte()).collect();
    let flow = Flow {
        source: Ipv4Addr::from_bits(random.next_u64() as u32),
        destination: Ipv4Addr::from_bits(random.next_u64() as u32),
        protocol: [protocol::TCP, protocol::UDP, protocol::ICMP, 47][random.index(4)],
        source_port: random.next_u64() as u16,
        destination_port: random.next_u64() as u16,
    };
    PacketBuilder::new(flow)
        .payload(&payload)
        .size(random.index(200))
        .segment(random.next_u64() as u32, random.next_u64() as u32, 0x18)
        .build()
}

/// A packet of RFC 1071's kind with a checksum that is known: the often quoted example of an IPv4
/// header whose checksum is b861.
#[test]
fn a_known_header() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];
    let mut bytes = header.to_vec();
    bytes.resize(0x73, 0);
    bytes[25] = 0x5f;
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.check_header(), Ok(()));
    assert_eq!(checksum::of_header(packet.header()), 0xb861);
    assert_eq!(packet.source(), Ipv4Addr::new(192, 168, 0, 1));
    assert_eq!(packet.destination(), Ipv4Addr::new(192, 168, 0, 199));
    assert!(matches!(packet.transport(), Ok(Transport::Udp(u)) if u.payload.len() == 0x57));
    bytes[8] -= 1;
    assert_eq!(
        Packet::parse(&bytes).unwrap().check_header(),
        Err(PacketError::Checksum {
            is: 0xb861,
            must_be: 0xb961
        })
    );
}

#[test]
fn what_is_built_is_read() {
    let bytes = PacketBuilder::tcp((A, 1234), (B, 443))
        .payload(b"hello")
        .segment(7, 9, 0x18)
        .ttl(9)
        .identification(77)
        .build();
    // padding of a frame is not part of the packet
    let padded = [&bytes[..], &[0; 6]].concat();
    let packet = Packet::parse(&padded).unwrap();
    assert_eq!(packet.bytes(), bytes);
    assert_eq!((packet.ttl(), packet.identification()), (9, 77));
    let Ok(Transport::Tcp(tcp)) = packet.transport() else {
        panic!("{packet:?}");
    };
    assert_eq!(
        (tcp.source_port, tcp.destination_port, tcp.flags),
        (1234, 443, 0x18)
    );
    assert_eq!(
        (tcp.sequence, tcp.acknowledgement, tcp.payload),
        (7, 9, &b"hello"[..])
    );
    let flow = packet.flow().unwrap();
    assert_eq!(flow.to_string(), "tcp 10.1.2.3:1234 > 192.0.2.77:443");
    assert_eq!(Flow::from_bytes(&flow.to_bytes()), flow);
    assert_eq!(flow.canonical(), flow.reversed().canonical());
    assert_ne!(flow.to_bytes(), flow.reversed().to_bytes());

    let ping = PacketBuilder::echo(A, B, 5).size(84).build();
    let pong = PacketBuilder::echo(B, A, 5).size(84).icmp_kind(0).build();
    let flow = |bytes: &[u8]| Packet::parse(bytes).unwrap().flow().unwrap().canonical();
    assert_eq!((ping.len(), flow(&ping)), (84, flow(&pong)));
}

#[test]
fn claims_are_held_against_the_bytes() {
    let good = PacketBuilder::udp((A, 1), (B, 2)).payload(b"xyz").build();
    let error = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let transport = Packet::parse(&bytes).and_then(|p| p.transport());
        transport.unwrap_err().to_string()
    };
    assert_eq!(error(0, 0x65), "packet: version is 6, must be 4");
    assert_eq!(
        error(0, 0x44),
        "packet: header length is 16, must be 20..=31"
    );
    assert_eq!(
        error(0, 0x48),
        "packet: header length is 32, must be 20..=31"
    );
    assert_eq!(error(3, 19), "packet: length is 19, must be 20..=31");
    assert_eq!(error(3, 32), "packet: length is 32, must be 20..=31");
    assert_eq!(error(3, 27), "udp: has 7 bytes, must be at least 8");
    assert_eq!(error(25, 12), "udp: length is 12, must be 8..=11");
    assert_eq!(error(25, 7), "udp: length is 7, must be 8..=11");
    let short = Packet::parse(&good[..19]).unwrap_err().to_string();
    assert_eq!(short, "packet: has 19 bytes, must be at least 20");
    let mut tcp = PacketBuilder::tcp((A, 1), (B, 2)).build();
    tcp[32] = 0x60;
    let error = Packet::parse(&tcp).unwrap().transport().unwrap_err();
    assert_eq!(
        error.to_string(),
        "tcp: header length is 24, must be 20..=20"
    );
}

#[test]
fn checksums_stay_right_through_rewrites() {
    for seed in seeds(20_000) {
        let mut random = Random::new(seed);
        let mut bytes = random_packet(&mut random);
        let right = |bytes: &[u8]| {
            let packet = Packet::parse(bytes).unwrap();
            packet.check_header().unwrap();
            if let Some(at) = [(6, 16), (17, 6), (1, 2)]
                .iter()
                .find(|(p, _)| *p == packet.protocol())
            {
                let field = &packet.payload()[at.1..at.1 + 2];
                let sum = checksum::of_transport(&packet).unwrap();
                assert_eq!(field, sum.to_be_bytes(), "seed {seed}");
            }
        };
        right(&bytes);
        let before = Packet::parse(&bytes).unwrap().flow().unwrap();
        bytes[8] = random.byte();
        let sum = checksum::of_header(&bytes[..usize::from(bytes[0] & 15) * 4]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let ttl = bytes[8];
        assert_eq!(rewrite::forward(&mut bytes).is_ok(), ttl > 1, "seed {seed}");
        assert_eq!(bytes[8], if ttl > 1 { ttl - 1 } else { ttl }, "seed {seed}");
        right(&bytes);
        let address = Ipv4Addr::from_bits(random.next_u64() as u32);
        let port = random.next_u64() as u16;
        let source = random.next_u64().is_multiple_of(2);
        let done = if source {
            rewrite::source(&mut bytes, address, port)
        } else {
            rewrite::destination(&mut bytes, address, port)
        };
        assert_eq!(done.is_ok(), before.protocol != 47, "seed {seed}");
        right(&bytes);
        if done.is_ok() {
            let after = Packet::parse(&bytes).unwrap().flow().unwrap();
            let end = if source {
                (after.source, after.source_port)
            } else {
                (after.destination, after.destination_port)
            };
            assert_eq!(end, (address, port), "seed {seed}");
        }
    }
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut bytes = PacketBuilder::udp((A, 1), (B, 2)).payload(b"xyz").build();
    bytes[26..28].fill(0);
    rewrite::source(&mut bytes, B, 9).unwrap();
    assert_eq!(bytes[26..28], [0, 0]);
    assert_eq!(
        checksum::of_transport(&Packet::parse(&bytes).unwrap()),
        None
    );
}

#[test]
fn fragments_have_no_ports() {
    let mut bytes = PacketBuilder::udp((A, 1), (B, 2)).size(60).build();
    bytes[6..8].copy_from_slice(&[0x20, 0]); // the first one
    assert_eq!(
        Packet::parse(&bytes).unwrap().flow().unwrap().source_port,
        1
    );
    bytes[6..8].copy_from_slice(&[0, 3]);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.flow().unwrap().source_port, 0);
    let error = rewrite::source(&mut bytes, A, 1).unwrap_err();
    assert_eq!(error, PacketError::Fragment { offset: 24 });
}

#[test]
fn no_bytes_make_it_panic() {
    for seed in seeds(50_000) {
        let mut random = Random::new(seed);
        let mut bytes = random_packet(&mut random);
        for _ in 0..random.index(4) {
            let at = random.index(bytes.len().min(40));
            bytes[at] = random.byte();
        }
        bytes.truncate(random.index(bytes.len() + 1));
        if let Ok(packet) = Packet::parse(&bytes) {
            let _ = (packet.check_header(), packet.transport(), packet.flow());
            let _ = checksum::of_transport(&packet);
        }
        let _ = rewrite::forward(&mut bytes);
        let _ = rewrite::source(&mut bytes, A, 1);
        let _ = rewrite::destination(&mut bytes, B, 1);
    }
}
