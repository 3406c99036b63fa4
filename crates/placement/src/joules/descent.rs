//! From a balanced layout to one in which no single change saves energy.
//!
//! Changes: an instance leaves the site that bounds the rate, or any if paths are too long; two instances swap places; all
//! primaries of a service go to the other kind of node; a site is emptied, so that its SmartNIC or
//! its server may sleep. Of the changes that a step considers, the one that saves most is made.

use super::layout::Layout;
use crate::model::Knee;
use e3_model::NodeKind;
use e3_model::plan::Role;

/// Changes that are made at most.
const STEPS_MAX: usize = 200;
/// Part of the energy that a change must save.
const GAIN_MIN: f64 = 1e-6;

const ROLES: [Role; 2] = [Role::Primary, Role::Backup];

/// The best that was found so far in a step.
struct Best<'a> {
    knee: Knee,
    layout: Option<Layout<'a>>,
}

impl<'a> Best<'a> {
    fn consider(&mut self, layout: &Layout<'a>) {
        let knee = layout.knee();
        if let Some(knee) = knee.filter(|k| k.is_better(&self.knee, GAIN_MIN)) {
            self.knee = knee;
            self.layout = Some(layout.clone());
        }
    }
}

/// Descends from a layout.
pub(super) fn descend(mut layout: Layout<'_>) -> Layout<'_> {
    for _ in 0..STEPS_MAX {
        match step(&layout) {
            Some(better) => layout = better,
            None => break,
        }
    }
    layout
}

fn step<'a>(from: &Layout<'a>) -> Option<Layout<'a>> {
    let knee = from.knee()?;
    let mut best = Best { knee, layout: None };
    // Where paths are too long, any site may be to blame.
    let leave = |site: usize| site == knee.bound || knee.late_us > 0.0;
    for site in (0..from.sites()).filter(|s| leave(*s)) {
        moves(from, site, &mut best);
    }
    if best.layout.is_none() {
        swaps(from, knee.bound, &mut best);
    }
    if best.layout.is_none() {
        other_kind(from, &mut best);
        empty(from, &mut best);
    }
    best.layout
}

/// One instance leaves a site.
fn moves<'a>(from: &Layout<'a>, leave: usize, best: &mut Best<'a>) {
    let mut trial = from.clone();
    for part in 0..from.model.parts.len() {
        for role in ROLES {
            if from.counts.of(part, role)[leave] == 0 {
                continue;
            }
            trial.remove(part, role, leave);
            for to in (0..from.sites()).filter(|to| *to != leave) {
                if trial.fits(part, role, to) {
                    trial.add(part, role, to);
                    best.consider(&trial);
                    trial.remove(part, role, to);
                }
            }
            trial.add(part, role, leave);
        }
    }
}

/// A primary on the site that bounds the rate and one of another service elsewhere swap places.
fn swaps<'a>(from: &Layout<'a>, bound: usize, best: &mut Best<'a>) {
    let parts = from.model.parts.len();
    let has = |part: usize, site: usize| from.counts.of(part, Role::Primary)[site] > 0;
    for site in (0..from.sites()).filter(|s| *s != bound) {
        for one in (0..parts).filter(|p| has(*p, bound)) {
            for other in (0..parts).filter(|p| *p != one && has(*p, site)) {
                let mut trial = from.clone();
                trial.remove(one, Role::Primary, bound);
                trial.remove(other, Role::Primary, site);
                let fits =
                    trial.fits(one, Role::Primary, site) && trial.fits(other, Role::Primary, bound);
                if fits {
                    trial.add(one, Role::Primary, site);
                    trial.add(other, Role::Primary, bound);
                    best.consider(&trial);
                }
            }
        }
    }
}

/// All primaries of a service go to the other kind of node.
fn other_kind<'a>(from: &Layout<'a>, best: &mut Best<'a>) {
    for part in 0..from.model.parts.len() {
        for kind in [NodeKind::Host, NodeKind::SmartNic] {
            let leave = |site: usize| from.model.sites[site].kind != kind;
            let stay = |site: usize| !leave(site);
            if let Some(trial) = relocated(from, &[part], leave, stay) {
                best.consider(&trial);
            }
        }
    }
}

/// A site is emptied, or a server.
fn empty<'a>(from: &Layout<'a>, best: &mut Best<'a>) {
    let sites = &from.model.sites;
    let parts: Vec<usize> = (0..from.model.parts.len()).collect();
    for leave in (0..from.sites()).filter(|s| from.counts.on(*s) > 0) {
        let used = |site: usize| site != leave && from.counts.on(site) > 0;
        let trial = relocated(from, &parts, |site| site == leave, used);
        if let Some(trial) = trial {
            best.consider(&trial);
        }
        let server = sites[leave].server;
        let elsewhere = |site: usize| sites[site].server != server && from.counts.on(site) > 0;
        let trial = relocated(from, &parts, |site| sites[site].server == server, elsewhere);
        if let Some(trial) = trial {
            best.consider(&trial);
        }
    }
}

/// The instances of some parts on some sites, each on the least used of others; None if one has no
/// place or there are none.
fn relocated<'a>(
    from: &Layout<'a>,
    parts: &[usize],
    leave: impl Fn(usize) -> bool,
    enter: impl Fn(usize) -> bool,
) -> Option<Layout<'a>> {
    let mut trial = from.clone();
    let mut moved = Vec::new();
    for part in parts {
        for role in ROLES {
            for site in (0..from.sites()).filter(|s| leave(*s)) {
                for _ in 0..from.counts.of(*part, role)[site] {
                    trial.remove(*part, role, site);
                    moved.push((*part, role));
                }
            }
        }
    }
    if moved.is_empty() {
        return None;
    }
    for (part, role) in moved {
        let (site, _) = trial.least_used(part, role, &enter)?;
        trial.add(part, role, site);
    }
    Some(trial)
}
