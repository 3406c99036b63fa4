//! The number of copies changes while a service runs.

use crate::script::{APP, KEY, Script};
use e3_control::{Applied, Command, CommandError};
use e3_model::{AppId, NodeId, ServiceId};

const BACK: ServiceId = ServiceId(1);

fn scale(s: &mut Script, replicas: u16) -> Result<Applied, CommandError> {
    s.apply(Command::Scale {
        app: AppId(1),
        service: BACK,
        replicas,
    })
}

/// The copies of each shard of the service, complete and staying.
fn copies(s: &Script) -> Vec<usize> {
    let shards = s.shards();
    let of_service = shards.iter().filter(|p| p.service == BACK);
    of_service.map(|p| 1 + p.backups.len()).collect()
}

#[test]
fn copies_are_added_and_removed() {
    let mut s = Script::filled();
    assert_eq!(scale(&mut s, 2), Ok(Applied::Nothing));
    scale(&mut s, 3).unwrap();
    assert!(s.shard(KEY).joining.len() == 1, "in the background");
    s.settle();
    assert_eq!(copies(&s), [3, 3]);
    // The copies that are too many serve as such until the primary acts without them.
    scale(&mut s, 1).unwrap();
    let shard = s.shard(KEY);
    assert_eq!((shard.backups.len(), shard.leaving.len()), (2, 2));
    s.lose(shard.primary);
    assert_eq!(s.state_lost(), 0);
    s.hear(shard.primary);
    s.settle();
    assert_eq!(copies(&s), [1, 1]);
    scale(&mut s, 2).unwrap();
    s.settle();
    assert_eq!(copies(&s), [2, 2]);
    assert_eq!(s.state_lost(), 0);
    s.check();
}

#[test]
fn bad_numbers_change_nothing() {
    let mut s = Script::filled();
    let text = |refused: Result<Applied, CommandError>| refused.unwrap_err().to_string();
    let name = "service \"back\"";
    assert_eq!(
        text(scale(&mut s, 0)),
        format!("{name}: replicas is 0, must be 1..=7")
    );
    assert_eq!(
        text(scale(&mut s, 4)),
        format!("{name}: 4 replicas need 4 fault domains (servers), usable: 3")
    );
    let stateless = APP
        .replacen("two-services", "plain", 1)
        .replacen("stateful: true\n      replicas: 2", "stateful: false", 1)
        .replacen(
            "      collections:\n        - {name: seen, kind: counter}\n",
            "",
            1,
        );
    s.deploy_manifest(&stateless).unwrap();
    let refused = s.apply(Command::Scale {
        app: AppId(2),
        service: ServiceId(0),
        replicas: 2,
    });
    assert_eq!(
        text(refused),
        "service \"front\" is stateless: it has no copies to add or remove"
    );
    // A drained server counts for nothing; what is there already may stay.
    scale(&mut s, 3).unwrap();
    s.settle();
    s.ok(Command::Drain { node: NodeId(0) });
    s.ok(Command::Drain { node: NodeId(1) });
    s.settle();
    assert_eq!(copies(&s), [3, 3]);
    scale(&mut s, 2).unwrap();
    s.settle();
    assert_eq!(copies(&s), [2, 2]);
    let left = s.shards();
    assert!(
        left.iter()
            .all(|p| !p.keeps(NodeId(0)) && !p.keeps(NodeId(1)))
    );
    assert!(scale(&mut s, 3).is_err());
    s.check();
}

#[test]
fn the_next_deployment_decides_again() {
    let mut s = Script::filled();
    scale(&mut s, 3).unwrap();
    s.settle();
    let app = &s.control.apps[&AppId(1)];
    assert_eq!(app.scaled, [(BACK, 2)].into());
    assert_eq!(app.manifest().spec.services[1].replicas, 2);
    // The same manifest again: no other code, but its number of copies.
    assert_eq!(s.deploy(), Ok(Applied::Changed));
    s.settle();
    assert_eq!(copies(&s), [2, 2]);
    assert_eq!(s.control.apps[&AppId(1)].plan.code_version, 1);
    assert_eq!(s.deploy(), Ok(Applied::Nothing));
    // A manifest with another number.
    s.deploy_manifest(&APP.replace("replicas: 2", "replicas: 1"))
        .unwrap();
    s.settle();
    assert_eq!(copies(&s), [1, 1]);
    // Back to what the manifest says: nothing is scaled any more.
    scale(&mut s, 2).unwrap();
    scale(&mut s, 1).unwrap();
    assert!(s.control.apps[&AppId(1)].scaled.is_empty());
    s.check();
}

#[test]
fn moves_and_losses_meanwhile_lose_nothing() {
    let mut s = Script::filled();
    scale(&mut s, 3).unwrap();
    s.settle();
    for round in 0..12u16 {
        let shard = s.shard(KEY);
        let from = if round % 2 == 0 {
            shard.primary
        } else {
            shard.backups[0]
        };
        s.migrate(from, NodeId(from.0 ^ 1));
        if round % 3 == 0 {
            s.settle_reachable();
        }
        scale(&mut s, 1 + round % 3).unwrap();
        if round % 4 == 3 {
            let victim = s.shard(KEY).primary;
            s.lose(victim);
            s.settle_reachable();
            s.hear_if_silent(victim);
        }
        s.settle();
        scale(&mut s, 3).unwrap();
        s.settle();
        assert_eq!(copies(&s), [3, 3], "round {round}");
    }
    assert_eq!(s.state_lost(), 0);
    s.check();
}
