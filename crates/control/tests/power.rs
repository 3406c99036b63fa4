//! Power caps: what they refuse, where the load goes that exceeds them, when it returns, and that nothing
//! flaps.

use crate::load::{Cluster, HOST, NIC, Work, cluster};
use crate::script::{KEY, Script};
use e3_control::{Applied, Command, CommandError, MeterReading};
use e3_model::event::EventKind as K;
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

/// So many cores busy.
fn cores(count: u64) -> Work {
    Work {
        requests: 1_000,
        execution_us: 1_000 * count,
    }
}

/// Two instances keep four and two cores of the host of s1 busy.
fn hot() -> Cluster {
    let mut c = cluster();
    c.bring(OTHER, HOST);
    c.bring(KEY, HOST);
    c.work.insert(KEY, cores(4));
    c.work.insert(OTHER, cores(2));
    c.run(5);
    assert_eq!(c.decisions(), []);
    c
}

#[test]
fn show() {
    let mut c = hot();
    for v in c.orchestrator.power(c.now, &c.script.control) {
        println!("{v:?}");
    }
    cap(&mut c, &server("s1"), Some(125));
    c.run(40);
    for e in c.script.control.events.since(0) {
        println!("{e:?}");
    }
    for v in c.orchestrator.power(c.now, &c.script.control) {
        println!("{v:?}");
    }
    panic!();
}
