//! Types of servers that can be bought: those of Table 4 of E3 (USENIX ATC 2019), and those composed of
//! parts of the present day.
//!
//! The parts are in `profiles/present/parts.csv`, each value with its range, kind and source. A server of the
//! present day is a chassis, a processor, and a SmartNIC or an ordinary adapter; its power and its price are
//! the sums of its parts. Nobody measured the services on these parts: a core is taken to be as many times
//! faster than the paper's as clock and instructions per clock say, which is a guess with a wide range.

use crate::estimate::{Estimate, Origin};
use e3_model::accelerator::Accelerators;
use e3_model::topology::Node;
use e3_model::{Bytes, NodeKind};
use e3_power::paper::table4;
use e3_power::{PowerModel, System};
use serde::Serialize;

/// The parts as committed.
pub const PARTS: &str = include_str!("../../../profiles/present/parts.csv");

/// Clock of the paper's host, an Intel Xeon E5-2680 v3, by its data sheet.
pub const PAPER_HOST_GHZ: f64 = 2.5;
/// Clock of the paper's SmartNIC (E3, section 5).
pub const PAPER_SMARTNIC_GHZ: f64 = 1.2;

/// Plausible range of the idle power of a server of Table 4, as factors: servers of one type differ.
const PAPER_IDLE: (f64, f64) = (0.9, 1.1);
/// Plausible range of its price: prices change with volume and time.
const PAPER_PRICE: (f64, f64) = (0.8, 1.2);

const HOSTS: [&str; 4] = ["epyc-9124", "epyc-9354", "epyc-9654", "graviton3"];
const SMARTNICS: [&str; 3] = ["bluefield-2", "bluefield-3", "octeon-10"];
const ADAPTER: &str = "nic-100g";
const CHASSIS: &str = "chassis";

/// Nodes of a server of Table 4: kind, cores, GiB, Gb/s, how many. The topologies have the same.
type PaperNode = (NodeKind, u16, u64, f64, usize);
const PAPER: [(&str, &[PaperNode]); 5] = [
    ("Beefy", &[(NodeKind::Host, 12, 64, 20.0, 1)]),
    ("SuperBeefy", &[(NodeKind::Host, 24, 192, 80.0, 1)]),
    (
        "Type1-SmartNIC",
        &[
            (NodeKind::Host, 12, 64, 10.0, 1),
            (NodeKind::SmartNic, 12, 4, 10.0, 1),
        ],
    ),
    (
        "Type2-SmartNIC",
        &[
            (NodeKind::Host, 16, 128, 8.0, 1),
            (NodeKind::SmartNic, 12, 4, 8.0, 4),
        ],
    ),
    ("Wimpy", &[(NodeKind::SmartNic, 32, 2, 20.0, 1)]),
];

/// A quantity of a server type.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Quantity {
    /// Value and range.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Where it comes from: the least certain of its parts.
    pub from: Origin,
}

/// A part of a server, or a server of Table 4 as a whole.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// Name.
    pub name: String,
    /// Power when idle, in watts.
    pub idle_w: Quantity,
    /// Power at the peak, in watts.
    pub peak_w: Quantity,
    /// Price in dollars.
    pub price_usd: Quantity,
}

/// A type of server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerType {
    /// Name, which is also that of its power model.
    pub name: String,
    /// Its nodes; their names are `host` and `nic0`.
    pub nodes: Vec<Node>,
    /// What it consists of.
    pub parts: Vec<Part>,
    /// Speed of a core of its host against the paper's, and the part that has it.
    pub host_speed: (Quantity, String),
    /// The same of its SmartNIC.
    pub smartnic_speed: (Quantity, String),
    /// Hardware threads of a core of its host.
    pub host_threads: u32,
}

/// A row of the table of parts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row<'a> {
    /// Part.
    pub part: &'a str,
    /// Quantity.
    pub quantity: &'a str,
    /// Value and range.
    pub estimate: Estimate,
    /// Unit; empty for counts.
    pub unit: &'a str,
    /// Kind.
    pub from: Origin,
    /// Name and date of the source, or the reason of a guess.
    pub source: &'a str,
}

/// All rows of the table of parts.
pub fn rows() -> impl Iterator<Item = Row<'static>> {
    let lines = PARTS.lines().filter(|l| !l.starts_with('#'));
    lines.skip(1).map(|line| {
        let cells: Vec<&str> = line.splitn(8, ',').collect();
        let number = |at: usize| -> f64 {
            let cell = cells.get(at).and_then(|c| c.parse().ok());
            cell.unwrap_or_else(|| panic!("the embedded table has no number in {line:?}"))
        };
        Row {
            part: cells[0],
            quantity: cells[1],
            estimate: Estimate {
                low: number(2),
                value: number(3),
                high: number(4),
            },
            unit: cells[5],
            from: Origin::parse(cells[6]).unwrap_or_else(|| panic!("no such kind: {line:?}")),
            source: cells[7],
        }
    })
}

fn of(part: &str, quantity: &str) -> Quantity {
    let row = rows().find(|r| r.part == part && r.quantity == quantity);
    let row = row.unwrap_or_else(|| panic!("the embedded table has no {quantity} of {part}"));
    Quantity {
        estimate: row.estimate,
        from: row.from,
    }
}

/// Sum of a quantity over parts, all at the same end of their ranges.
pub fn sum<'a>(parts: impl Iterator<Item = &'a Part>, of: fn(&Part) -> Quantity) -> Quantity {
    let sum = parts.map(of).reduce(|a, b| Quantity {
        estimate: a.estimate.plus(&b.estimate),
        from: a.from.max(b.from),
    });
    sum.expect("a server has parts")
}

/// Names of all types of servers.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = PAPER.iter().map(|(name, _)| (*name).to_string()).collect();
    for host in HOSTS {
        names.push(host.to_string());
        names.extend(SMARTNICS.iter().map(|nic| format!("{host}+{nic}")));
    }
    names
}

/// The type of that name, in any case.
pub fn server_type(name: &str) -> Option<ServerType> {
    let wanted = name.to_ascii_lowercase();
    let paper = PAPER
        .iter()
        .find(|(name, _)| name.to_ascii_lowercase() == wanted);
    if let Some((name, nodes)) = paper {
        return paper_type(name, nodes);
    }
    let (host, nic) = match wanted.split_once('+') {
        Some((host, nic)) => (host, Some(nic)),
        None => (wanted.as_str(), None),
    };
    let host = HOSTS.into_iter().find(|h| *h == host)?;
    match nic {
        None => Some(present_type(host, None)),
        Some(nic) => {
            let nic = SMARTNICS.into_iter().find(|n| *n == nic)?;
            Some(present_type(host, Some(nic)))
        }
    }
}

/// The paper's power model, with this type in it too.
pub fn power_model(model: PowerModel, server: &ServerType) -> PowerModel {
    let cores = |kind| {
        let of_kind = server.nodes.iter().filter(move |n| n.kind == kind);
        of_kind.map(|n| f64::from(n.cores)).sum::<f64>()
    };
    let smartnics = server.nodes.iter().filter(|n| n.kind == NodeKind::SmartNic);
    let system = System {
        idle_w: sum(server.parts.iter(), |p| p.idle_w).estimate.value,
        peak_w: sum(server.parts.iter(), |p| p.peak_w).estimate.value,
        host_cores: cores(NodeKind::Host),
        smartnics: smartnics.count() as f64,
    };
    model.with_system(&server.name, system)
}

fn node(name: String, kind: NodeKind, cores: u16, memory: u64, gbps: f64) -> Node {
    Node {
        name,
        kind,
        cores,
        memory: Bytes(memory << 30),
        disk: None,
        emulated: false,
        emulation: None,
        relay: false,
        link_latency: None,
        bandwidth_gbps: gbps,
        accelerators: Accelerators::default(),
    }
}

fn paper_type(name: &str, nodes: &[PaperNode]) -> Option<ServerType> {
    let row = table4().into_iter().find(|row| row.system == name)?;
    let mut all = Vec::new();
    for (kind, cores, memory, gbps, count) in nodes {
        for at in 0..*count {
            let name = match kind {
                NodeKind::Host => "host".to_string(),
                NodeKind::SmartNic => format!("nic{at}"),
            };
            all.push(node(name, *kind, *cores, *memory, *gbps));
        }
    }
    let paper = |value, (low, high)| Quantity {
        estimate: Estimate::within(value, low, high),
        from: Origin::Paper,
    };
    Some(ServerType {
        name: name.to_string(),
        nodes: all,
        parts: vec![Part {
            name: name.to_string(),
            idle_w: paper(row.idle_w, PAPER_IDLE),
            peak_w: paper(row.peak_w, (1.0, 1.0)),
            price_usd: paper(row.cost_usd, PAPER_PRICE),
        }],
        host_speed: (paper(1.0, (1.0, 1.0)), name.to_string()),
        smartnic_speed: (paper(1.0, (1.0, 1.0)), name.to_string()),
        host_threads: 2,
    })
}

/// Speed of a core against the paper's: clock times instructions per clock.
fn speed(part: &str, paper_ghz: f64) -> Quantity {
    let (clock, ipc) = (of(part, "clock"), of(part, "ipc"));
    Quantity {
        estimate: clock.estimate.scaled(1.0 / paper_ghz).times(&ipc.estimate),
        from: clock.from.max(ipc.from),
    }
}

fn present_type(host: &str, nic: Option<&str>) -> ServerType {
    let parts = [CHASSIS, host, nic.unwrap_or(ADAPTER)];
    let whole = |part: &str, quantity: &str| of(part, quantity).estimate.value;
    let gbps = whole(parts[2], "ports");
    let memory = whole(CHASSIS, "memory") as u64;
    // The host reaches the network over the SmartNIC's ports: each is given half, as in Type1.
    let share = if nic.is_some() { gbps / 2.0 } else { gbps };
    let cores = |part| whole(part, "cores") as u16;
    let mut nodes = vec![node(
        "host".into(),
        NodeKind::Host,
        cores(host),
        memory,
        share,
    )];
    if let Some(nic) = nic {
        let memory = whole(nic, "memory") as u64;
        let kind = NodeKind::SmartNic;
        nodes.push(node("nic0".into(), kind, cores(nic), memory, share));
    }
    let part = |name: &&str| Part {
        name: (*name).to_string(),
        idle_w: of(name, "idle"),
        peak_w: of(name, "peak"),
        price_usd: of(name, "price"),
    };
    let paper_speed = Quantity {
        estimate: Estimate::exact(1.0),
        from: Origin::Paper,
    };
    ServerType {
        name: match nic {
            Some(nic) => format!("{host}+{nic}"),
            None => host.to_string(),
        },
        nodes,
        parts: parts.iter().map(part).collect(),
        host_speed: (speed(host, PAPER_HOST_GHZ), host.to_string()),
        smartnic_speed: match nic {
            Some(nic) => (speed(nic, PAPER_SMARTNIC_GHZ), nic.to_string()),
            None => (paper_speed, host.to_string()),
        },
        host_threads: whole(host, "threads") as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_in_order_and_on_the_page() {
        let page = include_str!("../../../docs/hardware.md");
        for r in rows() {
            let e = r.estimate;
            let what = format!("{} {}", r.part, r.quantity);
            assert!(e.low <= e.value && e.value <= e.high, "{what}");
            assert!(e.low > 0.0 && !r.source.is_empty(), "{what}");
            let row = format!(
                "| `{}` | {} | {} | {} to {} | {} | {} | {} |",
                r.part,
                r.quantity,
                e.value,
                e.low,
                e.high,
                r.unit,
                r.from.words(),
                r.source
            );
            assert!(page.contains(&row), "docs/hardware.md lacks\n{row}");
        }
    }

    #[test]
    fn every_type_has_power_price_and_nodes() {
        for name in names() {
            let server = server_type(&name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(server.name, name);
            let sum = |of| sum(server.parts.iter(), of).estimate;
            assert!(
                sum(|p| p.idle_w).high <= sum(|p| p.peak_w).low,
                "{name}: the plausible idle power is above the peak"
            );
            assert!(sum(|p| p.price_usd).low > 0.0, "{name}");
            assert!(!server.nodes.is_empty(), "{name}");
            let model = power_model(PowerModel::paper(), &server);
            assert!(model.systems().contains_key(&name), "{name}");
        }
        assert!(server_type("epyc-9354+abacus").is_none() && server_type("").is_none());
        assert!(server_type("4xBeefy").is_none(), "a cluster is no server");
        assert_eq!(server_type("BEEFY").unwrap().name, "Beefy");
    }

    #[test]
    fn a_present_server_is_the_sum_of_its_parts() {
        let server = server_type("epyc-9354+bluefield-2").unwrap();
        let sum = |of| sum(server.parts.iter(), of);
        let price = sum(|p| p.price_usd).estimate.value;
        assert_eq!(price, 4000.0 + 3420.0 + 1800.0);
        assert_eq!(sum(|p| p.peak_w).estimate.value, 110.0 + 280.0 + 60.0);
        assert_eq!(sum(|p| p.idle_w).from, Origin::Guess);
        let speed = server.host_speed.0.estimate.value;
        assert!((speed - 3.25 / 2.5 * 1.8).abs() < 1e-9, "{speed}");
        let nodes: Vec<_> = server.nodes.iter().map(|n| (n.kind, n.cores)).collect();
        assert_eq!(nodes, [(NodeKind::Host, 32), (NodeKind::SmartNic, 8)]);
    }
}
