//! Faults against a chain of two stateful services: whatever the network loses, duplicates and
//! reorders, whichever node is killed, whatever moves, every request has one outcome and one effect.
//!
//! Each test has a phase with faults and then one in which everything must converge. Replay one
//! seed with `E3_SEED=7 cargo test -p e3-sim --test faults`; try many with `E3_SEEDS=1000`.

mod common;

use common::{APP, CHAIN_SERVICES, Run, runs};
use e3_control::Command;
use e3_dataplane::{Config, Worker};
use e3_model::plan::Role;
use e3_model::{Format, Formats, Nanos, NodeId, NodeKind, ServiceId, ShardId, ShardKey, Timestamp};
use e3_sim::cluster::CLUSTER;
use e3_sim::network::node_address;
use e3_sim::service::Service;
use e3_sim::{Client, Faults};
use e3_wire::datagram::{HEADER_LEN, seal};
use e3_wire::entry::Outcome;
use std::sync::Arc;

/// A shard of the second service.
fn back(shard: u16) -> ShardKey {
    ShardKey {
        app: APP,
        service: ServiceId(1),
        shard: ShardId(shard),
    }
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
            run.lose_one(150, 300);
            run.pass(15_000);
        }
        run.heal();
        run.check();
    }
}

#[test]
fn expired_requests_with_an_idempotency_key_are_handled_once_when_they_come_again() {
    for mut run in runs() {
        let client = |c: u64| Client::keyed(200 + c, APP, Nanos::from_millis(400 + 300 * c));
        run.cluster.clients = (0..3).map(client).collect();
        run.cluster.faults = Faults::BAD;
        run.lose_one(150, 400);
        run.heal();
        run.check();
        assert_eq!(dead_letters(&run), (0, 0), "seed {}", run.seed);
    }
}

#[test]
fn a_process_that_restarts_at_once_has_lost_its_copies_only() {
    for mut run in runs() {
        run.cluster.faults = Faults::BAD;
        run.load(200);
        let victim = run.controller.shard(back(1)).primary.0;
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
        let key = back(0);
        for cold in [false, true, false] {
            let from = run.controller.shard(key).primary;
            // The other node of its server: its fault domain has no other copy.
            let to = NodeId(from.0 ^ 1);
            run.controller
                .apply(&Command::Migrate {
                    key,
                    from,
                    to,
                    cold,
                })
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

/// The numbers of dead letters at primaries and at backups.
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
    // The backups have them too.
    assert_eq!(dead_letters(&run), (20, 20));
}

#[test]
fn a_dead_letter_is_replayed_once_whoever_asks_and_whatever_fails() {
    for seed in runs().map(|run| run.seed) {
        let mut run = Run::new(seed, [CHAIN_SERVICES[0].clone(), Service::Failing]);
        let replay = run.replay();
        run.load(60);
        run.pass(3_000);
        assert_eq!(dead_letters(&run), (60, 60), "{replay}");

        // All can be read, and asking twice changes nothing.
        for shard in [0, 1, 2, 2] {
            let primary = run.controller.shard(back(shard)).primary.0;
            run.cluster.read_dead_letters(0, primary, back(shard));
            run.pass(50);
        }
        let read = run.cluster.clients[0].dead_letters.clone();
        let letters: Vec<_> = read
            .values()
            .flat_map(|l| l.letters.iter().map(|letter| (l.shard, letter.clone())))
            .collect();
        assert_eq!(letters.len(), 60, "{replay}");

        // The service is fixed. Two clients replay everything at the same time, on a bad network, and a
        // primary dies.
        run.cluster.services[0][1] = CHAIN_SERVICES[1].clone();
        run.cluster.faults = Faults::BAD;
        let begin = run.cluster.clients[1].sent();
        for (n, (shard, letter)) in letters.iter().enumerate() {
            for client in [1, 2] {
                let to = run.controller.shard(*shard).primary.0;
                let deadline = Nanos::from_secs(60);
                run.cluster.replay(client, to, *shard, letter, deadline);
            }
            run.pass(2);
            if n == 20 {
                let victim = run.controller.shard(back(0)).primary.0;
                run.cluster.kill(victim);
            }
        }
        run.pass(2_000);
        for client in [1, 2] {
            for shard in 0..3 {
                let primary = run.controller.shard(back(shard)).primary.0;
                let primaries = &mut run.cluster.clients[client].primaries;
                primaries.insert(back(shard), primary);
            }
        }
        run.heal();
        assert!(run.cluster.clients[1].sent() == begin + 60, "{replay}");
        let done = (
            outcomes(&run, Outcome::Done),
            outcomes(&run, Outcome::Rejected),
        );
        assert_eq!(done, (60, 60), "{replay}");
        let left: usize = run.cluster.clients.iter().map(|c| c.in_flight()).sum();
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
        formats: Formats::PROGRAM,
        kind: NodeKind::Host,
        journal_len_min: u64::MAX,
        slowed: false,
        emulated: None,
    });
    worker.handle_plan(
        Timestamp(1),
        Arc::new(run.controller.control.plan_for(NodeId(0))),
    );
    let random = &mut run.cluster.random;
    for _ in 0..20_000 {
        let len = random.below(200) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next_u64() as u8).collect();
        // Half of them have a valid header and checksum.
        if random.chance(500) && len >= HEADER_LEN {
            let kind = 1 + random.below(3) as u8;
            bytes[..4].copy_from_slice(&[0x01, 0xE3, Format::NEWEST.0, kind]);
            bytes[12..20].copy_from_slice(&CLUSTER.to_le_bytes());
            seal(Format::NEWEST, &mut bytes);
        }
        worker.handle_datagram(Timestamp(2), node_address(1), &bytes);
        worker.handle_tick(Timestamp(2));
        while worker.poll_output().is_some() {}
        worker.validate();
    }
    assert_eq!(worker.report().stats.dropped.values().sum::<u64>(), 20_000);
}
