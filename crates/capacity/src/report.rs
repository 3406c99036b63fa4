//! What a plan says. Every figure has a range, and says where it comes from.

use e3_hardware::{Estimate, Origin};
use serde::Serialize;
use std::collections::BTreeMap;

/// A figure.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// Value and range.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub from: Origin,
}

/// The answer.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plan {
    /// Application.
    pub app: String,
    /// Load at its peak in requests per second.
    pub load_rps: f64,
    /// Average load in requests per second.
    pub average_rps: f64,
    /// Objective on p99 in milliseconds.
    pub p99_ms_objective: f64,
    /// Time of ownership in years.
    pub years: f64,
    /// Services may have more shards than in the manifest.
    pub grow_shards: bool,
    /// Price of electricity, carbon intensity, PUE, utilisation: as given.
    pub assumptions: Vec<Assumption>,
    /// Candidates, in the order given.
    pub candidates: Vec<CandidateReport>,
    /// The cheapest one over the years; None if none carries the load.
    pub cheapest: Option<String>,
    /// The one with the least CO2.
    pub least_carbon: Option<String>,
    /// Cheapest candidate by years and price of electricity.
    pub by_years_and_price: Grid,
    /// All candidates at other loads.
    pub by_load: Vec<LoadRow>,
    /// Where two candidates cost the same.
    pub break_even: Vec<BreakEven>,
    /// What each uncertain input does to the cost, the largest effect first.
    pub sensitivity: Vec<SensitivityRow>,
}

/// An input that the user gives or that has a default.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Assumption {
    /// Name.
    pub name: &'static str,
    /// Value.
    #[serde(flatten)]
    pub figure: Figure,
}

/// A candidate.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CandidateReport {
    /// Name.
    pub name: String,
    /// Where its service times come from: the paper, a measurement, or the paper's scaled by a guess.
    pub service_times: Origin,
    /// Speed of a host core against the paper's.
    pub host_speed: Option<Figure>,
    /// Speed of a SmartNIC core against the paper's.
    pub smartnic_speed: Option<Figure>,
    /// Power of one block of servers when idle, in watts.
    pub idle_w: Figure,
    /// And at its peak.
    pub peak_w: Figure,
    /// Its price.
    pub price_usd: Figure,
    /// Why it does not carry the load; None if it does.
    pub cannot: Option<String>,
    /// What it takes; None if it does not carry the load.
    pub figures: Option<Figures>,
}

/// What a candidate takes to carry the load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figures {
    /// Servers.
    pub servers: Figure,
    /// Power of the servers at the peak load.
    pub watts_peak: Figure,
    /// On average.
    pub watts_average: Figure,
    /// Energy of the servers for a request, on average.
    pub joules_per_request: Figure,
    /// Price of the servers.
    pub capex_usd: Figure,
    /// Electricity over the years.
    pub electricity_usd: Figure,
    /// Both.
    pub ownership_usd: Figure,
    /// CO2 of the electricity.
    pub co2_kg: Figure,
    /// Requests per dollar, by the formula of the paper: without PUE.
    pub requests_per_usd: f64,
    /// p99 at the peak load in milliseconds, by the simulator.
    pub p99_ms: f64,
    /// Load at the knee in requests per second, by the closed form.
    pub knee_rps: f64,
    /// What is used most at the peak load.
    pub bottleneck: String,
    /// Services that need more shards than the manifest gives them, and how many.
    pub shards: BTreeMap<String, u16>,
    /// What the simulator assumed beyond the profiles, in words.
    pub assumptions: Vec<String>,
    /// Ends of inputs at which no number of servers carries the load. They are not in the ranges.
    pub fails_at: Vec<String>,
}

/// The cheapest candidate over two inputs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Grid {
    /// Columns: prices of electricity in dollars per kWh.
    pub prices_usd_kwh: Vec<f64>,
    /// Rows.
    pub rows: Vec<GridRow>,
}

/// A row of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GridRow {
    /// Time of ownership.
    pub years: f64,
    /// The cheapest candidate for each price; None if none carries the load.
    pub cheapest: Vec<Option<String>>,
}

/// All candidates at a load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct LoadRow {
    /// Requests per second at the peak.
    pub load_rps: f64,
    /// Servers of each candidate; None if it does not carry this load.
    pub servers: Vec<Option<usize>>,
    /// Cost of ownership of each candidate in dollars.
    pub ownership_usd: Vec<Option<f64>>,
    /// The cheapest one.
    pub cheapest: Option<String>,
}

/// Where the cheapest candidate and another one cost the same, at the planned load.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BreakEven {
    /// The cheapest one.
    pub cheapest: String,
    /// The other one.
    pub other: String,
    /// Years of ownership, if there is such a time.
    pub years: Option<f64>,
    /// Price of electricity in dollars per kWh, if there is such a price.
    pub price_usd_kwh: Option<f64>,
    /// Loads in requests per second between which the cheaper one of the two changes, if it does.
    pub load_rps: Option<(f64, f64)>,
}

/// An input that is moved to both ends of its range while all others stay.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SensitivityRow {
    /// Input.
    pub input: String,
    /// Part or server type, if it concerns one. It is moved for all candidates that have it.
    pub part: Option<String>,
    /// Where its range comes from.
    pub from: Origin,
    /// At its lower end.
    pub low: SensitivityEnd,
    /// At its upper end.
    pub high: SensitivityEnd,
    /// By how much the difference in cost of the two cheapest candidates changes between both ends, in dollars; with
    /// one candidate, by how much its cost changes. None if one of them does not carry the load at an end.
    pub swing_usd: Option<f64>,
    /// The cheapest candidate is not the same at both ends and in the middle.
    pub moves_cheapest: bool,
}

/// One end.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SensitivityEnd {
    /// Value of the input.
    pub value: f64,
    /// The cheapest candidate there.
    pub cheapest: Option<String>,
    /// Cost of each candidate there in dollars; None if it does not carry the load.
    pub ownership_usd: Vec<Option<f64>>,
}
