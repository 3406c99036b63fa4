//! Why instances are where they are.

use crate::ui::output::Table;
use e3_model::api::{NodeView, PlacedView, ServiceView};
use std::collections::{BTreeMap, BTreeSet};

/// A reason without the instance that it is about.
pub fn reason(why: &str) -> &str {
    why.split_once(": ").map_or(why, |(_, rest)| rest)
}

/// The nodes of a service's primaries, with the number on each.
pub fn primaries(service: &ServiceView) -> String {
    let each: Vec<String> = service
        .nodes
        .iter()
        .map(|(node, times)| format!("{node} {times}"))
        .collect();
    each.join(", ")
}

/// A table with a line for each instance.
pub fn why(placed: &[PlacedView]) -> String {
    let mut table = Table::new(&["INSTANCE", "NODE", "REASON"]).indent(2);
    for p in placed {
        table.row([&p.instance, &p.node, reason(&p.why)].map(str::to_string));
    }
    table.render()
}

/// A table with a line for each group of instances that have the same reason.
pub fn why_grouped(placed: &[PlacedView], all_nodes: &[NodeView]) -> String {
    let mut groups: Vec<(String, String, String, Vec<&PlacedView>)> = Vec::new();
    for p in placed {
        let (shard, part) = p.instance.split_once(' ').unwrap_or((&p.instance, ""));
        let service = shard.split('/').next().unwrap_or_default();
        let why = general(reason(&p.why));
        let same = |g: &&mut (String, String, String, Vec<&PlacedView>)| {
            (g.0.as_str(), g.1.as_str(), &g.2) == (service, part, &why)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.3.push(p),
            None => groups.push((service.into(), part.into(), why, vec![p])),
        }
    }
    let mut table = Table::new(&["SERVICE", "ROLE", ">COUNT", "KIND", "NODES", "REASON"]).indent(2);
    for (service, part, why, members) in groups {
        let mut by_node: BTreeMap<&str, u32> = BTreeMap::new();
        for p in &members {
            *by_node.entry(&p.node).or_default() += 1;
        }
        let kind = |node: &str| {
            all_nodes
                .iter()
                .find(|n| n.name == node)
                .map(|n| n.kind.name())
        };
        let kinds: BTreeSet<&str> = by_node.keys().filter_map(|n| kind(n)).collect();
        let names: Vec<String> = by_node.iter().map(|(n, c)| format!("{n} {c}")).collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        table.row([
            service,
            part,
            members.len().to_string(),
            kinds.join(", "),
            names.join(", "),
            why,
        ]);
    }
    table.render()
}

/// A reason without what differs between shards: the shard of the neighbour and the nodes that did
/// not fit. `e3 describe service` and `instance` show them.
fn general(why: &str) -> String {
    let kept = why.split("; ").filter(|part| !part.contains(" rejected"));
    let text = kept.collect::<Vec<_>>().join("; ");
    let Some((before, rest)) = text.split_once(" as ") else {
        return text;
    };
    let (neighbour, after) = rest.split_once(')').unwrap_or((rest, ""));
    let service = neighbour.split('/').next().unwrap_or_default();
    format!("{before} as {service}){after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_with_the_same_reason_share_a_line() {
        let placed = |instance: &str, node: &str, why: &str| PlacedView {
            instance: instance.into(),
            node: node.into(),
            why: why.into(),
        };
        let level = "level 1 (same node as front";
        let all: Vec<PlacedView> = (0..108)
            .map(|i| {
                let rejected = format!("s1-host rejected: needs 1.00 cores, 0.{i:02} free");
                let why = format!(
                    "back/{i} primary -> n{}: {level}/{i}), best fit; {rejected}",
                    i % 2
                );
                placed(&format!("back/{i} primary"), &format!("n{}", i % 2), &why)
            })
            .collect();
        let text = why_grouped(&all, &[]);
        assert_eq!(text.lines().count(), 2, "{text}");
        let line = text.lines().nth(1).unwrap();
        assert!(line.contains("back") && line.contains("108"), "{line}");
        assert!(line.contains("n0 54, n1 54"), "{line}");
        assert!(
            line.ends_with("level 1 (same node as front), best fit"),
            "{line}"
        );
    }
}
