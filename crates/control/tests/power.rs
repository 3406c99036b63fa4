//! Power caps: what they refuse, where the load goes that exceeds them, when it returns, and that nothing
//! flaps.

use crate::load::{Cluster, HOST, Work, cluster, cluster_of};
use crate::script;
use crate::script::{KEY, Script};
use e3_control::{Command, CommandError, MeterReading};
use e3_model::event::{Event, EventKind as K};
use e3_model::meter::MeterScope;
use e3_model::orchestrator::OrchestratorMode;
use e3_model::power::PowerView;
use e3_model::profile::Provenance;
use e3_model::{NodeId, PowerDomain, ShardId, ShardKey};

const OTHER: ShardKey = ShardKey {
    shard: ShardId(1),
    ..KEY
};

fn server(name: &str) -> PowerDomain {
    PowerDomain::Server(name.into())
}

fn rack() -> PowerDomain {
    PowerDomain::Rack("rack0".into())
}

fn other_rack() -> PowerDomain {
    PowerDomain::Rack("rack1".into())
}

fn cap(c: &mut Cluster, domain: &PowerDomain, cap_w: Option<u32>) {
    let domain = domain.clone();
    c.script.ok(Command::SetPowerCap { domain, cap_w });
}

fn power(c: &Cluster, domain: &PowerDomain) -> PowerView {
    let found = c.orchestrator.power_of(c.now, &c.script.control, domain);
    found.expect("the topology has it")
}

fn watts(c: &Cluster, domain: &PowerDomain) -> f64 {
    power(c, domain).watts.expect("the load is known")
}

fn is_on(c: &Cluster, key: ShardKey, server: u32) -> bool {
    c.primary(key).0 / 2 == server - 1
}

fn last(c: &Cluster) -> Event {
    c.decisions().pop().expect("a decision")
}

/// So many cores busy.
fn cores(count: u64) -> Work {
    Work {
        requests: 1_000,
        execution_us: 1_000 * count,
    }
}

/// Two instances keep four and two cores of the host of s1 busy.
fn hot() -> Cluster {
    heat(cluster())
}

fn heat(mut c: Cluster) -> Cluster {
    c.bring(OTHER, HOST);
    c.bring(KEY, HOST);
    c.work.insert(KEY, cores(4));
    c.work.insert(OTHER, cores(2));
    c.run(5);
    assert_eq!(c.decisions(), []);
    c
}

#[test]
fn what_exceeds_a_cap_leaves_until_the_cap_holds() {
    let mut c = hot();
    assert!(watts(&c, &server("s1")) > 159.0);
    cap(&mut c, &server("s1"), Some(135));
    c.run(60);
    assert!(watts(&c, &server("s1")) <= 135.0);
    let decisions = c.decisions();
    let [moved] = &decisions[..] else {
        panic!("{decisions:?}");
    };
    assert_eq!(moved.kind, K::OrchestratorPower);
    assert_eq!(moved.instance.as_deref(), Some("two-services/back/0"));
    assert!(
        moved.why.starts_with(
            "power cap: server s1 draws 159.2 W (modelled), 24.2 W above its cap of 135 W, for 5 rounds; moving two-services/back/0 frees 30.4 W there"
        ),
        "{moved:?}"
    );
    assert_eq!(moved.figures["capMilliwatts"], 135_000);
    assert!(!is_on(&c, KEY, 1) && is_on(&c, OTHER, 1));
    c.script.check();
}

#[test]
fn the_instance_with_the_fewest_bytes_for_a_watt_leaves_first() {
    let mut c = hot();
    c.work.insert(OTHER, cores(4));
    c.state_bytes.insert(KEY, 4 << 30);
    c.state_bytes.insert(OTHER, 1 << 20);
    c.run(3);
    cap(&mut c, &server("s1"), Some(150));
    c.run(20);
    let first = c.decisions().remove(0);
    assert_eq!(
        first.instance.as_deref(),
        Some("two-services/back/1"),
        "{:?}",
        c.decisions()
    );
    assert_eq!(first.figures["movedBytes"], 1 << 20);
}

#[test]
fn a_short_peak_moves_nothing() {
    let mut c = hot();
    c.work.clear();
    c.run(2);
    cap(&mut c, &server("s1"), Some(135));
    for _ in 0..10 {
        c.work.insert(KEY, cores(6));
        c.run(3);
        c.work.clear();
        c.run(3);
    }
    assert_eq!(c.decisions(), []);
}

#[test]
fn when_the_cap_is_lifted_an_instance_returns_if_that_pays() {
    let mut c = hot();
    cap(&mut c, &server("s1"), Some(135));
    c.run(30);
    assert!(!is_on(&c, KEY, 1));
    // The SmartNIC that has it draws less than the host would: it does not pay.
    cap(&mut c, &server("s1"), None);
    c.run(200);
    assert!(!is_on(&c, KEY, 1));
    assert_eq!(c.count(K::OrchestratorReturn), 0);
    // A small load is carried by the host, which is at work in any case.
    c.work.insert(
        KEY,
        Work {
            requests: 1_000,
            execution_us: 100,
        },
    );
    c.run(30);
    assert!(is_on(&c, KEY, 1), "{:?}", c.decisions());
    let back = last(&c);
    assert_eq!(back.kind, K::OrchestratorReturn);
    assert!(
        back.why.starts_with("power: back there it draws"),
        "{back:?}"
    );
    assert!(back.figures["savedMilliwatts"] > 500);
    c.run(600);
    assert_eq!(c.decisions().len(), 2, "nothing flaps");
    c.script.check();
}

#[test]
fn a_dry_run_records_and_moves_nothing() {
    let mut c = hot();
    c.mode(OrchestratorMode::DryRun);
    cap(&mut c, &server("s1"), Some(135));
    c.run(100);
    let decisions = c.decisions();
    assert!(decisions.iter().all(|e| e.kind == K::OrchestratorDryRun));
    // After 5 s, 15 s later, 30 s later, and not before 60 s more.
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert!(is_on(&c, KEY, 1));
}

#[test]
fn a_cap_that_cannot_be_kept_is_told_and_nothing_flaps() {
    let mut c = hot();
    for name in ["s2", "s3"] {
        cap(&mut c, &server(name), Some(98));
    }
    cap(&mut c, &server("s1"), Some(100));
    c.run(600);
    // To the SmartNIC of the server, which draws less than the host; then there is nothing left to do.
    let (moved, stuck): (Vec<Event>, Vec<Event>) = c
        .decisions()
        .into_iter()
        .partition(|e| e.kind == K::OrchestratorPower);
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert!(stuck.iter().all(|e| e.kind == K::OrchestratorStuck));
    // Ever less often.
    assert!((4..=7).contains(&stuck.len()), "{}", stuck.len());
    let why = &stuck.last().unwrap().why;
    let begins =
        "power cap: server s1 draws 118.4 W (modelled), 18.4 W above its cap of 100 W, for";
    assert!(why.starts_with(begins), "{why}");
    assert!(
        why.contains("nothing can move (two-services/back/"),
        "{why}"
    );
    assert_eq!(stuck[0].figures["capMilliwatts"], 100_000);
    c.script.check();
}

#[test]
fn a_rack_that_is_the_whole_cluster_is_relieved_within() {
    let mut c = hot();
    let before_w = watts(&c, &rack());
    cap(&mut c, &rack(), Some(350));
    c.run(60);
    let after_w = watts(&c, &rack());
    assert!(
        after_w <= 350.0 && after_w < before_w,
        "{before_w} {after_w}"
    );
    assert!(c.count(K::OrchestratorPower) >= 1);
    c.run(600);
    assert!(c.count(K::OrchestratorPower) <= 3, "nothing flaps");
}

/// A hot server in a rack of its own, two others in another rack.
fn two_racks() -> Cluster {
    heat(cluster_of(Script::filled_in_two_racks()))
}

#[test]
fn what_a_rack_draws_above_its_cap_leaves_for_another_rack() {
    let mut c = two_racks();
    // Hardly more than what an idle server draws.
    cap(&mut c, &rack(), Some(105));
    c.run(120);
    assert!(watts(&c, &rack()) <= 105.0);
    let decisions = c.decisions();
    let is_about_it = |e: &Event| e.why.starts_with("power cap: rack rack0 draws");
    assert!(decisions.iter().all(is_about_it), "{decisions:?}");
    assert_eq!(c.count(K::OrchestratorPower), decisions.len());
    assert!(!is_on(&c, KEY, 1) && !is_on(&c, OTHER, 1), "{decisions:?}");
    c.script.check();
}

#[test]
fn a_rack_takes_nothing_that_its_own_cap_forbids() {
    let mut c = two_racks();
    cap(&mut c, &rack(), Some(105));
    cap(&mut c, &other_rack(), Some(200));
    c.run(120);
    assert!(watts(&c, &other_rack()) <= 200.0);
    assert!(is_on(&c, KEY, 1) && is_on(&c, OTHER, 1));
    let stuck = last(&c);
    assert_eq!(stuck.kind, K::OrchestratorStuck);
    assert!(stuck.why.contains("rack rack1"), "{stuck:?}");
    // Without that cap the same load leaves.
    cap(&mut c, &other_rack(), None);
    c.run(600);
    assert!(watts(&c, &rack()) <= 105.0);
    assert!(!is_on(&c, KEY, 1) && !is_on(&c, OTHER, 1));
    c.script.check();
}

#[test]
fn a_smartnic_is_emptied_since_a_part_of_it_frees_nothing() {
    let mut c = cluster();
    let nic = NodeId(1);
    for key in [KEY, OTHER] {
        c.bring(key, nic);
        c.work.insert(
            key,
            Work {
                requests: 1_000,
                execution_us: 200,
            },
        );
    }
    c.run(5);
    assert!(watts(&c, &server("s1")) > 118.0);
    cap(&mut c, &server("s1"), Some(105));
    c.run(60);
    assert!(watts(&c, &server("s1")) <= 105.0, "{:?}", c.decisions());
    assert_eq!(c.count(K::OrchestratorPower), 2);
    assert!(
        last(&c).why.contains("moving two-services/back"),
        "{:?}",
        last(&c)
    );
    let first = &c.decisions()[0];
    assert!(
        first.why.contains("emptying s1-nic0 (instance 1 of 2)"),
        "{first:?}"
    );
}

#[test]
fn a_lost_node_is_no_destination_and_its_power_is_not_counted() {
    let mut c = hot();
    // The server's other node, and the SmartNIC of another.
    for node in [1, 5].map(NodeId) {
        c.silent.push(node);
        c.script.lose(node);
        c.script.settle();
    }
    c.run(3);
    cap(&mut c, &server("s1"), Some(135));
    c.run(30);
    let moved = last(&c);
    assert_eq!(moved.kind, K::OrchestratorPower, "{moved:?}");
    let lost = [Some("s1-nic0"), Some("s3-nic0")];
    assert!(!lost.contains(&moved.to.as_deref()), "{moved:?}");
    assert!(watts(&c, &server("s1")) <= 135.0);
    c.script.check();
}

#[test]
fn no_decision_without_a_known_load() {
    let mut c = hot();
    c.silent.push(NodeId(1));
    c.run(10);
    cap(&mut c, &server("s1"), Some(135));
    c.run(30);
    assert_eq!(power(&c, &server("s1")).watts, None);
    assert_eq!(c.decisions(), []);
}

#[test]
fn what_a_meter_shows_counts_and_is_called_measured() {
    let mut c = hot();
    let scope = MeterScope::Server;
    c.meters.insert(
        HOST,
        MeterReading {
            watts: 190.0,
            scope,
        },
    );
    c.run(2);
    let view = power(&c, &server("s1"));
    assert_eq!(
        (view.watts, view.provenance),
        (Some(190.0), Provenance::Measured)
    );
    let of_rack = power(&c, &rack());
    assert_eq!(of_rack.provenance, Provenance::Modelled);
    assert_eq!((of_rack.servers_measured, of_rack.servers), (1, 3));
    cap(&mut c, &server("s1"), Some(180));
    c.run(10);
    let why = last(&c).why;
    assert!(
        why.contains("server s1 draws 190.0 W (measured), 10.0 W above"),
        "{why}"
    );
    // A meter of the processors alone does not say what the server draws.
    let scope = MeterScope::Processor;
    c.meters.insert(
        HOST,
        MeterReading {
            watts: 190.0,
            scope,
        },
    );
    c.run(2);
    assert_eq!(power(&c, &server("s1")).provenance, Provenance::Modelled);
}

#[test]
fn a_deployment_respects_a_cap_and_names_it() {
    let mut c = cluster();
    for name in ["s1", "s2", "s3"] {
        cap(&mut c, &server(name), Some(105));
    }
    let text = script::APP.replace("two-services", "more");
    let text = text.replace("memory: 64Mi", "memory: 5Gi");
    let refused = c.script.deploy_manifest(&text).unwrap_err().to_string();
    assert!(refused.contains("fits on no node"), "{refused}");
    assert!(
        refused.contains("of its power cap of 105 W are left"),
        "{refused}"
    );
    assert!(refused.contains("W are missing"), "{refused}");
}

#[test]
fn caps_are_in_the_log_and_follow_the_topology() {
    let mut c = cluster();
    cap(&mut c, &server("s1"), Some(150));
    cap(&mut c, &rack(), Some(400));
    cap(&mut c, &server("s1"), None);
    let set = c.script.control.events.since(0);
    let set: Vec<String> = set
        .filter(|e| e.kind == K::PowerCapSet)
        .map(|e| e.why.clone())
        .collect();
    assert_eq!(
        set,
        ["server s1: 150 W", "rack rack0: 400 W", "server s1: none"]
    );
    let caps = &c.script.control.power_caps;
    assert_eq!(
        (caps.of_server("s1"), caps.of_rack("rack0")),
        (None, Some(400))
    );
    c.script.check();
}

#[test]
fn a_cap_of_nothing_known_or_out_of_bounds_is_refused() {
    let mut c = cluster();
    let mut refused = |domain: PowerDomain, cap_w| {
        let set = Command::SetPowerCap { domain, cap_w };
        c.script.apply(set).unwrap_err().to_string()
    };
    assert_eq!(
        refused(server("s9"), Some(150)),
        "there is no server s9; the topology has s1, s2, s3"
    );
    assert_eq!(
        refused(server("s1"), Some(0)),
        "server s1: power cap 0 W, must be 1..=10000000 W"
    );
    let (domain, cap_w) = (server("s1"), Some(150));
    let older = Script::all().apply(Command::SetPowerCap { domain, cap_w });
    assert!(
        matches!(older, Err(CommandError::OlderFormat { .. })),
        "{older:?}"
    );
}
