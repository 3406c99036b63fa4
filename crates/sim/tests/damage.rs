//! Damaged datagrams against a chain of two stateful services. Traffic between the simulated nodes
//! and clients is damaged by a bad wire, by peers whose records are wrong, and by peers that send
//! nonsense with a valid checksum. Afterwards every channel must work again.
//!
//! Replay one seed with `E3_SEED=7 cargo test -p e3-sim --test damage`; try many with
//! `E3_SEEDS=1000`.

mod common;

use common::{APP, Run, runs};
use e3_model::DropReason;
use e3_sim::{Client, Damage, Faults};
use std::collections::BTreeMap;

fn damaged(permille: u64, damage: Damage) -> Faults {
    Faults {
        damaged: Some((permille, damage)),
        ..Faults::BAD
    }
}

/// The datagrams that all nodes dropped, by reason.
fn dropped(run: &Run) -> BTreeMap<DropReason, u64> {
    let mut all = BTreeMap::new();
    for node in run.cluster.up() {
        let worker = run.cluster.worker(node).expect("it is up");
        for (reason, count) in worker.report().stats.dropped {
            *all.entry(reason).or_default() += count;
        }
    }
    all
}

fn restarts(run: &Run) -> u64 {
    dropped(run).get(&DropReason::Channel).copied().unwrap_or(0)
}

/// Checks that everything works for new clients, whose requests are not damaged.
fn all_goes_on(run: &mut Run) {
    let clients = &mut run.cluster.clients;
    run.senders_from = clients.len();
    clients.extend((0..3).map(|c| Client::new(10_000_000 + c, APP)));
    run.load(200);
    run.pass(5_000);
    run.check_clients(run.senders_from);
}

#[test]
fn what_the_wire_damages_is_dropped() {
    let mut total = 0;
    for mut run in runs() {
        run.cluster.faults = damaged(300, Damage::Wire);
        run.load(500);
        run.heal();
        run.check();
        let dropped = dropped(&run);
        let seen = dropped.get(&DropReason::Checksum).copied().unwrap_or(0);
        assert!(
            seen > run.cluster.damaged / 3,
            "{dropped:?}; {}",
            run.replay()
        );
        // No damaged datagram passed the checksum.
        for reason in [
            DropReason::Frame,
            DropReason::ClientFrame,
            DropReason::Message,
            DropReason::Replication,
            DropReason::Channel,
            DropReason::Lease,
        ] {
            assert_eq!(dropped.get(&reason), None, "{dropped:?}; {}", run.replay());
        }
        total += run.cluster.damaged;
    }
    println!("{total} datagrams damaged");
}

#[test]
fn what_the_wire_damages_is_dropped_while_nodes_die() {
    for mut run in runs() {
        run.cluster.faults = damaged(200, Damage::Wire);
        run.lose_one(150, 300);
        run.pass(15_000);
        run.heal();
        run.check();
    }
}

#[test]
fn channels_recover_from_peers_whose_records_are_wrong() {
    for mut run in runs() {
        run.cluster.faults = damaged(100, Damage::Records);
        run.load(500);
        run.heal();
        run.check();
        assert!(restarts(&run) > 0, "{:?}; {}", dropped(&run), run.replay());
        // After healing no channel restarts.
        let before = restarts(&run);
        all_goes_on(&mut run);
        assert_eq!(restarts(&run), before, "{}", run.replay());
    }
}

#[test]
fn channels_recover_from_peers_that_send_nonsense() {
    for mut run in runs() {
        run.cluster.faults = damaged(100, Damage::Nonsense);
        run.load(500);
        run.cluster.faults = Faults::NONE;
        // The requests so far may have been changed on the way; they expire.
        run.pass(70_000);
        all_goes_on(&mut run);
    }
}

#[test]
fn damage_is_a_function_of_the_seed() {
    let trace = |damage| {
        let mut run = Run::new(3, common::CHAIN_SERVICES);
        run.cluster.faults = damaged(100, damage);
        run.load(100);
        run.pass(1_000);
        (run.cluster.trace, run.cluster.damaged)
    };
    for damage in [Damage::Wire, Damage::Records, Damage::Nonsense] {
        assert_eq!(trace(damage), trace(damage));
    }
}
