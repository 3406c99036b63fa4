//! The controller's process ends, starts again from its log, and pauses.

use super::ControllerProcess;
use crate::cluster::Cluster;
use crate::nemesis::agents::Agents;
use crate::nemesis::probation::Versions;
use e3_control::{Command, Control, Genesis, Membership, Orchestrator, Plans};
use e3_model::ShardKey;
use e3_model::plan::ShardPlan;
use e3_model::timing::HEARTBEAT_TIMEOUT;
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
        self.versions = Versions::default();
        self.orchestrator = Orchestrator::new(&self.control);
        self.busy_until = cluster.now;
        self.is_up = true;
        self.process += 1;
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
            let what = "the controller takes its log for older than it is";
            return cluster.ledger.violation(what.into());
        };
        self.restored_logs += 1;
        self.kill(cluster, agents);
        self.disk().restore(disk);
        self.control = control;
        self.restart(cluster, random);
    }

    /// The shards that are in an earlier incarnation than with all that was decided.
    pub(super) fn behind(&self, all: &Control) -> Vec<ShardKey> {
        let plans = all.apps.values().map(|app| &app.plan);
        let shards = plans.flat_map(|plan| plan.shards.iter().map(|s| (plan.key(s), s)));
        let is_behind = |(key, shard): &(ShardKey, &ShardPlan)| {
            let kept = self.control.apps.get(&key.app).and_then(|a| a.shard(*key));
            kept.is_none_or(|kept| kept.incarnation < shard.incarnation)
        };
        shards.filter(is_behind).map(|(key, _)| key).collect()
    }

    /// It has decided without decisions that are lost. If no process lives that has applied their plans, none is
    /// left to say that the log lacks them, and shards may be in the same views again.
    pub(super) fn give_views_again(&mut self, cluster: &mut Cluster, agents: &Agents) {
        if let Some((version, behind)) = self.lost.take()
            && agents.newest_plan() <= version
        {
            cluster.ledger.give_views_again(&behind);
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
