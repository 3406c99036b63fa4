//! The controller's process ends, starts again from its log, and pauses.

use super::ControllerProcess;
use super::ends::Ended;
use crate::cluster::Cluster;
use crate::nemesis::agents::Agents;
use crate::nemesis::probation::Versions;
use e3_control::{Command, Control, Genesis, Membership, Orchestrator, Plans, Receipts};
use e3_model::timing::HEARTBEAT_TIMEOUT;
use e3_model::{NodeId, Timestamp};
use e3_random::Random;
use e3_store::{Recovered, Store};

impl ControllerProcess {
    /// Kills the process. Its files stay as they are.
    pub(in crate::nemesis) fn kill(&mut self, cluster: &Cluster, agents: &mut Agents) {
        if self.is_up {
            self.is_up = false;
            self.older_since = None;
            self.mail.clear();
            self.polls.clear();
            agents.disconnect(cluster);
        }
    }

    /// Cuts the power of its machine.
    pub(in crate::nemesis) fn cut_power(
        &mut self,
        cluster: &Cluster,
        agents: &mut Agents,
        random: &mut Random,
    ) {
        self.kill(cluster, agents);
        self.tears_next_write = false;
        if self.disk().lies && self.copy.is_none() {
            let written = self.torn.clone().unwrap_or_else(|| self.control.clone());
            self.copy = Some((self.disk().clone(), written));
        }
        self.disk().cut_power(random);
    }

    /// Restarts it from its log, if it is down.
    pub(in crate::nemesis) fn restart(&mut self, cluster: &mut Cluster, random: &mut Random) {
        if self.is_up {
            return;
        }
        if let Err(what) = self.recover(random) {
            cluster.ledger.violation(what);
        }
        self.membership = Membership::new(cluster.now, HEARTBEAT_TIMEOUT);
        self.frozen.clear();
        self.plans = Plans::default();
        self.receipts = Receipts::default();
        self.taken.clear();
        self.versions = Versions::default();
        self.orchestrator = Orchestrator::new(&self.control);
        self.busy_until = cluster.now;
        self.is_up = true;
        self.process += 1;
    }

    /// A process of a node has ended, and its supervisor runs.
    pub(in crate::nemesis) fn on_ended(&mut self, cluster: &mut Cluster, node: u32, process: u64) {
        self.ended.insert(cluster, node, process);
    }

    /// Supervisors report ends that are due.
    pub(super) fn take_ended(&mut self, cluster: &mut Cluster) {
        for ended in self.ended.take(cluster) {
            if !self.on_exited(cluster.now, ended) {
                self.ended.again(cluster, ended);
            }
        }
    }

    /// Whether the report is answered: the end is decided, or the process is no member's.
    fn on_exited(&mut self, now: Timestamp, ended: Ended) -> bool {
        let node = NodeId(ended.node);
        let member = self.control.members.get(&node);
        let Some(member) = member.filter(|m| m.process == ended.process) else {
            return true;
        };
        let exit = Command::Exit {
            node,
            incarnation: member.incarnation,
            at: now,
        };
        self.execute(now, &exit).is_some()
    }

    /// Whether its process runs.
    pub(in crate::nemesis) fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the power failed during the last write: then nobody knows whether that was decided.
    pub(in crate::nemesis) fn is_torn(&self) -> bool {
        self.torn.is_some()
    }

    /// Whether it takes what arrives.
    pub(in crate::nemesis) fn hears(&self) -> bool {
        self.is_up && self.pauses == 0
    }

    /// Reads the log and checks that it leads to what was decided.
    fn recover(&mut self, random: &mut Random) -> Result<(), String> {
        let disk = self.disk().clone();
        let (store, recovered) = Store::recover(disk.clone())
            .map_err(|e| format!("the controller does not start: {e}"))?;
        if std::mem::take(&mut self.rots) {
            let mut damaged = disk;
            let is_damaged = damaged.rot(random);
            // What a torn write left is dropped, with a flipped bit or without.
            let is_taken = Store::recover(damaged).is_ok_and(|(_, read)| read != recovered);
            if is_damaged && is_taken {
                return Err("a flipped bit in the controller's files is not noticed".into());
            }
        }
        let control = replay(&recovered, &self.genesis)
            .map_err(|e| format!("the controller's log cannot be replayed: {e}"))?;
        let torn = self.torn.take();
        let is_right = control == self.control || torn.is_some_and(|torn| control == torn);
        if !is_right && self.copy.is_none() {
            return Err("the controller's log leads to another state".into());
        }
        (self.store, self.control) = (store, control);
        Ok(())
    }

    /// An operator restores the log that a node has shown to be too old.
    pub(super) fn restore(
        &mut self,
        cluster: &mut Cluster,
        agents: &mut Agents,
        random: &mut Random,
    ) {
        let Some((disk, control)) = self.copy.take() else {
            // What a disk shows that comes back later.
            if self.goes_on {
                self.is_beyond = true;
                return;
            }
            let what = "the controller takes its log for older than it is";
            return cluster.ledger.violation(what.into());
        };
        self.restored_logs += 1;
        self.kill(cluster, agents);
        self.disk().restore(disk);
        self.control = control;
        self.restart(cluster, random);
    }

    /// It has decided without decisions that are lost. If no process lives that has applied their plans, none is
    /// left to say that the log lacks them: shards may be in the same views again, and copies without what was
    /// acknowledged after they were removed may count.
    pub(super) fn give_views_again(&mut self, cluster: &mut Cluster, agents: &Agents) {
        let Some(lost) = self.lost.take() else {
            return;
        };
        let mut informed = agents.with_plan_after(lost.version).into_iter();
        if informed.len() > 0 {
            self.is_beyond = informed.all(|node| agents.is_hidden(cluster, node));
            return;
        }
        self.goes_on = true;
        cluster.ledger.give_views_again(&lost.behind);
        for (shard, of) in lost.shrunk {
            cluster.ledger.on_forfeited(shard, of, cluster.now);
        }
    }

    /// Pauses or resumes it.
    pub(in crate::nemesis) fn pause(&mut self, is_paused: bool) {
        if is_paused {
            self.pauses += 1;
        } else {
            self.pauses = self.pauses.saturating_sub(1);
        }
    }
}

/// The state that the snapshot and the records after it lead to.
fn replay(recovered: &Recovered, genesis: &Genesis) -> Result<Control, String> {
    let mut control = match &recovered.snapshot {
        Some(bytes) => serde_json::from_slice(bytes).map_err(|e| e.to_string())?,
        None => Control::founded(genesis.clone()),
    };
    for entry in &recovered.entries {
        let command: Command = serde_json::from_slice(entry).map_err(|e| e.to_string())?;
        control.replay(&command).map_err(|e| e.to_string())?;
    }
    Ok(control)
}
