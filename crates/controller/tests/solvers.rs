//! Placers with a time budget search beside the controller, which goes on meanwhile, and what they decide is
//! checked when they are done.

use crate::common::{APP, Controller, NODES, beat, deployment, free_port};
use e3_model::api::*;
use e3_model::event::{Event, EventKind};
use e3_model::plan::NodeWelcome;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for what has to happen.
const WAIT: Duration = Duration::from_secs(20);

fn with_placer(placer: &str) -> DeployRequest {
    DeployRequest {
        placer: Some(placer.into()),
        ..deployment(APP)
    }
}

/// A program in place of HiGHS that answers when the test lets it, with what the test says.
struct Solver {
    dir: PathBuf,
}

impl Solver {
    fn new(dir: &Path) -> Solver {
        let dir = dir.join("solver");
        fs::create_dir(&dir).unwrap();
        // The fifth argument is the file of the solution, see `Highs::solve`.
        let text = format!(
            "#!/bin/sh\ncd {}\nn=1\nuntil mkdir run.$n 2>/dev/null; do n=$((n+1)); done\n\
             until test -e go.$n; do sleep 0.01; done\ncp go.$n \"$5\"\n",
            dir.display()
        );
        let program = dir.join("highs");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        Solver { dir }
    }

    fn program(&self) -> PathBuf {
        self.dir.join("highs")
    }

    /// Waits until it was started so often.
    #[track_caller]
    fn until_run(&self, number: usize) {
        let run = self.dir.join(format!("run.{number}"));
        until(
            || run.exists(),
            &format!("solver is not started {number} times"),
        );
    }

    /// Lets the run of that number answer. The variables are those of [`e3_placement::ilp`]: primaries `p`
    /// and backups `q` of a service on a site. Sites are the nodes that are up, by servers.
    fn answer(&self, number: usize, values: &[(&str, u16)]) {
        let lines = values
            .iter()
            .map(|(name, value)| format!("{name} {value}\n"));
        let text = format!(
            "Model status\nOptimal\n\n# Primal solution values\nFeasible\nObjective 1\n# Columns {}\n{}# Rows 0\n",
            values.len(),
            lines.collect::<String>()
        );
        let written = self.dir.join("written");
        fs::write(&written, text).unwrap();
        fs::rename(written, self.dir.join(format!("go.{number}"))).unwrap();
    }
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool, otherwise: &str) {
    let end = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < end, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A controller whose nodes send heartbeats, each until it is lost.
struct Cluster {
    controller: Controller,
    beats: BTreeMap<&'static str, Arc<()>>,
}

impl Cluster {
    fn start(dir: &Path, highs: &Path) -> Cluster {
        let controller = Controller::start_solving(dir, free_port(), highs);
        let mut beats = BTreeMap::new();
        for (name, process) in NODES.into_iter().zip(1..) {
            let joined: NodeWelcome = controller.join(name, process);
            beats.insert(name, beat(controller.address, vec![joined]));
        }
        Cluster { controller, beats }
    }

    /// Deploys in a thread.
    fn deploy(&self, request: DeployRequest) -> JoinHandle<(u16, String)> {
        let address = self.controller.address;
        std::thread::spawn(move || post(address, "/v1/apps", &request))
    }

    /// A node falls silent, and the controller decides that it is lost.
    #[track_caller]
    fn lose(&mut self, name: &str) {
        self.beats.remove(name);
        let is_lost = || {
            let events: Vec<Event> = self.controller.view("/v1/events");
            let mut lost = events.iter().filter(|e| e.kind == EventKind::NodeLost);
            lost.any(|e| e.node.as_deref() == Some(name))
        };
        until(is_lost, &format!("{name} is not lost"));
    }

    fn instances(&self) -> BTreeMap<String, String> {
        let path = "/v1/instances?app=two-services";
        let all: Vec<InstanceView> = self.controller.view(path);
        by_role(all)
    }
}

/// The node of each instance.
fn by_role(all: Vec<InstanceView>) -> BTreeMap<String, String> {
    let of = |i: InstanceView| (format!("{}/{:?}", i.instance, i.role), i.node);
    all.into_iter().map(of).collect()
}

fn post(address: SocketAddr, path: &str, body: &DeployRequest) -> (u16, String) {
    let answer = Controller::agent()
        .post(format!("http://{address}{path}"))
        .header(
            "Authorization",
            crate::common::owner_token().authorization(),
        )
        .send_json(body);
    let mut answer = answer.unwrap();
    let status = answer.status().as_u16();
    (status, answer.body_mut().read_to_string().unwrap())
}

/// The front's primary on one site and its backup on another, the rest on the hosts of the first servers.
fn solution<'a>(primary: &'a str, backup: &'a str) -> [(&'a str, u16); 4] {
    [(primary, 1), (backup, 1), ("p_1_0", 2), ("q_1_2", 2)]
}

#[test]
fn the_controller_goes_on_while_a_solver_searches_and_an_overtaken_result_is_solved_again() {
    let tmp = tempfile::tempdir().unwrap();
    let solver = Solver::new(tmp.path());
    let mut cluster = Cluster::start(tmp.path(), &solver.program());
    let deployed = cluster.deploy(with_placer("ilp"));
    solver.until_run(1);
    // The solver holds still, and the controller notices that a node is gone.
    cluster.lose("s3-host");
    assert_eq!(cluster.controller.get("/v1/apps/two-services").0, 404);
    solver.answer(1, &solution("p_0_4", "q_0_0"));
    solver.until_run(2);
    assert_eq!(cluster.controller.get("/v1/apps/two-services").0, 404);
    solver.answer(2, &solution("p_0_2", "q_0_0"));
    let (status, body) = deployed.join().unwrap();
    assert_eq!(status, 200, "{body}");
    let before = cluster.instances();
    assert_eq!(before["two-services/front/0/Primary"], "s2-host");
    let (_, text) = cluster.controller.get("/v1/apps/two-services");
    assert!(text.contains("integer program"), "{text}");

    // The log holds the decisions: it is replayed without a solver.
    let address = cluster.controller.address;
    drop(cluster);
    let controller = Controller::start(tmp.path(), address);
    let all: Vec<InstanceView> = controller.view("/v1/instances?app=two-services");
    assert_eq!(by_role(all), before);
}

#[test]
fn a_result_that_is_overtaken_each_time_is_refused_and_leaves_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let solver = Solver::new(tmp.path());
    let mut cluster = Cluster::start(tmp.path(), &solver.program());
    let deployed = cluster.deploy(with_placer("ilp"));
    let overtaken = [
        ("s3-host", "p_0_4", "q_0_0"),
        ("s2-nic0", "p_0_3", "q_0_0"),
        ("s1-nic0", "p_0_1", "q_0_2"),
    ];
    for (number, (lost, primary, backup)) in (1..).zip(overtaken) {
        solver.until_run(number);
        cluster.lose(lost);
        solver.answer(number, &solution(primary, backup));
    }
    let (status, body) = deployed.join().unwrap();
    assert_eq!(status, 409, "{body}");
    assert!(
        body.contains("the cluster has changed 3 times while ilp searched"),
        "{body}"
    );
    assert!(
        body.contains("the node is down or has not joined"),
        "{body}"
    );
    assert_eq!(cluster.controller.get("/v1/apps/two-services").0, 404);
    assert!(!solver.dir.join("run.4").exists());
}

#[test]
fn only_so_many_solvers_run_at_the_same_time() {
    let tmp = tempfile::tempdir().unwrap();
    let solver = Solver::new(tmp.path());
    let cluster = Cluster::start(tmp.path(), &solver.program());
    let first = cluster.deploy(with_placer("ilp"));
    let second = cluster.deploy(DeployRequest {
        manifest: APP.replace("two-services", "other"),
        ..with_placer("ilp")
    });
    solver.until_run(2);
    let (status, body) = cluster.controller.post("/v1/apps", &with_placer("ilp"));
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("2 other placements"), "{body}");
    // Placers without a time budget need none of these places.
    let (status, body) = cluster.controller.post("/v1/apps", &with_placer("joules"));
    assert_eq!(status, 200, "{body}");
    for number in [1, 2] {
        solver.answer(number, &solution("p_0_2", "q_0_0"));
    }
    // Of the two, one is of an application that runs by now.
    let (status, body) = first.join().unwrap();
    assert_eq!(status, 422, "{body}");
    assert!(body.contains("runs; a placer is for new"), "{body}");
    let (status, body) = second.join().unwrap();
    assert_eq!(status, 200, "{body}");
}

#[test]
fn a_missing_solver_and_a_wrong_time_are_named() {
    let tmp = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(tmp.path(), Path::new("/nowhere/highs"));
    let refused = |request: &DeployRequest, text: &str| {
        let (status, body) = cluster.controller.post("/v1/apps", request);
        assert_eq!(status, 422, "{body}");
        assert!(body.contains(text), "{body}");
    };
    refused(&with_placer("ilp"), "/nowhere/highs cannot be started");
    refused(&with_placer("ilp"), "E3_HIGHS=FILE e3 up");
    let limited = |placer: &str, ms| DeployRequest {
        time_limit_ms: Some(ms),
        ..with_placer(placer)
    };
    refused(&limited("ilp", 0), "timeLimitMs is 0, must be 1..=60000");
    refused(
        &limited("annealing", 60_001),
        "timeLimitMs is 60001, must be 1..=60000",
    );
    refused(
        &limited("joules", 5),
        "placer \\\"joules\\\" has no time limit",
    );
    assert_eq!(cluster.controller.get("/v1/apps/two-services").0, 404);
}

#[test]
fn annealing_places_within_its_time_and_its_dry_run_changes_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(tmp.path(), Path::new("/nowhere/highs"));
    let dry_run = "/v1/apps?dryRun=true";
    let (status, body) = cluster.controller.post(dry_run, &with_placer("annealing"));
    assert_eq!(status, 200, "{body}");
    assert_eq!(cluster.controller.get("/v1/apps/two-services").0, 404);
    let limited = DeployRequest {
        time_limit_ms: Some(1),
        ..with_placer("annealing")
    };
    let (status, body) = cluster.controller.post("/v1/apps", &limited);
    assert_eq!(status, 200, "{body}");
    let (_, text) = cluster.controller.get("/v1/apps/two-services");
    assert!(text.contains("simulated annealing"), "{text}");
}
