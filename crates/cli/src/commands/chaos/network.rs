//! The cluster's own network: a network namespace in which this program runs again, with the cluster
//! that it starts. Rules of nftables drop datagrams; they end with the namespace.

use super::fault::Fault;
use super::relay::{MARK, Relay};
use crate::limits::CHAOS_DROP_PERCENT;
use crate::ui::failure::{Exit, Failure};
use e3_model::api::NodeView;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Set for the program that runs in the namespace.
const INSIDE: &str = "E3_CHAOS_INSIDE";

/// The namespace that this program runs in.
pub struct Network {
    controller_port: u16,
    made: AtomicU64,
}

/// Rules, removed when this is dropped, and the relay that they redirect to.
pub struct Cut {
    table: String,
    _relay: Option<Relay>,
}

/// Whether this program already runs in a namespace of its own; if not, runs it again in one. Returns
/// only inside, or with a failure.
pub fn enter() -> Result<(), Failure> {
    if std::env::var_os(INSIDE).is_some() {
        return make_ready();
    }
    if !rustix::process::geteuid().is_root() {
        let message = "network faults need root: they are made in a network namespace";
        return Err(
            Failure::new(Exit::Input, message).hint("run it with sudo, or without --network")
        );
    }
    for tool in ["nft", "ip", "unshare"] {
        let found = Command::new(tool).arg("--version").output();
        if found.is_err() {
            let message = format!("{tool} is missing, with which network faults are made");
            return Err(Failure::new(Exit::NotFound, message)
                .hint("install the packages nftables, iproute2 and util-linux"));
        }
    }
    let program = std::env::current_exe()
        .map_err(|e| Failure::new(Exit::Unexpected, format!("find this program: {e}")))?;
    let failed = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(Failure::new(
        Exit::Unexpected,
        format!("start unshare: {failed}"),
    ))
}

/// Brings the loopback device up. There must be no other: rules must never reach a real network.
fn make_ready() -> Result<(), Failure> {
    let devices = std::fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    let others: Vec<&str> = names
        .map(|(name, _)| name.trim())
        .filter(|n| *n != "lo")
        .collect();
    if !others.is_empty() {
        let message = format!(
            "{INSIDE} is set, but this network namespace has other devices: {}",
            others.join(", ")
        );
        return Err(Failure::new(Exit::Input, message).hint(format!("unset {INSIDE}")));
    }
    run("ip", &["link", "set", "lo", "up"], "").map(drop)
}

impl Network {
    /// The namespace, where the controller listens at this port.
    pub fn new(controller_port: u16) -> Network {
        Network {
            controller_port,
            made: AtomicU64::new(0),
        }
    }

    /// Drops or delays the datagrams that a fault affects, until the result is dropped.
    pub fn cut(&self, fault: Fault, node: &str, nodes: &[NodeView]) -> Result<Cut, Failure> {
        let mut relay = None;
        let port = |n: &NodeView| n.address.as_ref()?.rsplit_once(':')?.1.parse::<u16>().ok();
        let found = nodes.iter().find(|n| n.name == node).and_then(port);
        let peers = nodes.iter().filter(|n| n.name != node).filter_map(port);
        let rules = match (fault, found) {
            (Fault::Drop, _) => {
                format!(
                    "meta l4proto udp numgen random mod 100 < {CHAOS_DROP_PERCENT} counter drop\n"
                )
            }
            (Fault::Delay, _) => {
                let ports = nodes.iter().filter_map(port).chain([self.controller_port]);
                let started = Relay::start(&ports.collect::<Vec<_>>());
                let started = started
                    .map_err(|e| Failure::new(Exit::Unexpected, format!("start a relay: {e}")))?;
                redirect(&relay.insert(started).ports)
            }
            (_, None) => {
                return Err(Failure::new(
                    Exit::NotFound,
                    format!("{node} has no address"),
                ));
            }
            (_, Some(own)) => rules(fault, own, &peers.collect::<Vec<_>>(), self.controller_port),
        };
        let table = format!("e3_chaos_{}", self.made.fetch_add(1, Ordering::Relaxed));
        // Dropped at the receiver: a datagram dropped at the sender would give the sender an error.
        let hook = if relay.is_some() { "output" } else { "input" };
        let script = format!(
            "table inet {table} {{\nchain c {{\ntype filter hook {hook} priority 0;\n{rules}}}\n}}\n"
        );
        run("nft", &["-f", "-"], &script)?;
        Ok(Cut {
            table,
            _relay: relay,
        })
    }
}

impl Cut {
    /// How many datagrams it has lost or delayed.
    pub fn datagrams(&self) -> Result<u64, Failure> {
        let listed = run("nft", &["list", "table", "inet", &self.table], "")?;
        Ok(packets(&listed))
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        let _ = run("nft", &["delete", "table", "inet", &self.table], "");
    }
}

/// The rules that drop the datagrams of a node.
fn rules(fault: Fault, own: u16, peers: &[u16], controller: u16) -> String {
    let peers: Vec<String> = peers.iter().map(u16::to_string).collect();
    let peers = peers.join(", ");
    let both = |others: &str| {
        format!(
            "udp sport {own} udp dport {{ {others} }} counter drop\n\
             udp dport {own} udp sport {{ {others} }} counter drop\n"
        )
    };
    match fault {
        Fault::CutPeers => both(&peers),
        Fault::CutController => both(&controller.to_string()),
        Fault::OneWay => {
            format!("udp sport {own} udp dport {{ {peers}, {controller} }} counter drop\n")
        }
        _ => {
            let mut all = String::new();
            for end in ["sport", "dport"] {
                let _ = writeln!(all, "udp {end} {own} counter drop");
            }
            all
        }
    }
}

/// The rules that redirect what is sent to some ports.
fn redirect(ports: &[(u16, u16)]) -> String {
    let rule = |(port, relay): &(u16, u16)| {
        format!("meta mark != {MARK} udp dport {port} counter udp dport set {relay}\n")
    };
    ports.iter().map(rule).collect()
}

/// The sum of the counters of a table, as nft(8) lists it: `counter packets 3 bytes 180`.
fn packets(listed: &str) -> u64 {
    let words: Vec<&str> = listed.split_ascii_whitespace().collect();
    let counters = words.windows(2).filter(|w| w[0] == "packets");
    counters.filter_map(|w| w[1].parse::<u64>().ok()).sum()
}

/// Runs a tool with this input; gives what it prints.
fn run(tool: &str, arguments: &[&str], input: &str) -> Result<String, Failure> {
    let failed = |e: String| Failure::new(Exit::Unexpected, format!("{tool}: {e}"));
    let mut child = Command::new(tool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .map_err(|e| failed(e.to_string()))?;
    }
    let ended = child
        .wait_with_output()
        .map_err(|e| failed(e.to_string()))?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ended.stderr);
    Err(failed(said.lines().next().unwrap_or_default().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_loses_its_datagrams() {
        let of = |fault| rules(fault, 1, &[2, 3], 9);
        assert_eq!(
            of(Fault::Cut),
            "udp sport 1 counter drop\nudp dport 1 counter drop\n"
        );
        assert_eq!(
            of(Fault::OneWay),
            "udp sport 1 udp dport { 2, 3, 9 } counter drop\n"
        );
        let peers = "udp sport 1 udp dport { 2, 3 } counter drop\nudp dport 1 udp sport { 2, 3 } counter drop\n";
        assert_eq!(of(Fault::CutPeers), peers);
        let controller =
            "udp sport 1 udp dport { 9 } counter drop\nudp dport 1 udp sport { 9 } counter drop\n";
        assert_eq!(of(Fault::CutController), controller);
        let redirected = "meta mark != 227 udp dport 1 counter udp dport set 4\n";
        assert_eq!(redirect(&[(1, 4)]), redirected);
    }

    #[test]
    fn the_datagrams_of_all_rules_are_counted() {
        let listed = "table inet e3_chaos_0 {\n chain c {\n type filter hook input priority filter;\n \
            udp sport 1 counter packets 12 bytes 900 drop\n udp dport 1 counter packets 3 bytes 1 drop\n }\n}\n";
        assert_eq!(packets(listed), 15);
        assert_eq!(packets("table inet e3_chaos_0 {}"), 0);
    }
}
