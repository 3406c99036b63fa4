//! `e3 place`: computes a placement without a cluster and explains each decision.

mod alternatives;

use crate::documents::builtin::{self, Text};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Table};
use crate::ui::values::duration;
use alternatives::{AlternativesView, alternatives, tables};
use clap::Args;
use clap::builder::PossibleValuesParser;
use e3_model::document::check_fit;
use e3_model::{Application, Profile, Topology};
use e3_placement::{
    AdmitError, Cluster, Cost, Decision, PLACER_DEFAULT, PLACERS, PlaceError, Placement, Placer,
    Preference, Request, Score, accept, admit, by_name, evaluate,
};
use e3_solver::limits::ILP_TIME;
use e3_solver::{Ilp, Timed};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `e3 place`.
#[derive(Args, Debug, Clone)]
pub struct Place {
    /// Manifest: a file or a built-in one such as hello or iot-ts
    #[arg(value_name = "FILE|NAME")]
    pub file: String,
    /// Topology: a file or a built-in one [default: 3x-type1]
    #[arg(long, env = "E3_TOPOLOGY", value_name = "FILE|NAME")]
    pub topology: Option<String>,
    /// Directory of profiles [default: the built-in ones, from the paper]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// How it is placed.
    #[command(flatten)]
    pub placer: PlacerArgs,
    /// Show for each decision what the other nodes would cost, and why nodes are rejected
    #[arg(long)]
    pub explain: bool,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which algorithm places, and its limits.
#[derive(Args, Debug, Clone)]
pub struct PlacerArgs {
    /// Placement algorithm
    #[arg(long, default_value = PLACER_DEFAULT, value_parser = placers())]
    pub placer: String,
    /// Time limit of ilp [default: 10s] and annealing [default: none]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub time_limit: Option<Duration>,
    /// Program of the solver HiGHS, which ilp needs
    #[arg(long, env = "E3_HIGHS", default_value = "highs", value_name = "FILE")]
    pub highs: PathBuf,
}

/// The names of all placers.
pub fn placers() -> PossibleValuesParser {
    PossibleValuesParser::new(PLACERS.into_iter().chain([e3_solver::NAME]))
}

impl PlacerArgs {
    /// The algorithm of that name without limits.
    pub fn named(name: &str) -> PlacerArgs {
        PlacerArgs {
            placer: name.into(),
            time_limit: None,
            highs: "highs".into(),
        }
    }

    /// Places, and says what the solver proved if one was used.
    pub fn place(
        &self,
        request: &Request<'_>,
        cluster: &mut Cluster,
    ) -> Result<(Placement, Option<SolverView>), PlaceError> {
        if self.placer == e3_solver::NAME {
            let limit = self.time_limit.unwrap_or(ILP_TIME);
            let solved = Ilp::new(&self.highs, limit).solve(request, cluster)?;
            let view = SolverView {
                servers: solved.servers,
                servers_all: solved.servers_all,
                bound_uj: solved.bound_uj,
                gap: solved.gap,
                timed_out: solved.timed_out,
            };
            return Ok((solved.placement, Some(view)));
        }
        // Without a limit it ends when it is cold, so that the same input gives the same output.
        let limited = self
            .time_limit
            .and_then(|limit| Timed::by_name(&self.placer, Some(limit), &self.highs));
        let placement = match limited {
            Some(placer) => placer.place(request, cluster)?,
            None => named(&self.placer).place(request, cluster)?,
        };
        Ok((placement, None))
    }
}

fn named(placer: &str) -> Box<dyn Placer> {
    by_name(placer).expect("checked when parsed")
}

/// What `e3 place -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlaceView {
    /// Application.
    pub app: String,
    /// Topology.
    pub topology: String,
    /// Placer.
    pub placer: String,
    /// Every decision.
    pub instances: Vec<InstanceLine>,
    /// Decisions for which a node has too little free.
    pub overcommitted: usize,
    /// How good it is, if the profiles know all services. Modelled.
    pub score: Option<Score>,
    /// What the solver proved, if one was used.
    pub solver: Option<SolverView>,
    /// Why `e3 deploy` would refuse this on an empty cluster, if it would.
    pub refused: Option<String>,
    /// What the instances would cost on other nodes, if that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<AlternativesView>,
}

/// What a solver proved.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SolverView {
    /// Servers that its program may use.
    pub servers: usize,
    /// Servers of the cluster.
    pub servers_all: usize,
    /// Modelled energy of a request that no placement on these servers can be below, in microjoules.
    pub bound_uj: f64,
    /// How far its solution is above that in its own model, as a part of it.
    pub gap: f64,
    /// It had to stop before it had proved its solution the best.
    pub timed_out: bool,
}

/// What an instance would cost on a node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CostView {
    /// Node.
    pub node: String,
    /// Modelled energy that a client's request adds at the knee, in microjoules.
    pub uj: f64,
    /// Service time there in microseconds, if the profile knows it.
    pub service_time_us: Option<f64>,
}

/// A decision.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceLine {
    /// `service/shard`.
    pub instance: String,
    /// 0 = primary.
    pub replica: u16,
    /// Its node.
    pub node: String,
    /// The kind of node that suits its service. Joules are modelled from service times of the given
    /// provenance.
    pub preference: Preference,
    /// The reason.
    pub why: String,
    /// What it would cost on nodes that were considered, the cheapest first.
    pub considered: Vec<CostView>,
}

/// A placement with its reasons.
pub struct Placed {
    /// The decisions.
    pub placement: Placement,
    /// As shown.
    pub view: PlaceView,
    /// Why it would be refused, if it would.
    pub refused: Option<Failure>,
}

/// `e3 place`.
pub fn run(args: &Place, settings: &Settings) -> Result<(), Failure> {
    let (text, app) = builtin::application(&args.file)?;
    let wanted = args
        .topology
        .as_deref()
        .or(settings.file.topology.as_deref());
    let (_, topology) = builtin::topology(wanted.unwrap_or(builtin::TOPOLOGY_DEFAULT))?;
    let dir = args
        .profiles
        .as_deref()
        .or(settings.file.profiles.as_deref());
    let profiles = builtin::profiles(dir)?;
    let mut placed = place(&text, &app, &topology, &profiles.by_name, &args.placer)?;
    if args.explain {
        let request = Request::new(&app, &profiles.by_name);
        placed.view.alternatives =
            alternatives(&request, &topology, &profiles.by_name, &placed.placement);
    }
    let format = settings.format(args.output);
    output::show(format, &placed.view, || table(&placed.view, settings))?;
    match placed.refused {
        Some(refused) => Err(Failure {
            exit: Exit::Check,
            ..refused
        }),
        None => Ok(()),
    }
}

/// A refusal, in the words of the controller.
pub fn not_admitted(file: &str, error: &AdmitError) -> Failure {
    Failure::new(Exit::Input, format!("{file}: {error}")).hint(error.hint())
}

/// Whether an application would be deployed on an empty cluster.
pub fn admitted(
    text: &Text,
    app: &Application,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placer: &dyn Placer,
    overcommit: bool,
) -> Result<Placement, Failure> {
    check_fit(&text.file, &text.text, app, topology)?;
    let (request, mut cluster) = (Request::new(app, profiles), Cluster::new(topology));
    admit(placer, &request, &mut cluster, overcommit).map_err(|e| not_admitted(&text.file, &e))
}

/// Places an application on an empty cluster.
pub fn place(
    text: &Text,
    app: &Application,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placer: &PlacerArgs,
) -> Result<Placed, Failure> {
    check_fit(&text.file, &text.text, app, topology)?;
    let request = Request::new(app, profiles);
    let mut cluster = Cluster::new(topology);
    let placed = cluster.try_out(|cluster| placer.place(&request, cluster));
    let (placement, solver) = placed.map_err(|e| not_admitted(&text.file, &e.into()))?;
    let accepted =
        cluster.try_out(|cluster| accept(&placer.placer, &request, cluster, &placement, false));
    let refused = accepted.err().map(|e| not_admitted(&text.file, &e));
    let decisions = placement.decisions.iter();
    let view = PlaceView {
        app: app.name.clone(),
        topology: topology.name.clone(),
        placer: placer.placer.clone(),
        instances: decisions.map(|d| line(d, &request, &cluster)).collect(),
        overcommitted: placement.overcommitted().count(),
        score: evaluate(&request, topology, profiles, &placement).ok(),
        solver,
        refused: refused.as_ref().map(|f| f.message.clone()),
        alternatives: Vec::new(),
    };
    Ok(Placed {
        placement,
        view,
        refused,
    })
}

fn line(d: &Decision, request: &Request<'_>, cluster: &Cluster) -> InstanceLine {
    let whole = d.explain(request, cluster).to_string();
    let why = whole.split_once(": ");
    let why = why.map_or(whole.as_str(), |(_, why)| why);
    let name = |id| {
        cluster
            .get(id)
            .map_or_else(|| "?".into(), |n| n.name.clone())
    };
    let cost = |cost: &Cost| CostView {
        node: name(cost.node),
        uj: cost.uj,
        service_time_us: cost.service_time.map(|t| t.as_secs_f64() * 1e6),
    };
    InstanceLine {
        instance: format!(
            "{}/{}",
            request.app.service(d.key.service).name,
            d.key.shard
        ),
        replica: d.key.replica,
        node: name(d.node),
        preference: d.preference,
        why: why.to_string(),
        considered: d.considered.iter().map(cost).collect(),
    }
}

fn table(view: &PlaceView, settings: &Settings) -> String {
    let paint = settings.paint();
    let mut decisions = Table::new(&["INSTANCE", "ROLE", "NODE", "REASON"]);
    let mut per_node: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for line in &view.instances {
        let role = match line.replica {
            0 => "primary".to_string(),
            n => format!("backup {n}"),
        };
        let counts = per_node.entry(&line.node).or_default();
        match line.replica {
            0 => counts.0 += 1,
            _ => counts.1 += 1,
        }
        decisions.row([
            line.instance.clone(),
            role,
            line.node.clone(),
            line.why.clone(),
        ]);
    }
    let mut nodes = Table::new(&["NODE", ">PRIMARIES", ">BACKUPS"]);
    for (node, (primaries, backups)) in per_node {
        nodes.row([node.to_string(), primaries.to_string(), backups.to_string()]);
    }
    let verdict = match view.overcommitted {
        0 => paint.green("all instances fit"),
        n => paint.red(&format!("{n} instances do not fit (marked OVERCOMMITTED)")),
    };
    format!(
        "{}\n{} on {} by {}: {verdict}\n\n{}",
        decisions.render(),
        paint.bold(&view.app),
        view.topology,
        view.placer,
        nodes.render(),
    ) + &marks(view)
        + &match &view.alternatives[..] {
            [] => String::new(),
            all => tables(all),
        }
}

/// How good the placement is.
fn marks(view: &PlaceView) -> String {
    let mut text = String::new();
    if let Some(s) = &view.score {
        text = format!(
            "\nat the knee, modelled: {:.0} requests/J, {:.0} requests/s, {:.0} W on {} awake servers\n\
             between nodes {:.1} us a request, longest path {:.0} us, others use {:.0} % of a message's node\n",
            s.requests_per_joule,
            s.rate_rps,
            s.watts.0,
            s.servers,
            s.communication_us,
            s.latency_us,
            s.interference * 100.0,
        );
        for violation in &s.violations {
            text += &format!("violated: {violation}\n");
        }
    }
    if let Some(s) = &view.solver {
        let time = if s.timed_out { ", out of time" } else { "" };
        let bound = 1e6 / s.bound_uj;
        let gap = s.gap * 100.0;
        let servers = match (s.servers, s.servers_all) {
            (some, all) if some < all => format!(" on the {some} candidate servers of {all}"),
            _ => String::new(),
        };
        text += &format!(
            "no placement{servers} exceeds {bound:.0} requests/J (gap of the solver {gap:.1} %{time})\n"
        );
    }
    text
}
