//! What comes from a primary is checked; what the node wrote down itself was.

use super::*;
use crate::check::tests::{CONFIG, NOW, app, place};
use crate::limits::CLOCK_AHEAD_MAX;
use crate::reach::ClockCheck;
use crate::shard::World;
use e3_model::timer::When;
use e3_model::{AppId, Nanos, Slot};
use e3_wire::timer::TimerName;
use std::collections::BTreeMap;

#[test]
fn only_what_a_primary_sends_is_checked() {
    let app = app();
    let (key, own) = place(&app, 1);
    let memory = app.service(key).resources.memory.0;
    let world = World {
        config: CONFIG,
        now: NOW,
        plan: Default::default(),
        apps: BTreeMap::from([(AppId(1), app)]),
        subscribers: Default::default(),
        leases: Default::default(),
        memory_full: None,
        recovered_at: Timestamp::ZERO,
        clock: ClockCheck::Right,
    };
    let context = world.context(AppId(1)).unwrap();
    let is_other = |of: &Vec<u8>| Slot::of(of).shard(3) != key.shard;
    let other = (0..99u8).map(|n| vec![n]).find(is_other).unwrap();
    let timer = |key: Vec<u8>| Timer {
        name: TimerName {
            key,
            name: "t".into(),
        },
        next: NOW,
        set_at: NOW,
        seq: 1,
        when: When::At(NOW),
        payload: Vec::new(),
    };
    let (own, other) = (timer(own), timer(other));
    let latest = NOW + CLOCK_AHEAD_MAX;
    let late = latest + Nanos(1);

    let primary = Checks::Primary(&context, key);
    assert!(primary.time(latest).is_ok() && primary.time(late).is_err());
    assert!(primary.timer(&own).is_ok() && primary.timer(&other).is_err());
    assert_eq!(primary.memory_max(), memory);
    for own_record in [Checks::Disk, Checks::Checkpoint] {
        assert!(own_record.time(late).is_ok() && own_record.timer(&other).is_ok());
        assert_eq!(own_record.memory_max(), u64::MAX);
    }
}
