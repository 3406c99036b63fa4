//! The orchestrator follows the load: instances move to where the present rate needs less energy, and
//! to where it is carried at all. Nothing flaps.


use e3_control::Command;
use e3_model::AppId;
use e3_model::event::{Event, EventKind as K};
use e3_model::orchestrator::OrchestratorMode;
use e3_testkit::{Random, seeds};
use crate::load::{Cluster, cluster};
use std::collections::BTreeSet;

const APP: AppId = AppId(1);
const NIGHT_RPS: u64 = 100;

/// The sample runs and its clients ask this much; the orchestrator looks every five seconds.
fn following(rate_rps: u64) -> Cluster {
    let mut c = cluster();
    let code_version = c.script.control.apps[&APP].plan.code_version;
    let app = APP;
    c.script.ok(Command::Started { app, code_version });
    c.clients.insert(APP, rate_rps);
    c.set(|s| s.follow_interval_s = 5);
    c
}

fn follows(c: &Cluster) -> Vec<Event> {
    let mut all = c.decisions();
    all.retain(|e| e.kind == K::OrchestratorFollow);
    all
}

fn servers(c: &Cluster) -> usize {
    let shards = c.script.shards();
    let nodes = shards
        .iter()
        .flat_map(|s| s.backups.iter().chain([&s.primary]));
    let servers: BTreeSet<u32> = nodes.map(|n| n.0 / 2).collect();
    servers.len()
}

#[test]
fn explore() {
    let mut c = following(NIGHT_RPS);
    println!(
        "{} servers, {:?}",
        servers(&c),
        c.script
            .shards()
            .iter()
            .map(|s| (s.primary, s.backups.clone()))
            .collect::<Vec<_>>()
    );
    c.run(60);
    for e in follows(&c) {
        println!(
            "{} {:?} {:?}->{:?} {} {:?}",
            e.at_unix_ms, e.instance, e.node, e.to, e.why, e.figures
        );
    }
    println!("{} servers", servers(&c));
    let n = follows(&c).len();
    for rate in [10_000u64, 50_000, 100_000, 150_000, 100] {
        c.clients.insert(APP, rate);
        c.run(60);
        println!("rate {rate}: {} servers", servers(&c));
        for e in &follows(&c)[n..] {
            println!(
                "{} {:?} {:?}->{:?} {} {:?}",
                e.at_unix_ms, e.instance, e.node, e.to, e.why, e.figures
            );
        }
    }
    c.run(600);
    println!("{} servers", servers(&c));
}
