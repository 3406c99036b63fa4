//! Cost of ownership and carbon in closed form.
//!
//! Cost efficiency is that of E3 (USENIX ATC 2019, section 5.5): requests over the cost of servers and
//! electricity. Cost does not contain racks, switches, staff, maintenance, space or capital; carbon is that of the
//! electricity, not that of making the servers.

/// Hours of a year of 365 days.
pub const HOURS_PER_YEAR: f64 = 8_760.0;
/// Price of electricity in the paper, in dollars per kWh.
pub const PAPER_PRICE_USD_KWH: f64 = 0.0733;

const SECONDS_PER_YEAR: f64 = HOURS_PER_YEAR * 3_600.0;

/// A cluster that costs something once, and something for every hour.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Owned {
    /// Price of the servers in dollars.
    pub capex_usd: f64,
    /// Their mean power in watts, cooling excluded.
    pub watts: f64,
}

/// Energy over years in kWh. `pue` is the power of the data centre over that of its servers.
pub fn energy_kwh(watts: f64, pue: f64, years: f64) -> f64 {
    watts / 1_000.0 * pue * HOURS_PER_YEAR * years
}

/// Cost of ownership in dollars: servers, and electricity over years.
pub fn ownership_usd(owned: &Owned, pue: f64, years: f64, price_usd_kwh: f64) -> f64 {
    owned.capex_usd + energy_kwh(owned.watts, pue, years) * price_usd_kwh
}

/// Carbon dioxide in kg of so much electricity.
pub fn co2_kg(kwh: f64, carbon_g_kwh: f64) -> f64 {
    kwh * carbon_g_kwh / 1_000.0
}

/// Requests per dollar: throughput x T / (CAPEX + power x T x electricity).
pub fn cost_efficiency(rate_rps: f64, owned: &Owned, years: f64, price_usd_kwh: f64) -> f64 {
    rate_rps * SECONDS_PER_YEAR * years / ownership_usd(owned, 1.0, years, price_usd_kwh)
}

/// Years after which two clusters have cost the same: before, the one with the lower price is the cheaper
/// one, afterwards the one with the lower power. None if one is never dearer than the other.
pub fn break_even_years(a: &Owned, b: &Owned, pue: f64, price_usd_kwh: f64) -> Option<f64> {
    let per_year = energy_kwh(a.watts - b.watts, pue, 1.0) * price_usd_kwh;
    ratio(b.capex_usd - a.capex_usd, per_year)
}

/// Price of electricity in dollars per kWh at which two clusters cost the same. None if there is no such price.
pub fn break_even_price(a: &Owned, b: &Owned, pue: f64, years: f64) -> Option<f64> {
    ratio(
        b.capex_usd - a.capex_usd,
        energy_kwh(a.watts - b.watts, pue, years),
    )
}

fn ratio(once: f64, per_unit: f64) -> Option<f64> {
    let ratio = once / per_unit;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAN: Owned = Owned {
        capex_usd: 10_000.0,
        watts: 500.0,
    };
    const CHEAP: Owned = Owned {
        capex_usd: 8_000.0,
        watts: 1_000.0,
    };

    fn near(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 1e-9,
            "{found} for {expected}"
        );
    }

    #[test]
    fn cost_and_carbon_are_those_computed_by_hand() {
        // 500 W x 1.2 x 8760 h x 3 = 15,768 kWh; at 0.10 dollars 1,576.80; at 400 g/kWh 6,307.2 kg.
        let kwh = energy_kwh(500.0, 1.2, 3.0);
        near(kwh, 15_768.0);
        near(ownership_usd(&LEAN, 1.2, 3.0, 0.1), 11_576.8);
        near(co2_kg(kwh, 400.0), 6_307.2);
        // 1,000 requests/s for a year are 31,536,000,000; 4,380 kWh at 0.0733 dollars are 321.054.
        let found = cost_efficiency(1_000.0, &LEAN, 1.0, PAPER_PRICE_USD_KWH);
        near(found, 31_536_000_000.0 / 10_321.054);
    }

    #[test]
    fn clusters_cost_the_same_at_the_break_even() {
        // 500 W more are 4,380 kWh a year, 438 dollars at 0.10: 2,000 dollars after 4.566 years.
        let years = break_even_years(&LEAN, &CHEAP, 1.0, 0.1).unwrap();
        near(years, 2_000.0 / 438.0);
        near(
            ownership_usd(&LEAN, 1.0, years, 0.1),
            ownership_usd(&CHEAP, 1.0, years, 0.1),
        );
        let price = break_even_price(&CHEAP, &LEAN, 1.5, 5.0).unwrap();
        near(
            ownership_usd(&LEAN, 1.5, 5.0, price),
            ownership_usd(&CHEAP, 1.5, 5.0, price),
        );
        assert_eq!(break_even_years(&LEAN, &LEAN, 1.0, 0.1), None);
        let dear = Owned {
            capex_usd: 12_000.0,
            ..CHEAP
        };
        assert_eq!(break_even_years(&LEAN, &dear, 1.0, 0.1), None);
        assert_eq!(break_even_years(&LEAN, &CHEAP, 1.0, 0.0), None);
    }

    #[test]
    fn a_dearer_kwh_never_makes_the_thriftier_cluster_less_attractive() {
        let advantage = |price: f64| {
            ownership_usd(&CHEAP, 1.3, 4.0, price) - ownership_usd(&LEAN, 1.3, 4.0, price)
        };
        let prices: Vec<f64> = (0..=100).map(|cents| f64::from(cents) / 100.0).collect();
        assert!(
            prices
                .windows(2)
                .all(|p| advantage(p[0]) <= advantage(p[1]))
        );
    }
}
