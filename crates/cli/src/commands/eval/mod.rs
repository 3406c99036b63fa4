//! `e3 eval`: the experiments of the paper, as JSON, as tables on the terminal, and as files with plots and
//! a report.

mod files;
mod lend;
mod plot;
mod report;
mod result;
mod view;

use crate::documents::{builtin, flows};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Output};
use crate::ui::text::quoted;
use clap::Args;
use e3_evaluation::{
    APPS, APPS_QUICK, CLUSTERS, EXPERIMENTS, EvaluationError, Experiment, Outcome, REQUEST_BYTES,
    Subject, World,
};
use e3_model::Profile;
use e3_model::document::check_fit;
use e3_perfsim::ModelError;
use e3_placement::Request;
use e3_solver::Ilp;
use lend::{Stopwatch, Threads};
use result::{EvalView, Listed};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SEED_DEFAULT: u64 = 1;
const HIGHS_DEFAULT: &str = "highs";
/// Name for every experiment.
const ALL: &str = "all";
/// Time for an integer program, and of a quick run.
const SOLVER_LIMIT: Duration = Duration::from_secs(10);
const SOLVER_LIMIT_QUICK: Duration = Duration::from_secs(1);

/// `e3 eval`.
#[derive(Args, Debug, Clone)]
pub struct Eval {
    /// Experiment, or `all`; without it they are listed
    #[arg(value_name = "EXPERIMENT")]
    pub experiment: Option<String>,
    /// Write plots as SVG, figures as JSON, and a report as HTML into this directory
    #[arg(long, value_name = "DIR", requires = "experiment")]
    pub out: Option<PathBuf>,
    /// Shorter runs on fewer applications, with figures that are less exact
    #[arg(long)]
    pub quick: bool,
    /// The same seed gives the same bytes
    #[arg(long, default_value_t = SEED_DEFAULT)]
    pub seed: u64,
    /// Run this application instead of the paper's: a file or a built-in one (repeatable)
    #[arg(long = "app", value_name = "FILE|NAME")]
    pub apps: Vec<String>,
    /// Directory of profiles [default: the built-in ones, from the paper]
    #[arg(long, env = "E3_PROFILES", value_name = "DIR")]
    pub profiles: Option<PathBuf>,
    /// Program of the solver HiGHS, which the placer ilp needs
    #[arg(long, env = "E3_HIGHS", default_value = HIGHS_DEFAULT, value_name = "FILE")]
    pub highs: PathBuf,
    /// Output format.
    #[command(flatten)]
    pub output: Output,
}

/// `e3 eval`.
pub fn run(args: &Eval, settings: &Settings) -> Result<(), Failure> {
    let format = settings.format(args.output);
    let Some(name) = &args.experiment else {
        let list: Vec<Listed> = EXPERIMENTS.iter().map(listed).collect();
        return output::show(format, &list, || view::list(&list));
    };
    let wanted = experiments(name)?;
    if let Some(dir) = &args.out {
        files::check(dir)?;
    }
    let view = EvalView {
        command: command(args, profiles(args, settings), name),
        quick: args.quick,
        outcomes: evaluate(args, settings, &wanted)?,
    };
    if let Some(dir) = &args.out {
        files::write(dir, &view)?;
        output::say(&format!("written: {}", dir.join(report::FILE).display()));
    }
    output::show(format, &view, || view::outcomes(&view, settings.paint()))
}

/// Runs every experiment for its time; the result is how many there are.
pub fn all(profiles: Option<PathBuf>, settings: &Settings) -> Result<usize, Failure> {
    let args = Eval {
        experiment: Some(ALL.into()),
        out: None,
        quick: false,
        seed: SEED_DEFAULT,
        apps: Vec::new(),
        profiles,
        highs: std::env::var_os("E3_HIGHS")
            .unwrap_or_else(|| HIGHS_DEFAULT.into())
            .into(),
        output: Output::default(),
    };
    Ok(evaluate(&args, settings, &experiments(ALL)?)?.len())
}

fn listed(experiment: &Experiment) -> Listed {
    Listed {
        name: experiment.name,
        title: experiment.title,
        section: experiment.section,
    }
}

fn experiments(name: &str) -> Result<Vec<&'static Experiment>, Failure> {
    if name == ALL {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let found = e3_evaluation::named(name).ok_or_else(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|e| e.name).collect();
        let message = format!("no experiment is named {name:?}");
        Failure::new(Exit::NotFound, message).hint(format!("there are all, {}", names.join(", ")))
    })?;
    Ok(vec![found])
}

/// The directory of profiles: as given, else that of the configuration file.
fn profiles<'a>(args: &'a Eval, settings: &'a Settings) -> Option<&'a Path> {
    let given = args.profiles.as_deref();
    given.or(settings.file.profiles.as_deref())
}

/// The command that gives the same again, without where it writes.
fn command(args: &Eval, profiles: Option<&Path>, name: &str) -> String {
    let mut words = vec!["e3 eval".to_string(), name.to_string()];
    if args.quick {
        words.push("--quick".into());
    }
    words.push(format!("--seed {}", args.seed));
    words.extend(args.apps.iter().map(|app| format!("--app {}", quoted(app))));
    if let Some(dir) = profiles {
        words.push(format!("--profiles {}", quoted(&dir.to_string_lossy())));
    }
    if args.highs != Path::new(HIGHS_DEFAULT) {
        words.push(format!("--highs {}", quoted(&args.highs.to_string_lossy())));
    }
    words.join(" ")
}

/// Runs experiments one after the other; each uses all cores.
fn evaluate(
    args: &Eval,
    settings: &Settings,
    wanted: &[&Experiment],
) -> Result<Vec<Outcome>, Failure> {
    let profiles = builtin::profiles(profiles(args, settings))?.by_name;
    let names: Vec<String> = match (&args.apps[..], args.quick) {
        ([], true) => APPS_QUICK.map(String::from).into(),
        ([], false) => APPS.map(String::from).into(),
        (named, _) => named.to_vec(),
    };
    let subjects = names.iter().map(|name| subject(name, &profiles));
    let clusters = CLUSTERS.map(|name| Ok((name.to_string(), builtin::topology(name)?.1)));
    let limit = if args.quick {
        SOLVER_LIMIT_QUICK
    } else {
        SOLVER_LIMIT
    };
    let ilp = Ilp::new(&args.highs, limit);
    let world = World {
        subjects: subjects.collect::<Result<_, Failure>>()?,
        named: !args.apps.is_empty(),
        clusters: clusters.into_iter().collect::<Result<_, Failure>>()?,
        profiles,
        ilp: &ilp,
        pool: &Threads::all(),
        timer: &Stopwatch::new(&ilp, args.quick),
        seed: args.seed,
        quick: args.quick,
    };
    let bar = output::progress(wanted.len() as u64, "experiments");
    let mut outcomes = Vec::new();
    for experiment in wanted {
        bar.set_message(experiment.name);
        outcomes.push(experiment.run(&world).map_err(|e| refused(&e))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(outcomes)
}

/// An application whose requests have the size of the experiments.
fn subject(name: &str, profiles: &BTreeMap<String, Profile>) -> Result<Subject, Failure> {
    let (text, mut app) = builtin::application(name)?;
    for cluster in ["3x-beefy", "3x-type1"] {
        let (_, topology) = builtin::topology(cluster)?;
        check_fit(&text.file, &text.text, &app, &topology)?;
    }
    if let Some(load) = &mut app.spec.load {
        load.request_bytes = REQUEST_BYTES;
    }
    let visits = flows::visits(&app).unwrap_or_else(|| {
        let request = Request::new(&app, profiles);
        request.services().map(|s| request.visits(s)).collect()
    });
    let visits_range = flows::plausible(&app).unwrap_or_else(|| (visits.clone(), visits.clone()));
    Ok(Subject {
        app,
        visits,
        visits_range,
    })
}

fn refused(error: &EvaluationError) -> Failure {
    let failure = Failure::new(Exit::Input, error);
    match error {
        EvaluationError::Model {
            source: ModelError::ServiceTime { .. } | ModelError::Profile { .. },
            ..
        } => failure
            .hint("measure the service with e3 profile, and name the directory with --profiles"),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        eval: Eval,
    }

    #[test]
    fn the_command_names_all_that_the_report_depends_on() {
        let shown = |words: &[&str], profiles: Option<&str>| {
            let line = Line::parse_from([&["eval", "efficiency"][..], words].concat());
            command(&line.eval, profiles.map(Path::new), "efficiency")
        };
        let highs = ["--highs", "/opt/highs"];
        assert_eq!(
            shown(&highs, Some("of the file")),
            "e3 eval efficiency --seed 1 --profiles 'of the file' --highs /opt/highs"
        );
        let given = ["--quick", "--highs", "highs", "--app", "it's"];
        assert_eq!(
            shown(&given, None),
            "e3 eval efficiency --quick --seed 1 --app 'it'\\''s'"
        );
    }
}
