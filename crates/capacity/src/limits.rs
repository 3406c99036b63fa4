//! Bounds of a plan.

use e3_perfsim::limits::DURATION_MAX;

/// Most servers of a cluster that is planned.
pub const SERVERS_MAX: usize = 128;
/// Candidates of a plan.
pub const CANDIDATES_MAX: usize = 8;
/// Servers of a rack.
pub const SERVERS_PER_RACK: usize = 40;
/// Least and highest load at its peak, in requests per second.
pub const LOAD_RPS: (f64, f64) = (1.0, 1e9);
/// Shortest and longest time of ownership in years; 0 is excluded.
pub const YEARS: (f64, f64) = (1.0 / 12.0, 30.0);
/// Price of electricity in dollars per kWh.
pub const PRICE_USD_KWH: (f64, f64) = (0.0, 5.0);
/// Carbon intensity of electricity in grams of CO2 per kWh. Lignite is at about 1,100.
pub const CARBON_G_KWH: (f64, f64) = (0.0, 2_000.0);
/// Power usage effectiveness: power of the data centre over that of its servers.
pub const PUE: (f64, f64) = (1.0, 3.0);
/// Average load over the planned one.
pub const UTILISATION: (f64, f64) = (0.01, 1.0);
/// Objective on p99 in milliseconds.
pub const P99_MS: (f64, f64) = (0.001, 60_000.0);
/// Requests of one simulation.
pub const REQUESTS: (u64, u64) = (1_000, 1_000_000);
/// Requests of one simulation if nothing says otherwise: 200 of them are beyond p99.
pub const REQUESTS_DEFAULT: u64 = 20_000;

/// What is tried one after the other until the simulator carries the load: by which factor the closed form gets more
/// load, and by which factor services get more shards than one at the knee needs, where they may.
pub const STEPS: [(f64, f64); 6] = [
    (1.0, 1.0),
    (1.0, 1.5),
    (1.25, 1.5),
    (1.5, 1.5),
    (2.0, 1.5),
    (3.0, 1.5),
];
/// Instances of an application with more shards than the manifest gives it.
pub const INSTANCES_MAX: u64 = 1_000;
/// Loads at which all candidates are compared, as factors of the planned one.
pub const LOADS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Prices of electricity at which they are compared, as factors of the given one.
pub const PRICES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Years at which they are compared; the given ones are added.
pub const YEARS_COMPARED: [f64; 5] = [1.0, 2.0, 3.0, 5.0, 10.0];

const _: () = assert!(LOADS[2] == 1.0 && PRICES[2] == 1.0);
const _: () = assert!(STEPS[0].0 == 1.0 && STEPS[0].1 == 1.0);
// The longest simulation, that of the least load, is one that the simulator accepts.
const _: () = assert!(REQUESTS.0 as f64 / (LOAD_RPS.0 * LOADS[0]) * 1e9 < DURATION_MAX.0 as f64);
