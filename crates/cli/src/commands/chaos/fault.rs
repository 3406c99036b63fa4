//! The faults: their names, what each needs and how long each lasts.

use clap::ValueEnum;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// A kind of fault.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Kill a node with SIGKILL
    Kill,
    /// Pause a node with SIGSTOP, then resume it
    Pause,
    /// Stop a node with SIGTERM
    Restart,
    /// Kill the controller
    KillController,
    /// Pause the controller
    PauseController,
    /// Stop the controller with SIGTERM
    RestartController,
    /// Pause the supervisor, which restarts processes that exit
    PauseSupervisor,
    /// Kill the supervisor, and all nodes and the controller with it; then restart the cluster
    KillSupervisor,
    /// Pause all nodes, but not the controller
    PauseNodes,
    /// Pause all processes of the cluster
    PauseAll,
    /// Move a shard to another node
    Move,
    /// Update the code of all services
    Update,
    /// Cut a node off: all its datagrams are lost, in both directions
    Cut,
    /// Cut a node off from the other nodes, but not from the controller
    CutPeers,
    /// Cut a node off from the controller, but not from the other nodes
    CutController,
    /// Lose the datagrams that a node sends to nodes and controller; it still receives
    OneWay,
    /// Lose one in ten of all datagrams
    Drop,
    /// Delay all datagrams to nodes and controller by up to 50 ms, out of order
    Delay,
    /// Restart a node with a clock that is an hour ahead, then with the right one
    #[cfg(feature = "clock-offset")]
    ClockAhead,
    /// Restart a node with a clock that is an hour behind, then with the right one
    #[cfg(feature = "clock-offset")]
    ClockBehind,
}

/// The target of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// One node.
    Node,
    /// A shard, which moves to a node.
    Shard,
    /// The controller, the supervisor, the application, or everything.
    Whole,
}

impl Fault {
    /// The faults to choose from if none is named: those that an application with two replicas survives.
    /// The loss of the supervisor ends every process of the cluster, and state that is in memory only is lost.
    pub fn defaults(network: bool) -> Vec<Fault> {
        let all = Fault::value_variants().iter().copied();
        let possible = all.filter(|f| network || !f.needs_network());
        possible.filter(|f| *f != Fault::KillSupervisor).collect()
    }

    /// Whether it ends the process of a node.
    pub fn ends_a_node(self) -> bool {
        match self {
            Fault::Kill | Fault::Restart => true,
            #[cfg(feature = "clock-offset")]
            Fault::ClockAhead | Fault::ClockBehind => true,
            _ => false,
        }
    }

    /// Whether it needs a cluster in its own network namespace.
    pub fn needs_network(self) -> bool {
        matches!(
            self,
            Fault::Cut
                | Fault::CutPeers
                | Fault::CutController
                | Fault::OneWay
                | Fault::Drop
                | Fault::Delay
        )
    }

    /// Its target.
    pub fn subject(self) -> Subject {
        match self {
            Fault::Kill | Fault::Pause | Fault::Restart => Subject::Node,
            Fault::Cut | Fault::CutPeers | Fault::CutController | Fault::OneWay => Subject::Node,
            #[cfg(feature = "clock-offset")]
            Fault::ClockAhead | Fault::ClockBehind => Subject::Node,
            Fault::Move => Subject::Shard,
            _ => Subject::Whole,
        }
    }

    /// Shortest and longest time that it lasts; None if it is over at once.
    pub fn length(self) -> Option<(Duration, Duration)> {
        let ms = Duration::from_millis;
        match self {
            Fault::Pause => Some((ms(50), ms(5_000))),
            Fault::PauseController => Some((ms(100), ms(10_000))),
            Fault::PauseSupervisor => Some((ms(500), ms(5_000))),
            Fault::Cut | Fault::CutPeers | Fault::CutController | Fault::OneWay => {
                Some((ms(100), ms(8_000)))
            }
            #[cfg(feature = "clock-offset")]
            Fault::ClockAhead | Fault::ClockBehind => Some((ms(2_000), ms(8_000))),
            Fault::Drop | Fault::Delay => Some((ms(500), ms(8_000))),
            Fault::PauseNodes | Fault::PauseAll => Some((ms(50), ms(4_000))),
            _ => None,
        }
    }

    /// Whether it can cost a shard one of its copies, so that it excludes other such faults.
    pub fn costs_a_copy(self) -> bool {
        !matches!(
            self,
            Fault::Move
                | Fault::Update
                | Fault::Drop
                | Fault::Delay
                | Fault::KillController
                | Fault::PauseController
                | Fault::RestartController
                | Fault::PauseSupervisor
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.pad(value.as_ref().map_or("", |v| v.get_name()))
    }
}
