//! The number of shards of a service changes: when it may, and what becomes of views and copies.

mod script;

use e3_control::{Applied, Command, CommandError};
use e3_model::plan::{NodeEvent, ShardPlan};
use e3_model::{AppId, NodeId, ServiceId, ShardKey};
use script::Script;

/// The service with two shards.
const BACK: ServiceId = ServiceId(1);

fn reshard(s: &mut Script, shards: u16) -> Result<Applied, CommandError> {
    s.apply(Command::Reshard {
        app: AppId(1),
        service: BACK,
        shards,
    })
}

fn shards(s: &Script) -> Vec<ShardPlan> {
    let all = s.shards().into_iter();
    all.filter(|shard| shard.service == BACK).collect()
}

fn key(s: &Script, shard: &ShardPlan) -> ShardKey {
    s.control.apps[&AppId(1)].plan.key(shard)
}

/// A primary confirms that it has stopped in its present view.
fn stop(s: &mut Script, shard: &ShardPlan) {
    let (key, view) = (key(s, shard), shard.view);
    s.ok(Command::Event(NodeEvent::Frozen { key, view }));
}

fn stop_all(s: &mut Script) {
    for shard in shards(s) {
        stop(s, &shard);
    }
}

fn are_frozen(s: &Script) -> bool {
    let shards = shards(s);
    let frozen = shards.iter().filter(|s| s.frozen && s.quiet).count();
    assert!(frozen == 0 || frozen == shards.len(), "all or none");
    frozen > 0
}

#[test]
fn shards_are_split_where_they_are_and_merged_again() {
    let mut s = Script::filled();
    let before = shards(&s);
    reshard(&mut s, 6).unwrap();
    assert!(are_frozen(&s));
    assert_eq!(shards(&s).len(), 2, "none has stopped");
    stop_all(&mut s);
    let split = shards(&s);
    assert_eq!(split.len(), 6);
    for (n, shard) in split.iter().enumerate() {
        let parent = &before[n / 3];
        assert_eq!(
            (shard.primary, &shard.backups),
            (parent.primary, &parent.backups)
        );
        let newest = before.iter().map(|p| p.view).max().unwrap();
        assert!(shard.view > newest && shard.view == shard.incarnation && shard.view == shard.era);
        assert!(shard.fenced && shard.filled && !shard.frozen && !shard.quiet);
    }
    let plan = &s.control.apps[&AppId(1)].plan;
    let made_of = plan.made_of(&split[4]).unwrap();
    assert_eq!(made_of, [(plan.key_of(BACK, 1), before[1].era)]);
    reshard(&mut s, 2).unwrap();
    stop_all(&mut s);
    assert_eq!(shards(&s).len(), 2);
    assert!(shards(&s)[0].era > split[0].era);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn what_cannot_be_is_refused() {
    let mut s = Script::filled();
    for wanted in [0, 3, 5, 4097] {
        let error = reshard(&mut s, wanted).unwrap_err();
        assert!(matches!(error, CommandError::Shards { .. }), "{error}");
        assert!(
            error.to_string().contains("two-services/back has 2 shards"),
            "{error}"
        );
    }
    assert_eq!(reshard(&mut s, 2), Ok(Applied::Nothing));
    // Each node's share of a thousand more does not fit.
    let error = reshard(&mut s, 4096).unwrap_err();
    assert!(matches!(error, CommandError::Misfit { .. }), "{error}");
    // Shards on different nodes.
    let [one, other] = [shards(&s)[0].clone(), shards(&s)[1].clone()];
    if (one.primary, &one.backups) == (other.primary, &other.backups) {
        let free = (0..6).map(NodeId).find(|n| one.role(*n).is_none()).unwrap();
        let moved = s.apply(Command::Migrate {
            key: key(&s, &other),
            from: other.primary,
            to: free,
            cold: false,
        });
        if moved.is_ok() {
            s.settle();
        }
    }
    let [one, other] = [shards(&s)[0].clone(), shards(&s)[1].clone()];
    if (one.primary, &one.backups) != (other.primary, &other.backups) {
        let error = reshard(&mut s, 1).unwrap_err();
        assert!(matches!(error, CommandError::Apart { .. }), "{error}");
    }
    reshard(&mut s, 4).unwrap();
    let error = reshard(&mut s, 8).unwrap_err();
    assert!(
        matches!(error, CommandError::Resharding { shards: 4, .. }),
        "{error}"
    );
    s.check();
}

#[test]
fn a_view_that_changes_meanwhile_makes_it_begin_again() {
    let mut s = Script::filled();
    reshard(&mut s, 4).unwrap();
    let first = shards(&s)[0].clone();
    stop(&mut s, &first);
    // The primary of the shard that has stopped falls silent: both serve on.
    s.lose(first.primary);
    assert!(!are_frozen(&s));
    assert_eq!(shards(&s).len(), 2);
    s.hear(first.primary);
    for _ in 0..4 {
        s.settle_reachable();
    }
    assert!(are_frozen(&s), "all copies are in place again");
    // What was confirmed of an earlier view counts for nothing.
    let (key, view) = (key(&s, &first), first.view);
    assert_eq!(
        s.ok(Command::Event(NodeEvent::Frozen { key, view })),
        Applied::Nothing
    );
    stop_all(&mut s);
    assert_eq!(shards(&s).len(), 4);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn a_change_that_makes_no_progress_is_cancelled() {
    let mut s = Script::filled();
    reshard(&mut s, 4).unwrap();
    let first = shards(&s)[0].clone();
    stop(&mut s, &first);
    let key = key(&s, &first);
    s.ok(Command::Cancel { key });
    assert!(!are_frozen(&s));
    assert_eq!(s.control.apps[&AppId(1)].resharding, None);
    assert_eq!(shards(&s).len(), 2);
    s.check();
}
