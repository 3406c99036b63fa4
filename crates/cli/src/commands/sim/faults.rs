//! Faults of `e3 sim`: `NODE@SECONDS` or `NODE@SECONDS..SECONDS`; of a link between racks `RACK/NUMBER`
//! in place of the node.

use crate::ui::failure::{Exit, Failure};
use e3_model::{Nanos, NodeId, Topology};
use e3_perfsim::{Failing, Fault};

/// Reads the faults of a command line.
pub fn parse(
    nodes: &[String],
    links: &[String],
    topology: &Topology,
) -> Result<Vec<Fault>, Failure> {
    let nodes = nodes.iter().map(|text| {
        let (name, from, until) = times(text, "--fail NODE@SECONDS[..SECONDS]")?;
        let what = Failing::Node(node(name, topology)?);
        Ok(Fault { what, from, until })
    });
    let links = links.iter().map(|text| {
        let (name, from, until) = times(text, "--fail-link NODE|RACK/NUMBER@SECONDS[..SECONDS]")?;
        let what = match name.rsplit_once('/') {
            None => Failing::Link(node(name, topology)?),
            Some((rack, link)) => Failing::Uplink {
                rack: rack_number(rack, topology)?,
                link: link.parse().map_err(|_| {
                    wrong(format!(
                        "fault {text:?}: {link:?} is not the number of a link"
                    ))
                })?,
            },
        };
        Ok(Fault { what, from, until })
    });
    nodes.chain(links).collect()
}

fn wrong(message: String) -> Failure {
    Failure::new(Exit::Input, message)
}

fn times<'a>(text: &'a str, form: &str) -> Result<(&'a str, Nanos, Option<Nanos>), Failure> {
    let misread = || wrong(format!("fault {text:?} is not {form}"));
    let (name, times) = text.rsplit_once('@').ok_or_else(misread)?;
    let (from, until) = match times.split_once("..") {
        None => (times, None),
        Some((from, until)) => (from, Some(until)),
    };
    let seconds = |text: &str| {
        let seconds = text.strip_suffix('s').unwrap_or(text).parse::<f64>().ok();
        let good = seconds.filter(|s| s.is_finite() && *s >= 0.0);
        good.map(Nanos::from_secs_f64).ok_or_else(misread)
    };
    Ok((name, seconds(from)?, until.map(seconds).transpose()?))
}

fn node(name: &str, topology: &Topology) -> Result<NodeId, Failure> {
    let found = topology.nodes().find(|n| n.node.name == name);
    found.map(|n| n.id).ok_or_else(|| {
        let (topology, known) = (&topology.name, topology.nodes());
        let known: Vec<&str> = known.take(8).map(|n| n.node.name.as_str()).collect();
        wrong(format!("node {name:?} is not in topology {topology:?}"))
            .hint(format!("it has {} and others", known.join(", ")))
    })
}

fn rack_number(name: &str, topology: &Topology) -> Result<usize, Failure> {
    let racks = &topology.spec.racks;
    let found = racks.iter().position(|rack| rack.name == name);
    found.ok_or_else(|| {
        let topology = &topology.name;
        wrong(format!("rack {name:?} is not in topology {topology:?}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::builtin;

    fn read(nodes: &str, links: &str) -> Result<Vec<Fault>, Failure> {
        let (_, topology) = builtin::topology("3x-type1").unwrap();
        let list = |text: &str| match text {
            "" => Vec::new(),
            text => vec![text.to_string()],
        };
        parse(&list(nodes), &list(links), &topology)
    }

    #[test]
    fn faults_are_read() {
        let faults = read("s1-nic0@2..5.5", "rack0/3@1s").unwrap();
        let expected = [
            Fault {
                what: Failing::Node(NodeId(1)),
                from: Nanos::from_secs(2),
                until: Some(Nanos::from_millis(5_500)),
            },
            Fault {
                what: Failing::Uplink { rack: 0, link: 3 },
                from: Nanos::from_secs(1),
                until: None,
            },
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn what_is_no_fault_is_refused() {
        for (nodes, links, words) in [
            ("s1-nic0", "", "is not --fail NODE@SECONDS"),
            ("s1-nic0@soon", "", "is not --fail NODE@SECONDS"),
            ("s1-nic0@-1", "", "is not --fail NODE@SECONDS"),
            ("s9@1", "", "node \"s9\" is not in topology \"3x-type1\""),
            ("", "attic/1@1", "rack \"attic\" is not in topology"),
            ("", "rack0/x@1", "\"x\" is not the number of a link"),
        ] {
            let failure = read(nodes, links).unwrap_err();
            assert!(failure.message.contains(words), "{nodes}{links}: {failure}");
        }
    }
}
