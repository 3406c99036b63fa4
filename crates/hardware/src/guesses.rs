//! Parameters that no source gives. Each has a value, the range in which it is plausible, and the
//! reason for both. None is taken from a measurement of this repository. The design page 026 prints this
//! table; a test compares them.

/// A parameter that is a guess.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// Name.
    pub name: &'static str,
    /// Value that is used if nothing else is said.
    pub value: f64,
    /// Lowest plausible value.
    pub low: f64,
    /// Highest plausible value.
    pub high: f64,
    /// Where it has an effect.
    pub concerns: Concerns,
    /// Why.
    pub why: &'static str,
}

/// Where a parameter has an effect. Elsewhere it changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Concerns {
    /// Every run.
    Every,
    /// Cores of hosts.
    Hosts,
    /// Cores of hosts with two hardware threads.
    HyperThreading,
    /// Cores of SmartNICs.
    SmartNics,
    /// Servers with a host and a SmartNIC.
    Pcie,
    /// Clusters of several racks.
    Racks,
    /// Stateful services with backups.
    Backups,
    /// RoCE between servers.
    Roce,
    /// Linux sockets on hosts.
    LinuxStack,
    /// Requests smaller than those of the profiles.
    SmallRequests,
    /// Runs in which shards move.
    Moves,
    /// Runs in which links fail.
    LinkFailures,
}

/// A guess that cannot be changed as asked.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum GuessError {
    /// No such guess.
    #[error("no guess is named {name:?}, there are {known}")]
    Name {
        /// As given.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Out of its range.
    #[error("guess {name} is {value}, must be {low}..={high}")]
    Range {
        /// Guess.
        name: &'static str,
        /// As given.
        value: f64,
        /// Lowest.
        low: f64,
        /// Highest.
        high: f64,
    },
}

macro_rules! guesses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $low:literal, $high:literal, $concerns:ident, $why:literal;)*) => {
        /// A value for each guess.
        #[derive(Clone, PartialEq, Debug)]
        pub struct Guesses {
            $($(#[$doc])* pub $name: f64,)*
        }

        /// All guesses.
        pub const GUESSES: &[Guess] = &[$(Guess {
            name: stringify!($name), value: $value, low: $low, high: $high, concerns: Concerns::$concerns, why: $why,
        },)*];

        impl Default for Guesses {
            fn default() -> Guesses {
                Guesses { $($name: $value,)* }
            }
        }

        impl Guesses {
            fn at(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)*
                    _ => None,
                }
            }
        }
    };
}

guesses! {
    /// Round trip between two hosts through the switch with kernel bypass, in microseconds.
    round_trip_hosts_us = 20.0, 10.0, 40.0, Every,
        "Fig. 3 is given as ratios to it; 10 to 40 us is usual for user-level UDP of that time";
    /// Throughput of a core with both hardware threads busy, against one thread alone.
    hyper_threading_gain = 1.25, 1.0, 1.35, HyperThreading,
        "Table 1 counts cores, not hardware threads; vendors report gains up to 1.3";
    /// Time until a sleeping core of a host works, in microseconds.
    host_wake_us = 10.0, 2.0, 133.0, Hosts,
        "exit latencies C1E 10 us, C1 2 us, C6 133 us: Linux, drivers/idle/intel_idle.c, Haswell";
    /// How long an idle core of a host stays awake, in microseconds.
    host_linger_us = 20.0, 2.0, 400.0, Hosts,
        "target residencies C1E 20 us, C1 2 us, C6 400 us: same table";
    /// Coefficient of variation of a service time that the profile does not give.
    service_variation = 0.5, 0.0, 1.0, Every,
        "Table 1 gives means only; 0 is constant, 1 exponential";
    /// Time to switch a hardware thread from one service to another, in microseconds.
    context_switch_us = 0.5, 0.0, 3.0, Every,
        "instances share a process; a switch costs cache misses, between processes about 3 us";
    /// How much longer a service takes on a SmartNIC that runs another service too, as a part.
    smartnic_contention = 0.05, 0.0, 0.25, SmartNics,
        "twelve cores share a small L2 cache; Table 1 measures each service alone";
    /// Latency of each switch beyond the first ToR, in microseconds.
    switch_us = 0.5, 0.3, 1.0, Racks,
        "cut-through switches of 10 Gb/s Ethernet, by their data sheets";
    /// Links from a rack's switch into the FatTree.
    uplinks_per_rack = 20.0, 4.0, 64.0, Racks,
        "one for two servers; with fewer links flows collide more often under ECMP";
    /// Bandwidth of a rack's servers over that of its uplinks.
    oversubscription = 1.0, 1.0, 4.0, Racks,
        "a FatTree is not oversubscribed; many data centres are, up to four times";
    /// Bandwidth of one DMA engine in Gb/s.
    dma_engine_gbps = 8.0, 4.0, 16.0, Pcie,
        "eight together fill PCIe 3.0 x8, which carries 63 Gb/s";
    /// Messages that may wait for the cores of a SmartNIC before its traffic manager holds all others.
    traffic_manager_waiting_max = 1024.0, 128.0, 4096.0, Pcie,
        "work queues of that family of processors hold some thousand entries";
    /// Part of a primary's processor time that a backup needs.
    backup_cpu_fraction = 0.1, 0.02, 0.3, Backups,
        "as in placement: a backup applies finished writes and runs no handler";
    /// Time that the card needs for one RoCE message that is not batched, in microseconds.
    roce_message_us = 0.25, 0.1, 0.5, Roce,
        "the source says only that RoCE without batching carries fewer small packets than Ethernet";
    /// One-way latency that Linux sockets add at each host of a hop, in microseconds.
    linux_stack_us = 10.0, 3.0, 30.0, LinuxStack,
        "E3 says only that it is slower; sockets take some to some tens of us on each side";
    /// Part of a service time that is in proportion to the request's bytes, for requests smaller than any
    /// that was measured.
    per_byte_part = 0.0, 0.0, 1.0, SmallRequests,
        "Fig. 2: below 128 bytes a SmartNIC is bound by computing, so small requests take no less; 0 favours no service";
    /// Part of the memory reserved for a shard's state that the state fills when it is copied.
    state_fill = 0.5, 0.05, 1.0, Moves,
        "profiles of the paper have no memory; a reservation holds the largest state, with room";
    /// Rate at which a shard's state is copied at most, in MB/s.
    copy_mb_per_s = 625.0, 125.0, 1250.0, Moves,
        "a port of 10 Gb/s carries 1250; a copy leaves some of it to the requests: half, a tenth to all of it";
    /// Time until an instance runs on a node that had none of its shard, in milliseconds.
    instance_start_ms = 100.0, 10.0, 1000.0, Moves,
        "E3 (section 3.4): a cold migration takes tens to hundreds of ms; the middle of 10 and 1000 on a logarithmic scale";
    /// Time from the stop of a primary until the next one, which has its state, serves, in milliseconds.
    cut_over_ms = 5.0, 0.1, 50.0, Moves,
        "no source; from a few round trips with the controller to a change that waits for the next heartbeat, which E3 has every 50 ms";
    /// Time until switches no longer use a link that is down, in milliseconds.
    link_detection_ms = 10.0, 1.0, 1000.0, LinkFailures,
        "loss of carrier takes milliseconds; probes take three of their intervals, 50 to 300 ms each";
    /// Part of a SmartNIC's active power that is in proportion to its busy cores; it draws the rest from its first
    /// message on.
    smartnic_power_by_load = 0.0, 0.0, 0.5, SmartNics,
        "Table 1 has 18.8 to 24.7 W at full load whatever the service, and no other load; cores that never sleep leave little to save";
    /// Use of the first resource at which placers and the closed form put the knee.
    knee_utilisation = 0.8, 0.6, 0.95, Every,
        "the knee of an M/M/12 queue is at 0.785; with fewer servers in parallel it is lower, with less variation higher";
}

impl Guesses {
    /// Changes one guess within its range.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), GuessError> {
        let Some(guess) = GUESSES.iter().find(|g| g.name == name) else {
            let known: Vec<&str> = GUESSES.iter().map(|g| g.name).collect();
            return Err(GuessError::Name {
                name: name.to_string(),
                known: known.join(", "),
            });
        };
        if !(guess.low..=guess.high).contains(&value) {
            return Err(GuessError::Range {
                name: guess.name,
                value,
                low: guess.low,
                high: guess.high,
            });
        }
        if let Some(at) = self.at(name) {
            *at = value;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_is_set_by_name_within_its_range() {
        let mut guesses = Guesses::default();
        guesses.set("host_wake_us", 2.0).unwrap();
        assert_eq!(guesses.host_wake_us, 2.0);
        let error = guesses.set("host_wake_us", f64::NAN).unwrap_err();
        assert_eq!(
            error.to_string(),
            "guess host_wake_us is NaN, must be 2..=133"
        );
        let error = guesses.set("luck", 1.0).unwrap_err().to_string();
        assert!(error.starts_with("no guess is named \"luck\""), "{error}");
    }

    #[test]
    fn each_value_is_in_its_range_and_on_the_design_page() {
        let page = include_str!("../../../docs/design/026-performance-simulator.md");
        for g in GUESSES {
            assert!((g.low..=g.high).contains(&g.value), "{}", g.name);
            let row = format!("| `{}` | {} | {} to {} |", g.name, g.value, g.low, g.high);
            assert!(page.contains(&row), "the page lacks {row}");
        }
    }
}
