//! How a host reaches the network: by kernel bypass or through Linux sockets.
//!
//! Table 1 of E3 (USENIX ATC 2019) measures each service on a host both ways; the profiles have the columns
//! with kernel bypass. With Linux sockets a service time is longer by the ratio of the two columns. The paper
//! gives no latency of the Linux stack, only that it is slower (kernel bypass: 21 % more requests per
//! joule, 16 % less tail latency): `linux_stack_us` is a guess.

use crate::guesses::Guesses;
use e3_model::profile::Provenance;
use e3_model::{NodeKind, Profile};
use e3_power::paper::table1;

/// Network stack of hosts. SmartNICs have one in user space, clients bypass the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stack {
    /// Kernel bypass, such as DPDK.
    #[default]
    Bypass,
    /// Linux sockets.
    Linux,
}

/// A service time that Table 1 does not have.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "profile {profile:?} is not of Table 1, which alone has service times with the Linux stack"
)]
pub struct StackError {
    /// Profile.
    pub profile: String,
}

impl Stack {
    /// By how much a service takes longer than its profile says.
    pub fn factor(self, profile: &Profile, kind: NodeKind) -> Result<f64, StackError> {
        if self == Stack::Bypass || kind == NodeKind::SmartNic {
            return Ok(1.0);
        }
        let rows = table1();
        let is_of_paper = profile.spec.provenance == Provenance::Paper;
        let row = rows.iter().find(|r| r.service == profile.name);
        let row = row.filter(|_| is_of_paper).ok_or_else(|| StackError {
            profile: profile.name.clone(),
        })?;
        let time = |cores: f64, rate: f64| cores / rate;
        let linux = time(row.host_linux.cores, row.host_linux.rate_rps);
        Ok(linux / time(row.host.cores, row.host.rate_rps))
    }

    /// Latency that it adds to a hop with so many hosts at its ends, in microseconds.
    pub fn latency_us(self, hosts: u32, guesses: &Guesses) -> f64 {
        match self {
            Stack::Bypass => 0.0,
            Stack::Linux => f64::from(hosts) * guesses.linux_stack_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::document::parse_profile;

    #[test]
    fn a_service_takes_as_much_longer_as_table_1_says() {
        let text = include_str!("../../../profiles/paper/kvs.yaml");
        let mut kvs = parse_profile("kvs", text).unwrap();
        let factor = |p: &Profile, kind| Stack::Linux.factor(p, kind);
        let expected = (8.0 / 1_946_200.0) / (2.0 / 2_005_000.0);
        assert!((factor(&kvs, NodeKind::Host).unwrap() - expected).abs() < 1e-9);
        assert_eq!(factor(&kvs, NodeKind::SmartNic), Ok(1.0));
        assert_eq!(Stack::Bypass.factor(&kvs, NodeKind::Host), Ok(1.0));
        kvs.spec.provenance = Provenance::Measured;
        assert!(factor(&kvs, NodeKind::Host).is_err());
    }
}
