//! Tables 1 and 4 of E3 (USENIX ATC 2019), and the profiles derived from Table 1.
//!
//! Service time = active cores / throughput at the peak, at 512 bytes. The host's columns are those
//! with kernel bypass (DPDK): they flatter the host, so that what the SmartNIC gains is not
//! overstated, and the power model is fitted to them. A SmartNIC has 12 cores, which never sleep.
//! Where the peak is the port's and not the cores', the service time is only known to be at most
//! that; the profile says so. Latencies at the peak contain queueing, so no variation of the service
//! time is derived from them.

use crate::limits::{PAPER_PORT_GBPS, PORT_SATURATED, WIRE_OVERHEAD_BYTES};
use e3_model::Nanos;
use std::fmt::Write;

/// Table 1 as committed, with its source in the first line.
pub const TABLE1: &str = include_str!("../../../profiles/paper/table1.csv");
/// Table 4 as committed, with its source in the first line.
pub const TABLE4: &str = include_str!("../../../profiles/paper/table4.csv");

/// Cores of the paper's SmartNIC.
pub const SMARTNIC_CORES: f64 = 12.0;
/// Request size of Table 1.
pub const REQUEST_BYTES: u32 = 512;

/// Peak of a service on one kind of node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Peak {
    /// Requests per second.
    pub rate_rps: f64,
    /// Power above idle.
    pub active_w: f64,
    /// Cores that were active.
    pub cores: f64,
}

/// What this project uses of a row of Table 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Table1Row {
    /// Service.
    pub service: String,
    /// Host with kernel bypass.
    pub host: Peak,
    /// Host with Linux sockets.
    pub host_linux: Peak,
    /// SmartNIC.
    pub smartnic: Peak,
}

/// A row of Table 4: a server, or a cluster of several.
#[derive(Clone, PartialEq, Debug)]
pub struct Table4Row {
    /// Name.
    pub system: String,
    /// Price in dollars.
    pub cost_usd: f64,
    /// Host cores.
    pub host_cores: f64,
    /// Cores of SmartNICs.
    pub smartnic_cores: f64,
    /// Power when idle.
    pub idle_w: f64,
    /// Power at the peak.
    pub peak_w: f64,
}

/// Rows of a table whose cells hold no commas: the first cell as text, others by column name.
struct Rows<'a> {
    columns: Vec<&'a str>,
    lines: Vec<Vec<&'a str>>,
}

impl<'a> Rows<'a> {
    fn parse(text: &'a str) -> Rows<'a> {
        let mut lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        let cells = |l: &'a str| l.split(',').collect::<Vec<_>>();
        Rows {
            columns: lines.next().map(cells).unwrap_or_default(),
            lines: lines.map(cells).collect(),
        }
    }

    fn number(&self, line: &[&str], column: &str) -> f64 {
        let at = self.columns.iter().position(|c| *c == column);
        let cell = at.and_then(|at| line.get(at)).and_then(|c| c.parse().ok());
        cell.unwrap_or_else(|| panic!("the embedded table has no number {column} in {line:?}"))
    }
}

/// The rows of Table 1.
pub fn table1() -> Vec<Table1Row> {
    let rows = Rows::parse(TABLE1);
    let row = |line: &Vec<&str>| Table1Row {
        service: line[0].to_string(),
        host: Peak {
            rate_rps: rows.number(line, "host_dpdk_rps"),
            active_w: rows.number(line, "host_dpdk_active_w"),
            cores: rows.number(line, "host_dpdk_cores"),
        },
        host_linux: Peak {
            rate_rps: rows.number(line, "host_linux_rps"),
            active_w: rows.number(line, "host_linux_active_w"),
            cores: rows.number(line, "host_linux_cores"),
        },
        smartnic: Peak {
            rate_rps: rows.number(line, "smartnic_rps"),
            active_w: rows.number(line, "smartnic_active_w"),
            cores: SMARTNIC_CORES,
        },
    };
    rows.lines.iter().map(row).collect()
}

/// The rows of Table 4.
pub fn table4() -> Vec<Table4Row> {
    let rows = Rows::parse(TABLE4);
    let row = |line: &Vec<&str>| Table4Row {
        system: line[0].to_string(),
        cost_usd: rows.number(line, "cost_usd"),
        host_cores: rows.number(line, "beefy_cores"),
        smartnic_cores: rows.number(line, "wimpy_cores"),
        idle_w: rows.number(line, "idle_w"),
        peak_w: rows.number(line, "peak_w"),
    };
    rows.lines.iter().map(row).collect()
}

impl Peak {
    /// Time of one request on one core.
    pub fn service_time(&self) -> Nanos {
        Nanos((self.cores / self.rate_rps * 1e9).round() as u64)
    }

    /// Whether the port bounded the rate.
    pub fn port_bound(&self) -> bool {
        let wire_bits = f64::from((REQUEST_BYTES + WIRE_OVERHEAD_BYTES) * 8);
        self.rate_rps >= PORT_SATURATED * PAPER_PORT_GBPS * 1e9 / wire_bits
    }

    fn write(&self, kind: &str, out: &mut String) -> std::fmt::Result {
        writeln!(out, "    {kind}:")?;
        writeln!(out, "      serviceTime:")?;
        let time = self.service_time();
        writeln!(out, "        - {{bytes: {REQUEST_BYTES}, time: {time}}}")?;
        writeln!(out, "      activePowerW: {}", self.active_w)?;
        writeln!(out, "      activeCores: {}", self.cores)?;
        if self.port_bound() {
            writeln!(
                out,
                "      # The 10 Gb/s port was full before the cores were."
            )?;
            writeln!(out, "      lowerBound: true")?;
        }
        Ok(())
    }
}

/// Messages sent per handled message, where that does not depend on the workload.
fn outputs(service: &str) -> &'static [(&'static str, f64)] {
    match service {
        // Every update that passes goes on; the others are answered at once and cost no more.
        "apigw" => &[("sql", 1.0)],
        _ => &[],
    }
}

/// The profile of a row as a document.
pub fn profile_yaml(row: &Table1Row) -> String {
    let mut out = String::new();
    write_profile(row, &mut out).expect("text can be appended");
    out
}

fn write_profile(row: &Table1Row, out: &mut String) -> std::fmt::Result {
    let name = &row.service;
    writeln!(out, "# Derived from table1.csv; do not edit:")?;
    writeln!(out, "#   cargo run -p e3-power --example paper_profiles")?;
    writeln!(out, "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata:")?;
    writeln!(out, "  name: {name}\nspec:\n  provenance: paper")?;
    writeln!(
        out,
        "  source: E3 (USENIX ATC 2019), Table 1, row {name}, host with DPDK and SmartNIC, requests of {REQUEST_BYTES} bytes"
    )?;
    writeln!(out, "  nodes:")?;
    row.host.write("host", out)?;
    row.smartnic.write("smartnic", out)?;
    if !outputs(name).is_empty() {
        writeln!(out, "  outputs:")?;
        for (channel, per_message) in outputs(name) {
            writeln!(out, "    {channel}: {per_message:.1}")?;
        }
    }
    Ok(())
}
