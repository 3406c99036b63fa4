//! Visit ratios: how many messages of each service one client request causes on average
//! (Denning and Buzen, "The Operational Analysis of Queueing Network Models", 1978).

use crate::application::Application;
use crate::dag::{Dag, entries};
use crate::ids::EdgeId;
use crate::profile::Profile;
use std::collections::BTreeMap;

/// Handled messages and calls per client request, by service. `outputs` gives the messages that one handled
/// message of the sender puts on an edge.
pub fn visits(app: &Application, dag: &Dag, outputs: impl Fn(EdgeId) -> f64) -> Vec<f64> {
    let mut ratio = vec![0.0; app.spec.services.len()];
    ratio[usize::from(dag.source().0)] = 1.0;
    // How often it is asked is not known: once for each request of a client.
    for service in entries(app) {
        ratio[usize::from(service.0)] = 1.0;
    }
    for &service in dag.order() {
        for (edge, to, _) in app.channels_from(service) {
            ratio[usize::from(to.0)] += ratio[usize::from(service.0)] * outputs(edge);
        }
        // How often a handler calls depends on its workload: once is taken.
        for called in &app.service(service).calls {
            let (to, _) = app.service_named(called).expect("checked when parsed");
            ratio[usize::from(to.0)] += ratio[usize::from(service.0)];
        }
    }
    ratio
}

/// Messages that the sender's profile puts on an edge per handled message; None where the profile
/// is missing or leaves it open because it depends on the workload.
pub fn declared_outputs(
    app: &Application,
    profiles: &BTreeMap<String, Profile>,
    edge: EdgeId,
) -> Option<f64> {
    let channel = app.spec.channels.get(usize::from(edge.0))?;
    let (_, sender) = app.service_named(&channel.from)?;
    let profile = profiles.get(sender.profile())?;
    profile.spec.outputs.get(channel.name()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::application;

    #[test]
    fn ratios_add_up_over_all_paths() {
        let app = application(&[("a", "b", 2), ("a", "c", 1), ("b", "c", 3)]);
        let dag = Dag::new(&app).unwrap();
        let per_edge = [0.5, 0.1, 2.0];
        let ratio = visits(&app, &dag, |e| per_edge[usize::from(e.0)]);
        assert_eq!(ratio, [1.0, 0.5, 1.1]);
        let mut asked = application(&[("a", "b", 1), ("c", "d", 1)]);
        asked.spec.services[0].asks = vec!["c".into()];
        let with_asked = Dag::new(&asked).unwrap();
        assert_eq!(visits(&asked, &with_asked, |_| 0.5), [1.0, 0.5, 1.0, 0.5]);
        let mut calling = app.clone();
        calling.spec.services[1].calls = vec!["c".into()];
        let ratio = visits(&calling, &dag, |e| per_edge[usize::from(e.0)]);
        assert_eq!(ratio, [1.0, 0.5, 1.6]);
        assert_eq!(declared_outputs(&app, &BTreeMap::new(), EdgeId(0)), None);
    }
}
