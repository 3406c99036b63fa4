//! What a plan is asked: the load, the time of ownership, and what electricity costs.

use crate::limits::{
    CARBON_G_KWH, LOAD_RPS, P99_MS, PRICE_USD_KWH, PUE, REQUESTS, UTILISATION, YEARS,
};
use e3_hardware::Estimate;

/// The question.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Requests per second at the peak.
    pub load_rps: f64,
    /// Lowest load of a day; None if the load is the same at all hours.
    pub trough_rps: Option<f64>,
    /// Objective on p99 in milliseconds; None for that of the manifest.
    pub p99_ms: Option<f64>,
    /// Time of ownership in years.
    pub years: f64,
    /// Price of electricity in dollars per kWh.
    pub price_usd_kwh: Estimate,
    /// Carbon intensity of electricity in grams per kWh.
    pub carbon_g_kwh: Estimate,
    /// Power of the data centre over that of its servers.
    pub pue: Estimate,
    /// Average load over the planned one.
    pub utilisation: Estimate,
    /// Services may get more shards than the manifest gives them.
    pub grow_shards: bool,
    /// Of the simulator.
    pub seed: u64,
    /// Requests of one simulation.
    pub requests: u64,
}

/// A question that cannot be answered.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum InputError {
    /// Out of bounds.
    #[error("{what} is {value}{unit}, must be {low} to {high}{unit}")]
    Bounds {
        /// What.
        what: &'static str,
        /// As given.
        value: f64,
        /// Least.
        low: f64,
        /// Most.
        high: f64,
        /// Unit, with a space before it.
        unit: &'static str,
    },
    /// A range out of order.
    #[error("{what} is the range {low}:{value}:{high}, must ascend")]
    Range {
        /// What.
        what: &'static str,
        /// Lower end.
        low: f64,
        /// Middle.
        value: f64,
        /// Upper end.
        high: f64,
    },
    /// The lowest load of the day is above the highest.
    #[error(
        "the lowest load of the day is {trough_rps} requests/s, must be 0 to the load at its peak, {load_rps}"
    )]
    Day {
        /// Lowest.
        trough_rps: f64,
        /// Highest.
        load_rps: f64,
    },
}

impl Settings {
    /// Checks it.
    pub fn validate(&self) -> Result<(), InputError> {
        bounded("load", self.load_rps, LOAD_RPS, " requests/s")?;
        bounded("time of ownership", self.years, YEARS, " years")?;
        if let Some(ms) = self.p99_ms {
            bounded("objective on p99", ms, P99_MS, " ms")?;
        }
        if let Some(trough_rps) = self.trough_rps
            && !(0.0..=self.load_rps).contains(&trough_rps)
        {
            return Err(InputError::Day {
                trough_rps,
                load_rps: self.load_rps,
            });
        }
        range(
            "price of electricity",
            &self.price_usd_kwh,
            PRICE_USD_KWH,
            " $/kWh",
        )?;
        range(
            "carbon intensity",
            &self.carbon_g_kwh,
            CARBON_G_KWH,
            " g/kWh",
        )?;
        range("power usage effectiveness", &self.pue, PUE, "")?;
        range("utilisation", &self.utilisation, UTILISATION, "")?;
        let requests = (REQUESTS.0 as f64, REQUESTS.1 as f64);
        bounded(
            "requests of a simulation",
            self.requests as f64,
            requests,
            "",
        )
    }

    /// Average load in requests per second, before `utilisation`.
    pub fn average_rps(&self) -> f64 {
        // The curve of a day is a cosine between both.
        let trough = self.trough_rps.unwrap_or(self.load_rps);
        (self.load_rps + trough) / 2.0
    }
}

fn bounded(
    what: &'static str,
    value: f64,
    (low, high): (f64, f64),
    unit: &'static str,
) -> Result<(), InputError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(InputError::Bounds {
            what,
            value,
            low,
            high,
            unit,
        })
    }
}

fn range(
    what: &'static str,
    estimate: &Estimate,
    bounds: (f64, f64),
    unit: &'static str,
) -> Result<(), InputError> {
    let Estimate { low, value, high } = *estimate;
    for end in [value, low, high] {
        bounded(what, end, bounds, unit)?;
    }
    if low <= value && value <= high {
        Ok(())
    } else {
        Err(InputError::Range {
            what,
            low,
            value,
            high,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Settings {
        Settings {
            load_rps: 1_000.0,
            trough_rps: None,
            p99_ms: None,
            years: 3.0,
            price_usd_kwh: Estimate::exact(0.1),
            carbon_g_kwh: Estimate::exact(400.0),
            pue: Estimate::exact(1.0),
            utilisation: Estimate::exact(1.0),
            grow_shards: false,
            seed: 1,
            requests: 2_000,
        }
    }

    #[test]
    fn absurd_questions_are_refused_with_their_bounds() {
        assert_eq!(good().validate(), Ok(()));
        let refused = |change: &dyn Fn(&mut Settings)| {
            let mut settings = good();
            change(&mut settings);
            settings.validate().unwrap_err().to_string()
        };
        let found = refused(&|s| s.load_rps = -5.0);
        assert_eq!(
            found,
            "load is -5 requests/s, must be 1 to 1000000000 requests/s"
        );
        assert!(refused(&|s| s.load_rps = f64::NAN).contains("load is NaN"));
        assert!(refused(&|s| s.years = 0.0).contains("time of ownership is 0 years"));
        assert!(refused(&|s| s.years = f64::INFINITY).contains("inf years"));
        assert!(refused(&|s| s.price_usd_kwh = Estimate::exact(-0.1)).contains("price"));
        assert!(refused(&|s| s.carbon_g_kwh = Estimate::exact(1e9)).contains("carbon"));
        assert!(refused(&|s| s.pue = Estimate::exact(0.9)).contains("effectiveness is 0.9"));
        assert!(refused(&|s| s.utilisation = Estimate::exact(1.5)).contains("utilisation"));
        assert!(refused(&|s| s.p99_ms = Some(0.0)).contains("objective on p99"));
        assert!(refused(&|s| s.trough_rps = Some(1_001.0)).contains("lowest load of the day"));
        assert!(refused(&|s| s.requests = 1).contains("requests of a simulation"));
        let descending = Estimate {
            low: 0.3,
            value: 0.2,
            high: 0.4,
        };
        let found = refused(&|s| s.price_usd_kwh = descending);
        assert!(found.contains("0.3:0.2:0.4, must ascend"), "{found}");
    }
}
