//! A node is sent what concerns it, and nothing else.

use crate::script::{APP, KEY, NODES, Script};
use e3_control::{Command, Interest, PlanAnswer, PlanRequest, Plans};
use e3_model::plan::{NodeEvent, NodePlan};
use e3_model::plan_change::PlanChange;
use e3_model::{AppId, Format, NodeId};
use std::collections::BTreeSet;

/// What nodes are sent by a controller.
struct Sender {
    plans: Plans,
    base: u64,
}

impl Sender {
    fn new(s: &Script) -> Sender {
        let mut plans = Plans::default();
        plans.note(&s.control);
        let base = s.control.version;
        Sender { plans, base }
    }

    /// What has changed for a node since the sender was made.
    fn change(&mut self, s: &Script, node: NodeId, has: &[AppId], wants: &[AppId]) -> PlanChange {
        self.plans.note(&s.control);
        let change = self
            .plans
            .change_for(&s.control, node, self.base, (has, &set(wants)));
        change.expect("the version is known")
    }

    fn plan(&self, s: &Script, node: NodeId, wants: &[AppId]) -> NodePlan {
        self.plans.plan_for(&s.control, node, &set(wants))
    }
}

fn set(apps: &[AppId]) -> BTreeSet<AppId> {
    apps.iter().copied().collect()
}

/// A cluster with an application, a node that hosts nothing of it, also after [`move_first`], and the
/// application's id.
fn deployed() -> (Script, NodeId, AppId) {
    let mut s = Script::founded(Format::NEWEST);
    s.join_all(&NODES);
    s.deploy().unwrap();
    s.fill_all();
    let to = NodeId(s.shard(KEY).primary.0 ^ 1);
    let hosts = |node| node == to || s.shards().iter().any(|shard| shard.keeps(node));
    let stranger = (0..6).map(NodeId).find(|node| !hosts(*node));
    (s, stranger.expect("six nodes, three shards"), KEY.app)
}

/// Moves the primary of the first shard to its server's other node; the versions of the plan.
fn move_first(s: &mut Script, mut each: impl FnMut(&Script)) {
    let from = s.shard(KEY).primary;
    s.migrate(from, NodeId(from.0 ^ 1));
    each(s);
    loop {
        let shard = s.shard(KEY);
        let view = shard.view;
        let event = if let Some(backup) = shard.joining.first().copied() {
            NodeEvent::Synced {
                key: KEY,
                view,
                backup,
            }
        } else if shard.frozen {
            NodeEvent::Frozen { key: KEY, view }
        } else if !shard.leaving.is_empty() {
            NodeEvent::Installed { key: KEY, view }
        } else {
            return;
        };
        s.ok(Command::Event(event));
        each(s);
    }
}

#[test]
fn a_move_sends_nothing_to_a_node_that_it_does_not_concern() {
    let (mut s, stranger, app) = deployed();
    let mut sender = Sender::new(&s);
    let from = s.shard(KEY).primary;
    move_first(&mut s, |s| {
        let change = sender.change(s, stranger, &[], &[]);
        assert!(change.is_empty(), "{change:?}");
        let change = sender.change(s, from, &[app], &[]);
        assert!(!change.is_empty(), "the node that it leaves");
    });
}

#[test]
fn a_node_with_no_part_in_a_shard_hears_of_its_move_when_the_primary_changes() {
    let (mut s, stranger, app) = deployed();
    let before = s.shard(KEY).primary;
    let mut sender = Sender::new(&s);
    let mut heard = Vec::new();
    move_first(&mut s, |s| {
        let change = sender.change(s, stranger, &[app], &[app]);
        heard.push((s.shard(KEY).primary != before, !change.is_empty()));
    });
    assert!(heard.len() > 3, "{heard:?}");
    for (has_moved, is_told) in heard {
        assert_eq!(has_moved, is_told);
    }
}

#[test]
fn a_node_has_the_routes_of_an_application_as_long_as_it_wants_them() {
    let (s, stranger, app) = deployed();
    let mut sender = Sender::new(&s);
    let without = sender.plan(&s, stranger, &[]);
    assert_eq!(without.routed().count(), 0);
    let listed = &without.directory[&app];
    assert_eq!(listed.name, "two-services", "every node knows of it");

    let change = sender.change(&s, stranger, &[], &[app]);
    let with = without.changed(change).expect("of the same version");
    assert_eq!(with, sender.plan(&s, stranger, &[app]));
    assert_eq!(with.apps[0].shards, s.shards());

    let change = sender.change(&s, stranger, &[app], &[]);
    assert_eq!(with.changed(change), Some(without));
    let unknown = sender.change(&s, stranger, &[], &[AppId(77)]);
    assert!(unknown.is_empty(), "an application that does not exist");
}

#[test]
fn hosts_of_a_publisher_have_the_routes_of_all_subscribers() {
    let (mut s, _, publisher) = deployed();
    let host = s.shard(KEY).primary;
    // Nothing of the subscriber is there.
    s.ok(Command::Cordon { node: host });
    let mut sender = Sender::new(&s);
    let subscriber = APP
        .replace("name: two-services", "name: subscriber")
        .replace(
            "  channels:",
            "  subscriptions:\n    - {topic: two-services/news, service: back}\n  channels:",
        );
    s.deploy_manifest(&subscriber).unwrap();
    let id = s.control.app_named("subscriber").unwrap();
    let change = sender.change(&s, host, &[publisher], &[]);
    assert_eq!(change.apps[&id].shards.len(), 3);
    assert!(sender.plan(&s, host, &[]).routed().any(|app| app == id));
    let mut shards = s.control.apps[&id].plan.shards.iter();
    assert!(shards.all(|shard| !shard.keeps(host)));
}

/// A node of an older release has all applications.
#[test]
fn a_node_that_does_not_say_what_it_wants_is_sent_all_changes() {
    let (mut s, stranger, _) = deployed();
    let mut plans = Plans::default();
    plans.note(&s.control);
    let mut asked = PlanRequest {
        node: stranger,
        after: s.control.version,
        is_known: true,
        interest: None,
    };
    assert_eq!(plans.answer(&s.control, &asked), None);
    s.deploy_manifest(&APP.replace("two-services", "other"))
        .unwrap();
    plans.note(&s.control);
    let change = plans.answer(&s.control, &asked);
    let Some(PlanAnswer::Change(change)) = change else {
        panic!("{change:?}");
    };
    assert_eq!((change.base, change.apps.len()), (asked.after, 1));
    asked.is_known = false;
    let whole = plans.answer(&s.control, &asked);
    assert_eq!(whole, Some(PlanAnswer::Whole(s.control.plan_for(stranger))));
}

#[test]
fn a_node_whose_version_is_not_known_is_sent_its_plan_if_that_may_differ() {
    let (s, stranger, app) = deployed();
    let mut plans = Plans::default();
    plans.note(&s.control);
    let version = s.control.version;
    for (after, has, wants, is_told) in [
        (version - 1, vec![], vec![], true),
        (version, vec![], vec![], false),
        (version, vec![app], vec![app], false),
        (version, vec![], vec![app], true),
        // It has the plan of a controller that knows more.
        (version + 1, vec![], vec![], false),
        (version + 1, vec![], vec![app], false),
    ] {
        let interest = Some(Interest {
            has,
            wants: set(&wants),
        });
        let asked = PlanRequest {
            node: stranger,
            after,
            is_known: false,
            interest,
        };
        let answer = plans.answer(&s.control, &asked);
        let plan = plans.plan_for(&s.control, stranger, &set(&wants));
        let expected = is_told.then_some(PlanAnswer::Whole(plan));
        assert_eq!(answer, expected, "{asked:?}");
    }
}

#[test]
fn a_node_that_takes_part_in_a_shard_later_has_all_of_it() {
    let (mut s, _, app) = deployed();
    let from = s.shard(KEY).primary;
    let to = NodeId(from.0 ^ 1);
    let mut plan = Sender::new(&s).plan(&s, to, &[app]);
    let mut sender = Sender::new(&s);
    move_first(&mut s, |s| {
        let change = sender.change(s, to, &[app], &[]);
        plan = plan.changed(change).unwrap();
        sender = Sender::new(s);
    });
    let mut shards = plan.apps[0].shards.iter();
    let shard = shards.find(|shard| shard.id() == (KEY.service, KEY.shard));
    assert_eq!(shard, Some(&s.shard(KEY)));
}
