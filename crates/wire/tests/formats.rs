//! What is written is read back; what is random or cut short is an error.

mod samples;

use e3_model::limits::{NODES_MAX, PAYLOAD_LEN_MAX, SERVICES_MAX, SHARDS_MAX, SLOTS};
use e3_model::*;
use e3_testkit::Random;
use e3_wire::client::{ClientFrame, DeadLetters};
use e3_wire::codec::Reader;
use e3_wire::datagram::{HEADER_LEN, Header, Kind, open, seal};
use e3_wire::entry::Entry;
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::heartbeat::{self, Heartbeat, PAYLOAD_LEN, Received, TAGGED_LEN};
use e3_wire::limits::DATAGRAM_LEN_MAX;
use e3_wire::message::Message;
use e3_wire::replicated::Replicated;
use e3_wire::timer::PartialConfirmation;
use e3_wire::{HeartbeatKey, HeartbeatKeys, WireError};
use samples::{beginnings, client_frames, entry, frames, id, letter, message, replicated};

const SEQUENCE: u32 = 70_000;

fn keys() -> HeartbeatKeys {
    HeartbeatKeys::new(&[5; 16])
}

/// A heartbeat with its tag.
fn tagged(cluster: u64, node: NodeId, incarnation: u32, h: &Heartbeat) -> Vec<u8> {
    let mut bytes = heartbeat::encode(Format::NEWEST, cluster, node, incarnation, h);
    let key = keys().of(node, incarnation);
    heartbeat::authenticate(Format::NEWEST, &mut bytes, &key, SEQUENCE);
    bytes
}

#[test]
fn frames_share_a_datagram() {
    let body = message().encode();
    let all = frames(&body);
    let mut bytes = Vec::new();
    for frame in &all {
        let before = bytes.len();
        frame.encode(&mut bytes);
        assert_eq!(bytes.len() - before, frame.encoded_len(), "{frame:?}");
    }
    let mut r = Reader(&bytes);
    let back: Vec<_> =
        std::iter::from_fn(|| (!r.is_empty()).then(|| Frame::decode(&mut r).unwrap())).collect();
    assert_eq!(back, all);
    assert_eq!(Message::decode(&body).unwrap(), message());
}

#[test]
fn entries_and_client_frames_round_trip() {
    for item in replicated().into_iter().chain(beginnings()) {
        let bytes = item.encode();
        assert_eq!(Replicated::decode(&bytes).unwrap(), item);
        let (begins, named) = match item {
            Replicated::SnapshotBegin { view, .. } => (true, view),
            Replicated::Resume { view, .. } => (false, view),
            _ => (false, None),
        };
        assert_eq!(Replicated::begins_snapshot(&bytes), begins);
        assert_eq!(Replicated::view_of_stream(&bytes), named);
        assert_eq!(Replicated::view_of_stream(&bytes[..1]), None);
    }
    for frame in client_frames() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(ClientFrame::decode(&mut Reader(&bytes)).unwrap(), frame);
    }
}

#[test]
fn the_last_of_250_000_nodes_is_known_in_whatever_names_it() {
    let last = NodeId(NODES_MAX as u32 - 1);
    for node in [last, NodeId(65_535), NodeId(65_536), NodeId::NOBODY] {
        let sent = Message {
            reply_to: node,
            slot: Slot(SLOTS - 1),
            ..message()
        };
        assert_eq!(Message::decode(&sent.encode()).unwrap(), sent);
        let logged = Replicated::Entry(Entry {
            reply_to: node,
            slot: Slot(SLOTS - 1),
            ..entry()
        });
        assert_eq!(Replicated::decode(&logged.encode()).unwrap(), logged);
    }
    let service = ServiceId(SERVICES_MAX as u16 - 1);
    let shard = ShardId(SHARDS_MAX - 1);
    for ends in [
        Ends::Ingress {
            node: last,
            service,
            shard,
        },
        Ends::Replication {
            service,
            shard,
            backup: last,
        },
    ] {
        let frame = Frame::Ack {
            link: Link {
                app: AppId(1),
                ends,
                from_incarnation: 2,
                to_incarnation: 3,
            },
            ack: Ack::default(),
        };
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        assert_eq!(Frame::decode(&mut Reader(&bytes)).unwrap(), frame);
    }
    let beat = tagged(9, last, 2, &Heartbeat::default());
    let received = heartbeat::decode(Formats::PROGRAM, &keys(), &beat).unwrap();
    assert_eq!(received.header.from, last);
}

#[test]
fn dead_letters_fill_a_datagram_and_no_more() {
    let shard = ShardKey {
        app: AppId(1),
        service: ServiceId(2),
        shard: ShardId(3),
    };
    for (payload_len, fit) in [(PAYLOAD_LEN_MAX, 1), (5_000, 11), (0, 1_000)] {
        let all = vec![(id(), letter(payload_len)); 1_000];
        let letters = DeadLetters::of(
            shard,
            0,
            1_000,
            all.iter().map(|(id, letter)| (*id, letter)),
        );
        assert_eq!(letters.letters.len(), fit, "{payload_len}");
        let bytes = ClientFrame::DeadLetters(letters).to_datagram(Format::NEWEST);
        assert!(bytes.len() <= DATAGRAM_LEN_MAX, "{}", bytes.len());
    }
}

#[test]
fn a_heartbeat_has_sixteen_bytes_of_payload() {
    let h = Heartbeat {
        queue_len: 1,
        service_time_ns: 2,
        busy_permille: 3,
        port_permille: 0,
        plan_version_low: 4,
    };
    let bytes = tagged(9, NodeId(3), 2, &h);
    assert_eq!((HEADER_LEN, PAYLOAD_LEN), (28, 16));
    assert_eq!((bytes.len(), TAGGED_LEN), (28 + 16 + 12, 56));
    let received = heartbeat::decode(Formats::PROGRAM, &keys(), &bytes).unwrap();
    let Received {
        header,
        heartbeat,
        sequence,
    } = received;
    assert_eq!(
        (header.kind, header.from, header.cluster, heartbeat),
        (Kind::Heartbeat, NodeId(3), 9, h)
    );
    assert_eq!(sequence, SEQUENCE);
    assert_eq!(heartbeat::parse(&bytes), Ok(received));
}

/// Who can compute checksums can change a heartbeat, but without the key nobody makes its tag.
#[test]
fn a_changed_heartbeat_has_another_tag() {
    let whole = tagged(9, NodeId(3), 2, &Heartbeat::default());
    for at in 0..whole.len() * 8 {
        let mut forged = whole.clone();
        forged[at / 8] ^= 1 << (at % 8);
        // This writes format, length and checksum.
        seal(Format::NEWEST, &mut forged);
        if forged == whole {
            continue;
        }
        let read = heartbeat::decode(Formats::PROGRAM, &keys(), &forged);
        let is_other = matches!(read, Err(WireError::Magic(_) | WireError::Unknown { .. }));
        assert!(
            is_other || read == Err(WireError::Tag),
            "bit {at}: {read:?}"
        );
    }
    let other = keys().of(NodeId(4), 2);
    assert_ne!(other, keys().of(NodeId(3), 2));
    assert_ne!(other, keys().of(NodeId(4), 3));
    let mut forged = whole[..HEADER_LEN + PAYLOAD_LEN].to_vec();
    heartbeat::authenticate(Format::NEWEST, &mut forged, &other, SEQUENCE);
    let read = heartbeat::decode(Formats::PROGRAM, &keys(), &forged);
    assert_eq!(read, Err(WireError::Tag));
    let untagged = heartbeat::encode(Format::NEWEST, 9, NodeId(3), 2, &Heartbeat::default());
    let read = heartbeat::decode(Formats::PROGRAM, &keys(), &untagged);
    assert!(matches!(read, Err(WireError::Short { .. })), "{read:?}");
    let older = Format(Format::HEARTBEAT_TAGS.0 - 1);
    let untagged = heartbeat::encode(older, 9, NodeId(3), 2, &Heartbeat::default());
    let read = heartbeat::decode(Formats::PROGRAM, &keys(), &untagged);
    assert_eq!(read.unwrap().sequence, 0);
}

#[test]
fn a_key_is_read_as_it_was_written_and_not_printed() {
    let key = keys().of(NodeId(3), 2);
    assert_eq!(key.to_hex().parse(), Ok(key));
    assert_eq!(
        format!("{key:?} {:?}", keys()),
        "HeartbeatKey HeartbeatKeys"
    );
    for bad in ["", "0", &"g".repeat(32), &"é".repeat(16), &"+".repeat(32)] {
        assert!(bad.parse::<HeartbeatKey>().is_err(), "{bad}");
    }
}

#[test]
fn garbage_and_cut_bytes_are_errors_not_panics() {
    let body = message().encode();
    let mut good: Vec<Vec<u8>> = vec![body.clone(), Replicated::Entry(entry()).encode()];
    for frame in frames(&body) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        good.push(bytes);
    }
    let decode_all = |bytes: &[u8]| {
        let _ = Message::decode(bytes);
        let _ = Replicated::decode(bytes);
        let _ = Frame::decode(&mut Reader(bytes));
        let _ = ClientFrame::decode(&mut Reader(bytes));
        let _ = Header::decode(&mut Reader(bytes));
        let _ = heartbeat::decode(Formats::PROGRAM, &keys(), bytes);
    };
    let mut random = Random::new(1);
    for bytes in &good {
        for cut in 0..bytes.len() {
            decode_all(&bytes[..cut]);
        }
        assert!(Message::decode(&body[..body.len() - 1]).is_err());
        for _ in 0..2_000 {
            let mut bad = bytes.clone();
            for _ in 0..3 {
                let at = random.index(bad.len());
                bad[at] = random.byte();
            }
            decode_all(&bad);
        }
    }
}

fn datagram(body_len: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let header = Header {
        kind: Kind::Peer,
        from: NodeId(3),
        cluster: 9,
        incarnation: 4,
        to_incarnation: 5,
    };
    header.encode(&mut out);
    out.extend((0..body_len).map(|i| (i * 7) as u8));
    seal(Format::NEWEST, &mut out);
    let (back, rest) = open(Formats::PROGRAM, &out).unwrap();
    assert_eq!((back, rest.0.len()), (header, body_len));
    out
}

#[test]
fn a_datagram_with_flipped_bits_is_none() {
    let mut random = Random::new(7);
    for body_len in [0, 1, 100, 1_400, DATAGRAM_LEN_MAX - HEADER_LEN] {
        let whole = datagram(body_len);
        let bits = whole.len() * 8;
        let flip = |bytes: &mut [u8], at: usize| bytes[at / 8] ^= 1 << (at % 8);
        // One, two and three bits anywhere, and bursts of up to 32 bits.
        for at in (0..bits).step_by(1 + bits / 20_000) {
            let mut bad = whole.clone();
            flip(&mut bad, at);
            assert!(open(Formats::PROGRAM, &bad).is_err(), "bit {at}");
        }
        for n in 0..2_000 {
            let mut bad = whole.clone();
            if n % 2 == 0 {
                for _ in 0..2 + n / 2 % 2 {
                    flip(&mut bad, random.index(bits));
                }
            } else {
                let (at, burst) = (random.index(bits - 31), 1 + random.index(u32::MAX as usize));
                (0..32)
                    .filter(|i| burst >> i & 1 == 1)
                    .for_each(|i| flip(&mut bad, at + i));
            }
            assert!(bad == whole || open(Formats::PROGRAM, &bad).is_err());
        }
    }
}

#[test]
fn a_datagram_that_is_cut_or_joined_is_none() {
    let whole = datagram(300);
    for len in 0..whole.len() {
        assert!(open(Formats::PROGRAM, &whole[..len]).is_err());
    }
    let joined = [whole.clone(), whole.clone()].concat();
    assert!(matches!(
        open(Formats::PROGRAM, &joined),
        Err(WireError::Length { .. })
    ));
    let mut padded = whole;
    padded.push(0);
    assert!(matches!(
        open(Formats::PROGRAM, &padded),
        Err(WireError::Length { .. })
    ));
}

#[test]
fn nothing_follows_what_fills_its_bytes() {
    let mut body = message().encode();
    body.push(0);
    assert_eq!(Message::decode(&body), Err(WireError::Trailing(1)));
    let mut item = Replicated::Entry(entry()).encode();
    item.push(0);
    assert_eq!(Replicated::decode(&item), Err(WireError::Trailing(1)));
    let mut beat = tagged(9, NodeId(3), 2, &Heartbeat::default());
    beat.push(0);
    seal(Format::NEWEST, &mut beat);
    assert_eq!(
        heartbeat::decode(Formats::PROGRAM, &keys(), &beat),
        Err(WireError::Trailing(1))
    );
}

/// Each bit of a heartbeat names a node, a process, a cluster or what it does: with any one flipped
/// it speaks for nobody.
#[test]
fn a_heartbeat_with_a_flipped_bit_is_none() {
    let whole = tagged(9, NodeId(3), 2, &Heartbeat::default());
    for at in 0..whole.len() * 8 {
        let mut bad = whole.clone();
        bad[at / 8] ^= 1 << (at % 8);
        assert!(
            heartbeat::decode(Formats::PROGRAM, &keys(), &bad).is_err(),
            "bit {at}"
        );
    }
}

#[test]
fn a_partial_confirmation_has_the_number_of_the_publication_and_each_copy() {
    let partial = PartialConfirmation {
        publication: 130,
        copies: vec![
            RequestId { client: 7, seq: 9 },
            RequestId { client: 8, seq: 1 },
        ],
    };
    let bytes = partial.encode();
    let numbers = [130u64, 7, 9, 8, 1].map(u64::to_le_bytes);
    assert_eq!(bytes, numbers.concat());
    assert_eq!(PartialConfirmation::decode(&bytes), Ok(partial));
    for len in (0..bytes.len()).filter(|len| len % 16 != 8) {
        let cut = PartialConfirmation::decode(&bytes[..len]);
        assert!(cut.is_err(), "{len} bytes");
    }
}
