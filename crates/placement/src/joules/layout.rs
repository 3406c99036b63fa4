//! Counts that keep the rules: what each node has left, and how many replicas of a service a server
//! may hold.

use crate::index::Free;
use crate::limits::ROUNDING;
use crate::model::{Counts, Knee, Model, Part, Server};
use crate::request::shift_bytes;
use e3_model::NodeKind;
use e3_model::plan::Role;
use std::collections::BTreeMap;

/// Instances on sites, with what that leaves.
#[derive(Clone)]
pub(super) struct Layout<'a> {
    pub(super) model: &'a Model,
    pub(super) counts: Counts,
    /// Servers that may be used: the first ones.
    servers: usize,
    left: Vec<Free>,
    /// Cores that it reserves, by site.
    cores: Vec<f64>,
    /// Core seconds for one request of a client, by site.
    core_s: Vec<f64>,
    /// Instances of a part on a server.
    on_server: Vec<u16>,
    racks: Option<Racks>,
    power: Option<PowerLeft>,
}

/// Where a layout may have its instances.
#[derive(Clone, Copy)]
pub(super) struct Within {
    /// On the first servers, so many.
    pub(super) servers: usize,
    /// Primaries on so many of them.
    pub(super) primaries: usize,
    /// No more in a rack than allow that replicas are in different ones.
    pub(super) in_racks: bool,
}

/// How instances are spread over racks.
#[derive(Clone)]
struct Racks {
    /// By server: its rack among those of the model.
    of_server: Vec<usize>,
    count: usize,
    /// Instances of a part in a rack.
    instances: Vec<u16>,
}

impl Racks {
    fn new(model: &Model) -> Racks {
        let mut known: Vec<usize> = model.servers.iter().map(|s| s.rack).collect();
        known.sort_unstable();
        known.dedup();
        let rack = |s: &Server| known.partition_point(|rack| *rack < s.rack);
        Racks {
            of_server: model.servers.iter().map(rack).collect(),
            count: known.len(),
            instances: vec![0; model.parts.len() * known.len()],
        }
    }

    fn place(&self, part: usize, server: usize) -> usize {
        part * self.count + self.of_server[server]
    }

    /// Whether a rack may hold one more instance. If each rack holds at most as many as there are shards, all
    /// replicas of each shard can be in different racks; with fewer racks than replicas, in all of them.
    fn has_room(&self, part: usize, p: &Part, server: usize) -> bool {
        let most = p.shards * p.replicas.div_ceil(self.count);
        p.replicas == 1 || usize::from(self.instances[self.place(part, server)]) < most
    }
}

/// What the power budgets leave.
#[derive(Clone)]
struct PowerLeft {
    servers_w: Vec<f64>,
    racks_w: BTreeMap<usize, f64>,
    /// Instances on a server.
    instances: Vec<u32>,
}

/// A place for an instance: the site, and its use there, 1 for all that others leave.
pub(super) type Choice = (usize, f64);

impl PowerLeft {
    fn new(model: &Model) -> Option<PowerLeft> {
        let lefts = model.servers.iter().map(|s| s.power_left_w);
        let lefts: Vec<(f64, f64)> = lefts.collect::<Option<_>>()?;
        let racks = model.servers.iter().map(|s| s.rack);
        Some(PowerLeft {
            servers_w: lefts.iter().map(|(server, _)| *server).collect(),
            racks_w: racks.zip(lefts.iter().map(|(_, rack)| *rack)).collect(),
            instances: vec![0; model.servers.len()],
        })
    }
}

impl<'a> Layout<'a> {
    /// Nothing yet, on the first `servers` servers.
    pub(super) fn new(model: &'a Model, servers: usize) -> Layout<'a> {
        Layout {
            counts: Counts::new(model.parts.len(), model.sites.len()),
            servers,
            left: model.sites.iter().map(|s| s.free).collect(),
            cores: vec![0.0; model.sites.len()],
            core_s: vec![0.0; model.sites.len()],
            on_server: vec![0; model.parts.len() * model.servers.len()],
            racks: None,
            power: PowerLeft::new(model),
            model,
        }
    }

    /// Sites that may be used.
    pub(super) fn sites(&self) -> usize {
        let within = |s: &crate::model::Site| s.server < self.servers;
        self.model.sites.partition_point(within)
    }

    fn place_on_server(&self, part: usize, site: usize) -> usize {
        part * self.model.servers.len() + self.model.sites[site].server
    }

    /// Whether an instance fits on a site. With replicas a server holds at most as many instances of a
    /// service as that has shards: then all replicas of each shard can stand on different servers.
    pub(super) fn fits(&self, part: usize, role: Role, site: usize) -> bool {
        let (p, s) = (&self.model.parts[part], &self.model.sites[site]);
        let Some(work) = p.work(role, s.kind) else {
            return false;
        };
        p.only.is_none_or(|only| only == Some(s.id))
            && self.left[site].holds(&work.demand)
            && self.is_powered(work.demand.cpu_cores, site)
            && (p.replicas == 1
                || usize::from(self.on_server[self.place_on_server(part, site)]) < p.shards)
            && (self.racks.as_ref()).is_none_or(|racks| racks.has_room(part, p, s.server))
    }

    /// Watts that so many more or fewer reserved cores change on a site, and whether that wakes its server
    /// or lets it sleep.
    fn watts(&self, cores: f64, site: usize) -> f64 {
        let s = &self.model.sites[site];
        let reserved = s.reserved + self.cores[site];
        let w = |cores: f64| s.watts(&self.model.power, cores.max(0.0));
        (w(reserved + cores) - w(reserved)) * self.model.servers[s.server].factor
    }

    fn is_powered(&self, cores: f64, site: usize) -> bool {
        let Some(left) = &self.power else {
            return true;
        };
        let server = self.model.sites[site].server;
        let s = &self.model.servers[server];
        let wakes = if left.instances[server] == 0 {
            s.wake_w
        } else {
            0.0
        };
        let need = self.watts(cores, site) + wakes;
        let least = left.servers_w[server].min(left.racks_w[&s.rack]);
        need <= ROUNDING || need <= least + ROUNDING
    }

    pub(super) fn add(&mut self, part: usize, role: Role, site: usize) {
        self.change(part, role, site, 1.0);
        self.counts.of_mut(part, role)[site] += 1;
        let place = self.place_on_server(part, site);
        self.on_server[place] += 1;
        if let Some(racks) = &mut self.racks {
            let place = racks.place(part, self.model.sites[site].server);
            racks.instances[place] += 1;
        }
    }

    pub(super) fn remove(&mut self, part: usize, role: Role, site: usize) {
        self.change(part, role, site, -1.0);
        self.counts.of_mut(part, role)[site] -= 1;
        let place = self.place_on_server(part, site);
        self.on_server[place] -= 1;
        if let Some(racks) = &mut self.racks {
            let place = racks.place(part, self.model.sites[site].server);
            racks.instances[place] -= 1;
        }
    }

    fn change(&mut self, part: usize, role: Role, site: usize, sign: f64) {
        let kind = self.model.sites[site].kind;
        let Some(work) = self.model.parts[part].work(role, kind) else {
            return;
        };
        self.draw(sign * work.demand.cpu_cores, sign > 0.0, site);
        self.cores[site] += sign * work.demand.cpu_cores;
        let left = &mut self.left[site];
        left.cpu_cores -= sign * work.demand.cpu_cores;
        left.bandwidth_gbps -= sign * work.demand.bandwidth_gbps;
        shift_bytes(&mut left.memory_bytes, work.demand.memory_bytes, -sign);
        shift_bytes(&mut left.disk_bytes, work.demand.disk_bytes, -sign);
        self.core_s[site] += sign * work.core_s;
    }

    /// Takes what an instance draws from the power budgets, or gives it back.
    fn draw(&mut self, cores: f64, comes: bool, site: usize) {
        let server = self.model.sites[site].server;
        let mut watts = self.watts(cores, site);
        let Some(left) = &mut self.power else {
            return;
        };
        let s = &self.model.servers[server];
        let before = left.instances[server];
        left.instances[server] = if comes { before + 1 } else { before - 1 };
        match (before, left.instances[server]) {
            (0, _) => watts += s.wake_w,
            (_, 0) => watts -= s.wake_w,
            _ => {}
        }
        left.servers_w[server] -= watts;
        if let Some(rack_w) = left.racks_w.get_mut(&s.rack) {
            *rack_w -= watts;
        }
    }

    /// Of the sites that `is_wanted` the one with the lowest use afterwards, those already in use
    /// first.
    pub(super) fn least_used(
        &self,
        part: usize,
        role: Role,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Option<Choice> {
        let mut best: Option<((bool, f64), usize)> = None;
        for site in (0..self.sites()).filter(|s| is_wanted(*s)) {
            if !self.fits(part, role, site) {
                continue;
            }
            let s = &self.model.sites[site];
            let work = self.model.parts[part].work(role, s.kind);
            let core_s = self.core_s[site] + work.map_or(0.0, |w| w.core_s);
            let is_idle = role != Role::Primary && self.counts.on(site) == 0;
            let score = (is_idle, core_s / s.cores_left.max(1e-9));
            if best.is_none_or(|(b, _)| score < b) {
                best = Some((score, site));
            }
        }
        best.map(|((_, used), site)| (site, used))
    }

    /// All instances, each on the site with the lowest use: of each service so many primaries on
    /// SmartNICs as `on_smartnics` says, or on the other kind where there is no room. None if some instance
    /// fits nowhere.
    pub(super) fn balanced(
        model: &'a Model,
        within: Within,
        on_smartnics: &[usize],
    ) -> Option<Layout<'a>> {
        let mut layout = Layout::new(model, within.servers);
        layout.racks = within.in_racks.then(|| Racks::new(model));
        let mut order: Vec<usize> = (0..model.parts.len()).collect();
        order.sort_by(|a, b| {
            let weight = |i: &usize| model.parts[*i].weight() / model.parts[*i].shards as f64;
            weight(b).total_cmp(&weight(a))
        });
        for part in &order {
            for shard in 0..model.parts[*part].shards {
                let kind = if shard < on_smartnics[*part] {
                    NodeKind::SmartNic
                } else {
                    NodeKind::Host
                };
                let is_there = |site: usize| model.sites[site].server < within.primaries;
                let is_kind = |site: usize| is_there(site) && model.sites[site].kind == kind;
                let choice = layout
                    .least_used(*part, Role::Primary, is_kind)
                    .or_else(|| layout.least_used(*part, Role::Primary, is_there));
                layout.add(*part, Role::Primary, choice?.0);
            }
        }
        for part in order {
            let p = &model.parts[part];
            for _ in 0..p.shards * (p.replicas - 1) {
                let (site, _) = layout.least_used(part, Role::Backup, |_| true)?;
                layout.add(part, Role::Backup, site);
            }
        }
        Some(layout)
    }

    pub(super) fn knee(&self) -> Option<Knee> {
        self.model.knee(&self.counts)
    }
}
