//! Checks of a topology: names, sizes, one host for each server, emulation and known systems.

use crate::limits::*;
use crate::topology::{Node, NodeKind, Server, Topology};
use crate::units::Bytes;
use crate::validate::{Check, Fault, ensure, name};
use std::collections::BTreeMap;

pub(crate) fn topology(t: &Topology) -> Check {
    let nodes = t.nodes_count();
    ensure((1..=NODES_MAX).contains(&nodes), "spec.racks", || {
        format!("{nodes} nodes, must be 1..={NODES_MAX}")
    })?;
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    let mut once = |n, field: String| -> Check {
        name(&field, n)?;
        match names.insert(n, field.clone()) {
            None => Ok(()),
            Some(other) => Err(Fault::new(
                field,
                format!("{n:?} is already the name of {other}"),
            )),
        }
    };
    for (r, rack) in t.spec.racks.iter().enumerate() {
        once(&rack.name, format!("spec.racks[{r}].name"))?;
        budget(
            "rack",
            &rack.name,
            rack.power_budget_w,
            &format!("spec.racks[{r}]"),
        )?;
        let at = format!("spec.racks[{r}].servers");
        ensure(!rack.servers.is_empty(), at, || {
            format!("rack {:?} has no server, must have 1 or more", rack.name)
        })?;
        for (s, server) in rack.servers.iter().enumerate() {
            let at = format!("spec.racks[{r}].servers[{s}]");
            once(&server.name, format!("{at}.name"))?;
            budget("server", &server.name, server.power_budget_w, &at)?;
            server_nodes(server, &at)?;
            for (n, node) in server.nodes.iter().enumerate() {
                let at = format!("{at}.nodes[{n}]");
                once(&node.name, format!("{at}.name"))?;
                self::node(server, node, &at)?;
            }
        }
    }
    Ok(())
}

/// A power budget is a number of watts: JSON, in which the log is written, has no infinity.
fn budget(what: &str, name: &str, budget_w: Option<f64>, at: &str) -> Check {
    let budget_w = budget_w.unwrap_or_default();
    ensure(budget_w.is_finite(), format!("{at}.powerBudgetW"), || {
        format!(
            "{what} {name:?}: powerBudgetW is {budget_w}, must be a finite number of watts; leave it out \
             where nothing bounds the power"
        )
    })
}

/// How many hosts and SmartNICs a server has.
fn server_nodes(server: &Server, at: &str) -> Check {
    let hosts = server
        .nodes
        .iter()
        .filter(|n| n.kind == NodeKind::Host)
        .count();
    ensure(hosts <= 1, format!("{at}.nodes"), || {
        format!(
            "server {:?} has {hosts} hosts, must be at most 1",
            server.name
        )
    })?;
    ensure(!server.nodes.is_empty(), format!("{at}.nodes"), || {
        format!("server {:?} has no node, must have 1 or more", server.name)
    })?;
    let nics = server.nodes.len() - hosts;
    ensure(nics <= 4, format!("{at}.nodes"), || {
        format!(
            "server {:?} has {nics} SmartNICs, must be 0..=4",
            server.name
        )
    })?;
    Ok(())
}

/// The numbers of one node.
fn node(server: &Server, node: &Node, at: &str) -> Check {
    ensure(node.cores > 0, format!("{at}.cores"), || {
        format!("node {:?}: cores is 0, must be 1..=65535", node.name)
    })?;
    ensure(node.memory.0 > 0, format!("{at}.memory"), || {
        format!("node {:?}: memory is 0, must be more than 0", node.name)
    })?;
    ensure(node.disk != Some(Bytes(0)), format!("{at}.disk"), || {
        format!(
            "node {:?}: disk is 0, must be more than 0, or left out where it is not limited",
            node.name
        )
    })?;
    let floor = EMULATED_MEMORY_MIN;
    ensure(
        !node.emulated || node.memory >= floor,
        format!("{at}.memory"),
        || {
            format!(
                "node {:?}: memory is {}, must be at least {floor} for the process of an emulated node",
                node.name, node.memory
            )
        },
    )?;
    ensure(
        node.emulated || node.link_latency.is_none(),
        format!("{at}.linkLatency"),
        || {
            format!(
                "node {:?}: linkLatency is for emulated nodes; real hardware has its own",
                node.name
            )
        },
    )?;
    emulation(server, node, at)?;
    let latency = node.link_latency.unwrap_or_default();
    ensure(
        latency <= LINK_LATENCY_MAX,
        format!("{at}.linkLatency"),
        || {
            format!(
                "node {:?}: linkLatency is {latency}, must be at most {}",
                node.name, LINK_LATENCY_MAX
            )
        },
    )?;
    let gbps = node.bandwidth_gbps;
    ensure(
        gbps.is_finite() && gbps > 0.0,
        format!("{at}.bandwidthGbps"),
        || {
            format!(
                "node {:?}: bandwidthGbps is {gbps}, must be more than 0",
                node.name
            )
        },
    )?;
    Ok(())
}

/// Checks what a node says of its emulation, and whether it can relay.
fn emulation(server: &Server, node: &Node, at: &str) -> Check {
    let name = &node.name;
    ensure(
        node.emulated || node.emulation.is_none(),
        format!("{at}.emulation"),
        || format!("node {name:?}: emulation is for emulated nodes; set emulated: true"),
    )?;
    let speed = node.speed();
    ensure(
        speed > 0.0 && speed <= 1.0,
        format!("{at}.emulation.speed"),
        || format!("node {name:?}: emulation.speed is {speed}, must be more than 0 and at most 1"),
    )?;
    let relay = || format!("{at}.relay");
    ensure(
        !node.relay || node.kind == NodeKind::SmartNic,
        relay(),
        || format!("node {name:?}: relay is for SmartNICs, which relay the traffic of their host"),
    )?;
    let has_host = server.nodes.iter().any(|n| n.kind == NodeKind::Host);
    ensure(!node.relay || has_host, relay(), || {
        let server = &server.name;
        format!("node {name:?}: relay needs a host in the same server; server {server:?} has none")
    })
}

pub(crate) fn systems(t: &Topology, known: &[&str]) -> Check {
    for (r, rack) in t.spec.racks.iter().enumerate() {
        for (i, server) in rack.servers.iter().enumerate() {
            ensure(
                known.contains(&server.system.as_str()),
                format!("spec.racks[{r}].servers[{i}].system"),
                || {
                    format!(
                        "server {:?}: there is no system {:?}, must be one of {}",
                        server.name,
                        server.system,
                        known.join(", ")
                    )
                },
            )?;
        }
    }
    Ok(())
}
