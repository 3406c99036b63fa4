//! What single placers promise, on cases whose outcome is worked out by hand.

use e3_model::document::{parse_application, parse_topology};
use e3_model::plan::Role;
use e3_model::{Application, NodeId, NodeKind, ServiceId, Topology};
use e3_placement::{Cluster, Decision, Hcm, NicFirst, Placement, Placer, Request, Rule, Spread};
use std::collections::BTreeMap;

/// Racks of servers, each with its nodes: the name, `h` for a host or `n` for a SmartNIC, cores and memory in MiB.
type Racks<'a> = &'a [&'a [&'a [(&'a str, char, u32, u32)]]];

fn topology(racks: Racks<'_>) -> Topology {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n  racks:\n"
            .to_string();
    for (r, servers) in racks.iter().enumerate() {
        text += &format!("    - name: r{r}\n      servers:\n");
        for (s, nodes) in servers.iter().enumerate() {
            text += &format!("        - name: r{r}s{s}\n          system: any\n          nodes:\n");
            for (name, kind, cores, memory) in *nodes {
                let kind = if *kind == 'h' { "host" } else { "smartnic" };
                text += &format!(
                    "            - {{name: {name}, kind: {kind}, cores: {cores}, memory: {memory}Mi}}\n"
                );
            }
        }
    }
    parse_topology("t", &text).unwrap()
}

/// Services with their shards, cores and memory in MiB, and channels between them.
fn app(services: &[(&str, u16, f64, u32)], channels: &[(&str, &str)], rest: &str) -> Application {
    let mut text = format!(
        "apiVersion: e3.dev/v1alpha1\nkind: Application\nmetadata: {{name: a}}\nspec:\n  objective: {{latency: 5ms}}\n  ingress: {}\n  services:\n",
        services[0].0
    );
    for (name, shards, cpu, memory) in services {
        text += &format!(
            "    - {{name: {name}, module: m, shards: {shards}, resources: {{cpu: {cpu}, memory: {memory}Mi}}{rest}}}\n"
        );
    }
    if !channels.is_empty() {
        text += "  channels:\n";
    }
    for (from, to) in channels {
        text += &format!("    - {{from: {from}, to: {to}}}\n");
    }
    parse_application("a", &text).unwrap()
}

fn place(placer: &dyn Placer, request: &Request<'_>, cluster: &mut Cluster) -> Placement {
    placer.place(request, cluster).unwrap()
}

#[test]
fn hcm_walks_as_the_paper_prints_it() {
    // Node, cores. Memory never binds.
    let topology = topology(&[
        &[
            &[("h0", 'h', 4, 1024), ("n0", 'n', 2, 1024)],
            &[("h1", 'h', 4, 1024), ("n1", 'n', 2, 1024)],
        ],
        &[
            &[("h2", 'h', 5, 1024), ("n2", 'n', 3, 1024)],
            &[("h3", 'h', 4, 1024), ("n3", 'n', 2, 1024)],
        ],
    ]);
    // Breadth-first: a; b, c, f; d; e; g; i. `d` has two parents, and `b` reaches it first.
    let app = app(
        &[
            ("a", 1, 1.0, 16),
            ("b", 2, 1.0, 16),
            ("c", 3, 2.0, 16),
            ("d", 2, 2.0, 16),
            ("e", 1, 2.0, 16),
            ("f", 1, 4.0, 16),
            ("g", 1, 5.0, 16),
            ("i", 1, 4.0, 16),
        ],
        &[
            ("a", "b"),
            ("a", "c"),
            ("a", "f"),
            ("b", "d"),
            ("c", "d"),
            ("d", "e"),
            ("e", "g"),
            ("g", "i"),
        ],
        "",
    );
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = Cluster::new(&topology);
    let placed = place(&Hcm, &request, &mut cluster);
    let name = |id: NodeId| cluster.node(id).name.clone();
    let line = |d: &Decision| {
        let service = |s| &app.service(s).name;
        let near = d.near.map_or_else(String::new, |near| {
            let parent = near.instance;
            format!(" from {}/{}", service(parent.service), parent.shard)
        });
        let level = d.level.map_or(0, |level| level.number());
        format!(
            "{}/{}{near} level {level}: {}, {}",
            service(d.key.service),
            d.key.shard,
            name(d.node),
            d.rule
        )
    };
    let lines: Vec<String> = placed.decisions.iter().map(line).collect();
    let expected = [
        // The first node with room. 1 of n0's cores is left.
        "a/0 level 0: n0, first fit",
        "b/0 from a/0 level 1: n0, best fit",
        // n0 is full. 3 cores are left on h0.
        "b/1 from a/0 level 2: h0, best fit",
        // 1 is left on h0.
        "c/0 from a/0 level 2: h0, best fit",
        // The only other SmartNIC of the rack, then its only other host, of which 2 are left.
        "c/1 from a/0 level 3: n1, best fit",
        "c/2 from a/0 level 4: h1, best fit",
        // No node of the rack and no SmartNIC has 4 cores. h2 would keep 1, h3 none.
        "f/0 from a/0 level 6: h3, best fit",
        // Of two shards of d the first is near the first of b, on n0: h1 has 2.
        "d/0 from b/0 level 4: h1, best fit",
        // The second is near the second of b, on h0. In the other rack n2 would keep 1, n3 none.
        "d/1 from b/1 level 5: n3, best fit",
        // The middle of all slots is in the second shard of d. n3 and h3 are full.
        "e/0 from d/1 level 3: n2, best fit",
        // 1 is left on n2.
        "g/0 from e/0 level 2: h2, best fit",
        // No node has 4. h0 is exceeded least: (3 + 4) / 4 of its cores.
        "i/0 from g/0 level 6: h0, nothing fits, closest to fitting",
    ];
    assert_eq!(lines, expected);
    let flagged: Vec<NodeId> = placed.overcommitted().map(|d| d.node).collect();
    assert_eq!(flagged, [cluster.named("h0").unwrap()]);
}

/// Instances on each node, by name.
fn counts(placed: &Placement, cluster: &Cluster) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for d in &placed.decisions {
        *counts.entry(cluster.node(d.node).name.clone()).or_default() += 1;
    }
    counts
}

#[test]
fn spread_gives_each_server_as_many_instances_of_a_service() {
    // One server has far more than the others, and two have SmartNICs.
    let topology = topology(&[&[
        &[("h0", 'h', 64, 65536)],
        &[("h1", 'h', 4, 1024), ("n1", 'n', 4, 1024)],
        &[("h2", 'h', 4, 1024), ("n2", 'n', 4, 1024)],
        &[("h3", 'h', 4, 1024)],
    ]]);
    for (shards, replicas) in [(4, 1), (10, 1), (8, 2), (7, 3)] {
        let replicated = format!(", stateful: true, replicas: {replicas}");
        let app = app(
            &[("s", shards, 0.25, 16), ("t", shards, 0.1, 8)],
            &[("s", "t")],
            &replicated,
        );
        let request = Request::new(&app, &BTreeMap::new());
        let mut cluster = Cluster::new(&topology);
        let placed = place(&Spread, &request, &mut cluster);
        for service in request.services() {
            let mut on = [0; 4];
            for d in placed.decisions.iter().filter(|d| d.key.service == service) {
                on[cluster.node(d.node).server] += 1;
            }
            let (least, most) = (on.iter().min().unwrap(), on.iter().max().unwrap());
            let all = shards * replicas;
            assert_eq!(on.iter().sum::<u16>(), all);
            assert!(most - least <= 1, "{shards} x {replicas}: {on:?}");
        }
        assert!(placed.decisions.iter().all(|d| d.rule == Rule::Even));
    }
}

#[test]
fn spread_takes_the_node_with_the_most_free_of_equal_servers() {
    let topology = topology(&[&[
        &[("h0", 'h', 4, 1024), ("n0", 'n', 4, 1024)],
        &[("h1", 'h', 4, 1024), ("n1", 'n', 4, 1024)],
    ]]);
    let app = app(&[("s", 6, 0.5, 64)], &[], "");
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = Cluster::new(&topology);
    // What runs already leaves most on n1, then n0, h1, h0.
    for (name, instances) in [("h0", 4), ("h1", 3), ("n0", 2), ("n1", 0)] {
        let id = cluster.named(name).unwrap();
        for _ in 0..instances {
            cluster.add(&request, ServiceId(0), Role::Primary, id);
        }
    }
    let placed = place(&Spread, &request, &mut cluster);
    let nodes = placed.decisions.iter();
    let nodes: Vec<String> = nodes.map(|d| cluster.node(d.node).name.clone()).collect();
    // One after another: n1; the other server, whose n0 has more than h0; n1 with 1 against h1 with 3; n0 with 3
    // against h0 with 4; n1 with 2; then n0 and h0 have 4 each, and the lower id goes first.
    assert_eq!(nodes, ["n1", "n0", "n1", "n0", "n1", "h0"]);
}

/// Two servers whose SmartNICs hold 256 MiB each.
fn small_smartnics() -> Topology {
    topology(&[&[
        &[("h0", 'h', 16, 65536), ("n0", 'n', 2, 256)],
        &[("h1", 'h', 16, 65536), ("n1", 'n', 2, 256)],
    ]])
}

#[test]
fn nicfirst_puts_as_many_on_smartnics_as_their_memory_holds_whatever_their_cores() {
    // 64 MiB each: four on a SmartNIC, though each wants one of two cores.
    for (shards, on_nics, on_hosts) in [(7, 7, 0), (8, 8, 0), (9, 8, 1), (12, 8, 4)] {
        let app = app(&[("s", shards, 1.0, 64)], &[], "");
        let request = Request::new(&app, &BTreeMap::new());
        let mut cluster = Cluster::new(&small_smartnics());
        let placed = place(&NicFirst, &request, &mut cluster);
        let kind = |d: &Decision| cluster.node(d.node).kind;
        let nics = placed.decisions.iter().map(kind);
        let nics = nics.filter(|kind| *kind == NodeKind::SmartNic).count();
        assert_eq!((nics, placed.decisions.len() - nics), (on_nics, on_hosts));
    }
}

#[test]
fn nicfirst_leaves_no_room_on_a_smartnic_for_what_is_on_a_host() {
    // The first service fills three quarters of each SmartNIC, the last fits into what that leaves, once.
    let app = app(
        &[("a", 2, 0.5, 192), ("b", 1, 0.5, 128), ("c", 3, 0.5, 64)],
        &[("a", "b"), ("b", "c")],
        "",
    );
    let request = Request::new(&app, &BTreeMap::new());
    let mut cluster = Cluster::new(&small_smartnics());
    let placed = place(&NicFirst, &request, &mut cluster);
    let expected = [("h0", 2), ("n0", 2), ("n1", 2)];
    let expected = expected.map(|(name, count)| (name.to_string(), count));
    assert_eq!(counts(&placed, &cluster), expected.into());
    for d in &placed.decisions {
        let expected = match app.service(d.key.service).name.as_str() {
            "b" => NodeKind::Host,
            "c" if d.key.shard.0 == 2 => NodeKind::Host,
            _ => NodeKind::SmartNic,
        };
        assert_eq!(cluster.node(d.node).kind, expected, "{:?}", d.key);
    }
}
