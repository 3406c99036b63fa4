//! Matches a packet: one pass over its payload searches the contents of all rules; then the other
//! conditions are checked, only for rules whose longest content occurs.
//!
//! Sources: Aho and Corasick 1975 for the pass (the accelerator `match`); the longest content represents a
//! rule, as Snort's fast pattern does (Roesch, "Snort", LISA 1999, and its manual).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use e3_packet::{Packet, PacketError, Transport};
use e3_sdk::Error;
use e3_sdk::accel::{Match, MatchSet, Pattern};

use crate::rule::{Action, Rule};

/// Rules, ready to be looked for.
pub struct Detector {
    rules: Vec<Rule>,
    patterns: MatchSet,
    /// For each rule, the pattern of each of its contents.
    of_contents: Vec<Vec<u32>>,
    /// For each pattern, the rules that it stands for.
    by_pattern: Vec<Vec<u32>>,
    /// Rules that no pattern stands for.
    others: Vec<u32>,
    found: Vec<Match>,
    alerts: Vec<u32>,
}

/// What a packet is for rules.
struct Facts<'a> {
    packet: Packet<'a>,
    ports: Option<(u16, u16)>,
    payload: &'a [u8],
}

impl<'a> Facts<'a> {
    fn of(bytes: &'a [u8]) -> Result<Facts<'a>, PacketError> {
        let packet = Packet::parse(bytes)?;
        let (ports, payload) = match packet.transport()? {
            Transport::Tcp(tcp) => (Some((tcp.source_port, tcp.destination_port)), tcp.payload),
            Transport::Udp(udp) => (Some((udp.source_port, udp.destination_port)), udp.payload),
            Transport::Icmp(icmp) => (None, icmp.payload),
            Transport::Other(payload) => (None, payload),
        };
        Ok(Facts {
            packet,
            ports,
            payload,
        })
    }

    fn meets(&self, rule: &Rule) -> bool {
        let ports = self.ports.unzip();
        let ends = [
            (self.packet.source(), ports.0),
            (self.packet.destination(), ports.1),
        ];
        let way = |from: usize, to: usize| {
            rule.source.has_address(ends[from].0)
                && rule.source_ports.has_port(ends[from].1)
                && rule.destination.has_address(ends[to].0)
                && rule.destination_ports.has_port(ends[to].1)
        };
        rule.protocol.is_none_or(|p| p == self.packet.protocol())
            && (way(0, 1) || rule.both_ways && way(1, 0))
    }
}

impl Detector {
    /// Makes rules ready.
    pub fn new(rules: Vec<Rule>) -> Result<Detector, Error> {
        // a pattern is there once, however many rules have it
        let mut numbers: BTreeMap<(bool, Vec<u8>), u32> = BTreeMap::new();
        let mut of_contents = Vec::new();
        for rule in &rules {
            let mut patterns = Vec::new();
            for content in &rule.contents {
                let bytes = if content.nocase {
                    content.bytes.to_ascii_lowercase()
                } else {
                    content.bytes.clone()
                };
                let next = numbers.len() as u32;
                patterns.push(*numbers.entry((content.nocase, bytes)).or_insert(next));
            }
            of_contents.push(patterns);
        }
        let mut patterns = Vec::new();
        patterns.resize(numbers.len(), Pattern::new(&[]));
        for ((nocase, bytes), number) in &numbers {
            let nocase = *nocase;
            patterns[*number as usize] = Pattern { bytes, nocase };
        }
        let mut by_pattern: Vec<Vec<u32>> = Vec::new();
        by_pattern.resize(numbers.len(), Vec::new());
        let mut others = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let telling = rule.contents.iter().zip(&of_contents[index]);
            let telling = telling.filter(|(content, _)| !content.negated);
            match telling.max_by_key(|(content, _)| content.bytes.len()) {
                Some((_, pattern)) => by_pattern[*pattern as usize].push(index as u32),
                None => others.push(index as u32),
            }
        }
        let patterns = MatchSet::new(&patterns)?;
        Ok(Detector {
            rules,
            patterns,
            of_contents,
            by_pattern,
            others,
            found: Vec::new(),
            alerts: Vec::new(),
        })
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rules that a packet matches, in their order; a payload with more occurrences of patterns
    /// than the accelerator reports is an error.
    pub fn detect(&mut self, bytes: &[u8]) -> Result<Result<Vec<&Rule>, PacketError>, Error> {
        let facts = match Facts::of(bytes) {
            Ok(facts) => facts,
            Err(error) => return Ok(Err(error)),
        };
        self.patterns.find(facts.payload, &mut self.found)?;
        self.found.sort_unstable_by_key(|m| (m.pattern, m.end));
        self.alerts.clear();
        for same in self.found.chunk_by(|a, b| a.pattern == b.pattern) {
            for rule in &self.by_pattern[same[0].pattern as usize] {
                if self.matches(*rule, &facts) {
                    self.alerts.push(*rule);
                }
            }
        }
        for rule in &self.others {
            if self.matches(*rule, &facts) {
                self.alerts.push(*rule);
            }
        }
        self.alerts.sort_unstable();
        let alerts = self.alerts.iter();
        Ok(Ok(alerts.map(|rule| &self.rules[*rule as usize]).collect()))
    }

    fn matches(&self, index: u32, facts: &Facts<'_>) -> bool {
        let (rule, patterns) = (
            &self.rules[index as usize],
            &self.of_contents[index as usize],
        );
        facts.meets(rule)
            && rule
                .contents
                .iter()
                .zip(patterns)
                .all(|(content, pattern)| {
                    let first = self.found.partition_point(|m| m.pattern < *pattern);
                    let occurs = self.found[first..]
                        .iter()
                        .take_while(|m| m.pattern == *pattern)
                        .any(|m| content.is_at(m.end as usize));
                    occurs != content.negated
                })
    }
}

/// Whether a packet that these rules match goes no further.
pub fn drops(rules: &[&Rule]) -> bool {
    rules.iter().any(|rule| rule.action == Action::Drop)
}
