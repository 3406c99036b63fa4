//! Damage to datagrams, by a bad wire or a faulty peer.

use e3_model::limits::NODES_MAX;
use e3_model::{AppId, EdgeId, Format, Formats, NodeId, ServiceId, ShardId};
use e3_random::Random;
use e3_wire::datagram::{HEADER_LEN, Header, Kind, open, seal};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::limits::DATAGRAM_LEN_MAX;

/// A way to damage a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// On the wire: bits and bytes change, are lost or are added.
    Wire,
    /// By a peer whose records of channels and leases are wrong: numbers in the frames between nodes
    /// change, and the checksum is right. Messages keep their contents.
    Records,
    /// By a peer that sends nonsense: anything may change, and the checksum is right.
    Nonsense,
}

impl Damage {
    /// The datagram with this damage; None if it holds nothing that can be damaged this way.
    pub fn apply(self, datagram: &[u8], random: &mut Random) -> Option<Vec<u8>> {
        let damaged = match self {
            Damage::Wire => bytes(datagram, 0, random),
            Damage::Records => return records(datagram, random),
            Damage::Nonsense => {
                // Mostly after the header, which is the same in all datagrams.
                let from = if random.chance(100) {
                    0
                } else {
                    HEADER_LEN as u64
                };
                let mut damaged = bytes(datagram, from, random);
                damaged.resize(damaged.len().max(HEADER_LEN), 0);
                seal(Format::NEWEST, &mut damaged);
                damaged
            }
        };
        (damaged != datagram).then_some(damaged)
    }
}

/// Flips, overwrites, removes, adds or repeats bytes after `from`.
fn bytes(datagram: &[u8], from: u64, random: &mut Random) -> Vec<u8> {
    let mut out = datagram.to_vec();
    let len = out.len() as u64;
    // Small numbers come first, payloads last.
    let span = match random.below(3) {
        0 => (len - from).min(120),
        _ => len - from,
    };
    let at = (from + random.below(span)) as usize;
    let rest = out.len() - at;
    match random.below(8) {
        0..=2 => out[at] ^= 1 << random.below(8),
        3 => {
            for _ in 0..2 + random.below(7) {
                let at = (from + random.below(span)) as usize;
                out[at] ^= 1 << random.below(8);
            }
        }
        4 => {
            let width = rest.min(1 << random.below(4));
            let old = &mut out[at..at + width];
            let value = match random.below(4) {
                0 => [0; 8],
                1 => [0xff; 8],
                2 => 1u64.to_le_bytes(),
                _ => random.next_u64().to_le_bytes(),
            };
            old.copy_from_slice(&value[..width]);
        }
        5 => out.truncate(at),
        6 => out.extend((0..=random.below(40)).map(|_| random.next_u64() as u8)),
        _ => {
            let part = out[at..at + rest.min(1 + random.below(100) as usize)].to_vec();
            out.splice(at..at, part);
        }
    }
    out.truncate(DATAGRAM_LEN_MAX);
    out
}

/// Another number, such as a wrong record may hold.
fn other(old: u64, random: &mut Random) -> u64 {
    match random.below(8) {
        0 => old ^ (1 << random.below(64)),
        1 => old ^ (1 << random.below(10)),
        2 => old.wrapping_add(1 + random.below(300)),
        3 => old.wrapping_sub(1 + random.below(300)),
        4 => 0,
        5 => u64::MAX - random.below(2),
        6 => 1 << 31,
        _ => random.next_u64(),
    }
}

fn records(datagram: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let (mut header, mut r) = open(Formats::PROGRAM, datagram).ok()?;
    if header.kind != Kind::Peer {
        return None;
    }
    let mut frames = Vec::new();
    while !r.is_empty() {
        frames.push(Frame::decode(&mut r).ok()?);
    }
    if random.chance(50) {
        in_header(&mut header, random);
    } else {
        let at = random.below(frames.len() as u64) as usize;
        in_frame(&mut frames[at], random);
    }
    let mut out = Vec::new();
    header.encode(&mut out);
    for frame in &frames {
        frame.encode(&mut out);
    }
    seal(Format::NEWEST, &mut out);
    (out != datagram).then_some(out)
}

fn in_header(h: &mut Header, random: &mut Random) {
    let n = other(1, random);
    match random.below(3) {
        0 => h.cluster ^= n,
        1 => h.incarnation = n as u32,
        _ => h.to_incarnation = n as u32,
    }
}

fn in_frame(frame: &mut Frame<'_>, random: &mut Random) {
    match frame {
        Frame::Data {
            link,
            epoch,
            seq,
            behind,
            ..
        } => match random.below(4) {
            0 => in_link(link, random),
            1 => *epoch = other((*epoch).into(), random) as u32,
            2 => *seq = other(*seq, random),
            _ => *behind = other((*behind).into(), random) as u32,
        },
        Frame::Ack { link, ack } => match random.below(8) {
            0 => in_link(link, random),
            1 => ack.epoch = other(ack.epoch.into(), random) as u32,
            2 => ack.received = other(ack.received, random),
            3 => {
                let word = &mut ack.selective[random.below(4) as usize];
                *word = other(*word, random);
            }
            4 => ack.durable = other(ack.durable, random),
            5 => ack.limit = other(ack.limit, random),
            // A plausible state: more messages have arrived and are durable than really are.
            _ => {
                let more = 1 + random.below(4);
                *ack = Ack {
                    epoch: ack.epoch,
                    received: ack.received + more,
                    selective: [0; 4],
                    durable: ack.received + more,
                    limit: ack.limit + more,
                };
            }
        },
        Frame::LeaseRequest { sent, plan_version } => match random.below(2) {
            0 => sent.0 = other(sent.0, random),
            _ => *plan_version = other(*plan_version, random),
        },
        Frame::LeaseGrant { sent } | Frame::Probe { sent } => sent.0 = other(sent.0, random),
        Frame::ProbeAnswer { sent, now } => match random.below(2) {
            0 => sent.0 = other(sent.0, random),
            _ => now.0 = other(now.0, random),
        },
        Frame::Reply {
            app,
            request,
            attempt,
            ..
        } => match random.below(3) {
            0 => *app = AppId(other(app.0.into(), random) as u16),
            1 => request.client = other(request.client, random),
            _ => *attempt = other((*attempt).into(), random) as u16,
        },
        Frame::Call(call) => match random.below(2) {
            0 => call.token = other(call.token, random),
            _ => call.deadline.0 = other(call.deadline.0, random),
        },
        Frame::CallAnswer(answer) => answer.token = other(answer.token, random),
    }
}

fn in_link(link: &mut Link, random: &mut Random) {
    // A service and a node's id have 10 and 20 bits on the wire.
    let n = |old: u16, random: &mut Random| other(old.into(), random) as u16 & 0x3ff;
    let of_node = |old: NodeId, random: &mut Random| {
        NodeId(other(old.0.into(), random) as u32 % NODES_MAX as u32)
    };
    match random.below(6) {
        0 => link.app = AppId(n(link.app.0, random)),
        1 => link.from_incarnation = other(link.from_incarnation.into(), random) as u32,
        2 => link.to_incarnation = other(link.to_incarnation.into(), random) as u32,
        field => match &mut link.ends {
            Ends::Ingress {
                node,
                service,
                shard,
            } => match field {
                3 => *node = of_node(*node, random),
                4 => *service = ServiceId(n(service.0, random)),
                _ => *shard = ShardId(n(shard.0, random)),
            },
            Ends::Edge { edge, from, to } => match field {
                3 => *edge = EdgeId(n(edge.0, random)),
                4 => *from = ShardId(n(from.0, random)),
                _ => *to = ShardId(n(to.0, random)),
            },
            Ends::Replication {
                service,
                shard,
                backup,
            } => match field {
                3 => *service = ServiceId(n(service.0, random)),
                4 => *shard = ShardId(n(shard.0, random)),
                _ => *backup = of_node(*backup, random),
            },
        },
    }
}
