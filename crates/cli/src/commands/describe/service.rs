//! `e3 describe service`.

use super::layout::{facts, heading};
use super::node::measured_title;
use super::why::{primaries, why};
use crate::cluster::client::Client;
use crate::commands::get::{instances, joules};
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::Paint;
use crate::ui::text::{bytes, count};
use e3_model::api::{InstanceView, PlacedView, ServiceView};
use serde::Serialize;

/// A service with its instances.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDetails {
    service: ServiceView,
    instances: Vec<InstanceView>,
    placed: Vec<PlacedView>,
}

impl ServiceDetails {
    /// Asks the controller for APP/SERVICE.
    pub fn get(client: &Client, name: &str) -> Result<ServiceDetails, Failure> {
        let Some((app_name, service_name)) = name.split_once('/') else {
            let message = format!("{name:?} is not APP/SERVICE");
            return Err(Failure::new(Exit::Input, message).hint("e3 describe service iot-ts/sql"));
        };
        let app = client.app(app_name)?;
        let names: Vec<&str> = app.services.iter().map(|s| s.name.as_str()).collect();
        let Some(service) = app.services.iter().find(|s| s.name == service_name) else {
            let message = format!("application {app_name:?} has no service {service_name:?}");
            let hint = format!("it has: {}", names.join(", "));
            return Err(Failure::new(Exit::NotFound, message).hint(hint));
        };
        let prefix = format!("{name}/");
        let mut instances = client.instances()?;
        instances.retain(|i| i.instance.starts_with(&prefix));
        let of_service = |p: &&PlacedView| {
            let rest = p.instance.strip_prefix(service_name);
            rest.is_some_and(|r| r.starts_with('/'))
        };
        Ok(ServiceDetails {
            service: service.clone(),
            instances,
            placed: app.placed.iter().filter(of_service).cloned().collect(),
        })
    }

    /// The details as text.
    pub fn text(&self, paint: Paint) -> String {
        let s = &self.service;
        let mut rows = vec![
            ("Service", s.name.clone()),
            (
                "Shards",
                format!(
                    "{}{}, {} replicas each{}",
                    s.shards,
                    bounds(s),
                    s.replicas,
                    scaled(s)
                ),
            ),
            ("Primaries on", primaries(s)),
            (
                "Handled",
                format!(
                    "{}, {} failed attempts, {} dead-lettered, {} of them expired",
                    count(s.handled),
                    count(s.failed),
                    count(s.dead_lettered),
                    count(s.expired)
                ),
            ),
            ("Waiting", s.queue.to_string()),
            ("Busy", format!("{:.2} s", s.busy_seconds)),
        ];
        if s.stateful {
            let [all, max, quota] = [s.state_bytes, s.state_bytes_max, s.quota_bytes].map(bytes);
            let text =
                format!("{all} in all shards; {max} in the fullest, of its quota of {quota}");
            rows.push(("State", text));
        }
        rows.extend(energy(s));
        rows.extend(measured(s));
        if let Some(error) = &s.error {
            rows.push(("Error", paint.red(error)));
        }
        if let Some(failure) = &s.last_failure {
            rows.push(("Last failure", paint.yellow(failure)));
        }
        let mut text = facts(rows);
        heading(&mut text, paint, "Instances");
        text += &instances(&self.instances, paint);
        heading(&mut text, paint, "Placement at deployment");
        text + &why(&self.placed)
    }
}

/// That the number of replicas is not the manifest's, if so.
fn bounds(s: &ServiceView) -> String {
    let bounds = s.shard_bounds;
    bounds.map_or_else(String::new, |b| format!(" ({b} by load)"))
}

fn scaled(s: &ServiceView) -> String {
    let manifest = s.replicas_in_manifest;
    manifest.map_or_else(String::new, |n| format!(" (scaled; the manifest says {n})"))
}

fn energy(s: &ServiceView) -> Option<(&'static str, String)> {
    let e = s.energy.as_ref()?;
    let per_request = e.joules_per_request;
    let per_request = per_request.map(|j| format!(", {} per request", joules(j)));
    let kinds = e.joules_by_kind.iter();
    let kinds: Vec<String> = kinds
        .map(|(k, j)| format!("{} per request on a {}", joules(*j), k.name()))
        .collect();
    let text = format!(
        "{}{} above idle ({}); {}",
        joules(e.joules),
        per_request.unwrap_or_default(),
        kinds.join(", "),
        e.source
    );
    Some(("Energy, MODELLED", text))
}

fn measured(s: &ServiceView) -> Option<(&'static str, String)> {
    let m = s.measured.as_ref()?;
    let per_request = m.joules_per_request;
    let per_request = per_request.map(|j| format!(", {} per request", joules(j)));
    let text = format!(
        "{}{} of its nodes' meters, by processor time in its handlers",
        joules(m.joules),
        per_request.unwrap_or_default()
    );
    Some((measured_title(m.provenance), text))
}
