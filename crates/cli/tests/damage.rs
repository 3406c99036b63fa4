//! A running cluster whose datagrams have flipped bits: what clients and nodes say to each other
//! goes through relays, and every node gets damaged copies of what other nodes could say to it on
//! its own channels, while a load runs. The ledger stays right and every channel goes on.

use crate::common::relay::{Relays, flip_bits};
use crate::common::running::{
    CHAIN, all_handled, handled, heartbeat, heartbeat_key, run_file, start_load,
};
use crate::common::{E3, PATIENCE};
use e3_client::{Call, Client, Completed, Duplicate, Event};
use e3_model::api::{ClusterView, EndpointsView, NodeView};
use e3_model::{
    AppId, DropReason, EdgeId, Format, MessageId, Nanos, NodeId, RequestId, ServiceId, ShardId,
    Slot, Timestamp, TraceContext, Via,
};
use e3_random::Random;
use e3_wire::datagram::{Header, Kind, seal};
use e3_wire::entry::{Outcome, Reply};
use e3_wire::frame::{Ack, Ends, Frame, Link};
use e3_wire::message::Message;
use e3_wire::replicated::Replicated;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};

const SEED: u64 = 20_190_711;
/// Shards and nodes of [`CHAIN`] on the default topology.
const SHARDS: u64 = 2;

fn get<T: DeserializeOwned>(e3: &E3, path: &str) -> T {
    serde_json::from_str(&get_text(e3, path)).unwrap()
}

fn get_text(e3: &E3, path: &str) -> String {
    let port = &run_file(e3, "cluster.json")["port"];
    let get = ureq::get(format!("http://127.0.0.1:{port}{path}"));
    let get = get.header("Authorization", e3.authorization("token"));
    get.call().unwrap().body_mut().read_to_string().unwrap()
}

/// Makes what nodes say to each other about an application's channels.
struct Peers {
    random: Random,
    cluster: u64,
    nodes: Vec<NodeView>,
    app: AppId,
}

impl Peers {
    fn shard(&mut self) -> ShardId {
        ShardId(self.random.below(SHARDS) as u16)
    }

    /// A small number: what incarnations, epochs and sequence numbers of a young cluster are.
    fn small(&mut self, max: u64) -> u64 {
        1 + self.random.below(max)
    }

    fn message(&mut self, header: &Header) -> Message {
        let key = self.random.next_u64().to_le_bytes().to_vec();
        Message {
            id: MessageId {
                request: RequestId {
                    client: self.random.next_u64(),
                    seq: 1,
                },
                via: Via::Ingress,
                index: 0,
            },
            attempt: 0,
            slot: Slot::of(&key),
            reply_to: header.from,
            reply_to_incarnation: header.incarnation,
            is_branch: false,
            deadline: Timestamp(u64::MAX >> 1),
            sent: Timestamp::ZERO,
            oldest_seq: 1,
            trace: TraceContext::default(),
            code_version: 0,
            topic: None,
            key,
            payload: vec![7; 200],
        }
    }

    /// A datagram for a node, with a checksum that suits.
    fn datagram(&mut self, to: usize) -> Vec<u8> {
        let others = self.nodes.len() as u64 - 1;
        let from = (to + 1 + self.random.below(others) as usize) % self.nodes.len();
        let node = NodeId(self.nodes[from].id);
        let header = Header {
            kind: Kind::Peer,
            from: node,
            cluster: self.cluster,
            incarnation: self.nodes[from].incarnation,
            to_incarnation: self.nodes[to].incarnation,
        };
        let ends = match self.random.below(3) {
            0 => Ends::Ingress {
                node,
                service: ServiceId(self.random.below(2) as u16),
                shard: self.shard(),
            },
            1 => Ends::Edge {
                edge: EdgeId(0),
                from: self.shard(),
                to: self.shard(),
            },
            _ => Ends::Replication {
                service: ServiceId(self.random.below(2) as u16),
                shard: self.shard(),
                backup: NodeId(self.nodes[to].id),
            },
        };
        let link = Link {
            app: self.app,
            ends,
            from_incarnation: self.small(3) as u32,
            to_incarnation: self.small(3) as u32,
        };
        let (epoch, seq) = (self.random.below(4) as u32, self.small(500));
        let mut out = Vec::new();
        header.encode(&mut out);
        let body = match self.random.below(2) {
            0 => self.message(&header).encode(),
            _ => Replicated::Released(seq).encode(),
        };
        let behind = self.random.below(seq) as u32;
        let ack = Ack {
            epoch,
            received: seq,
            selective: [0; 4],
            durable: seq,
            limit: seq + 256,
        };
        let reply = Reply {
            outcome: Outcome::Done,
            status: 0,
            payload: vec![1; 8],
        };
        let request = RequestId {
            client: self.random.next_u64(),
            seq,
        };
        let frames = [
            Frame::Data {
                link,
                epoch,
                seq,
                behind,
                body: &body,
            },
            Frame::Ack { link, ack },
            Frame::LeaseRequest {
                sent: Timestamp(seq),
                plan_version: seq,
            },
            Frame::LeaseGrant {
                sent: Timestamp(seq),
            },
            Frame::Reply {
                app: self.app,
                request,
                attempt: 0,
                is_branch: false,
                reply,
            },
        ];
        let first = self.random.below(frames.len() as u64) as usize;
        for frame in &frames[first..] {
            frame.encode(&mut out);
        }
        seal(Format::NEWEST, &mut out);
        out
    }
}

fn address(n: &NodeView) -> SocketAddr {
    n.address.as_ref().unwrap().parse().unwrap()
}

fn incarnations(e3: &E3) -> Vec<(String, u32, bool)> {
    let nodes: Vec<NodeView> = get(e3, "/v1/nodes");
    let of = |n: NodeView| (n.name, n.incarnation, n.up);
    nodes.into_iter().map(of).collect()
}

#[test]
fn flipped_bits_stop_nothing() {
    const PEER: usize = 3_600;
    const HEARTBEATS: usize = 600;
    println!("seed {SEED}");
    let Some(e3) = E3::with_services() else {
        return;
    };
    e3.up();
    let file = e3.file("chain.yaml", CHAIN);
    e3.good(&["deploy", &file, "--wait"]);
    let before = incarnations(&e3);
    assert!(before.iter().all(|(_, _, up)| *up), "{before:?}");
    let view: ClusterView = get(&e3, "/v1/cluster");
    let endpoints: EndpointsView = get(&e3, "/v1/apps/chain/endpoints");
    let mut peers = Peers {
        random: Random::new(SEED),
        cluster: u64::from_str_radix(&view.cluster, 16).unwrap(),
        nodes: get(&e3, "/v1/nodes"),
        app: AppId(endpoints.app),
    };
    let nodes: Vec<SocketAddr> = peers.nodes.iter().map(address).collect();
    let port = run_file(&e3, "cluster.json")["port"].as_u64().unwrap() as u16;
    let controller = SocketAddr::from(([127, 0, 0, 1], port));

    let keys = peers.nodes.iter().map(|n| heartbeat_key(&e3, n));
    let keys: Vec<_> = keys.collect();

    let load = start_load(&e3, "6s");
    e3.until("the load has begun", |e3| handled(e3, "chain") > 50);
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for n in 0..PEER {
        let to = n % nodes.len();
        let mut datagram = peers.datagram(to);
        flip_bits(&mut peers.random, &mut datagram);
        from.send_to(&datagram, nodes[to]).unwrap();
        if n % (PEER / HEARTBEATS) == 0 {
            let at = peers.random.below(nodes.len() as u64) as usize;
            let mut beat = heartbeat(peers.cluster, &peers.nodes[at], &keys[at], u32::MAX);
            flip_bits(&mut peers.random, &mut beat);
            from.send_to(&beat, controller).unwrap();
        }
        if n % 200 == 0 {
            // The load, the nodes and the controller share two cores with this.
            assert_eq!(incarnations(&e3), before);
        }
    }
    through_relays(&endpoints, &nodes);
    all_handled(load);

    let mut counted = 0;
    for (name, _, _) in &before {
        let node: NodeView = get(&e3, &format!("/v1/nodes/{name}"));
        counted += node
            .dropped
            .get(&DropReason::Checksum)
            .copied()
            .unwrap_or(0);
    }
    // The reports are up to a second old, and a full socket drops some too.
    assert!(counted > PEER as u64 / 2, "{counted} counted as damaged");
    let metrics = get_text(&e3, "/metrics");
    assert!(metrics.contains("reason=\"checksum\""), "{metrics}");
    let line = metrics
        .lines()
        .find_map(|l| l.strip_prefix("e3_garbage_datagrams_total "));
    let garbage: f64 = line.unwrap().parse().unwrap();
    assert!(garbage >= HEARTBEATS as f64 / 2.0, "{garbage}");
    // Nobody died, nobody came, and everything goes on as before.
    assert_eq!(incarnations(&e3), before);
    all_handled(start_load(&e3, "2s"));
    assert_eq!(incarnations(&e3), before);
}

/// A client whose datagrams, and those of its nodes to it, have flipped bits: each request has one
/// answer.
fn through_relays(endpoints: &EndpointsView, nodes: &[SocketAddr]) {
    const REQUESTS: u64 = 1_500;
    let relays = Relays::start(nodes, 8, SEED);
    let behind: BTreeMap<String, String> = nodes
        .iter()
        .zip(&relays.addresses)
        .map(|(node, relay)| (node.to_string(), relay.to_string()))
        .collect();
    let relayed = |all: &[String]| all.iter().map(|a| behind[a].clone()).collect();
    let endpoints = EndpointsView {
        app: endpoints.app,
        shards: relayed(&endpoints.shards),
        nodes: relayed(&endpoints.nodes),
        urls: Vec::new(),
    };
    let mut client = Client::new(&endpoints, None).unwrap();
    let mut given = BTreeMap::new();
    let mut submitted = 0;
    while (given.len() as u64) < REQUESTS {
        // Few in flight: so each datagram holds few, and many pass the relays.
        while submitted < REQUESTS && client.requests.in_flight() < 32 {
            let now = client.now();
            let deadline = now + PATIENCE.into();
            let call = Call {
                tag: submitted,
                key: (submitted % 64).to_le_bytes().to_vec(),
                payload: submitted.to_le_bytes().to_vec(),
            };
            client.requests.submit(now, now, deadline, call);
            submitted += 1;
        }
        client.turn(client.now() + Nanos::from_millis(20)).unwrap();
        while let Some(event) = client.requests.poll_event() {
            match event {
                Event::Completed(Completed { seq, reply, .. }) => {
                    let reply = reply.unwrap_or_else(|| panic!("no answer to {seq}"));
                    assert_eq!(reply.outcome, Outcome::Done, "{seq}: {reply:?}");
                    assert!(given.insert(seq, reply).is_none());
                }
                Event::Duplicate(Duplicate { seq, reply }) => assert_eq!(given[&seq], reply),
                Event::DeadLetters(_) => {}
            }
        }
    }
    let damaged = relays.damaged.load(std::sync::atomic::Ordering::Relaxed);
    assert!(damaged > 100, "only {damaged} datagrams damaged");
    println!("{damaged} datagrams damaged between client and nodes");
}
