//! How much each guess of the models, and the flows of the applications, move each headline.

mod parameters;
mod runs;
mod show;

use crate::Experiment;
use crate::outcome::Outcome;
use crate::world::{EvaluationError, World};
use parameters::{Parameter, parameters};
use runs::{Effects, effects};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "sensitivity",
    title: "How much each guess moves each headline",
    section: "none",
    about: "The headlines of the other experiments with one parameter at a time at the end of its plausible range: \
            those that no source gives, and the messages per request of each application. Two other seeds show what \
            chance alone does.",
    run,
};

const APPS: [&str; 3] = ["nfv-fin", "rta-shm", "iot-ts"];
const APPS_QUICK: [&str; 1] = ["rta-shm"];

fn run(world: &World<'_>) -> Result<Outcome, EvaluationError> {
    let subjects = world.among(if world.quick { &APPS_QUICK } else { &APPS });
    let parameters = parameters(world);
    let effects: Result<Vec<Effects<'_>>, EvaluationError> = subjects
        .iter()
        .map(|subject| effects(world, subject, &parameters))
        .collect();
    let mut outcome = EXPERIMENT.outcome();
    outcome.parameters = world.parameters();
    let effort = runs::effort(world);
    let own = [
        ("requests of a point", effort.point),
        ("requests of a search step", effort.search),
    ];
    for (name, value) in own {
        let of = outcome.parameters.iter_mut().find(|(n, _)| n == name);
        if let Some((_, shown)) = of {
            *shown = value.to_string();
        }
    }
    let effects = effects?;
    show::all(&mut outcome, &parameters, &effects);
    let assumed = effects
        .iter()
        .filter_map(|e| Some((e.app, e.assumed.as_ref()?)));
    let notes = assumed.map(|(app, note)| format!("{app}: {note}"));
    outcome.notes.extend(notes);
    outcome.notes.push(
        "Each parameter moves alone. One that has no effect on a run, such as those of SmartNICs on a cluster without, \
         is not run again there. A change that is no larger than that by chance means nothing."
            .into(),
    );
    outcome.notes.extend(not_moved(&parameters));
    if world.quick {
        let note = "A quick run moves a few of the parameters only, and for the orchestrator those of moves.";
        outcome.notes.push(note.into());
    }
    Ok(outcome)
}

fn not_moved(parameters: &[Parameter]) -> Option<String> {
    let names = parameters
        .iter()
        .filter(|p| !p.is_in_play())
        .map(|p| p.name);
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| {
        format!(
            "No headline depends on {}: they concern several racks, RoCE, Linux sockets, requests smaller than those of \
             the profiles, and links that fail.",
            names.join(", ")
        )
    })
}
