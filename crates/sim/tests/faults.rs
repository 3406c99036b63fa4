//! Faults against a chain of two stateful services: whatever the network loses, repeats and
//! reorders, whichever node is killed, whatever moves: every request has one outcome and one effect.
//!
//! Each test has a phase with faults and then one in which everything must converge. Replay one
//! seed with `E3_SEED=7 cargo test -p e3-sim --test faults`; try many with `E3_SEEDS=1000`.

use e3_control::Command;
use e3_dataplane::{Config, Worker};
use e3_model::document::{parse_application, parse_topology};
use e3_model::plan::Role;
use e3_model::{AppId, Nanos, NodeId, NodeKind, ServiceId, ShardId, ShardKey};
use e3_sim::cluster::CLUSTER;
use e3_sim::network::node_address;
use e3_sim::service::Service;
use e3_sim::{Client, Cluster, Controller, Faults};
use e3_wire::entry::Outcome;
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN: &str = include_str!("chain.yaml");
const TOPOLOGY: &str = include_str!("../../../topologies/3x-type1.yaml");
const APP: AppId = AppId(1);
const CHAIN_SERVICES: [Service; 2] = [
    Service::Chain { channels: 1 },
    Service::Chain { channels: 0 },
];

struct Run {
    seed: u64,
    cluster: Cluster,
    controller: Controller,
}

impl Run {
    fn new(seed: u64, services: [Service; 2]) -> Run {
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
        };
        run.pass(500);
        run
    }

    fn pass(&mut self, ms: u64) {
        self.controller
            .run(&mut self.cluster, Nanos::from_millis(ms));
    }

    /// Requests from every client, to random live nodes, at random moments.
    fn load(&mut self, requests: u64) {
        for _ in 0..requests {
            let clients = self.cluster.clients.len() as u64;
            let client = self.cluster.random.below(clients) as u16;
            let up = self.cluster.up();
            let to = up[self.cluster.random.below(up.len() as u64) as usize];
            self.cluster.request(client, to, Nanos::from_millis(60_000));
            let pause = Nanos(self.cluster.random.below(2_000_000));
            self.controller.run(&mut self.cluster, pause);
        }
    }

    fn heal(&mut self) {
        self.cluster.faults = Faults::NONE;
        self.pass(30_000);
    }

    /// Every request has one outcome, and its effect exactly once in every service; every shard has
    /// all its copies, and they are equal.
    fn check(&self) {
        let replay = format!(
            "replay: E3_SEED={} cargo test -p e3-sim --test faults",
            self.seed
        );
        let ids = |client: &Client| {
            let id = client.id;
            (1..=client.sent()).map(move |seq| [id.to_le_bytes(), seq.to_le_bytes()].concat())
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
            for id in self.cluster.clients.iter().flat_map(ids) {
                let count = state.counter_get(0, &id);
                *counts[usize::from(shard.service.0)].entry(id).or_default() += count;
            }
            assert_eq!(shard.backups.len(), 1, "{key} lacks a copy; {replay}");
            let copy = self
                .cluster
                .state(shard.backups[0].0, key)
                .expect("the backup has it");
            assert_eq!(
                copy.borrow().digest(),
                state.digest(),
                "copies of {key}; {replay}"
            );
        }
        for client in &self.cluster.clients {
            assert_eq!(client.under_way(), 0, "requests without outcome; {replay}");
            assert_eq!(client.contradictions, 0, "{replay}");
            assert_eq!(
                client.count(Outcome::Done) as u64,
                client.sent(),
                "{replay}"
            );
            for (seq, id) in ids(client).enumerate() {
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

#[expect(
    clippy::disallowed_methods,
    reason = "a test's seed comes from whoever runs it"
)]
fn runs() -> impl Iterator<Item = Run> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|v| v.parse().expect("a number"))
    };
    let seeds = match (number("E3_SEED"), number("E3_SEEDS")) {
        (Some(seed), _) => seed..=seed,
        (None, count) => 1..=count.unwrap_or(8),
    };
    seeds.map(|seed| Run::new(seed, CHAIN_SERVICES))
}

#[test]
fn a_good_network() {
    for mut run in runs() {
        run.load(300);
        run.pass(2_000);
        run.check();
    }
}

#[test]
fn loss_repetition_and_reordering() {
    for mut run in runs() {
        run.cluster.faults = Faults::BAD;
        run.load(500);
        run.heal();
        run.check();
    }
}

#[test]
fn killed_nodes_lose_nothing_and_repeat_nothing() {
    for mut run in runs() {
        run.cluster.faults = Faults::BAD;
        for _ in 0..3 {
            run.load(150);
            let up = run.cluster.up();
            let victim = up[run.cluster.random.below(up.len() as u64) as usize];
            run.cluster.kill(victim);
            run.load(300);
            // Until every shard has two copies again: two losses at once are one too many.
            run.pass(15_000);
            run.controller.start(&mut run.cluster, victim);
            run.pass(15_000);
        }
        run.heal();
        run.check();
    }
}

#[test]
fn a_process_that_restarts_at_once_has_lost_its_copies_only() {
    for mut run in runs() {
        run.cluster.faults = Faults::BAD;
        run.load(200);
        let shard = ShardKey {
            app: APP,
            service: ServiceId(1),
            shard: ShardId(1),
        };
        let victim = run.controller.shard(shard).primary.0;
        run.cluster.kill(victim);
        run.controller.start(&mut run.cluster, victim);
        run.load(300);
        run.heal();
        run.check();
    }
}

#[test]
fn shards_move_with_their_state_while_requests_come() {
    for mut run in runs() {
        run.cluster.faults = Faults::BAD;
        let key = ShardKey {
            app: APP,
            service: ServiceId(1),
            shard: ShardId(0),
        };
        for _ in 0..3 {
            let from = run.controller.shard(key).primary;
            // The other node of its server: never in a fault domain that is taken.
            let to = NodeId(from.0 ^ 1);
            run.controller
                .apply(&Command::Migrate { key, from, to })
                .unwrap();
            run.load(600);
            run.pass(10_000);
            assert_eq!(
                run.controller.shard(key).primary,
                to,
                "seed {}: not moved",
                run.seed
            );
        }
        run.heal();
        run.check();
    }
}

#[test]
fn one_seed_gives_one_run() {
    let trace = || {
        let mut run = Run::new(5, CHAIN_SERVICES);
        run.cluster.faults = Faults::BAD;
        run.load(200);
        run.cluster.kill(0);
        run.load(200);
        run.pass(3_000);
        run.cluster.trace
    };
    assert_eq!(trace(), trace());
}

/// Dead letters at primaries and at backups.
fn dead_letters(run: &Run) -> (u64, u64) {
    let workers = (0..6).filter_map(|n| run.cluster.worker(n));
    let instances: Vec<_> = workers.flat_map(|w| w.report().instances).collect();
    let of = |role| {
        let instances = instances.iter().filter(|i| i.role == role);
        instances.map(|i| i.dead_letters).sum()
    };
    (of(Role::Primary), of(Role::Backup))
}

fn outcomes(run: &Run, outcome: Outcome) -> usize {
    run.cluster.clients.iter().map(|c| c.count(outcome)).sum()
}

#[test]
fn a_failing_service_gives_dead_letters_not_silence() {
    let mut run = Run::new(1, [Service::Failing, Service::Chain { channels: 0 }]);
    run.load(20);
    run.pass(3_000);
    assert_eq!(outcomes(&run, Outcome::Failed), 20);
    // The copies have them too.
    assert_eq!(dead_letters(&run), (20, 20));
}

#[test]
fn a_dead_letter_is_replayed_once_whoever_asks_and_whatever_fails() {
    for seed in runs().map(|run| run.seed) {
        let mut run = Run::new(seed, [CHAIN_SERVICES[0], Service::Failing]);
        let replay = format!("replay: E3_SEED={seed} cargo test -p e3-sim --test faults");
        run.load(60);
        run.pass(3_000);
        assert_eq!(dead_letters(&run), (60, 60), "{replay}");

        // All can be read, and asking twice changes nothing.
        let back = |shard| ShardKey {
            app: APP,
            service: ServiceId(1),
            shard: ShardId(shard),
        };
        for shard in [0, 1, 2, 2] {
            let primary = run.controller.shard(back(shard)).primary.0;
            run.cluster.read_letters(0, primary, back(shard));
            run.pass(50);
        }
        let read = run.cluster.clients[0].letters.clone();
        let letters: Vec<_> = read
            .values()
            .flat_map(|l| l.letters.iter().map(|letter| (l.shard, letter.clone())))
            .collect();
        assert_eq!(letters.len(), 60, "{replay}");

        // The service is mended; two people replay everything at the same time, on a bad network,
        // while primaries die.
        run.cluster.services[1] = CHAIN_SERVICES[1];
        run.cluster.faults = Faults::BAD;
        let begin = run.cluster.clients[1].sent();
        for (n, (shard, letter)) in letters.iter().enumerate() {
            for client in [1, 2] {
                let to = run.controller.shard(*shard).primary.0;
                let deadline = Nanos::from_millis(60_000);
                run.cluster.replay(client, to, *shard, letter, deadline);
            }
            run.pass(2);
            if n == 20 {
                let victim = run.controller.shard(back(0)).primary.0;
                run.cluster.kill(victim);
            }
        }
        run.heal();
        assert!(run.cluster.clients[1].sent() == begin + 60, "{replay}");
        let done = (
            outcomes(&run, Outcome::Done),
            outcomes(&run, Outcome::Rejected),
        );
        assert_eq!(done, (60, 60), "{replay}");
        let left: usize = run.cluster.clients.iter().map(|c| c.under_way()).sum();
        assert_eq!((left, dead_letters(&run)), (0, (0, 0)), "{replay}");
        let effects: u64 = (0..3)
            .map(|shard| {
                let primary = run.controller.shard(back(shard)).primary.0;
                let state = run.cluster.state(primary, back(shard)).unwrap();
                state.borrow().len(0) as u64
            })
            .sum();
        assert_eq!(effects, 60, "{replay}");
    }
}

#[test]
fn random_bytes_are_counted_and_dropped() {
    let mut run = Run::new(3, CHAIN_SERVICES);
    let mut worker = Worker::new(Config {
        node: NodeId(0),
        incarnation: 1,
        cluster: CLUSTER,
        kind: NodeKind::Host,
        emulated: false,
    });
    worker.handle_plan(
        Nanos(1),
        Arc::new(run.controller.control.plan_for(NodeId(0))),
    );
    let random = &mut run.cluster.random;
    for _ in 0..20_000 {
        let len = random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        // Half of them look right at first.
        if random.chance(500) && len > 16 {
            bytes[..4].copy_from_slice(&[0x01, 0xE3, 1, 1 + random.below(3) as u8]);
            bytes[8..16].copy_from_slice(&CLUSTER.to_le_bytes());
        }
        worker.handle_datagram(Nanos(2), node_address(1), &bytes);
        worker.handle_tick(Nanos(2));
        while worker.poll_output().is_some() {}
        worker.validate();
    }
    assert_eq!(worker.report().stats.dropped.values().sum::<u64>(), 20_000);
}
