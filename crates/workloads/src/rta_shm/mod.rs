//! The workload of server health monitoring (RTA-SHM): a server's report is stored, counted by its
//! severity, averaged, and, if it is an alert, its log line is looked up among runbooks.
//!
//! A server sends its next report when the last one is answered, so its average can be computed here. The
//! number of reports of each server and severity is counted here too. Servers are the same in all loads,
//! so averages and counts before the load are read first. After the load the rows, the averages with their
//! samples, and the counts are read back.

mod generator;
pub mod health;
mod messages;
mod oracle;
mod runbooks;
#[cfg(test)]
mod tests;

use crate::inputs::Inputs;
use crate::load::Load;
use generator::Servers;
use oracle::Monitor;

/// Severities of reports; all but the first are alerts.
const SEVERITIES: [&str; 3] = ["info", "warning", "error"];

fn is_alert(severity: &str) -> bool {
    severity != SEVERITIES[0]
}

/// The reports of a seed.
pub(crate) fn load(inputs: &Inputs) -> Load<Servers, Monitor> {
    Load::new(Servers::new(inputs), Monitor::new(inputs))
}
