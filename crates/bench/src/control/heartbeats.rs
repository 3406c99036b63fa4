//! Heartbeats that one core takes in a second.

use super::members::{CLUSTER, INCARNATION, cluster};
use super::scene::NODES_PER_SERVER;
use crate::{Better, Figure, median};
use e3_clock::Clock;
use e3_control::{Control, Heard, Hearing, Membership, NodeLoad, Orchestrator, Pulse, Sender};
use e3_model::timing::HEARTBEAT_TIMEOUT;
use e3_model::{Format, Formats, NodeId};
use e3_random::Random;
use e3_wire::heartbeat::{self, Heartbeat, Received, TAGGED_LEN};
use e3_wire::{HeartbeatKeys, WireError};
use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const AIM_PER_S: f64 = 5e6;
const MEASURED: Duration = Duration::from_secs(2);
/// Key of the cluster's heartbeats.
const KEY: [u8; 16] = [7; 16];
/// Heartbeats that the controller takes under one lock.
const TOGETHER: usize = 64;

/// Without and with the check of checksum and tag.
pub(super) fn figures(servers: usize) -> [Figure; 2] {
    let plain = per_s(servers, MEASURED, heartbeat::parse);
    let verified = verified_per_s(servers, MEASURED);
    let nodes = servers * NODES_PER_SERVER;
    let of = |name, value, what: &str| {
        let note = format!(
            "{nodes} nodes on {servers} servers in random order, {what}, one core, from memory; {:.0} ns each: read, \
             find the member, note when it was heard and its load; lock and clock for {TOGETHER} at a time; a look for \
             silence and for decisions after each round of all nodes",
            1e9 / value
        );
        let figure = Figure::new(name, value, "heartbeats/s", Better::Higher);
        figure.aim(AIM_PER_S).note(note)
    };
    [
        of(
            "control.heartbeats_per_s",
            plain,
            "checksum and tag not looked at (the controller always does)",
        ),
        of(
            "control.heartbeats_verified_per_s",
            verified,
            "checksum (CRC-32C) and authentication tag (SipHash-2-4, key derived each time) verified",
        ),
    ]
}

/// Heartbeats a second, their checksums and tags verified.
pub(super) fn verified_per_s(servers: usize, length: Duration) -> f64 {
    let keys = HeartbeatKeys::new(&KEY);
    per_s(servers, length, |datagram| {
        heartbeat::decode(Formats::PROGRAM, &keys, datagram)
    })
}

/// The controller's part that heartbeats reach.
struct Ear {
    control: Control,
    hearing: Hearing,
    clock: Clock,
    heard: Vec<Heard>,
}

/// Heartbeats a second, by the steps of the controller program: the median over rounds of all nodes.
fn per_s(
    servers: usize,
    length: Duration,
    read: impl Fn(&[u8]) -> Result<Received, WireError>,
) -> f64 {
    let (control, clock) = (cluster(servers), Clock::new());
    let membership = Membership::new(clock.now(), HEARTBEAT_TIMEOUT);
    let hearing = Hearing::new(membership, Orchestrator::new(&control));
    let ear = Mutex::new(Ear {
        control,
        hearing,
        clock,
        heard: Vec::new(),
    });
    let nodes = in_random_order(servers);
    let (mut rounds_s, mut pulses) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while rounds_s.is_empty() || start.elapsed() < length {
        let all = datagrams(&nodes, rounds_s.len() as u32 + 1);
        let round = Instant::now();
        for together in all.chunks(TAGGED_LEN * TOGETHER) {
            let mut ear = ear.lock().expect("no other thread");
            let Ear {
                control,
                hearing,
                clock,
                heard,
            } = &mut *ear;
            let now = clock.now();
            pulses.clear();
            for datagram in together.chunks_exact(TAGGED_LEN) {
                let received = read(datagram).expect("a whole heartbeat");
                let (header, beat) = (received.header, received.heartbeat);
                pulses.push(Pulse {
                    cluster: header.cluster,
                    node: header.from,
                    incarnation: header.incarnation,
                    sequence: received.sequence,
                    load: NodeLoad {
                        queue_len: beat.queue_len,
                        busy_permille: beat.busy_permille,
                        port_permille: beat.port_permille,
                    },
                    plan_version_low: beat.plan_version_low,
                });
            }
            hearing.on_pulses(now, control, &pulses, heard);
            let is_fine = |h: &Heard| (h.sender, h.missing) == (Sender::Present, None);
            assert!(heard.iter().all(is_fine));
        }
        let mut ear = ear.lock().expect("no other thread");
        let Ear {
            control,
            hearing,
            clock,
            ..
        } = &mut *ear;
        let now = clock.now();
        black_box(hearing.membership.lost(now, control));
        assert!(black_box(hearing.orchestrator.decide(now, control)).is_empty());
        rounds_s.push(round.elapsed().as_secs_f64());
    }
    (servers * NODES_PER_SERVER) as f64 / median(rounds_s)
}

fn in_random_order(servers: usize) -> Vec<usize> {
    let mut nodes: Vec<usize> = (0..servers * NODES_PER_SERVER).collect();
    let mut random = Random::new(11);
    for at in (1..nodes.len()).rev() {
        nodes.swap(at, random.index(at + 1));
    }
    nodes
}

/// A heartbeat of each node.
fn datagrams(nodes: &[usize], sequence: u32) -> Vec<u8> {
    let keys = HeartbeatKeys::new(&KEY);
    let datagram = |node: &usize| {
        let node = *node;
        let beat = Heartbeat {
            queue_len: node as u32 % 50,
            service_time_ns: 20_000,
            busy_permille: 4_000,
            port_permille: 400,
            plan_version_low: 1,
        };
        let id = NodeId::of_index(node);
        let mut bytes = heartbeat::encode(Format::NEWEST, CLUSTER, id, INCARNATION, &beat);
        let key = keys.of(id, INCARNATION);
        heartbeat::authenticate(Format::NEWEST, &mut bytes, &key, sequence);
        bytes
    };
    nodes.iter().flat_map(datagram).collect()
}
