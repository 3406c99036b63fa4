//! Scripts of a cluster: nodes join and are lost, and the controller re-assigns shards.

use crate::script::{APP, AT, KEY, Script};
use e3_control::{Applied, Command, CommandError, Phase};
use e3_model::document::parse_application;
use e3_model::plan::{NodeEvent, NodeHello};
use e3_model::{Address, AppId, NodeId, ShardId, ShardKey};
use e3_placement::AdmitError;
use e3_testkit::{Random, seeds};
use std::collections::BTreeMap;

#[test]
fn deploy_places_every_replica_once() {
    let mut s = Script::all();
    assert_eq!(s.deploy().unwrap(), Applied::Deployed(AppId(1)));
    assert_eq!(s.deploy().unwrap(), Applied::Nothing);
    let app = &s.control.apps[&AppId(1)];
    assert_eq!(app.plan.shards.len(), 3);
    assert_eq!(app.placed.len(), 6);
    assert!(app.placed.iter().all(|p| !p.why.is_empty()));
    s.check();
}

#[test]
fn too_few_fault_domains_are_refused() {
    let mut s = Script::up(&["s1-host", "s1-nic0"]);
    assert!(matches!(
        s.deploy(),
        Err(CommandError::Admit(AdmitError::Place(_)))
    ));
    assert!(matches!(
        s.apply(Command::Delete { app: "none".into() }),
        Err(CommandError::NoApp(_))
    ));
    let hello = NodeHello {
        name: "x".into(),
        address: Address::default(),
        process: 1,
        on_disk: None,
        ..NodeHello::default()
    };
    assert!(matches!(
        s.apply(Command::Join { hello, at: AT }),
        Err(CommandError::NoNode { .. })
    ));
    s.check();
}

#[test]
fn a_lost_primary_is_replaced_by_its_backup() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    s.lose(before.primary);
    assert!(!s.shard(KEY).fenced, "its leases may still run");
    s.leave();
    let after = s.shard(KEY);
    assert_eq!(after.primary, before.backups[0]);
    assert_eq!(after.predecessor, Some(before.primary));
    assert_eq!((after.backups.len(), after.joining.len()), (0, 1));
    assert!(after.incarnation > before.incarnation);
    s.settle();
    assert_eq!(s.shard(KEY).backups.len(), 1);
    assert_eq!(
        s.shard(KEY).incarnation,
        after.incarnation,
        "a new backup disturbs nobody"
    );
    assert_eq!(s.control.apps[&AppId(1)].state_lost, 0);
    s.check();
}

#[test]
fn late_news_of_an_old_view_changes_nothing() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    s.lose_and_leave(before.primary);
    let now = s.shard(KEY);
    let old = NodeEvent::Synced {
        key: KEY,
        view: before.view,
        backup: now.joining[0],
    };
    assert_eq!(s.ok(Command::Event(old)), Applied::Nothing);
    let never = NodeEvent::Frozen {
        key: KEY,
        view: now.view,
    };
    assert_eq!(s.ok(Command::Event(never)), Applied::Nothing);
    s.check();
}

#[test]
fn a_restarted_process_has_lost_what_it_held() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    let version = s.control.version;
    let names = [
        "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
    ];
    let primary = before.primary.index();
    s.join(names[primary], 100 + primary as u64);
    assert_eq!(s.shard(KEY), before, "the same process again is no news");
    s.join(names[primary], 999);
    assert_ne!(s.shard(KEY).primary, before.primary);
    assert!(s.control.version > version);
    assert_eq!(s.control.members[&before.primary].incarnation, 2);
    s.check();
}

#[test]
fn a_shard_moves_by_copy_freeze_and_switch() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    // The other node of its own server: same fault domain as the primary that leaves it.
    let to = NodeId(before.primary.0 ^ 1);
    s.ok(Command::Migrate {
        key: KEY,
        from: before.primary,
        to,
        cold: false,
    });
    let again = s.apply(Command::Migrate {
        key: KEY,
        from: before.primary,
        to,
        cold: false,
    });
    assert!(matches!(again, Err(CommandError::Moving { .. })));
    assert_eq!(
        s.control.apps[&AppId(1)].migrations[0].phase,
        Phase::Copying
    );
    s.settle();
    let after = s.shard(KEY);
    assert_eq!(
        (after.primary, after.fenced, after.frozen),
        (to, true, false)
    );
    assert_eq!(after.backups, before.backups);
    assert!(s.control.apps[&AppId(1)].migrations.is_empty());
    s.check();
}

#[test]
fn a_move_is_refused_where_it_may_not_go_and_ends_when_its_target_dies() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    let beside_backup = NodeId(before.backups[0].0 ^ 1);
    let refused = s.apply(Command::Migrate {
        key: KEY,
        from: before.primary,
        to: beside_backup,
        cold: false,
    });
    assert!(
        matches!(refused, Err(CommandError::Misfit { .. })),
        "{refused:?}"
    );
    let to = NodeId(before.primary.0 ^ 1);
    s.ok(Command::Migrate {
        key: KEY,
        from: before.primary,
        to,
        cold: false,
    });
    s.lose(to);
    assert!(s.control.apps[&AppId(1)].migrations.is_empty());
    assert_eq!(s.shard(KEY).primary, before.primary);
    s.settle();
    s.check();
}

#[test]
fn a_move_given_up_leaves_the_shard_as_it_was() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    let to = NodeId(before.primary.0 ^ 1);
    let from = before.primary;
    s.ok(Command::Migrate {
        key: KEY,
        from,
        to,
        cold: false,
    });
    s.ok(Command::Cancel { key: KEY });
    let view = s.shard(KEY).view;
    assert_eq!(s.ok(Command::Cancel { key: KEY }), Applied::Nothing);
    s.ok(Command::Migrate {
        key: KEY,
        from,
        to,
        cold: false,
    });
    let synced = NodeEvent::Synced {
        key: KEY,
        view: view + 1,
        backup: to,
    };
    s.ok(Command::Event(synced));
    assert!(s.shard(KEY).frozen);
    s.ok(Command::Cancel { key: KEY });
    s.leave();
    let after = s.shard(KEY);
    assert_eq!((after.primary, after.frozen), (before.primary, false));
    assert_eq!(after.backups, before.backups);
    assert_eq!(after.incarnation, before.incarnation, "nobody is disturbed");
    s.check();
}

#[test]
fn a_backup_that_moves_and_is_promoted_stays_where_it_is() {
    let mut s = Script::all();
    s.deploy().unwrap();
    let before = s.shard(KEY);
    let backup = before.backups[0];
    s.ok(Command::Migrate {
        key: KEY,
        from: backup,
        to: NodeId(backup.0 ^ 1),
        cold: false,
    });
    s.lose(before.primary);
    let after = s.shard(KEY);
    assert_eq!(after.primary, backup);
    assert!(s.control.apps[&AppId(1)].migrations.is_empty());
    assert_ne!(after.joining, [NodeId(backup.0 ^ 1)], "same fault domain");
    s.settle();
    s.check();
}

#[test]
fn an_application_that_no_memory_holds_is_refused() {
    let mut s = Script::all();
    let text = APP.replace("memory: 64Mi", "memory: 40Gi");
    let app = parse_application("a.yaml", &text).unwrap();
    let refused = s.apply(Command::Deploy {
        app: Box::new(app),
        modules: vec!["m1".into(), "m2".into()],
        assets: BTreeMap::new(),
        profiles: BTreeMap::new(),
        overcommit: true,
        restored: None,
        placed: Vec::new(),
    });
    let Err(CommandError::Admit(AdmitError::NoRoom(_))) = &refused else {
        panic!("{refused:?}")
    };
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("asks for 40Gi of memory"), "{text}");
    assert!(text.contains("needs 40Gi of memory"), "{text}");
    s.check();
}

#[test]
fn random_commands_keep_the_invariants() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let mut s = Script::all();
        s.deploy().unwrap();
        let names = [
            "s1-host", "s1-nic0", "s2-host", "s2-nic0", "s3-host", "s3-nic0",
        ];
        for step in 0..60 {
            let node = NodeId(random.below(6) as u32);
            let key = ShardKey {
                shard: ShardId(random.below(2) as u16),
                ..KEY
            };
            let incarnation = s.control.members[&node].incarnation;
            let command = match random.below(10) {
                0 => Command::Lose {
                    nodes: (node.0..6)
                        .step_by(1 + random.below(6) as usize)
                        .map(|n| (NodeId(n), s.control.members[&NodeId(n)].incarnation))
                        .collect(),
                    at: AT,
                },
                6 => Command::Hear {
                    node,
                    incarnation,
                    at: AT,
                },
                7 => Command::Forget { key, at: AT },
                1 => {
                    let (name, process) = (names[node.index()].into(), 1000 * seed + step);
                    Command::Join {
                        hello: NodeHello {
                            name,
                            address: Address::default(),
                            process,
                            on_disk: None,
                            ..NodeHello::default()
                        },
                        at: AT,
                    }
                }
                2 => Command::Migrate {
                    key,
                    from: s.shard(key).primary,
                    to: node,
                    cold: step % 2 == 0,
                },
                3 => match s.shard(key).backups.first() {
                    Some(from) => Command::Migrate {
                        key,
                        from: *from,
                        to: node,
                        cold: false,
                    },
                    None => continue,
                },
                8 => {
                    let view = s.shard(key).view;
                    Command::Event(NodeEvent::Installed { key, view })
                }
                4 => {
                    let view = s.shard(key).view;
                    Command::Event(NodeEvent::Synced {
                        key,
                        view,
                        backup: node,
                    })
                }
                5 => Command::Cancel { key },
                _ => Command::Event(NodeEvent::Frozen {
                    key,
                    view: s.shard(key).view,
                }),
            };
            // Refusals are fine; broken invariants panic, and name the seed.
            println!("seed {seed}, step {step}: {command:?}");
            let _ = s.apply(command);
        }
        for (i, name) in names.iter().enumerate() {
            s.join(name, 77_000 + i as u64);
        }
        s.settle();
        let app = &s.control.apps[&AppId(1)];
        for shard in &app.plan.shards {
            assert_eq!(shard.backups.len(), 1, "seed {seed}: {shard:?}");
        }
        s.check();
    }
}
