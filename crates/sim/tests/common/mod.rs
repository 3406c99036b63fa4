//! A chain of two stateful services on a simulated cluster, and the checks that it must pass.

#![allow(dead_code, reason = "each test uses a part of it")]

use e3_model::document::{parse_application, parse_topology};
use e3_model::{AppId, Nanos, NodeId, RequestId};
use e3_sim::service::Service;
use e3_sim::{Client, Cluster, Controller, Faults};
use e3_testkit::seeds;
use e3_wire::entry::Outcome;
use std::collections::BTreeMap;

const CHAIN: &str = include_str!("../chain.yaml");
const TOPOLOGY: &str = include_str!("../../../../topologies/3x-type1.yaml");
pub const APP: AppId = AppId(1);
pub const CHAIN_SERVICES: [Service; 2] = [
    Service::Chain { channels: 1 },
    Service::Chain { channels: 0 },
];

pub struct Run {
    pub seed: u64,
    pub cluster: Cluster,
    pub controller: Controller,
    /// The first client that sends; all after it send too.
    pub senders_from: usize,
}

impl Run {
    pub fn new(seed: u64, services: [Service; 2]) -> Run {
        let mut cluster = Cluster::new(seed, services.to_vec());
        let topology = parse_topology("3x-type1.yaml", TOPOLOGY).unwrap();
        let mut controller = Controller::new(&mut cluster, topology);
        controller
            .deploy(parse_application("chain.yaml", CHAIN).unwrap())
            .unwrap();
        cluster.clients = (0..3).map(|c| Client::new(100 + c, APP)).collect();
        let mut run = Run {
            seed,
            cluster,
            controller,
            senders_from: 0,
        };
        run.pass(500);
        run
    }

    pub fn pass(&mut self, ms: u64) {
        self.controller
            .run(&mut self.cluster, Nanos::from_millis(ms));
    }

    /// Sends requests from random clients to random live nodes at random times.
    pub fn load(&mut self, requests: u64) {
        for _ in 0..requests {
            let from = self.senders_from;
            let clients = (self.cluster.clients.len() - from) as u64;
            let client = from as u16 + self.cluster.random.below(clients) as u16;
            let up = self.cluster.up();
            let to = up[self.cluster.random.below(up.len() as u64) as usize];
            self.cluster.request(client, to, Nanos::from_secs(60));
            let pause = Nanos(self.cluster.random.below(2_000_000));
            self.controller.run(&mut self.cluster, pause);
        }
    }

    /// Loads the cluster, kills a node meanwhile, and restarts it when every shard has two copies again.
    pub fn lose_one(&mut self, before: u64, after: u64) {
        self.load(before);
        let up = self.cluster.up();
        let victim = up[self.cluster.random.below(up.len() as u64) as usize];
        self.cluster.kill(victim);
        self.load(after);
        self.pass(15_000);
        self.controller.start(&mut self.cluster, victim);
    }

    pub fn heal(&mut self) {
        self.cluster.faults = Faults::NONE;
        self.pass(30_000);
    }

    /// Checks that every request has one outcome and its effect exactly once in every service, and that
    /// every shard has all its copies and they are equal.
    pub fn check(&self) {
        self.check_clients(0);
        let replay = self.replay();
        let plan = &self.controller.control.apps[&APP].plan;
        for shard in &plan.shards {
            let key = plan.key(shard);
            let digest = |node: NodeId| {
                let state = self.cluster.state(node.0, key).expect("it has the shard");
                state.borrow().digest()
            };
            let (state, copy) = (digest(shard.primary), digest(shard.backups[0]));
            assert_eq!(copy, state, "copies of {key}; {replay}");
        }
    }

    /// The command that replays this run.
    pub fn replay(&self) -> String {
        let (seed, test) = (self.seed, env!("CARGO_CRATE_NAME"));
        format!("replay: E3_SEED={seed} cargo test -p e3-sim --test {test}")
    }

    /// The same for the clients from this one on; it does not judge the effects of others.
    pub fn check_clients(&self, from: usize) {
        let replay = self.replay();
        let clients = &self.cluster.clients[from..];
        let ids = |client: &Client| {
            let bytes = |id: RequestId| [id.client.to_le_bytes(), id.seq.to_le_bytes()].concat();
            client.ids().map(bytes).collect::<Vec<_>>()
        };
        let mut counts: [BTreeMap<Vec<u8>, i64>; 2] = Default::default();
        let plan = &self.controller.control.apps[&APP].plan;
        for shard in &plan.shards {
            let key = plan.key(shard);
            let state = self
                .cluster
                .state(shard.primary.0, key)
                .expect("the primary has it");
            let state = state.borrow();
            assert_eq!(shard.backups.len(), 1, "{key} lacks a copy; {replay}");
            let copy = self.cluster.state(shard.backups[0].0, key);
            let copy = copy.expect("the backup has it");
            let copy = copy.borrow();
            for id in clients.iter().flat_map(ids) {
                let count = state.counter_get(0, &id);
                assert_eq!(copy.counter_get(0, &id), count, "copies of {key}; {replay}");
                *counts[usize::from(shard.service.0)].entry(id).or_default() += count;
            }
        }
        for client in clients {
            assert_eq!(client.in_flight(), 0, "requests without outcome; {replay}");
            assert_eq!(client.contradictions, 0, "{replay}");
            assert_eq!(
                client.count(Outcome::Done) as u64,
                client.sent(),
                "{replay}"
            );
            for (seq, id) in ids(client).into_iter().enumerate() {
                for (service, counts) in counts.iter().enumerate() {
                    assert_eq!(
                        counts[&id], 1,
                        "request {seq} in service {service}; {replay}"
                    );
                }
            }
        }
        assert_eq!(self.controller.control.apps[&APP].state_lost, 0, "{replay}");
    }
}

pub fn runs() -> impl Iterator<Item = Run> {
    seeds(8).map(|seed| Run::new(seed, CHAIN_SERVICES))
}
