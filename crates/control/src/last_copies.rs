//! Nodes that may not join while their disks lack the last copy of a shard.

use crate::command::CommandError;
use crate::deliberate::{self, Fault};
use crate::state::{AppState, Control, Member};
use e3_model::plan::{NodeHello, OnDisk, ShardPlan};
use e3_model::{NodeId, ShardKey};

impl Control {
    /// A node whose journal is damaged joins without its copies. It may not while one of them is the last:
    /// its shard waits until the journal is restored, or an operator gives up the state.
    pub(crate) fn check_damage(&self, node: NodeId, hello: &NodeHello) -> Result<(), CommandError> {
        let Some(damage) = &hello.damaged else {
            return Ok(());
        };
        let is_member = |m: &Member| m.process == hello.process;
        if self.members.get(&node).is_some_and(is_member) {
            return Ok(());
        }
        let shards = self.last_copies(node).into_iter();
        let shards: Vec<String> = shards.map(|key| self.shard_name(key)).collect();
        if shards.is_empty() || deliberate::is(Fault::DamagedCopyDropped) {
            return Ok(());
        }
        Err(CommandError::Damaged {
            node: hello.name.clone(),
            damage: damage.clone(),
            shards,
        })
    }

    /// The shards whose state is on the disk of this node and nowhere else.
    fn last_copies(&self, node: NodeId) -> Vec<ShardKey> {
        let is_last = |app: &AppState, shard: &ShardPlan| {
            let is_on_disk = app.plan.app.service(shard.service).is_on_disk();
            let is_last = shard.primary == node && shard.backups.is_empty();
            // The controller has the state of one that is being restored.
            let is_only_here = is_last && !app.is_restoring(app.plan.key(shard));
            is_on_disk && is_only_here && !app.is_orphan(shard)
        };
        let is_last_of = |key: &ShardKey| {
            let app = &self.apps[&key.app];
            app.shard(*key).is_some_and(|shard| is_last(app, shard))
        };
        let shards = self.shards_on(node).into_iter();
        shards.filter(is_last_of).collect()
    }

    /// Refuses a process whose disk lacks the last copy of a shard that has committed anything: an empty disk, or
    /// the wrong one, costs no state. The shard waits until the disk is back, or until an operator gives up its
    /// state. It is asked before a join is decided and logged, so logs of older releases are replayed as they were.
    pub fn check_disk(&self, hello: &NodeHello) -> Result<(), CommandError> {
        let node = self.index().cluster.named(&hello.name);
        let Some(node) = node.filter(|_| hello.damaged.is_none()) else {
            return Ok(());
        };
        // A new node has lost nothing, and neither has a member that says hello again.
        let member = self.members.get(&node);
        let is_of_other = |disk: &OnDisk| disk.cluster != self.cluster;
        if member.is_none_or(|m| m.process == hello.process)
            || hello.on_disk.as_ref().is_some_and(is_of_other)
        {
            return Ok(());
        }
        let found = self.without_doubtful_copies(hello.clone());
        let is_missing = |key: &ShardKey| {
            let app = &self.apps[&key.app];
            let shard = app.shard(*key).filter(|shard| shard.filled);
            shard.is_some_and(|shard| !app.plan.is_held(&found, shard))
        };
        let missing = self.last_copies(node).into_iter().filter(is_missing);
        let shards: Vec<String> = missing.map(|key| self.shard_name(key)).collect();
        if shards.is_empty() {
            return Ok(());
        }
        let node = hello.name.clone();
        Err(CommandError::NotOnDisk { node, shards })
    }
}
