//! Which shard minds which nodes: balance, how few nodes move, and that the shards find the same silence.

use crate::script::{NODES, Script};
use e3_control::limits::SHARDS_MAX;
use e3_control::{Membership, Shards};
use e3_model::{Nanos, NodeId, Timestamp};
use e3_testkit::{Random, seeds};
use std::collections::{BTreeMap, BTreeSet};

const TIMEOUT: Nanos = Nanos::from_millis(200);

/// The ids of a cluster: some are missing, as nodes were removed.
fn nodes(random: &mut Random) -> Vec<NodeId> {
    let count = 1 + random.below(5_000) as u32;
    let ids = (0..count).filter(|_| !random.one_in(10));
    ids.map(NodeId).collect()
}

fn minded(shards: &Shards, nodes: &[NodeId]) -> BTreeMap<u16, usize> {
    let mut minded = BTreeMap::new();
    for node in nodes {
        *minded.entry(shards.of(*node)).or_default() += 1;
    }
    minded
}

#[test]
fn a_shard_is_added_until_there_are_the_most() {
    assert_eq!(Shards::new(2).with(7).numbers(), [0, 1, 7]);
    assert_eq!(Shards::new(2).with(1).numbers(), [0, 1]);
    let most = Shards::new(SHARDS_MAX);
    assert_eq!(most.with(SHARDS_MAX), most);
    // 2,500 on average, and five times the square root of that, and five.
    assert_eq!(Shards::nodes_max(10_000, 4), 2_755);
    assert_eq!(Shards::nodes_max(0, 3), 5);
}

#[test]
fn shards_mind_no_more_nodes_than_stated_and_few_nodes_move() {
    for seed in seeds(300) {
        let mut random = Random::new(seed);
        let nodes = nodes(&mut random);
        let shards = Shards::new(1 + random.below(SHARDS_MAX.into()) as u16);
        let count = shards.numbers().len();
        let most = Shards::nodes_max(nodes.len(), count);
        let before = minded(&shards, &nodes);
        assert_eq!(before.values().sum::<usize>(), nodes.len());
        for (shard, minds) in &before {
            assert!(
                *minds <= most,
                "seed {seed}: shard {shard} minds {minds} of {}",
                nodes.len()
            );
        }

        // A shard that is added only takes nodes.
        let new = SHARDS_MAX + random.below(1_000) as u16;
        let more = shards.with(new);
        if more != shards {
            let moved = nodes.iter().filter(|n| more.of(**n) != shards.of(**n));
            let moved: Vec<&NodeId> = moved.collect();
            assert!(moved.iter().all(|n| more.of(**n) == new), "seed {seed}");
            assert!(
                moved.len() <= Shards::nodes_max(nodes.len(), count + 1),
                "seed {seed}"
            );
            assert_eq!(more.without(new), shards);
        }
        // One that is removed only gives up its own.
        let gone = *random.pick(shards.numbers());
        let fewer = shards.without(gone);
        let stays = nodes.iter().filter(|n| shards.of(**n) != gone);
        for node in stays {
            assert_eq!(fewer.of(*node), shards.of(*node), "seed {seed}");
        }
    }
}

#[test]
fn there_is_at_least_one_shard_and_at_most_so_many() {
    assert_eq!(Shards::new(0).numbers(), [0]);
    assert_eq!(Shards::new(1).without(0).numbers(), [0]);
    let most = Shards::new(u16::MAX);
    assert_eq!(most.numbers().len(), usize::from(SHARDS_MAX));
    assert_eq!(most.with(1_000), most);
}

#[test]
fn any_number_of_shards_finds_the_same_silence() {
    let mut found = BTreeSet::new();
    for seed in seeds(200) {
        let mut random = Random::new(seed);
        let mut s = Script::up(&NODES);
        let mut now = Timestamp::ZERO + Nanos::from_secs(100);
        let mut listeners = [1, 2, 5, SHARDS_MAX].map(|k| Membership::sharded(now, TIMEOUT, k));
        let mut quiet = BTreeSet::new();
        for _ in 0..400 {
            // Rarely the controller is paused.
            let pause = if random.one_in(100) { 2_000 } else { 10 };
            now += Nanos::from_millis(pause);
            let node = NodeId(random.below(6) as u32);
            if random.one_in(20) && !quiet.remove(&node) {
                quiet.insert(node);
            }
            for node in (0..6).map(NodeId).filter(|n| !quiet.contains(n)) {
                let incarnation = s.control.members[&node].incarnation;
                for listener in &mut listeners {
                    listener.on_heartbeat(now, node, incarnation);
                }
                s.hear_if_silent(node);
            }
            let all = listeners
                .each_mut()
                .map(|l| (l.lost(now, &s.control), l.is_deaf()));
            for other in &all {
                assert_eq!(*other, all[0], "seed {seed}");
            }
            let lost: Vec<NodeId> = all[0].0.keys().copied().collect();
            found.insert(lost.len());
            if !lost.is_empty() {
                s.lose_all(&lost);
            }
        }
    }
    assert!(
        found.len() > 2,
        "it also found nodes that fell silent together: {found:?}"
    );
}
