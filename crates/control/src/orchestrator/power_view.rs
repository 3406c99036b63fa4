//! What operators see of the power of servers and racks.

use super::Orchestrator;
use super::following::Seen;
use super::power::Picture;
use crate::state::Control;
use e3_model::power::PowerView;
use e3_model::profile::Provenance;
use e3_model::{NodeId, PowerDomain, Timestamp};
use e3_placement::Cluster;
use std::collections::{BTreeMap, BTreeSet};

impl Orchestrator {
    /// What each rack and each server draws, a rack before its servers.
    pub fn power(&self, now: Timestamp, control: &Control) -> Vec<PowerView> {
        let seen = Seen {
            nodes: &self.nodes,
            reports: &self.reports,
            settings: &self.settings,
        };
        let picture = Picture {
            now,
            control,
            seen: &seen,
            meters: &self.capping.meters,
            moved: BTreeMap::new(),
            chosen: BTreeSet::new(),
        };
        let index = control.index();
        let mut views = Vec::new();
        let mut servers: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
        for node in control.topology.nodes() {
            servers.entry(node.server).or_default().push(node.id);
        }
        let mut servers = servers.into_values();
        for rack in &control.topology.spec.racks {
            let of_rack: Vec<Vec<NodeId>> = servers.by_ref().take(rack.servers.len()).collect();
            let domain = PowerDomain::Rack(rack.name.clone());
            let view = |domain, nodes: &[Vec<NodeId>], budget_w| PowerView {
                budget_w,
                ..self.view(&picture, &index.cluster, domain, nodes)
            };
            views.push(view(domain, &of_rack, rack.power_budget_w));
            for (server, nodes) in rack.servers.iter().zip(of_rack.chunks(1)) {
                let domain = PowerDomain::Server(server.name.clone());
                views.push(view(domain, nodes, server.power_budget_w));
            }
        }
        views
    }

    /// What one of them draws; none if the topology does not have it.
    pub fn power_of(
        &self,
        now: Timestamp,
        control: &Control,
        domain: &PowerDomain,
    ) -> Option<PowerView> {
        let mut all = self.power(now, control).into_iter();
        all.find(|view| view.domain == *domain)
    }

    fn view(
        &self,
        picture: &Picture<'_>,
        cluster: &Cluster,
        domain: PowerDomain,
        servers: &[Vec<NodeId>],
    ) -> PowerView {
        let drawn = picture.drawn(cluster, servers);
        let measured = drawn.is_some_and(|d| d.servers_measured == d.servers);
        let firsts = servers.iter().filter_map(|nodes| nodes.first());
        let watched = self.capping.watched.iter().find(|w| w.domain == domain);
        PowerView {
            watts: drawn.map(|d| d.watts),
            provenance: if measured {
                Provenance::Measured
            } else {
                Provenance::Modelled
            },
            servers_measured: drawn.map_or(0, |d| d.servers_measured),
            servers: servers.len() as u32,
            idle_w: firsts.map(|n| cluster.idle_w(*n)).sum(),
            budget_w: None,
            cap_w: picture.control.power_caps.of(&domain),
            rounds_above: watched.map_or(0, |w| w.above),
            domain,
        }
    }
}
