//! The simulated network: delay, loss, duplication, reordering.

use crate::damage::Damage;
use e3_model::{Address, Nanos, Timestamp};
use e3_random::Random;
use std::collections::BTreeMap;

/// What the network does to datagrams, in thousandths.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Datagrams lost.
    pub loss_permille: u64,
    /// Datagrams delivered twice.
    pub repeat_permille: u64,
    /// Datagrams damaged, and how. In half of the cases the undamaged datagram arrives too.
    pub damaged: Option<(u64, Damage)>,
    /// Shortest delay.
    pub delay_min: Nanos,
    /// Longest delay; a wide range reorders.
    pub delay_max: Nanos,
}

impl Faults {
    /// A network without faults.
    pub const NONE: Faults = Faults {
        loss_permille: 0,
        repeat_permille: 0,
        damaged: None,
        delay_min: Nanos::from_micros(20),
        delay_max: Nanos::from_micros(40),
    };

    /// A bad network: it loses, duplicates and reorders.
    pub const BAD: Faults = Faults {
        loss_permille: 50,
        repeat_permille: 20,
        damaged: None,
        delay_min: Nanos::from_micros(20),
        delay_max: Nanos::from_millis(5),
    };

    /// When a datagram sent at `now` arrives, and when its duplicate does.
    pub fn arrivals(
        &self,
        now: Timestamp,
        random: &mut Random,
    ) -> (Option<Timestamp>, Option<Timestamp>) {
        let repeated = random.chance(self.repeat_permille);
        let mut arrival = || {
            if random.chance(self.loss_permille) {
                return None;
            }
            let spread = (self.delay_max - self.delay_min).0 + 1;
            Some(now + self.delay_min + Nanos(random.below(spread)))
        };
        (arrival(), repeated.then(arrival).flatten())
    }
}

/// The address of a simulated node.
pub fn node_address(node: u32) -> Address {
    let mut ip = [0; 16];
    ip[0] = 1;
    Address {
        ip,
        port: node.try_into().expect("a simulated cluster is small"),
    }
}

/// The address of a simulated client.
pub fn client_address(client: u16) -> Address {
    let mut ip = [0; 16];
    ip[0] = 2;
    Address { ip, port: client }
}

/// The simulated party that an address belongs to.
pub fn party(a: Address) -> Option<Party> {
    match a.ip[0] {
        1 => Some(Party::Node(a.port.into())),
        2 => Some(Party::Client(a.port)),
        _ => None,
    }
}

/// A party on the simulated network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// The controller.
    Controller,
    /// A node.
    Node(u32),
    /// A client.
    Client(u16),
}

/// The pairs of parties that are cut off, in one direction each, with the number of faults that cut
/// each pair.
#[derive(Debug, Default)]
pub struct Cuts(BTreeMap<(Party, Party), u32>);

impl Cuts {
    /// Whether the pair is cut in this direction.
    pub fn is_cut(&self, from: Party, to: Party) -> bool {
        !self.0.is_empty() && self.0.contains_key(&(from, to))
    }

    /// Cuts a pair in one direction.
    pub fn cut(&mut self, from: Party, to: Party) {
        *self.0.entry((from, to)).or_default() += 1;
    }

    /// Undoes one cut.
    pub fn heal(&mut self, from: Party, to: Party) {
        if let Some(count) = self.0.get_mut(&(from, to)) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&(from, to));
            }
        }
    }

    /// Undoes all cuts.
    pub fn heal_all(&mut self) {
        self.0.clear();
    }
}
