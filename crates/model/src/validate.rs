//! Checks of whole documents: bounds, names, references.

use crate::application::{Application, Durability, Pin, Resources, Service, Subscription};
use crate::dag::{Dag, DagError};
use crate::http_access::{HTTP_HOSTS_MAX, HttpAccess};
use crate::limits::*;
use crate::profile::Profile;
use crate::topology::{NodeRef, Topology};
use crate::units::Nanos;
use crate::validate_timers;
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

/// Whether a text may name an application, a service, a secret, a token.
pub fn is_name(name: &str) -> bool {
    self::name("", name).is_ok()
}

pub(crate) fn name(field: &str, name: &str) -> Check {
    let good = !name.is_empty()
        && name.len() <= NAME_LEN_MAX
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-');
    ensure(good, field, || {
        format!("{name:?} must be 1..={NAME_LEN_MAX} lower-case letters, digits and hyphens")
    })
}

fn unique<'a>(
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
    }
    for (i, s) in spec.services.iter().enumerate() {
        service(app, &format!("spec.services[{i}]"), s)?;
    }
    ensure(
        app.service_named(&spec.ingress).is_some(),
        "spec.ingress",
        || format!("there is no service {:?}", spec.ingress),
    )?;
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
    topics(app)?;
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
        DagError::Cycle(_) | DagError::Fanout { .. } => Fault::new("spec.channels", e.to_string()),
    })
}

fn service(app: &Application, at: &str, s: &Service) -> Check {
    let field = |f: &str| format!("{at}.{f}");
    let of = |m: String| format!("service {:?}: {m}", s.name);
    ensure(
        (1..=SHARDS_MAX).contains(&s.shards),
        field("shards"),
        || of(format!("shards is {}, must be 1..={SHARDS_MAX}", s.shards)),
    )?;
    ensure(
        (1..=REPLICAS_MAX).contains(&s.replicas),
        field("replicas"),
        || {
            of(format!(
                "replicas is {}, must be 1..={REPLICAS_MAX}",
                s.replicas
            ))
        },
    )?;
    ensure(s.stateful || s.replicas == 1, field("replicas"), || {
        of(format!(
            "replicas is {}, must be 1 for a stateless service; use shards",
            s.replicas
        ))
    })?;
    ensure(
        s.stateful || s.collections.is_empty(),
        field("collections"),
        || of("a stateless service has no collections; set stateful: true".into()),
    )?;
    ensure(
        s.stateful || s.durability != Some(Durability::Disk),
        field("durability"),
        || of("a stateless service keeps nothing on disk; set stateful: true".into()),
    )?;
    ensure(s.deadline.0 > 0, field("deadline"), || {
        of("deadline is 0, must be more than 0".into())
    })?;
    let cpu = s.resources.cpu;
    ensure(cpu.is_finite() && cpu > 0.0, field("resources.cpu"), || {
        of(format!("cpu is {cpu}, must be more than 0"))
    })?;
    ensure(s.resources.memory.0 > 0, field("resources.memory"), || {
        of("memory is 0, must be more than 0".into())
    })?;
    let Resources { memory, state, .. } = &s.resources;
    ensure(
        s.stateful || state.is_none(),
        field("resources.state"),
        || of("a stateless service has no collections; set stateful: true".into()),
    )?;
    ensure(
        state.is_none_or(|state| state.0 > 0 && state <= *memory),
        field("resources.state"),
        || {
            let state = s.quota();
            of(format!(
                "state is {state}, must be more than 0 and at most memory, {memory}"
            ))
        },
    )?;
    ensure(!s.module.is_empty(), field("module"), || {
        of("module is empty".into())
    })?;
    unique(
        "collections",
        s.collections.iter().map(|c| c.name.as_str()),
        |i| format!("{at}.collections[{i}].name"),
    )?;
    for (i, c) in s.collections.iter().enumerate() {
        ensure(
            c.ttl != Some(Nanos::ZERO),
            format!("{at}.collections[{i}].ttl"),
            || {
                of(format!(
                    "ttl of collection {:?} is 0, must be more than 0",
                    c.name
                ))
            },
        )?;
    }
    for (list, declared, what) in [
        (
            &s.secrets,
            app.spec.secrets.iter().map(|x| &x.name).collect::<Vec<_>>(),
            "secrets",
        ),
        (
            &s.assets,
            app.spec.assets.iter().map(|x| &x.name).collect(),
            "assets",
        ),
    ] {
        for (i, n) in list.iter().enumerate() {
            ensure(declared.contains(&n), format!("{at}.{what}[{i}]"), || {
                of(format!("{n:?} is not among spec.{what}"))
            })?;
        }
    }
    outbound(app, at, s)?;
    publishes(app, at, s)?;
    validate_timers::check(at, &s.name, s.stateful, &s.timers)?;
    for (i, called) in s.calls.iter().enumerate() {
        let field = format!("{at}.calls[{i}]");
        ensure(app.service_named(called).is_some(), &field, || {
            of(format!("calls {called:?}: there is no service {called:?}"))
        })?;
        ensure(*called != s.name, &field, || {
            of("calls itself, must name another service".into())
        })?;
        ensure(!s.calls[..i].contains(called), &field, || {
            of(format!("calls {called:?} twice, must name it once"))
        })?;
    }
    if let Some(Pin::Node(node)) = &s.pin {
        ensure(s.shards == 1 && s.replicas == 1, field("pin"), || {
            of(format!(
                "pinned to node {node:?}, so shards and replicas must be 1"
            ))
        })?;
    }
    Ok(())
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

/// On which topics it publishes.
fn publishes(app: &Application, at: &str, s: &Service) -> Check {
    let of = |m: String| format!("service {:?}: {m}", s.name);
    let is_allowed = s.stateful || s.publishes.is_empty();
    ensure(is_allowed, format!("{at}.publishes"), || {
        of("a stateless service does not publish; set stateful: true".into())
    })?;
    for (i, topic) in s.publishes.iter().enumerate() {
        let field = || format!("{at}.publishes[{i}]");
        ensure(app.spec.topics.contains(topic), field(), || {
            of(format!("there is no topic {topic:?} in spec.topics"))
        })?;
        ensure(!s.publishes[..i].contains(topic), field(), || {
            of(format!("names topic {topic:?} twice"))
        })?;
    }
    Ok(())
}

/// Whom it may ask by outbound requests.
fn outbound(app: &Application, at: &str, s: &Service) -> Check {
    let of = |m: String| format!("service {:?}: {m}", s.name);
    for (field, is_set) in [("asks", !s.asks.is_empty()), ("http", s.http.is_some())] {
        ensure(s.stateful || !is_set, format!("{at}.{field}"), || {
            of("a stateless service makes no outbound requests; set stateful: true".into())
        })?;
    }
    for (i, asked) in s.asks.iter().enumerate() {
        let field = || format!("{at}.asks[{i}]");
        ensure(app.service_named(asked).is_some(), field(), || {
            of(format!("there is no service {asked:?}"))
        })?;
        ensure(!s.asks[..i].contains(asked), field(), || {
            of(format!("names {asked:?} twice"))
        })?;
    }
    let Some(HttpAccess { hosts }) = &s.http else {
        return Ok(());
    };
    let count = hosts.len();
    ensure(
        (1..=HTTP_HOSTS_MAX).contains(&count),
        format!("{at}.http.hosts"),
        || of(format!("{count} hosts, must be 1..={HTTP_HOSTS_MAX}")),
    )?;
    for (i, host) in hosts.iter().enumerate() {
        let fault = HttpAccess::fault_of(host);
        ensure(fault.is_none(), format!("{at}.http.hosts[{i}]"), || {
            of(fault.unwrap_or_default())
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
