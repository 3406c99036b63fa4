//! What a cluster draws, costs and emits, in closed form once its size and its use of power are known.

use crate::cost::{Owned, co2_kg, energy_kwh};

/// A cluster at work, as sizing and simulation found it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operating {
    /// Servers.
    pub servers: f64,
    /// Blocks.
    pub blocks: f64,
    /// Power above idle at the peak load, as a part of what there is between idle and peak power.
    pub active: f64,
    /// The same on average over the day.
    pub active_average: f64,
}

/// What a block of servers draws and costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Block {
    /// Watts when idle.
    pub idle_w: f64,
    /// Watts at the peak.
    pub peak_w: f64,
    /// Price in dollars.
    pub price_usd: f64,
}

/// What is the same for all candidates.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct World {
    /// Time of ownership.
    pub years: f64,
    /// Price of electricity in dollars per kWh.
    pub price_usd_kwh: f64,
    /// Carbon intensity in grams per kWh.
    pub carbon_g_kwh: f64,
    /// Power of the data centre over that of its servers.
    pub pue: f64,
    /// Average load over the planned one.
    pub utilisation: f64,
}

/// The figures of a candidate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outputs {
    /// Servers.
    pub servers: f64,
    /// Power of the servers at the peak load.
    pub watts_peak: f64,
    /// On average.
    pub watts_average: f64,
    /// Energy of the servers for a request, on average.
    pub joules: f64,
    /// Price of the servers.
    pub capex_usd: f64,
    /// Electricity over the years, with PUE.
    pub electricity_usd: f64,
    /// Both.
    pub ownership_usd: f64,
    /// Of the electricity.
    pub co2_kg: f64,
}

impl Operating {
    /// What a share of power is that a cluster of `blocks` shows when it draws `watts`.
    pub fn active(block: &Block, blocks: f64, watts: f64) -> f64 {
        let above = watts / blocks - block.idle_w;
        (above / (block.peak_w - block.idle_w)).max(0.0)
    }

    /// All figures. `average_rps` is the average load before utilisation.
    pub fn outputs(&self, block: &Block, world: &World, average_rps: f64) -> Outputs {
        let watts = |active: f64| {
            self.blocks * (block.idle_w + active * (block.peak_w - block.idle_w).max(0.0))
        };
        let watts_average = watts(self.active_average * world.utilisation);
        let kwh = energy_kwh(watts_average, world.pue, world.years);
        let capex_usd = self.blocks * block.price_usd;
        let electricity_usd = kwh * world.price_usd_kwh;
        Outputs {
            servers: self.servers,
            watts_peak: watts(self.active),
            watts_average,
            joules: watts_average / (average_rps * world.utilisation),
            capex_usd,
            electricity_usd,
            ownership_usd: capex_usd + electricity_usd,
            co2_kg: co2_kg(kwh, world.carbon_g_kwh),
        }
    }
}

impl Outputs {
    /// As the formulas of cost take it.
    pub fn owned(&self) -> Owned {
        Owned {
            capex_usd: self.capex_usd,
            watts: self.watts_average,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_computed_by_hand() {
        let block = Block {
            idle_w: 100.0,
            peak_w: 200.0,
            price_usd: 5_000.0,
        };
        // Three blocks that draw 450 W are half way between idle and peak.
        assert_eq!(Operating::active(&block, 3.0, 450.0), 0.5);
        let operating = Operating {
            servers: 3.0,
            blocks: 3.0,
            active: 0.5,
            active_average: 0.25,
        };
        let world = World {
            years: 2.0,
            price_usd_kwh: 0.1,
            carbon_g_kwh: 300.0,
            pue: 1.5,
            utilisation: 0.8,
        };
        let found = operating.outputs(&block, &world, 1_000.0);
        assert_eq!((found.servers, found.watts_peak), (3.0, 450.0));
        // 0.25 x 0.8 of 100 W above idle; 360 W x 1.5 x 17,520 h = 9,460.8 kWh.
        assert_eq!(found.watts_average, 360.0);
        assert_eq!(found.joules, 0.45);
        assert_eq!(found.capex_usd, 15_000.0);
        assert!((found.electricity_usd - 946.08).abs() < 1e-9);
        assert!((found.ownership_usd - 15_946.08).abs() < 1e-9);
        assert!((found.co2_kg - 2_838.24).abs() < 1e-9);
    }
}
