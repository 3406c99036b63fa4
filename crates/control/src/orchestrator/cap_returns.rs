//! The way back: an instance that left because of a power cap returns when that saves more energy within the
//! horizon than the move costs, and the caps hold with it by twice the margin.

use super::budget::Budget;
use super::cap::{Watched, kind, milliwatts};
use super::cap_search::holds;
use super::moving::Moving;
use super::power::Picture;
use super::round::Round;
use super::watch::has_room;
use crate::limits::POWER_FREED_MIN_W;
use crate::orchestration::{Act, CPU_PERMILLE, Decided, Displaced};
use e3_model::NodeId;
use e3_model::orchestrator::{Cause, OrchestratorMode};
use e3_model::plan::Role;
use e3_placement::{Cluster, fits_fully};
use std::collections::BTreeMap;

/// The instances that return now.
pub(super) fn decide(
    watched: &[Watched],
    picture: &mut Picture<'_>,
    budget: &mut Budget,
    round: &mut Round<'_>,
) -> Vec<Decided> {
    let (control, now, seen) = (picture.control, picture.now, picture.seen);
    let orchestration = &control.orchestration;
    // A dry run would record the same return again and again.
    if seen.settings.mode != OrchestratorMode::On {
        return Vec::new();
    }
    let mut due = Vec::new();
    for moved in orchestration.displaced.iter().filter(|d| d.shed) {
        let is_chosen = picture.chosen.contains(&moved.key);
        if is_chosen || now < orchestration.rests_until(moved) || budget.left == 0 {
            continue;
        }
        let Some((moving, from)) = displaced(picture, moved) else {
            continue;
        };
        let servers = [from, moved.home].map(|n| seen.nodes[n.index()].server);
        let servers = servers.to_vec();
        if !budget.allows(&servers) {
            continue;
        }
        let saved = round.with(|cluster| saved_w(watched, picture, cluster, moved, &moving, from));
        let cost_j = f64::from(seen.settings.follow_move_joules);
        let horizon_s = f64::from(seen.settings.follow_horizon_s);
        let Some(saved_w) = saved.filter(|w| *w >= POWER_FREED_MIN_W && w * horizon_s > cost_j)
        else {
            continue;
        };
        budget.take(servers);
        round.move_primary(&moving, from, moved.home);
        let (leaves, comes) = cores(picture, &moving, from, moved.home);
        picture.note(from, leaves, moved.home, comes);
        let payback_s = cost_j / saved_w;
        let mut decided = Decided {
            at: now,
            cause: Cause::PowerFell,
            act: Act::Back,
            key: Some(moved.key),
            from,
            to: Some(moved.home),
            shards: None,
            why: format!(
                "power: back there it draws {saved_w:.1} W less (modelled), and the caps hold; the move costs {cost_j:.0} J and pays back in {payback_s:.1} s"
            ),
            figures: BTreeMap::new(),
        };
        decided.note(CPU_PERMILLE, moving.cpu_permille);
        decided.note("savedMilliwatts", milliwatts(saved_w));
        decided.note("moveCostJoules", cost_j as u64);
        due.push(decided);
    }
    due
}

/// An instance that is away and could move now, and where it is.
fn displaced<'a>(picture: &Picture<'a>, moved: &Displaced) -> Option<(Moving<'a>, NodeId)> {
    let control = picture.control;
    let shard = control.apps.get(&moved.key.app)?.shard(moved.key)?;
    let from = shard.primary;
    let reports = picture.seen.reports.get(from.index())?;
    let instance = reports
        .of(moved.key)
        .filter(|_| reports.is_known(picture.now))?;
    let is_away = from != moved.home && control.is_up(moved.home);
    let moving = Moving::new(control, moved.key, from, instance.cpu_permille)?;
    is_away.then_some((moving, from))
}

fn cores(picture: &Picture<'_>, moving: &Moving<'_>, from: NodeId, to: NodeId) -> (f64, f64) {
    let (here, there) = (kind(picture.seen, from), kind(picture.seen, to));
    let comes = moving.cpu_permille_on(here, there);
    (moving.cpu_permille as f64 / 1e3, comes as f64 / 1e3)
}

/// Watts that the cluster draws less with an instance at home; none if it cannot be there.
fn saved_w(
    watched: &[Watched],
    picture: &Picture<'_>,
    cluster: &mut Cluster,
    moved: &Displaced,
    moving: &Moving<'_>,
    from: NodeId,
) -> Option<f64> {
    let (service, home) = (moved.key.service, moved.home);
    let (leaves, comes) = cores(picture, moving, from, home);
    let more_permille = (comes * 1e3).round() as u64;
    let ends = (from, home);
    has_room(
        picture.now,
        picture.control,
        picture.seen.nodes,
        ends,
        more_permille,
    )
    .ok()?;
    cluster.try_out(|cluster| {
        cluster.remove(&moving.request, service, Role::Primary, from);
        let backups = &moving.shard.backups;
        fits_fully(
            &moving.request,
            cluster,
            service,
            Role::Primary,
            home,
            backups,
        )
        .ok()
    })?;
    let mut after = picture.fork();
    after.note(from, leaves, home, comes);
    for w in watched.iter().filter(|w| w.has(home)) {
        let is_calm = w.above == 0;
        if !is_calm || holds(picture, &after, cluster, w, 2).is_err() {
            return None;
        }
    }
    let mut servers = vec![cluster.server_of(from).to_vec()];
    let at_home = cluster.server_of(home).to_vec();
    if !servers.contains(&at_home) {
        servers.push(at_home);
    }
    let watts = |p: &Picture<'_>| p.drawn(cluster, &servers).map(|d| d.watts);
    Some(watts(picture)? - watts(&after)?)
}
