//! `e3 place`: computes a placement without a cluster and explains each decision.

use crate::documents::builtin::{self, Text};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output, Table};
use clap::Args;
use e3_model::document::check_fit;
use e3_model::{Application, Profile, Topology};
use e3_placement::{AdmitError, Cluster, Placement, Preference, Request, admit, by_name};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// Placement policy
    #[arg(long, default_value = "hcm-kind", value_parser = e3_placement::PLACERS)]
    pub placer: String,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
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
    /// Why `e3 deploy` would refuse this on an empty cluster, if it would.
    pub refused: Option<String>,
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
    let placed = place(&text, &app, &topology, &profiles.by_name, &args.placer)?;
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
    overcommit: bool,
) -> Result<Placement, Failure> {
    check_fit(&text.file, &text.text, app, topology)?;
    let (request, mut cluster) = (Request::new(app, profiles), Cluster::new(topology));
    let placer = by_name("hcm-kind").expect("it exists");
    admit(&*placer, &request, &mut cluster, overcommit).map_err(|e| not_admitted(&text.file, &e))
}

/// Places an application on an empty cluster.
pub fn place(
    text: &Text,
    app: &Application,
    topology: &Topology,
    profiles: &BTreeMap<String, Profile>,
    placer: &str,
) -> Result<Placed, Failure> {
    check_fit(&text.file, &text.text, app, topology)?;
    let input = |e: String| Failure::new(Exit::Input, format!("{}: {e}", text.file));
    let placer = by_name(placer).ok_or_else(|| input(format!("no placer {placer:?}")))?;
    let request = Request::new(app, profiles);
    let mut cluster = Cluster::new(topology);
    let placement = cluster
        .try_out(|cluster| placer.place(&request, cluster))
        .map_err(|e| input(e.to_string()))?;
    let refused = cluster.try_out(|cluster| admit(&*placer, &request, cluster, false).err());
    let refused = refused.map(|e| not_admitted(&text.file, &e));
    let line = |d: &e3_placement::Decision| {
        let whole = d.explain(&request, &cluster).to_string();
        let why = whole
            .split_once(": ")
            .map_or(whole.as_str(), |(_, why)| why);
        InstanceLine {
            instance: format!("{}/{}", app.service(d.key.service).name, d.key.shard),
            replica: d.key.replica,
            node: cluster
                .get(d.node)
                .map_or_else(|| "?".into(), |n| n.name.clone()),
            preference: d.preference,
            why: why.to_string(),
        }
    };
    let view = PlaceView {
        app: app.name.clone(),
        topology: topology.name.clone(),
        placer: placer.name().to_string(),
        instances: placement.decisions.iter().map(line).collect(),
        overcommitted: placement.overcommitted().count(),
        refused: refused.as_ref().map(|f| f.message.clone()),
    };
    Ok(Placed {
        placement,
        view,
        refused,
    })
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
    )
}
