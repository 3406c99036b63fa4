//! What a network does to datagrams.

use crate::damage::Damage;
use crate::network::Faults;
use e3_model::Nanos;
use serde::{Deserialize, Serialize};

/// A network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wire {
    /// Datagrams lost, of 1000.
    pub loss_permille: u64,
    /// Datagrams delivered twice.
    pub repeat_permille: u64,
    /// Datagrams damaged.
    pub damage_permille: u64,
    /// Longest delay; a wide range reorders.
    pub delay_us_max: u64,
}

impl Wire {
    /// A network without faults.
    pub const GOOD: Wire = Wire {
        loss_permille: 0,
        repeat_permille: 0,
        damage_permille: 0,
        delay_us_max: 40,
    };

    /// The two combined.
    pub fn and(self, other: Wire) -> Wire {
        Wire {
            loss_permille: self.loss_permille.max(other.loss_permille),
            repeat_permille: self.repeat_permille.max(other.repeat_permille),
            damage_permille: self.damage_permille.max(other.damage_permille),
            delay_us_max: self.delay_us_max.max(other.delay_us_max),
        }
    }

    /// The same for the simulated network.
    pub fn faults(self) -> Faults {
        Faults {
            loss_permille: self.loss_permille,
            repeat_permille: self.repeat_permille,
            damaged: (self.damage_permille > 0).then_some((self.damage_permille, Damage::Wire)),
            delay_min: Nanos::from_micros(20),
            delay_max: Nanos::from_micros(self.delay_us_max.max(20)),
        }
    }
}
