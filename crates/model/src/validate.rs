//! Checks of whole documents: bounds, names, references.

use crate::accelerator::Accelerators;
use crate::application::{Application, ApplicationSpec, Pin, Subscription};
use crate::dag::{Dag, DagError};
use crate::limits::*;
use crate::profile::Profile;
use crate::topology::{NodeRef, Topology};
use crate::validate_service::service;
use std::collections::BTreeSet;

/// What is wrong with which field.
pub(crate) struct Fault {
    pub(crate) field: String,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, message: impl Into<String>) -> Fault {
        Fault {
            field: field.into(),
            message: message.into(),
        }
    }
}

pub(crate) type Check = Result<(), Fault>;

pub(crate) fn ensure(
    good: bool,
    field: impl Into<String>,
    message: impl FnOnce() -> String,
) -> Check {
    if good {
        Ok(())
    } else {
        Err(Fault::new(field, message()))
    }
}

/// Checks that a text may name an application, a service, a secret, a token; otherwise says why not.
pub fn check_name(name: &str) -> Result<(), String> {
    let good = (1..=NAME_LEN_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-');
    if good {
        return Ok(());
    }
    Err(format!(
        "{name:?} must be 1..={NAME_LEN_MAX} lower-case letters, digits and hyphens, and not begin with a hyphen"
    ))
}

pub(crate) fn name(field: &str, name: &str) -> Check {
    check_name(name).map_err(|why| Fault::new(field, why))
}

pub(crate) fn unique<'a>(
    what: &str,
    names: impl Iterator<Item = &'a str>,
    field: impl Fn(usize) -> String,
) -> Check {
    let mut seen = BTreeSet::new();
    for (i, n) in names.enumerate() {
        name(&field(i), n)?;
        ensure(seen.insert(n), field(i), || {
            format!("two {what} are named {n:?}")
        })?;
    }
    Ok(())
}

pub(crate) fn application(app: &Application) -> Check {
    let spec = &app.spec;
    counts_and_names(spec)?;
    bounds(spec)?;
    for (i, s) in spec.services.iter().enumerate() {
        service(app, &format!("spec.services[{i}]"), s)?;
    }
    ensure(
        app.service_named(&spec.ingress).is_some(),
        "spec.ingress",
        || format!("there is no service {:?}", spec.ingress),
    )?;
    channels(app)?;
    topics(app)?;
    graph(app)
}

/// How many services and channels there are, and that no name is used twice.
fn counts_and_names(spec: &ApplicationSpec) -> Check {
    let count = spec.services.len();
    ensure((1..=SERVICES_MAX).contains(&count), "spec.services", || {
        format!("{count} services, must be 1..={SERVICES_MAX}")
    })?;
    let channels = spec.channels.len();
    ensure(channels <= CHANNELS_MAX, "spec.channels", || {
        format!("{channels} channels, must be at most {CHANNELS_MAX}")
    })?;
    unique(
        "services",
        spec.services.iter().map(|s| s.name.as_str()),
        |i| format!("spec.services[{i}].name"),
    )?;
    unique(
        "secrets",
        spec.secrets.iter().map(|s| s.name.as_str()),
        |i| format!("spec.secrets[{i}].name"),
    )?;
    unique("assets", spec.assets.iter().map(|s| s.name.as_str()), |i| {
        format!("spec.assets[{i}].name")
    })?;
    Ok(())
}

/// The numbers of the application itself.
fn bounds(spec: &ApplicationSpec) -> Check {
    ensure(
        (1..=ATTEMPTS_MAX).contains(&spec.attempts),
        "spec.attempts",
        || format!("attempts is {}, must be 1..={ATTEMPTS_MAX}", spec.attempts),
    )?;
    ensure(
        spec.objective.latency.0 > 0,
        "spec.objective.latency",
        || "latency is 0, must be more than 0".into(),
    )?;
    ensure(spec.deadline.0 > 0, "spec.deadline", || {
        "deadline is 0, must be more than 0".into()
    })?;
    ensure(spec.admitted_max > 0, "spec.admittedMax", || {
        "admittedMax is 0, must be more than 0".into()
    })?;
    let percentile = spec.objective.percentile;
    ensure(
        percentile > 0.0 && percentile < 100.0,
        "spec.objective.percentile",
        || format!("percentile is {percentile}, must be between 0 and 100"),
    )?;
    if let Some(load) = &spec.load {
        ensure(
            load.rate_rps.is_finite() && load.rate_rps > 0.0,
            "spec.load.rateRps",
            || format!("rateRps is {}, must be more than 0", load.rate_rps),
        )?;
        let len = load.request_bytes;
        let len_max = PAYLOAD_LEN_MAX as u32;
        ensure(
            (1..=len_max).contains(&len),
            "spec.load.requestBytes",
            || format!("requestBytes is {len}, must be 1..={len_max}"),
        )?;
        let hours = load.day.len();
        ensure(hours == 0 || hours == HOURS, "spec.load.day", || {
            format!("day has {hours} factors, must be {HOURS}")
        })?;
        for (hour, factor) in load.day.iter().enumerate() {
            ensure(
                factor.is_finite() && *factor >= 0.0,
                format!("spec.load.day[{hour}]"),
                || format!("factor is {factor}, must be 0 or more"),
            )?;
        }
        ensure(load.peak() > 0.0, "spec.load.day", || {
            "day has no factor above 0".into()
        })?;
    }
    Ok(())
}

/// The ends, names and outputs of the channels.
fn channels(app: &Application) -> Check {
    let spec = &app.spec;
    let mut names = BTreeSet::new();
    for (i, c) in spec.channels.iter().enumerate() {
        let at = |field: &str| format!("spec.channels[{i}].{field}");
        for (field, end) in [("from", &c.from), ("to", &c.to)] {
            ensure(app.service_named(end).is_some(), at(field), || {
                format!("there is no service {end:?}")
            })?;
        }
        name(&at("name"), c.name())?;
        ensure(names.insert((&c.from, c.name())), at("name"), || {
            format!("service {:?} has two channels named {:?}", c.from, c.name())
        })?;
        ensure(
            (1..=OUTPUTS_MAX).contains(&c.outputs),
            at("outputs"),
            || format!("outputs is {}, must be 1..={OUTPUTS_MAX}", c.outputs),
        )?;
    }
    Ok(())
}

/// Channels and calls form no cycle, and every service can be reached.
fn graph(app: &Application) -> Check {
    let spec = &app.spec;
    Dag::new(app).map(|_| ()).map_err(|e| match e {
        DagError::Unreachable(name) => {
            let at = app.service_named(&name).map_or(0, |(id, _)| id.0);
            let ingress = &spec.ingress;
            let message = format!(
                "service {name:?} cannot be reached from {ingress:?}, no service asks it, and it has no \
                 subscription"
            );
            Fault::new(format!("spec.services[{at}]"), message)
        }
        DagError::CallCycle(cycle) => {
            let mut steps = cycle.windows(2);
            let at = steps.find_map(|step| {
                let (id, service) = app.service_named(&step[0])?;
                service.calls.contains(&step[1]).then_some(id.0)
            });
            let at = at.unwrap_or(0);
            let field = format!("spec.services[{at}].calls");
            Fault::new(field, DagError::CallCycle(cycle).to_string())
        }
        DagError::NoService(_) | DagError::Cycle(_) | DagError::Fanout { .. } => {
            Fault::new("spec.channels", e.to_string())
        }
    })
}

/// The topics of the application, and who is subscribed to what.
fn topics(app: &Application) -> Check {
    let spec = &app.spec;
    for (field, len, max) in [
        ("topics", spec.topics.len(), TOPICS_MAX),
        ("subscriptions", spec.subscriptions.len(), SUBSCRIPTIONS_MAX),
    ] {
        ensure(len <= max, format!("spec.{field}"), || {
            format!("{len} {field}, must be at most {max}")
        })?;
    }
    for (i, topic) in spec.topics.iter().enumerate() {
        let field = format!("spec.topics[{i}]");
        name(&field, topic)?;
        ensure(!spec.topics[..i].contains(topic), field, || {
            format!("names topic {topic:?} twice")
        })?;
    }
    for (i, subscription) in spec.subscriptions.iter().enumerate() {
        let at = |field: &str| format!("spec.subscriptions[{i}]{field}");
        let Subscription { topic, service } = subscription;
        let of = app.topic_of(subscription);
        name(&at(".topic"), &of.application)?;
        name(&at(".topic"), &of.name)?;
        let is_known = of.application != app.name || spec.topics.contains(&of.name);
        ensure(is_known, at(".topic"), || {
            format!(
                "there is no topic {:?}; add it to spec.topics, or name one of another application as \
                 APPLICATION/TOPIC",
                of.name
            )
        })?;
        ensure(app.service_named(service).is_some(), at(".service"), || {
            format!("there is no service {service:?}")
        })?;
        let is_same = |other: &Subscription| other.service == *service && app.topic_of(other) == of;
        ensure(!spec.subscriptions[..i].iter().any(is_same), at(""), || {
            format!("service {service:?} is subscribed to topic {topic:?} twice")
        })?;
    }
    Ok(())
}

pub(crate) fn profile(p: &Profile) -> Check {
    ensure(!p.spec.nodes.is_empty(), "spec.nodes", || {
        "no kind of node is described".into()
    })?;
    for (kind, cost) in &p.spec.nodes {
        let at = format!("spec.nodes.{}", kind.name());
        let sizes = cost
            .service_time
            .windows(2)
            .all(|w| w[0].bytes < w[1].bytes);
        ensure(
            !cost.service_time.is_empty() && sizes,
            format!("{at}.serviceTime"),
            || "must hold at least one point, request sizes ascending".into(),
        )?;
        for (what, value) in [
            ("variation", cost.variation),
            ("activePowerW", cost.active_power_w.0),
            ("activeCores", cost.active_cores),
        ] {
            ensure(
                value.is_finite() && value >= 0.0,
                format!("{at}.{what}"),
                || format!("{what} is {value}, must be 0 or more"),
            )?;
        }
    }
    for (channel, messages) in &p.spec.outputs {
        ensure(
            messages.is_finite() && *messages >= 0.0,
            format!("spec.outputs.{channel}"),
            || format!("outputs of channel {channel:?} is {messages}, must be 0 or more"),
        )?;
    }
    Ok(())
}

/// Whether the topology can hold the application at all; capacity for all of it together is the
/// placer's question.
pub(crate) fn fit(app: &Application, t: &Topology) -> Check {
    for (i, s) in app.spec.services.iter().enumerate() {
        let at = format!("spec.services[{i}]");
        let allowed = |n: &NodeRef<'_>| match &s.pin {
            None => true,
            Some(Pin::Kind(kind)) => n.node.kind == *kind,
            Some(Pin::Node(name)) => n.node.name == *name,
        };
        ensure(t.nodes().any(|n| allowed(&n)), format!("{at}.pin"), || {
            format!(
                "service {:?}: topology {:?} has no such node",
                s.name, t.name
            )
        })?;
        let required = s.accelerators_required();
        let has_all = |n: &NodeRef<'_>| allowed(n) && n.node.accelerators.include(required);
        let lacking = |n: &NodeRef<'_>| required.without(n.node.accelerators).iter().count();
        let closest = t.nodes().filter(allowed).min_by_key(lacking);
        ensure(
            t.nodes().any(|n| has_all(&n)),
            format!("{at}.acceleratorsRequired"),
            || {
                let (name, has) = closest.map_or(("", Accelerators::NONE), |n| {
                    (&n.node.name, n.node.accelerators)
                });
                format!(
                    "service {:?}: no node that it may use has all accelerators that it requires; {name} comes closest, and lacks {:?}",
                    s.name,
                    required.without(has)
                )
            },
        )?;
        let allowed = has_all;
        let largest = t
            .nodes()
            .filter(allowed)
            .map(|n| n.node.memory)
            .max()
            .unwrap_or_default();
        ensure(
            s.resources.memory <= largest,
            format!("{at}.resources.memory"),
            || {
                format!(
                    "service {:?}: memory is {}, the largest node that it may use has {largest}",
                    s.name, s.resources.memory
                )
            },
        )?;
        let domains: BTreeSet<usize> = t.nodes().filter(allowed).map(|n| n.server).collect();
        ensure(
            usize::from(s.replicas) <= domains.len(),
            format!("{at}.replicas"),
            || {
                format!(
                    "service {:?}: {} replicas need {1} fault domains (servers), usable: {}; set \
                     replicas to at most {2}, or use a topology with more servers",
                    s.name,
                    s.replicas,
                    domains.len()
                )
            },
        )?;
    }
    Ok(())
}
