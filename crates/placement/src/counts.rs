//! How many instances stand where: what placers that look at the whole application work on.

use e3_model::plan::Role;

/// How many instances of each service stand on each site.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Counts {
    sites: usize,
    primaries: Vec<u16>,
    backups: Vec<u16>,
}

impl Counts {
    pub(crate) fn new(parts: usize, sites: usize) -> Counts {
        Counts {
            sites,
            primaries: vec![0; parts * sites],
            backups: vec![0; parts * sites],
        }
    }

    /// Instances of a service in a role, by site.
    pub(crate) fn of(&self, part: usize, role: Role) -> &[u16] {
        let row = part * self.sites..(part + 1) * self.sites;
        match role {
            Role::Primary => &self.primaries[row],
            Role::Backup | Role::Joining => &self.backups[row],
        }
    }

    pub(crate) fn of_mut(&mut self, part: usize, role: Role) -> &mut [u16] {
        let row = part * self.sites..(part + 1) * self.sites;
        match role {
            Role::Primary => &mut self.primaries[row],
            Role::Backup | Role::Joining => &mut self.backups[row],
        }
    }

    /// All instances on a site.
    pub(crate) fn on(&self, site: usize) -> usize {
        let rows = self
            .primaries
            .chunks(self.sites)
            .chain(self.backups.chunks(self.sites));
        rows.map(|row| usize::from(row[site])).sum()
    }
}
