//! What experiments run on: applications, clusters, profiles, placers, and what only a program can
//! give them (threads and a clock).

use e3_control::CommandError;
use e3_model::orchestrator::OrchestratorSettings;
use e3_model::{Application, Nanos, Profile, Topology};
use e3_perfsim::{
    Effort, Input, Load, ModelError, NoController, Options, Report, Run, Simulator, Sweep,
    sweep_with,
};
use e3_placement::{Cluster, PlaceError, Placement, Placer, Request, by_name};
use e3_simcontrol::{ProductController, Setup};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Size of all requests, that of the paper's Table 1: the profiles have no other.
pub const REQUEST_BYTES: u32 = 512;
/// What bounds the rate in most cases.
pub(crate) const SHARDS_NOTE: &str = "The number of shards is that of the manifests, which were made for three servers. A stateful shard runs on one hardware thread; \
where that is what is most used, more shards would carry more, and cores stay idle here that the paper's peak may have used.";
/// Longest simulated time of one run of a sweep.
const RUN_MAX: Nanos = Nanos(20_000_000_000);

/// An application with its messages per request.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The application.
    pub app: Application,
    /// Messages per request by service.
    pub visits: Vec<f64>,
    /// The fewest and the most that are plausible.
    pub visits_range: (Vec<f64>, Vec<f64>),
}

/// Runs jobs, several at once if it can.
pub trait Pool: Sync {
    /// Runs `job` once for each number below `count`, in any order, and returns when all have ended.
    fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync));
}

/// Measures how long placement and decisions take on the machine that runs this.
pub trait Timer: Sync {
    /// The machine, in words.
    fn machine(&self) -> String;
    /// Milliseconds for one instance by each of these placers on a nearly full cluster of so many servers,
    /// or why there is no time.
    fn placement_ms(&self, placers: &[&str], servers: usize) -> Vec<Result<f64, String>>;
    /// Milliseconds of one turn of decisions of the orchestrator there, carried out and logged: median and 99th percentile.
    fn decision_ms(&self, servers: usize) -> (f64, f64);
    /// Milliseconds in which one core takes a heartbeat of every node there.
    fn heartbeats_ms(&self, servers: usize) -> f64;
}

/// What experiments run on.
pub struct World<'a> {
    /// The paper's applications, or those that the user named.
    pub subjects: Vec<Subject>,
    /// The user named the applications: they are run in every experiment.
    pub named: bool,
    /// Clusters by name.
    pub clusters: BTreeMap<String, Topology>,
    /// Profiles by name.
    pub profiles: BTreeMap<String, Profile>,
    /// The placer `ilp`, which needs a program.
    pub ilp: &'a (dyn Placer + Sync),
    /// Threads.
    pub pool: &'a dyn Pool,
    /// A clock.
    pub timer: &'a dyn Timer,
    /// The same seed gives the same bytes.
    pub seed: u64,
    /// Shorter runs on fewer applications, for tests.
    pub quick: bool,
}

/// Why an experiment cannot run.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum EvaluationError {
    /// No such cluster.
    #[error("experiment needs topology {0:?}, which was not given")]
    Topology(String),
    /// It cannot be placed.
    #[error("{app} on {topology} by {placer}: {source}")]
    Place {
        /// Application.
        app: String,
        /// Topology.
        topology: String,
        /// Placer.
        placer: String,
        /// Why.
        source: Box<PlaceError>,
    },
    /// The controller does not take it.
    #[error("{app} on {topology}: the controller does not take the placement: {source}")]
    Deploy {
        /// Application.
        app: String,
        /// Topology.
        topology: String,
        /// Why.
        source: Box<CommandError>,
    },
    /// It cannot be simulated.
    #[error("{app} on {topology}: {source}")]
    Model {
        /// Application.
        app: String,
        /// Topology.
        topology: String,
        /// Why.
        source: ModelError,
    },
}

/// An application, where it runs, and how.
#[derive(Clone)]
pub struct Case<'a> {
    /// What runs.
    pub subject: &'a Subject,
    /// Messages per request by service.
    pub visits: &'a [f64],
    /// Cluster.
    pub topology: &'a Topology,
    /// Profiles by name.
    pub profiles: &'a BTreeMap<String, Profile>,
    /// Size of a message.
    pub request_bytes: u32,
    /// Placer.
    pub placer: &'static str,
    /// Switches of the simulator.
    pub options: Options,
    /// The same seed gives the same bytes.
    pub seed: u64,
}

/// The results of `work` for each item, in their order.
pub fn map<I: Sync, T: Send + Sync>(
    pool: &dyn Pool,
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<T> {
    let slots: Vec<OnceLock<T>> = items.iter().map(|_| OnceLock::new()).collect();
    pool.run(items.len(), &|at| {
        let set = slots[at].set(work(&items[at]));
        assert!(set.is_ok(), "a job runs once");
    });
    let done = slots.into_iter().map(OnceLock::into_inner);
    done.map(|t| t.expect("all jobs have ended")).collect()
}

impl World<'_> {
    /// A cluster.
    pub fn cluster(&self, name: &str) -> Result<&Topology, EvaluationError> {
        let found = self.clusters.get(name);
        found.ok_or_else(|| EvaluationError::Topology(name.into()))
    }

    /// A case with the simulator's defaults.
    pub fn case<'a>(
        &'a self,
        subject: &'a Subject,
        topology: &'a Topology,
        placer: &'static str,
    ) -> Case<'a> {
        Case {
            subject,
            visits: &subject.visits,
            topology,
            profiles: &self.profiles,
            request_bytes: REQUEST_BYTES,
            placer,
            options: Options::default(),
            seed: self.seed,
        }
    }

    /// The curves of all cases; the first that fails is the error.
    pub fn sweeps(&self, cases: &[Case<'_>]) -> Result<Vec<Sweep>, EvaluationError> {
        let sweeps = map(self.pool, cases, |case| self.sweep(case));
        sweeps.into_iter().collect()
    }

    /// Those of the paper's applications that an experiment uses, or all that the user named.
    pub fn among(&self, names: &[&str]) -> Vec<&Subject> {
        let all = self.subjects.iter();
        all.filter(|s| self.named || names.contains(&s.app.name.as_str()))
            .collect()
    }

    /// Requests of the runs of a sweep.
    pub fn effort(&self) -> Effort {
        if self.quick {
            Effort {
                search: 2_000.0,
                point: 4_000.0,
            }
        } else {
            Effort {
                search: 10_000.0,
                point: 60_000.0,
            }
        }
    }

    /// Parameters that all simulations share.
    pub fn parameters(&self) -> Vec<(String, String)> {
        let effort = self.effort();
        let pairs = [
            ("seed", self.seed.to_string()),
            ("request size", format!("{REQUEST_BYTES} B")),
            ("requests of a point", format!("{}", effort.point)),
            ("requests of a search step", format!("{}", effort.search)),
        ];
        pairs.map(|(n, v)| (n.to_string(), v)).into()
    }

    /// Places.
    pub fn place(&self, case: &Case<'_>) -> Result<Placement, EvaluationError> {
        let request = Request::new(&case.subject.app, case.profiles)
            .with_knee_utilisation(case.options.guesses.knee_utilisation);
        let mut cluster = Cluster::new(case.topology);
        let placed = match by_name(case.placer) {
            Some(placer) => placer.place(&request, &mut cluster),
            None => self.ilp.place(&request, &mut cluster),
        };
        placed.map_err(|source| EvaluationError::Place {
            app: case.subject.app.name.clone(),
            topology: case.topology.name.clone(),
            placer: case.placer.into(),
            source: Box::new(source),
        })
    }

    /// The curve of latency against throughput.
    pub fn sweep(&self, case: &Case<'_>) -> Result<Sweep, EvaluationError> {
        self.sweep_within(case, self.effort())
    }

    /// The curve from runs of so many requests.
    pub fn sweep_within(&self, case: &Case<'_>, effort: Effort) -> Result<Sweep, EvaluationError> {
        let placement = self.place(case)?;
        let input = input(case, &placement);
        let sweep = sweep_with(&self.run(case.seed, 1.0, RUN_MAX), effort, |run| {
            Ok(Simulator::new(&input, run)?.run(&mut NoController))
        });
        sweep.map_err(|e| refused(case, e))
    }

    /// One run of a placed case.
    pub fn simulate(
        &self,
        case: &Case<'_>,
        placement: &Placement,
        rate_rps: f64,
        duration: Nanos,
    ) -> Result<Report, EvaluationError> {
        let input = input(case, placement);
        let simulator = Simulator::new(&input, self.run(case.seed, rate_rps, duration));
        let simulator = simulator.map_err(|e| refused(case, e))?;
        Ok(simulator.run(&mut NoController))
    }

    /// One run of a placed case with the product's controller in its loop. Its last quarter is measured.
    pub fn orchestrate(
        &self,
        case: &Case<'_>,
        placement: &Placement,
        rate_rps: f64,
        duration: Nanos,
        settings: OrchestratorSettings,
    ) -> Result<Report, EvaluationError> {
        let setup = Setup {
            app: &case.subject.app,
            profiles: case.profiles,
            topology: case.topology,
            placement,
            settings,
        };
        let controller = ProductController::new(&setup);
        let mut controller = controller.map_err(|source| EvaluationError::Deploy {
            app: case.subject.app.name.clone(),
            topology: case.topology.name.clone(),
            source: Box::new(source),
        })?;
        let run = Run {
            warm_up: Nanos(duration.0 / 4 * 3),
            ..self.run(case.seed, rate_rps, duration)
        };
        let simulator = Simulator::new(&input(case, placement), run);
        let simulator = simulator.map_err(|e| refused(case, e))?;
        Ok(simulator.run(&mut controller))
    }

    fn run(&self, seed: u64, rate_rps: f64, duration: Nanos) -> Run {
        Run {
            load: Load::Constant(rate_rps),
            duration,
            warm_up: Nanos(duration.0 / 10),
            seed,
            samples: false,
            spans: false,
        }
    }
}

fn input<'a>(case: &'a Case<'_>, placement: &'a Placement) -> Input<'a> {
    Input {
        app: &case.subject.app,
        profiles: case.profiles,
        topology: case.topology,
        placement,
        visits: case.visits,
        request_bytes: case.request_bytes,
        options: &case.options,
    }
}

fn refused(case: &Case<'_>, source: ModelError) -> EvaluationError {
    EvaluationError::Model {
        app: case.subject.app.name.clone(),
        topology: case.topology.name.clone(),
        source,
    }
}
