//! Where an instance goes that leaves a SmartNIC: to the host of its server if that can hold it, as in
//! E3 (USENIX ATC 2019), 3.4, and otherwise where the placer would put it.

use super::Orchestrator;
use super::moving::Moving;
use super::watch::has_room;
use crate::limits::DESTINATIONS_MAX;
use crate::state::Control;
use e3_model::plan::Role;
use e3_model::{NodeId, NodeKind, Timestamp};
use e3_placement::limits::REJECTED_MAX;
use e3_placement::{Cluster, Misfit, fits_fully, pick_primary};

impl Orchestrator {
    /// A destination for an instance on a SmartNIC. If there is none: why not, by node.
    pub(super) fn destination(
        &self,
        now: Timestamp,
        control: &Control,
        cluster: &mut Cluster,
        moving: &Moving<'_>,
        from: NodeId,
    ) -> Result<NodeId, Vec<(NodeId, String)>> {
        let service = moving.key.service;
        let was_drained = cluster.node(from).drained;
        cluster.remove(&moving.request, service, Role::Primary, from);
        cluster.set_drained(from, true);
        let mut excluded = Vec::new();
        let found = self.search(now, control, cluster, moving, from, &mut excluded);
        for (node, drained) in excluded {
            cluster.set_drained(node, drained);
        }
        cluster.set_drained(from, was_drained);
        let at = *found.as_ref().unwrap_or(&from);
        cluster.add(&moving.request, service, Role::Primary, at);
        found
    }

    fn search(
        &self,
        now: Timestamp,
        control: &Control,
        cluster: &mut Cluster,
        moving: &Moving<'_>,
        from: NodeId,
        excluded: &mut Vec<(NodeId, bool)>,
    ) -> Result<NodeId, Vec<(NodeId, String)>> {
        let mut rejected = Vec::new();
        let mut reject = |node: NodeId, why: String| {
            if rejected.len() < REJECTED_MAX && !rejected.iter().any(|(n, _)| *n == node) {
                rejected.push((node, why));
            }
        };
        let host = cluster.server_of(from).iter().copied();
        let host = host.filter(|n| cluster.node(*n).kind == NodeKind::Host);
        for host in host.collect::<Vec<_>>() {
            match self.takes(now, control, cluster, moving, (from, host)) {
                Ok(()) => return Ok(host),
                Err(why) => reject(host, why),
            }
        }
        let parents =
            control.primaries_of_parent(moving.key.app, &moving.request, moving.key.service);
        for _ in 0..DESTINATIONS_MAX {
            let (service, number) = (moving.key.service, moving.key.shard);
            let backups = &moving.shard.backups;
            let picked = pick_primary(&moving.request, cluster, service, number, &parents, backups);
            let decision = match picked {
                Ok(decision) => decision,
                Err(e) => {
                    reject(from, e.to_string());
                    break;
                }
            };
            for (node, misfit) in &decision.rejected {
                reject(*node, misfit.to_string());
            }
            if let Some(misfit) = decision.overcommitted {
                reject(decision.node, misfit.to_string());
                break;
            }
            match self.takes(now, control, cluster, moving, (from, decision.node)) {
                Ok(()) => return Ok(decision.node),
                Err(why) => {
                    let drained = cluster.node(decision.node).drained;
                    excluded.push((decision.node, drained));
                    cluster.set_drained(decision.node, true);
                    reject(decision.node, why);
                }
            }
        }
        Err(rejected)
    }

    /// Whether a node can take an instance: what is reserved there, what it is busy with, and whether
    /// it reaches the node that the instance leaves.
    fn takes(
        &self,
        now: Timestamp,
        control: &Control,
        cluster: &Cluster,
        moving: &Moving<'_>,
        (from, to): (NodeId, NodeId),
    ) -> Result<(), String> {
        let service = moving.key.service;
        let others = &moving.shard.backups;
        let fits: Result<(), Misfit> =
            fits_fully(&moving.request, cluster, service, Role::Primary, to, others);
        fits.map_err(|misfit| misfit.to_string())?;
        let (here, there) = (cluster.node(from).kind, cluster.node(to).kind);
        let more_permille = moving.cpu_permille_on(here, there);
        has_room(now, control, &self.nodes, (from, to), more_permille)?;
        match moving.busy_permille_max {
            Some(max) => self.stays_below(now, to, more_permille, max),
            None => Ok(()),
        }
    }

    /// Whether the instances of a node use at most so much with another one.
    fn stays_below(
        &self,
        now: Timestamp,
        to: NodeId,
        more_permille: u64,
        max_permille: u64,
    ) -> Result<(), String> {
        let reports = self.reports.get(to.index()).filter(|r| r.is_known(now));
        let Some(reports) = reports else {
            return Err("the load of its instances is not known".into());
        };
        let with_permille = reports.busy_permille() + more_permille;
        if with_permille > max_permille {
            let cores = |permille: u64| permille as f64 / 1e3;
            return Err(format!(
                "its instances would use {:.2} cores with it, must be at most {:.2}",
                cores(with_permille),
                cores(max_permille)
            ));
        }
        Ok(())
    }
}
