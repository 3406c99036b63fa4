//! The machine that figures are measured on.

use serde::Serialize;
use std::fmt;

/// Processor and kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split_once(": "));
        Machine {
            cpu: model
                .map_or(std::env::consts::ARCH, |(_, name)| name)
                .trim()
                .to_string(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.cores == 1 { "core" } else { "cores" };
        write!(
            f,
            "{} {noun} of {}, Linux {}",
            self.cores, self.cpu, self.kernel
        )
    }
}
