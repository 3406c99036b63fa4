//! Upgrades of E3 itself: the processes of nodes and controller are replaced one by one by those of the
//! next release, and then the cluster's format is raised; or before that they go back.
//!
//! The releases differ in the formats that they have. docs/design/019.

use super::Run;
use super::releases::{FORMAT, NEXT_FORMAT, formats};
use crate::scenario::Fault;
use e3_control::Command;
use e3_model::{Formats, Nanos};

impl Run<'_> {
    /// The formats of the process that a node starts.
    pub(super) fn formats_of(&self, node: u32) -> Formats {
        formats(self.releases.next.get(&node).copied().unwrap_or(false))
    }

    /// Goes on with upgrades in progress.
    pub(super) fn step_upgrade(&mut self) {
        let order = self.active.iter().find_map(|act| order(&act.fault));
        let Some((is_next, gap_ms)) = order.filter(|_| self.cluster.now >= self.releases.due)
        else {
            return;
        };
        self.releases.due = self.cluster.now + Nanos::from_millis(gap_ms);
        // A release without the cluster's format cannot join.
        if !is_next && self.controller.decided().format != FORMAT {
            return;
        }
        if self.releases.controller != is_next {
            self.releases.controller = is_next;
            self.releases.replaced[usize::from(!is_next)] += 1;
            self.controller.kill(&self.cluster, &mut self.agents);
            return self.restart_controller();
        }
        match self.of_other_release(is_next) {
            Some(node) => self.replace(node, is_next),
            None if is_next => {
                let raise = Command::RaiseFormat {
                    to: NEXT_FORMAT,
                    release: "next".into(),
                };
                self.controller.execute(self.cluster.now, &raise);
            }
            None => {}
        }
    }

    /// A node whose process is not of the release that is wanted: the next, or else the first.
    fn of_other_release(&self, is_next: bool) -> Option<u32> {
        let is_other = |node: &u32| self.formats_of(*node) != formats(is_next);
        self.nodes().into_iter().find(is_other)
    }

    /// Whether a fault is an upgrade, or the way back, that has nothing left to do.
    pub(super) fn is_finished_upgrade(&self, fault: &Fault) -> bool {
        order(fault).is_some_and(|(is_next, _)| {
            let has_replaced_all =
                self.releases.controller == is_next && self.of_other_release(is_next).is_none();
            match is_next {
                true => has_replaced_all && self.is_raised(),
                // Nothing goes back once the format is raised.
                false => has_replaced_all || self.is_raised(),
            }
        })
    }

    /// Replaces the process of a node, unless that must wait for copies of its shards elsewhere.
    fn replace(&mut self, node: u32, is_next: bool) {
        if self.kill_one(node) {
            self.releases.next.insert(node, is_next);
            self.releases.replaced[usize::from(!is_next)] += 1;
            self.revive(node);
        }
    }

    /// Whether the cluster's format was raised.
    pub(super) fn is_raised(&self) -> bool {
        self.controller.control.format == NEXT_FORMAT
    }

    /// An operator replaces processes of nodes that cannot join any more: a power cut at the time of the
    /// decision hid that the format was raised.
    pub(super) fn replace_older(&mut self) {
        if !self.is_raised() {
            return;
        }
        for node in self.nodes() {
            if !self.formats_of(node).include(NEXT_FORMAT) && !self.agents.is_member(node) {
                self.releases.next.insert(node, true);
                self.kill_one(node);
                self.revive(node);
            }
        }
    }
}

/// Whether a fault leads to the next release, or back, and the time between two replacements in milliseconds.
fn order(fault: &Fault) -> Option<(bool, u64)> {
    match fault {
        Fault::Upgrade(gap_ms) => Some((true, *gap_ms)),
        Fault::Downgrade(gap_ms) => Some((false, *gap_ms)),
        _ => None,
    }
}
