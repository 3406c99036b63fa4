//! Against a naive matcher, on random rules and packets.

use super::*;

/// Few letters, so that contents occur.
pub(super) fn text(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| *random.pick(b"abABc")).collect()
}

/// A content as the model sees it.
struct ModelContent {
    bytes: Vec<u8>,
    nocase: bool,
    negated: bool,
    offset: usize,
    depth: Option<usize>,
}

/// A rule as the model sees it.
struct ModelRule {
    sid: u32,
    protocol: Option<u8>,
    source: Option<u8>,
    port: Option<(u16, u16, bool)>,
    both: bool,
    contents: Vec<ModelContent>,
}

pub(super) struct ModelPacket {
    protocol: u8,
    source: u8,
    destination: u8,
    ports: (u16, u16),
    payload: Vec<u8>,
}

impl ModelPacket {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let ends = (
            (address(self.source), self.ports.0),
            (address(self.destination), self.ports.1),
        );
        let builder = match self.protocol {
            6 => PacketBuilder::tcp(ends.0, ends.1),
            17 => PacketBuilder::udp(ends.0, ends.1),
            _ => PacketBuilder::echo(ends.0.0, ends.1.0, 7),
        };
        builder.payload(&self.payload).build()
    }
}

impl ModelRule {
    fn new(random: &mut Random, sid: u32) -> ModelRule {
        let mut contents = Vec::new();
        for _ in 0..random.index(4) {
            let len = 1 + random.index(4);
            contents.push(ModelContent {
                bytes: text(random, len),
                nocase: random.index(2) == 0,
                negated: random.index(5) == 0,
                offset: if random.index(3) == 0 {
                    random.index(20)
                } else {
                    0
                },
                depth: (random.index(3) == 0).then(|| len + random.index(20)),
            });
        }
        ModelRule {
            sid,
            protocol: *random.pick(&[None, Some(1), Some(6), Some(17)]),
            source: *random.pick(&[None, None, Some(1), Some(2)]),
            port: *random.pick(&[None, None, Some((80, 90, false)), Some((80, 80, true))]),
            both: random.index(4) == 0,
            contents,
        }
    }

    fn line(&self) -> String {
        let protocol = match self.protocol {
            None => "ip",
            Some(1) => "icmp",
            Some(6) => "tcp",
            Some(_) => "udp",
        };
        let source = self
            .source
            .map_or("any".into(), |last| format!("10.0.0.{last}"));
        let port = match self.port {
            None => "any".into(),
            Some((first, last, true)) => format!("!{first}:{last}"),
            Some((first, last, false)) => format!("[{first}:{last}]"),
        };
        let way = if self.both { "<>" } else { "->" };
        let mut line = format!("alert {protocol} {source} any {way} any {port} (msg:\"a; b\"; ");
        for content in &self.contents {
            let not = if content.negated { "!" } else { "" };
            let (first, rest) = content.bytes.split_at(1);
            let rest = str::from_utf8(rest).unwrap();
            line += &format!("content:{not}\"|{:02X}|{rest}\"; ", first[0]);
            if content.nocase {
                line += "nocase; ";
            }
            if content.offset > 0 {
                line += &format!("offset:{}; ", content.offset);
            }
            if let Some(depth) = content.depth {
                line += &format!("depth:{depth}; ");
            }
        }
        line + &format!("sid:{}; rev:3;)", self.sid)
    }

    /// Place by place, condition by condition.
    fn matches(&self, packet: &ModelPacket) -> bool {
        let has_ports = packet.protocol != 1;
        let way = |source: u8, port: u16| {
            self.source.is_none_or(|s| s == source)
                && self.port.is_none_or(|(first, last, negated)| {
                    has_ports && (first <= port && port <= last) != negated
                })
        };
        let forth = way(packet.source, packet.ports.1);
        let back = self.both && way(packet.destination, packet.ports.0);
        let occurs = |content: &ModelContent| {
            let len = content.bytes.len();
            (content.offset..packet.payload.len()).any(|start| {
                let Some(part) = packet.payload.get(start..start + len) else {
                    return false;
                };
                let same = if content.nocase {
                    part.eq_ignore_ascii_case(&content.bytes)
                } else {
                    part == content.bytes
                };
                same && content
                    .depth
                    .is_none_or(|d| start + len <= content.offset + d)
            })
        };
        self.protocol.is_none_or(|p| p == packet.protocol)
            && (forth || back)
            && self.contents.iter().all(|c| occurs(c) != c.negated)
    }
}

pub(super) fn model_packet(random: &mut Random) -> ModelPacket {
    let len = random.index(60);
    ModelPacket {
        protocol: *random.pick(&[1, 6, 17]),
        source: *random.pick(&[1, 2, 3]),
        destination: *random.pick(&[1, 2, 3]),
        ports: (*random.pick(&[80, 85, 99]), *random.pick(&[80, 85, 99])),
        payload: text(random, len),
    }
}

#[test]
fn alerts_are_those_of_a_naive_matcher() {
    let mut alerts = 0;
    for seed in seeds(40) {
        let mut random = Random::new(seed);
        let rules: Vec<ModelRule> = (1..=60)
            .map(|sid| ModelRule::new(&mut random, sid))
            .collect();
        let lines: Vec<String> = rules.iter().map(ModelRule::line).collect();
        let host = host(&lines.join("\n"));
        let mut service = Nids::init().unwrap();
        for step in 0..100 {
            if step == 50 {
                service = Nids::init().unwrap();
            }
            let packet = model_packet(&mut random);
            let expected: Vec<u32> = rules
                .iter()
                .filter(|rule| rule.matches(&packet))
                .map(|rule| rule.sid)
                .collect();
            alerts += expected.len();
            let (count, sids, dropped) = verdict(&call(&host, &mut service, b"k", &packet.bytes()));
            assert_eq!(sids, expected, "seed {seed}, step {step}");
            assert_eq!((count as usize, dropped), (expected.len(), false));
        }
    }
    assert!(alerts > 10_000, "{alerts}");
}
