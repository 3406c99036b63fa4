//! Faults against a chain of two stateful services: whatever the network loses, repeats and
//! reorders, and whichever node is killed, every request has one outcome and one effect.
//!
//! Replay one seed with `E3_SEED=7 cargo test -p e3-sim --test faults`; try many with
//! `E3_SEEDS=1000`.

use e3_model::document::parse_application;
use e3_model::plan::{AppPlan, NodeEvent, NodePlan, Peer, ShardPlan};
use e3_model::{AppId, Nanos, NodeId, ServiceId, ShardId, ShardKey};
use e3_sim::cluster::CLUSTER;
use e3_sim::network::node_address;
use e3_sim::service::Service;
use e3_sim::{Client, Cluster, Faults};
use e3_wire::entry::Outcome;
use std::collections::BTreeMap;
use std::sync::Arc;

const CHAIN: &str = include_str!("chain.yaml");
const APP: AppId = AppId(1);

/// The decisions of a controller, made by hand so that a test says exactly what happens.
struct Plans {
    plan: NodePlan,
}

impl Plans {
    fn new(nodes: u16) -> Plans {
        let app = Arc::new(parse_application("chain.yaml", CHAIN).unwrap());
        let mut shards = Vec::new();
        for (s, service) in app.spec.services.iter().enumerate() {
            for shard in 0..service.shards {
                let primary = (s as u16 + shard) % nodes;
                shards.push(ShardPlan {
                    service: ServiceId(s as u16),
                    shard: ShardId(shard),
                    view: 1,
                    incarnation: 1,
                    primary: NodeId(primary),
                    backups: vec![NodeId((primary + 1) % nodes)],
                    joining: vec![],
                    predecessor: None,
                    fenced: true,
                    frozen: false,
                });
            }
        }
        let app = AppPlan {
            id: APP,
            code_version: 1,
            app,
            modules: vec![],
            assets: BTreeMap::new(),
            slowdown: vec![],
            shards,
        };
        let mut plan = NodePlan {
            version: 1,
            cluster: CLUSTER,
            ..NodePlan::default()
        };
        plan.apps.push(app);
        for node in 0..nodes {
            let address = node_address(node);
            let name = format!("n{node}");
            let peer = Peer {
                name,
                server: node.into(),
                incarnation: 1,
                address,
            };
            plan.peers.insert(NodeId(node), peer);
        }
        Plans { plan }
    }

    fn send(&mut self, cluster: &mut Cluster) {
        self.plan.version += 1;
        for node in self.plan.peers.keys() {
            cluster.plan(NodePlan {
                node: *node,
                ..self.plan.clone()
            });
        }
    }

    fn shard(&mut self, key: ShardKey) -> &mut ShardPlan {
        let mut shards = self.plan.apps[0].shards.iter_mut();
        shards
            .find(|s| (s.service, s.shard) == (key.service, key.shard))
            .unwrap()
    }

    /// Primaries of a lost node move to their backups; `spare` joins wherever a copy is missing.
    fn lose(&mut self, lost: NodeId) {
        self.plan.peers.remove(&lost);
        let nodes: Vec<NodeId> = self.plan.peers.keys().copied().collect();
        for shard in &mut self.plan.apps[0].shards {
            shard.joining.retain(|n| *n != lost);
            shard.backups.retain(|n| *n != lost);
            shard.view += 1;
            if shard.primary == lost {
                shard.predecessor = Some(lost);
                shard.fenced = false;
                shard.primary = shard.backups.remove(0);
                shard.incarnation = shard.view;
            }
            if shard.backups.is_empty() && shard.joining.is_empty() {
                let spare = nodes.iter().find(|n| **n != shard.primary).unwrap();
                shard.joining.push(*spare);
            }
        }
    }

    /// Takes what the nodes tell, as the controller does.
    fn hear(&mut self, cluster: &Cluster) -> Vec<ShardKey> {
        let mut frozen = Vec::new();
        let nodes: Vec<NodeId> = self.plan.peers.keys().copied().collect();
        for node in nodes {
            for event in cluster.events(node.0) {
                match event {
                    NodeEvent::Synced { key, view, backup } => {
                        let shard = self.shard(key);
                        if shard.view == view {
                            shard.joining.retain(|n| *n != backup);
                            shard.backups.push(backup);
                            shard.view += 1;
                        }
                    }
                    NodeEvent::Frozen { key, .. } => frozen.push(key),
                }
            }
        }
        frozen
    }
}

fn cluster(seed: u64, nodes: u16, clients: u16) -> (Cluster, Plans) {
    let services = vec![
        Service::Chain { channels: 1 },
        Service::Chain { channels: 0 },
    ];
    let mut cluster = Cluster::new(seed, services);
    let mut plans = Plans::new(nodes);
    for node in 0..nodes {
        cluster.start(node, 1);
    }
    for client in 0..clients {
        cluster
            .clients
            .push(Client::new(100 + u64::from(client), APP));
    }
    plans.send(&mut cluster);
    cluster.run(Nanos::from_millis(500));
    (cluster, plans)
}

/// Requests from every client, to random live nodes, at random moments.
fn load(cluster: &mut Cluster, requests: u64, nodes: u16) {
    for _ in 0..requests {
        let clients = cluster.clients.len() as u64;
        let client = cluster.random.below(clients) as u16;
        let to = (0..)
            .map(|_| cluster.random.below(nodes.into()) as u16)
            .take(64);
        let to = to
            .collect::<Vec<_>>()
            .into_iter()
            .find(|n| cluster.is_up(*n))
            .unwrap();
        cluster.request(client, to, Nanos::from_millis(60_000));
        let pause = cluster.random.below(2_000_000);
        cluster.run(Nanos(pause));
    }
}

/// Every request has one outcome, and its effect exactly once in every service.
fn check(cluster: &Cluster, plans: &Plans, seed: u64) {
    let replay = format!("replay: E3_SEED={seed} cargo test -p e3-sim --test faults");
    let mut counts: Vec<BTreeMap<Vec<u8>, i64>> = vec![BTreeMap::new(); 2];
    for shard in &plans.plan.apps[0].shards {
        let key = plans.plan.apps[0].key(shard);
        let state = cluster
            .state(shard.primary.0, key)
            .expect("the primary has the shard");
        for client in &cluster.clients {
            for seq in 1..=client.sent() {
                let id = [client.id.to_le_bytes(), seq.to_le_bytes()].concat();
                let count = state.borrow().counter_get(0, &id);
                if count != 0 {
                    *counts[usize::from(shard.service.0)].entry(id).or_default() += count;
                }
            }
        }
        for backup in &shard.backups {
            let copy = cluster
                .state(backup.0, key)
                .expect("a backup has the shard");
            assert_eq!(
                copy.borrow().digest(),
                state.borrow().digest(),
                "{key} on {backup}; {replay}"
            );
        }
    }
    for client in &cluster.clients {
        assert_eq!(client.open(), 0, "requests without outcome; {replay}");
        assert_eq!(client.contradictions, 0, "{replay}");
        assert_eq!(
            client.count(Outcome::Done) as u64,
            client.sent(),
            "{replay}"
        );
        for seq in 1..=client.sent() {
            let id = [client.id.to_le_bytes(), seq.to_le_bytes()].concat();
            for (service, counts) in counts.iter().enumerate() {
                let count = counts.get(&id).copied();
                assert_eq!(
                    count,
                    Some(1),
                    "request {seq} in service {service}; {replay}"
                );
            }
        }
    }
}

fn seeds() -> Vec<u64> {
    let number = |name| {
        std::env::var(name)
            .ok()
            .map(|v| v.parse().expect("a number"))
    };
    match (number("E3_SEED"), number("E3_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (1..=count.unwrap_or(12)).collect(),
    }
}

#[test]
fn a_good_network() {
    for seed in seeds() {
        let (mut cluster, plans) = cluster(seed, 3, 2);
        load(&mut cluster, 300, 3);
        cluster.run(Nanos::from_millis(5_000));
        check(&cluster, &plans, seed);
    }
}

#[test]
fn loss_repetition_and_reordering() {
    for seed in seeds() {
        let (mut cluster, plans) = cluster(seed, 3, 3);
        cluster.faults = Faults::BAD;
        load(&mut cluster, 500, 3);
        cluster.faults = Faults::NONE;
        cluster.run(Nanos::from_millis(20_000));
        check(&cluster, &plans, seed);
    }
}

#[test]
fn a_killed_node_loses_nothing_and_repeats_nothing() {
    for seed in seeds() {
        let (mut cluster, mut plans) = cluster(seed, 4, 3);
        cluster.faults = Faults::BAD;
        load(&mut cluster, 200, 4);
        let victim = cluster.random.below(4) as u16;
        cluster.kill(victim);
        load(&mut cluster, 100, 4);
        plans.lose(NodeId(victim));
        plans.send(&mut cluster);
        load(&mut cluster, 300, 4);
        for _ in 0..100 {
            cluster.run(Nanos::from_millis(100));
            plans.hear(&cluster);
            plans.send(&mut cluster);
        }
        // A second one, now that every shard has two copies again.
        assert!(
            plans.plan.apps[0]
                .shards
                .iter()
                .all(|s| s.backups.len() == 1),
            "seed {seed}"
        );
        let second = plans.plan.apps[0].shards[0].primary;
        cluster.kill(second.0);
        plans.lose(second);
        plans.send(&mut cluster);
        load(&mut cluster, 200, 4);
        cluster.faults = Faults::NONE;
        for _ in 0..300 {
            cluster.run(Nanos::from_millis(100));
            plans.hear(&cluster);
            plans.send(&mut cluster);
        }
        check(&cluster, &plans, seed);
    }
}

#[test]
fn a_shard_moves_with_its_state_while_requests_come() {
    for seed in seeds() {
        let (mut cluster, mut plans) = cluster(seed, 3, 3);
        cluster.faults = Faults::BAD;
        let key = ShardKey {
            app: APP,
            service: ServiceId(1),
            shard: ShardId(0),
        };
        let (from, to) = (plans.shard(key).primary, NodeId(0));
        assert_ne!(from, to);
        plans.shard(key).joining.push(to);
        plans.shard(key).view += 1;
        plans.send(&mut cluster);
        let mut moved = false;
        for _ in 0..400 {
            load(&mut cluster, 2, 3);
            cluster.run(Nanos::from_millis(20));
            let frozen = plans.hear(&cluster);
            let shard = plans.shard(key);
            if shard.backups.contains(&to) && !shard.frozen && !moved {
                shard.frozen = true;
                shard.view += 1;
            }
            if frozen.contains(&key) && shard.frozen {
                shard.frozen = false;
                shard.view += 1;
                shard.incarnation = shard.view;
                shard.predecessor = Some(from);
                shard.fenced = true;
                shard.backups.retain(|n| *n != to);
                shard.primary = to;
                moved = true;
            }
            plans.send(&mut cluster);
        }
        assert!(moved, "seed {seed}: the shard has not moved");
        cluster.faults = Faults::NONE;
        cluster.run(Nanos::from_millis(20_000));
        check(&cluster, &plans, seed);
    }
}

#[test]
fn one_seed_gives_one_run() {
    let run = || {
        let (mut cluster, _) = cluster(5, 3, 2);
        cluster.faults = Faults::BAD;
        load(&mut cluster, 200, 3);
        cluster.run(Nanos::from_millis(3_000));
        cluster.trace
    };
    assert_eq!(run(), run());
}

#[test]
fn a_failing_service_gives_dead_letters_not_silence() {
    let mut cluster = Cluster::new(1, vec![Service::Failing, Service::Chain { channels: 0 }]);
    let mut plans = Plans::new(3);
    (0..3).for_each(|n| cluster.start(n, 1));
    cluster.clients.push(Client::new(9, APP));
    plans.send(&mut cluster);
    cluster.run(Nanos::from_millis(500));
    load(&mut cluster, 20, 3);
    cluster.run(Nanos::from_millis(3_000));
    assert_eq!(cluster.clients[0].count(Outcome::Failed), 20);
    let dead: u64 = (0..3)
        .flat_map(|n| cluster.worker(n).unwrap().report().instances)
        .filter(|i| i.role == e3_model::plan::Role::Primary)
        .map(|i| i.dead_letters)
        .sum();
    assert_eq!(dead, 20);
}

#[test]
fn random_bytes_are_counted_and_dropped() {
    let (mut cluster, plans) = cluster(3, 3, 1);
    let mut worker = e3_dataplane::Worker::new(e3_dataplane::Config {
        node: NodeId(0),
        incarnation: 1,
        cluster: CLUSTER,
        kind: e3_model::NodeKind::Host,
        emulated: false,
    });
    worker.handle_plan(
        Nanos(1),
        Arc::new(NodePlan {
            node: NodeId(0),
            ..plans.plan.clone()
        }),
    );
    for _ in 0..20_000 {
        let len = cluster.random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| cluster.random.bits() as u8).collect();
        // Half of them look right at first.
        if cluster.random.chance(500) && len > 16 {
            bytes[..4].copy_from_slice(&[0x01, 0xE3, 1, 1 + cluster.random.below(3) as u8]);
            bytes[8..16].copy_from_slice(&CLUSTER.to_le_bytes());
        }
        worker.handle_datagram(Nanos(2), node_address(1), &bytes);
        worker.handle_tick(Nanos(2));
        while worker.poll_output().is_some() {}
        worker.validate();
    }
    assert_eq!(worker.report().stats.dropped.values().sum::<u64>(), 20_000);
}
