//! Deployments whose placer has a time budget. The placer searches on a thread of its own, in a copy of the
//! state, while the controller goes on: heartbeats, fail-over, other commands. Then it submits what it
//! decided together with the version of the copy, and the state machine checks that against the present
//! state. If the state has changed so that the decisions do not fit, it searches again, a few times.

use crate::deploy::{Begun, Sent, Submitted, not_admitted, place};
use crate::limits::SOLVERS_MAX;
use crate::shared::Shared;
use axum::http::StatusCode;
use e3_control::{Control, Placed};
use e3_http::Refusal;
use e3_model::api::{DeployRequest, DeployResponse};
use e3_model::{Application, Profile};
use e3_placement::{AdmitError, Placer, Request};
use e3_solver::Timed;
use e3_solver::limits::SOLVES_MAX;
use std::collections::BTreeMap;
use std::io;
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// What a solver works on.
pub(crate) struct Problem {
    /// A copy of the state.
    pub(crate) state: Control,
    pub(crate) app: Application,
    /// By name: the profiles of its services.
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) overcommit: bool,
    pub(crate) solver: Timed,
}

impl Problem {
    fn solve(&self) -> Result<Vec<Placed>, AdmitError> {
        let request = Request::new(&self.app, &self.profiles);
        place(&self.state, &self.solver, &request, self.overcommit)
    }
}

/// Deploys an application.
pub(crate) async fn deploy(
    shared: &Shared,
    q: &DeployRequest,
    sent: Sent,
    dry_run: bool,
) -> Result<DeployResponse, Refusal> {
    let begun = shared.core().begin_deploy(q, sent, dry_run)?;
    let (sent, mut problem) = match begun {
        Begun::Done(response) => return Ok(response),
        Begun::Solve(sent, problem) => (sent, problem),
    };
    let name = problem.solver.name();
    let mut last = String::new();
    for _ in 0..SOLVES_MAX {
        let (base, begin) = (problem.state.version, Instant::now());
        let placed = solved(shared, problem).await?;
        let placed = placed.map_err(|why| not_admitted(q, &why))?;
        let submitted = shared.core().submit(q, dry_run, &sent, (base, placed))?;
        let seconds = begin.elapsed().as_secs_f64();
        match submitted {
            Submitted::Done(response) => {
                tracing::info!(app = response.app, placer = name, base, seconds, "placed");
                return Ok(response);
            }
            Submitted::Overtaken(why, next) => {
                tracing::info!(placer = name, base, seconds, why, "placement overtaken");
                (last, problem) = (why, next);
            }
        }
    }
    let error = format!(
        "the cluster has changed {SOLVES_MAX} times while {name} searched, so that its result did not fit; the last time: {last}"
    );
    Err(Refusal::new(StatusCode::CONFLICT, error)
        .hint("deploy again, or choose a placer without a time limit, such as joules"))
}

/// What a solver decides, on a thread of its own.
async fn solved(
    shared: &Shared,
    problem: Box<Problem>,
) -> Result<Result<Vec<Placed>, AdmitError>, Refusal> {
    let permit = shared.solvers.clone().try_acquire_owned();
    let permit = permit.map_err(|_| {
        let error = format!("{SOLVERS_MAX} other placements are being searched for");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error).hint("deploy again when they are done")
    })?;
    let ended = |e: io::Error| {
        let error = format!("the placement cannot be searched for: {e}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    };
    let (send, receive) = oneshot::channel();
    let work = move || search(&problem, permit, send);
    // It is not waited for: a controller that stops does not wait for a solver.
    let started = std::thread::Builder::new()
        .name("e3-placement".into())
        .spawn(work);
    started.map_err(ended)?;
    receive
        .await
        .map_err(|_| ended(io::Error::other("the search panicked")))
}

/// Searches. Nobody may wait for the result any more.
fn search(
    problem: &Problem,
    permit: OwnedSemaphorePermit,
    send: oneshot::Sender<Result<Vec<Placed>, AdmitError>>,
) {
    let placed = problem.solve();
    drop(permit);
    let _ = send.send(placed);
}
