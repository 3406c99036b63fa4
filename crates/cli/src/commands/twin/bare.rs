//! What a node costs apart from its services, measured with bare services on the twin's cluster: `echo`, which
//! only answers, shows ingress, log and reply; `chain`, which only counts and sends on, shows a message between
//! two services, on one node and between two.

use super::alone::{self, Alone};
use super::load::{Bare, Loads, SEARCH_FIRST_RPS, Sample};
use crate::commands::deploy;
use crate::commands::run::{self, Run};
use crate::documents::Sources;
use crate::documents::builtin::Text;
use crate::limits::DEPLOY_TIMEOUT;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use e3_hardware::measured::Tail;
use e3_invocation::Invocation;
use e3_loadgen::Workload;
use e3_model::NodeKind;
use e3_model::document::parse_application;
use e3_random::Random;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Part of the highest rate of `echo` at which requests come one by one, though not so rarely that the core is cold.
const LIGHT_PART: f64 = 0.05;
/// Part of the highest rate of `echo` at which `chain` is measured, since it handles two messages.
const CHAIN_PART: f64 = 0.45;
/// Messages with which bare services are measured alone.
const MESSAGES: usize = 4_000;

const ECHO: &str = "twin-echo";
const CHAIN: &str = "twin-chain";

/// What bare services show of one kind of node. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCost {
    /// Processor time of a request of a client beside the handler: ingress, log, reply.
    pub request_ns: f64,
    /// Processor time of a message from a service on the same node beside the handler.
    pub message_ns: f64,
    /// Processor time by which a request takes longer if it wakes the node.
    pub wake_ns: f64,
    /// Highest rate of requests that the node carries with a bare service.
    pub echo_rps: f64,
    /// Median round trip of a request at a light load.
    pub round_trip_ns: f64,
}

/// What a message between two nodes costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HopCost {
    /// Processor time at the node that sends it.
    pub send_ns: f64,
    /// Processor time at the node that receives it, beside the handler.
    pub receive_ns: f64,
    /// Median round trip of a request whose second service is on the other node.
    pub round_trip_ns: f64,
}

/// What bare services show.
#[derive(Clone, Debug)]
pub struct Bares {
    pub nodes: BTreeMap<NodeKind, NodeCost>,
    pub hop: Option<HopCost>,
    pub tail: Tail,
    /// Handlers of the bare services alone.
    pub echo: Alone,
    pub chain: Alone,
}

/// What is measured, and how long.
pub struct Plan<'a> {
    pub sources: &'a Sources,
    pub settings: &'a Settings,
    /// Kinds and names of the nodes, a host first.
    pub nodes: Vec<(NodeKind, String)>,
    /// Size of a request.
    pub bytes: usize,
    /// Instances of the application: as many share a node's turns and caches while bare services run.
    pub instances: u64,
    /// Length of a load.
    pub length: Duration,
}

/// Measures.
pub fn measure(loads: &mut Loads<'_>, plan: &Plan<'_>) -> Result<Bares, Failure> {
    let (echo, chain) = (
        alone(plan, "echo", &[])?,
        alone(plan, "chain", &["passed"])?,
    );
    let (mut nodes, mut tail) = (BTreeMap::new(), Tail::default());
    for (kind, node) in &plan.nodes {
        output::say(&format!("bare services on {node}"));
        let (cost, light) = of_node(loads, plan, (*kind, node), &echo, &chain)?;
        let p = &light.point;
        tail = Tail::new(
            p.p50_us * 1e3,
            p.p99_us * 1e3,
            light.p99_9_us * 1e3,
            light.max_us * 1e3,
        );
        nodes.insert(*kind, cost);
    }
    let hop = match &plan.nodes[..] {
        [(_, first), (_, last)] => {
            output::say(&format!("bare services on {first} and {last}"));
            Some(of_hop(loads, plan, first, last, &nodes, &chain)?)
        }
        _ => None,
    };
    Ok(Bares {
        nodes,
        hop,
        tail,
        echo,
        chain,
    })
}

/// The handler of a bare service alone.
fn alone(plan: &Plan<'_>, module: &str, counters: &[&str]) -> Result<Alone, Failure> {
    let counter = |name: &&str| e3_model::application::Collection {
        name: name.to_string(),
        kind: e3_model::application::CollectionKind::Counter,
        ttl: None,
    };
    let run = Run {
        module: module.into(),
        collections: counters.iter().map(counter).collect(),
        services: plan.sources.services.clone(),
        ..Run::default()
    };
    let service = run::service(&run, plan.settings)?;
    let mut random = Random::new(1);
    let message = |token: usize| {
        let mut message = Invocation::new(random.bytes(8), random.bytes(plan.bytes));
        message.token = token as u64;
        message.id.request.seq = token as u64;
        message
    };
    let messages: Vec<Invocation> = (1..=MESSAGES).map(message).collect();
    alone::measure_one(&service, &messages)
}

fn make(bytes: usize) -> impl FnMut(f64, Duration, u64) -> Result<Box<dyn Workload>, Failure> {
    move |_, _, seed| Ok(Box::new(Bare::new(seed, bytes)))
}

fn of_node(
    loads: &mut Loads<'_>,
    plan: &Plan<'_>,
    (kind, node): (NodeKind, &str),
    echo: &Alone,
    chain: &Alone,
) -> Result<(NodeCost, Sample), Failure> {
    let mut make = make(plan.bytes);
    deployed(loads, plan, &echo_manifest(kind, plan.instances))?;
    let held = loads.search(ECHO, &mut make)?;
    let best = held.last().ok_or_else(|| too_slow(node))?;
    let echo_rps = best.point.offered_rps;
    let light = loads.at(ECHO, echo_rps * LIGHT_PART, plan.length, &mut make)?;
    loads.cluster.client.delete(ECHO)?;
    deployed(loads, plan, &chain_manifest(kind, kind, plan.instances))?;
    let both = loads.at(CHAIN, echo_rps * CHAIN_PART, plan.length, &mut make)?;
    loads.cluster.client.delete(CHAIN)?;
    let request_ns = (best.node_ns(node) - echo.mean_ns).max(0.0);
    let message_ns = both.node_ns(node) - request_ns - 2.0 * chain.mean_ns;
    // At a light load each request wakes the node; near the highest rate it hardly ever sleeps.
    let wake_ns = (light.node_ns(node) - best.node_ns(node)).max(0.0);
    let cost = NodeCost {
        request_ns,
        message_ns: message_ns.max(0.0),
        wake_ns,
        echo_rps,
        round_trip_ns: light.point.p50_us * 1e3,
    };
    Ok((cost, light))
}

fn of_hop(
    loads: &mut Loads<'_>,
    plan: &Plan<'_>,
    first: &str,
    last: &str,
    nodes: &BTreeMap<NodeKind, NodeCost>,
    chain: &Alone,
) -> Result<HopCost, Failure> {
    let mut make = make(plan.bytes);
    deployed(
        loads,
        plan,
        &chain_manifest(plan.nodes[0].0, plan.nodes[1].0, plan.instances),
    )?;
    let slowest = nodes.values().map(|n| n.echo_rps).fold(f64::MAX, f64::min);
    let light = loads.at(CHAIN, slowest * LIGHT_PART, plan.length, &mut make)?;
    let busy = loads.at(CHAIN, slowest * CHAIN_PART, plan.length, &mut make)?;
    loads.cluster.client.delete(CHAIN)?;
    let request_ns = nodes[&plan.nodes[0].0].request_ns;
    Ok(HopCost {
        send_ns: (busy.node_ns(first) - request_ns - chain.mean_ns).max(0.0),
        receive_ns: (busy.node_ns(last) - chain.mean_ns).max(0.0),
        round_trip_ns: light.point.p50_us * 1e3,
    })
}

fn too_slow(node: &str) -> Failure {
    let message =
        format!("node {node} does not carry {SEARCH_FIRST_RPS} requests/s with a bare service");
    Failure::new(Exit::Check, message)
        .hint("is this machine busy? end other programs and try again")
}

/// Deploys a bare application and waits until it answers.
fn deployed(loads: &Loads<'_>, plan: &Plan<'_>, manifest: &str) -> Result<(), Failure> {
    let text = Text {
        file: "bare services".into(),
        text: manifest.into(),
        dir: None,
    };
    let app = parse_application(&text.file, &text.text)?;
    let mut request = deploy::request(&text, &app, plan.sources, plan.settings)?;
    request.overcommit = true;
    let client = &loads.cluster.client;
    let version = client.deploy(&request)?.code_version;
    deploy::wait_ready(client, &app.name, version, DEPLOY_TIMEOUT)?;
    Ok(())
}

fn heading(name: &str, ingress: &str) -> String {
    format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: {name}}}\nspec:\n  \
         objective: {{latency: 1s}}\n  ingress: {ingress}\n  services:\n"
    )
}

fn echo_manifest(kind: NodeKind, instances: u64) -> String {
    let kind = kind.name();
    let service = format!(
        "    - {{name: echo, module: echo.wasm, stateful: false, shards: {instances}, replicas: 1, \
         pin: {{kind: {kind}}}, resources: {{cpu: 0.1, memory: 16Mi}}}}\n"
    );
    heading(ECHO, "echo") + &service
}

fn chain_manifest(first: NodeKind, last: NodeKind, instances: u64) -> String {
    let shards = instances.div_ceil(2);
    let service = |name: &str, kind: NodeKind| {
        let kind = kind.name();
        format!(
            "    - {{name: {name}, module: chain.wasm, stateful: true, shards: {shards}, replicas: 1, \
             pin: {{kind: {kind}}}, resources: {{cpu: 0.1, memory: 64Mi}}, \
             collections: [{{name: passed, kind: counter}}]}}\n"
        )
    };
    heading(CHAIN, "first")
        + &service("first", first)
        + &service("last", last)
        + "  channels:\n    - {from: first, to: last, name: next}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_applications_are_good() {
        let parse = |text: &str| parse_application("bare", text).unwrap();
        let echo = parse(&echo_manifest(NodeKind::Host, 5));
        assert_eq!((echo.name.as_str(), echo.instances()), (ECHO, 5));
        let chain = parse(&chain_manifest(NodeKind::Host, NodeKind::SmartNic, 5));
        assert_eq!(chain.spec.channels[0].name(), "next");
        assert_eq!(chain.instances(), 6);
    }
}
