//! `e3 plan`: how many servers of which type carry a load, what they draw, cost and emit over years, and which type
//! is cheapest when.

mod view;

use crate::commands::sim::refused;
use crate::documents::{builtin, flows};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use clap::Args;
use e3_capacity::cost::PAPER_PRICE_USD_KWH;
use e3_capacity::limits::{CARBON_G_KWH, PRICE_USD_KWH, REQUESTS_DEFAULT};
use e3_capacity::{Candidate, CandidateError, Entrant, PlanError, plan};
use e3_hardware::Estimate;
use e3_hardware::servers;
use e3_model::profile::Provenance;
use e3_model::{Application, Profile};
use e3_placement::Request;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Carbon intensity of electricity in g/kWh if none is given: near the mean of the world.
const CARBON_DEFAULT: f64 = 400.0;
/// Plausible range of a price or a carbon intensity that is given as one value, as factors.
const PLAUSIBLE: (f64, f64) = (0.5, 2.0);
/// Power usage effectiveness: servers only, up to an ordinary data centre.
const PUE_DEFAULT: Estimate = Estimate {
    low: 1.0,
    value: 1.0,
    high: 1.6,
};
/// Average load over the planned one.
const UTILISATION_DEFAULT: Estimate = Estimate {
    low: 0.5,
    value: 1.0,
    high: 1.0,
};

/// `e3 plan`.
#[derive(Args, Debug, Clone)]
pub struct Plan {
    /// Manifest: a file or a built-in one such as iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub app: String,
    /// Types of servers (docs/hardware.md) or topologies, such as Type1-SmartNIC,epyc-9354+bluefield-2
    #[arg(long, required = true, value_delimiter = ',', value_name = "T1,T2")]
    pub candidates: Vec<String>,
    /// Requests per second at the peak
    #[arg(long, value_parser = number, allow_hyphen_values = true, value_name = "RATE")]
    pub load: f64,
    /// The load follows a day: a cosine between the peak and this rate
    #[arg(
        long,
        value_parser = number,
        num_args = 0..=1,
        default_missing_value = "0",
        allow_hyphen_values = true,
        value_name = "TROUGH"
    )]
    pub day: Option<f64>,
    /// Objective on p99 in milliseconds [default: the latency objective of the manifest]
    #[arg(long, value_parser = number, allow_hyphen_values = true, value_name = "MS")]
    pub p99_ms: Option<f64>,
    /// Time of ownership in years
    #[arg(long, value_parser = number, allow_hyphen_values = true, default_value = "3")]
    pub years: f64,
    /// Price of electricity in $/kWh: VALUE, plausible from half to twice, or LOW:VALUE:HIGH [default: that of the
    /// paper, 0.0733]
    #[arg(long, value_parser = range, allow_hyphen_values = true)]
    pub price: Option<Range>,
    /// Carbon intensity of electricity in g/kWh: VALUE, plausible from half to twice, or LOW:VALUE:HIGH [default: 400]
    #[arg(long, value_parser = range, allow_hyphen_values = true)]
    pub carbon: Option<Range>,
    /// Power of the data centre over that of its servers: VALUE or LOW:VALUE:HIGH [default: 1:1:1.6, without cooling]
    #[arg(long, value_parser = range, allow_hyphen_values = true)]
    pub pue: Option<Range>,
    /// Average load over the planned one: VALUE or LOW:VALUE:HIGH [default: 0.5:1:1]
    #[arg(long, value_parser = range, allow_hyphen_values = true)]
    pub utilisation: Option<Range>,
    /// Profiles that were measured on the candidates' own cores: DIR for all, or CANDIDATE=DIR; may be repeated
    #[arg(long, value_name = "[CANDIDATE=]DIR")]
    pub profiles: Vec<String>,
    /// Stateful services may get more shards than in the manifest
    #[arg(long)]
    pub grow_shards: bool,
    /// Size of a request in bytes [default: that of the manifest's load, else 512]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_000))]
    pub request_bytes: Option<u32>,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Requests of one simulation; more take longer and make p99 steadier
    #[arg(long, default_value_t = REQUESTS_DEFAULT)]
    pub requests: u64,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// A value, or a value with its range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Range {
    /// `0.1`
    Value(f64),
    /// `0.05:0.1:0.2`
    Between(Estimate),
}

fn number(text: &str) -> Result<f64, String> {
    let found = text.parse::<f64>().ok().filter(|n| n.is_finite());
    found.ok_or_else(|| format!("{text:?} is not a number"))
}

fn range(text: &str) -> Result<Range, String> {
    let parts = text.split(':').map(number);
    let parts = parts.collect::<Result<Vec<f64>, String>>()?;
    match parts[..] {
        [value] => Ok(Range::Value(value)),
        [low, value, high] => Ok(Range::Between(Estimate { low, value, high })),
        _ => Err(format!("{text:?} is not VALUE or LOW:VALUE:HIGH")),
    }
}

impl Range {
    /// A value is known exactly.
    fn exact(self) -> Estimate {
        match self {
            Range::Value(value) => Estimate::exact(value),
            Range::Between(estimate) => estimate,
        }
    }

    /// A value is known to a factor, within bounds.
    fn plausible(self, most: f64) -> Estimate {
        match self {
            Range::Value(value) if value > 0.0 => {
                let within = Estimate::within(value, PLAUSIBLE.0, PLAUSIBLE.1);
                Estimate {
                    high: within.high.min(most).max(value),
                    ..within
                }
            }
            other => other.exact(),
        }
    }
}

impl Plan {
    fn question(&self) -> e3_capacity::Settings {
        let price = self.price.unwrap_or(Range::Value(PAPER_PRICE_USD_KWH));
        let carbon = self.carbon.unwrap_or(Range::Value(CARBON_DEFAULT));
        e3_capacity::Settings {
            load_rps: self.load,
            trough_rps: self.day,
            p99_ms: self.p99_ms,
            years: self.years,
            price_usd_kwh: price.plausible(PRICE_USD_KWH.1),
            carbon_g_kwh: carbon.plausible(CARBON_G_KWH.1),
            pue: self.pue.map_or(PUE_DEFAULT, Range::exact),
            utilisation: self.utilisation.map_or(UTILISATION_DEFAULT, Range::exact),
            grow_shards: self.grow_shards,
            seed: self.seed,
            requests: self.requests,
        }
    }

    /// Directory of the profiles that were measured for a candidate.
    fn measured(&self, candidate: &str) -> Option<PathBuf> {
        let own = self.profiles.iter().rev().find_map(|text| {
            let (name, dir) = text.split_once('=')?;
            name.eq_ignore_ascii_case(candidate)
                .then(|| PathBuf::from(dir))
        });
        let all = self.profiles.iter().rev().find(|text| !text.contains('='));
        own.or_else(|| all.map(PathBuf::from))
    }

    fn entrants(&self, app: &Application) -> Result<Vec<Entrant>, Failure> {
        for text in &self.profiles {
            if let Some((name, _)) = text.split_once('=')
                && !self.candidates.iter().any(|c| c.eq_ignore_ascii_case(name))
            {
                let message = format!("--profiles {text}: {name:?} is none of the candidates");
                let given = self.candidates.join(", ");
                return Err(Failure::new(Exit::Input, message).hint(format!("there are {given}")));
            }
        }
        let entrant = |name: &String| {
            let dir = self.measured(name);
            let profiles = builtin::profiles(dir.as_deref())?.by_name;
            let is_measured = match &dir {
                Some(dir) => are_measured(app, &profiles, dir)?,
                None => false,
            };
            Ok(Entrant {
                candidate: candidate(name)?,
                profiles,
                is_measured,
            })
        };
        self.candidates.iter().map(entrant).collect()
    }
}

/// Whether the profiles of an application were measured on the candidate. If all are those of the paper's hardware,
/// they are scaled as the built-in ones.
fn are_measured(
    app: &Application,
    profiles: &BTreeMap<String, Profile>,
    dir: &Path,
) -> Result<bool, Failure> {
    let used = app
        .spec
        .services
        .iter()
        .filter_map(|s| profiles.get(s.profile()));
    let (paper, own): (Vec<_>, Vec<_>) = used.partition(|p| p.spec.provenance == Provenance::Paper);
    if let (Some(paper), Some(own)) = (paper.first(), own.first()) {
        let message = format!(
            "{}: profile {:?} is of the paper's hardware, {:?} is not",
            dir.display(),
            paper.name,
            own.name
        );
        let hint = "measure all services of the application with e3 profile";
        return Err(Failure::new(Exit::Input, message).hint(hint));
    }
    Ok(paper.is_empty())
}

/// A type of server, else a topology.
fn candidate(name: &str) -> Result<Candidate, Failure> {
    let is_topology = builtin::topology_names().any(|n| n == name) || Path::new(name).exists();
    if servers::server_type(name).is_some() || !is_topology {
        return Candidate::of_type(name).map_err(|e| unknown(&e));
    }
    let (_, topology) = builtin::any_topology(name)?;
    Candidate::of_topology(name, &topology).map_err(|e| unknown(&e))
}

fn unknown(error: &CandidateError) -> Failure {
    let exit = match error {
        CandidateError::Unknown { .. } => Exit::NotFound,
        _ => Exit::Input,
    };
    let topologies: Vec<&str> = builtin::topology_names().collect();
    Failure::new(exit, error).hint(format!(
        "or give the file of a topology, or a built-in one: {}",
        topologies.join(", ")
    ))
}

/// `e3 plan`.
pub fn run(args: &Plan, settings: &Settings) -> Result<(), Failure> {
    let question = args.question();
    let invalid = |e: PlanError| match &e {
        PlanError::Model(model) => refused(model),
        _ => Failure::new(Exit::Input, &e),
    };
    question.validate().map_err(|e| invalid(e.into()))?;
    let (_, app) = builtin::application(&args.app)?;
    let entrants = args.entrants(&app)?;
    let request = Request::new(&app, &entrants[0].profiles);
    let visits = flows::visits(&app);
    let visits = visits.unwrap_or_else(|| request.services().map(|s| request.visits(s)).collect());
    let bytes = args.request_bytes.unwrap_or(request.request_bytes());
    let plan = plan(&app, &visits, bytes, &entrants, &question).map_err(invalid)?;
    let format = settings.format(args.output);
    output::show(format, &plan, || view::text(&plan, settings.paint()))?;
    if plan.cheapest.is_some() {
        return Ok(());
    }
    let reasons = plan.candidates.iter();
    let reasons = reasons.filter_map(|c| Some(format!("{}: {}", c.name, c.cannot.as_ref()?)));
    let message = format!(
        "no candidate carries {} requests/s; {}",
        args.load,
        reasons.collect::<Vec<_>>().join("; ")
    );
    let shards = "--grow-shards gives stateful services more shards";
    let measure = "a service without service times is measured with e3 profile (--profiles DIR)";
    Err(Failure::new(Exit::Check, message).hint(format!("{shards}; {measure}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use e3_model::topology::Node;

    #[test]
    fn a_value_is_plausible_from_half_to_twice_and_a_range_is_as_given() {
        let price = |text: &str| range(text).unwrap().plausible(5.0);
        let e = |low, value, high| Estimate { low, value, high };
        assert_eq!(price("0.1"), e(0.05, 0.1, 0.2));
        assert_eq!(price("4"), e(2.0, 4.0, 5.0));
        assert_eq!(price("0.1:0.1:0.3"), e(0.1, 0.1, 0.3));
        assert_eq!(price("0"), Estimate::exact(0.0));
        assert_eq!(range("1.3").unwrap().exact(), Estimate::exact(1.3));
        for bad in ["", "1:2", "a", "1:2:3:4", "inf"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn types_of_table_4_have_the_nodes_of_the_topologies() {
        for name in [
            "3x-type1",
            "2x-type2",
            "4x-beefy",
            "4x-wimpy",
            "1x-superbeefy",
        ] {
            let (_, topology) = builtin::topology(name).unwrap();
            let server = &topology.spec.racks[0].servers[0];
            let found = servers::server_type(&server.system).unwrap();
            let of = |n: &Node| (n.kind, n.cores, n.memory, n.bandwidth_gbps);
            let nodes: Vec<_> = server.nodes.iter().map(of).collect();
            let expected: Vec<_> = found.nodes.iter().map(of).collect();
            assert_eq!(nodes, expected, "{name}");
        }
    }
}
