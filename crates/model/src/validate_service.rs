//! Checks of one service of an application: replication, resources, names, and what it may use.

use crate::application::{Application, Durability, Pin, Resources, Service};
use crate::http_access::{HTTP_HOSTS_MAX, HttpAccess};
use crate::limits::*;
use crate::units::Nanos;
use crate::validate::{Check, ensure, unique};
use crate::validate_timers;

pub(crate) fn service(app: &Application, at: &str, s: &Service) -> Check {
    let field = |f: &str| format!("{at}.{f}");
    let of = |m: String| format!("service {:?}: {m}", s.name);
    shard_bounds(at, s)?;
    replication(at, s)?;
    resources(at, s)?;
    accelerators(at, s)?;
    ensure(!s.module.is_empty(), field("module"), || {
        of("module is empty".into())
    })?;
    collections(at, s)?;
    declared(app, at, s)?;
    outbound(app, at, s)?;
    publishes(app, at, s)?;
    validate_timers::check(at, &s.name, s.stateful, &s.timers)?;
    calls(app, at, s)?;
    if let Some(Pin::Node(node)) = &s.pin {
        let is_one = s.shards == 1 && s.replicas == 1 && !s.is_scaled();
        ensure(is_one, field("pin"), || {
            of(format!(
                "pinned to node {node:?}, so shards and replicas must be 1"
            ))
        })?;
    }
    Ok(())
}

/// The bounds within which a service is scaled.
fn shard_bounds(at: &str, s: &Service) -> Check {
    let Some(bounds) = s.shard_bounds else {
        return Ok(());
    };
    let of = |m: String| format!("service {:?}: {m}", s.name);
    let fault = bounds.fault();
    ensure(fault.is_none(), format!("{at}.shards"), || {
        of(fault.clone().unwrap_or_default())
    })?;
    ensure(bounds.allow(s.shards), format!("{at}.shards.count"), || {
        of(format!(
            "shards.count is {}, must be shards.min, {}, times a power of two, at most {}",
            s.shards, bounds.min, bounds.max
        ))
    })
}

/// Shards, replicas, and what only a stateful service may have.
fn replication(at: &str, s: &Service) -> Check {
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
    Ok(())
}

/// Cores, memory and the quota of the state.
fn resources(at: &str, s: &Service) -> Check {
    let field = |f: &str| format!("{at}.{f}");
    let of = |m: String| format!("service {:?}: {m}", s.name);
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
    Ok(())
}

/// What it cannot do without is among what it uses: only that is it given.
fn accelerators(at: &str, s: &Service) -> Check {
    let mut required = s.accelerators_required.iter();
    let unused = required.find(|a| !s.accelerators.contains(a));
    ensure(
        unused.is_none(),
        format!("{at}.acceleratorsRequired"),
        || {
            let unused = unused.map_or("", |a| a.name());
            format!(
                "service {:?}: accelerator {unused} is required, so it must be in accelerators too",
                s.name
            )
        },
    )
}

/// Names and times to live of the collections.
fn collections(at: &str, s: &Service) -> Check {
    let of = |m: String| format!("service {:?}: {m}", s.name);
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
    Ok(())
}

/// The secrets and assets of the service are among those of the application.
fn declared(app: &Application, at: &str, s: &Service) -> Check {
    let of = |m: String| format!("service {:?}: {m}", s.name);
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
    Ok(())
}

/// Which services it calls.
fn calls(app: &Application, at: &str, s: &Service) -> Check {
    let of = |m: String| format!("service {:?}: {m}", s.name);
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
