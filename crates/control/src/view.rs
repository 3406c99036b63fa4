//! From one view of a shard to the next: who takes over, and how copies leave.
//!
//! A copy that may still be there leaves in two steps, so that no complete copy is given up while
//! nobody else has one.
//!
//! A primary acknowledges what all backups of its view have. So a silent backup is as complete as the
//! primary until that one acts in a view without it, and a silent primary until its successor does.
//! And whoever is to act may have died by then. Therefore
//!
//! 1. the copy is *leaving*: it stays a backup that commits wait for, and may take over. The primary
//!    says that it is in this view;
//! 2. then the copy is no backup any more. It keeps what it has, and takes over if the primary's
//!    process is certainly gone. When the primary says that it is in this view too, it is dropped.
//!
//! As in PacificA (Lin et al., MSR-TR-2008-142), where a primary asks for a view without a backup;
//! here the controller asks the primary whether it is there.

use crate::deliberate::{self, Fault};
use e3_model::NodeId;
use e3_model::plan::ShardPlan;

/// Has nodes leave that may have complete copies, in a new view. If the primary is among them, a
/// backup takes over, and the primary becomes a backup that leaves. False if there is no backup.
pub(crate) fn retire(
    shard: &mut ShardPlan,
    off: &dyn Fn(NodeId) -> bool,
    servers: &[usize],
    up: &dyn Fn(NodeId) -> bool,
) -> bool {
    shard.view += 1;
    shard.joining.retain(|n| !off(*n));
    for node in shard.backups.clone() {
        if off(node) {
            leave(shard, node);
        }
    }
    let former = shard.primary;
    if !off(former) {
        return true;
    }
    let succeeds = fail_over(shard, servers, up);
    if succeeds {
        leave_as_former(shard, former);
    }
    succeeds
}

/// Keeps other copies off the server of a primary that has just taken over, in a view that has begun:
/// it may have been leaving, and another copy have come to its server.
pub(crate) fn stand_apart(shard: &mut ShardPlan, servers: &[usize]) {
    let server = servers[shard.primary.index()];
    let is_near = |n: &NodeId| servers[n.index()] == server;
    shard.joining.retain(|n| !is_near(n));
    let near: Vec<NodeId> = shard.staying().filter(is_near).collect();
    for node in near {
        leave(shard, node);
    }
}

/// A former primary, which has what its successor has, becomes a backup that leaves.
pub(crate) fn leave_as_former(shard: &mut ShardPlan, former: NodeId) {
    if !deliberate::is(Fault::CopyGivenUp) {
        shard.backups.push(former);
        leave(shard, former);
    }
}

/// A backup is to leave.
pub(crate) fn leave(shard: &mut ShardPlan, backup: NodeId) {
    if deliberate::is(Fault::CopyGivenUp) {
        shard.backups.retain(|n| *n != backup);
    } else if !shard.leaving.contains(&backup) {
        shard.leaving.push(backup);
    }
}

/// Takes the backup that takes over out of the backups: one that is heard and stays, if there is one.
fn choose_heir(shard: &mut ShardPlan, up: &dyn Fn(NodeId) -> bool) -> Option<NodeId> {
    if deliberate::is(Fault::JoiningTakesOver)
        && let Some(joining) = shard.joining.pop()
    {
        shard.backups.insert(0, joining);
    }
    let best = |n: &NodeId| (!up(*n), shard.leaving.contains(n));
    let heir = shard.backups.iter().copied().min_by_key(best)?;
    shard.backups.retain(|n| *n != heir);
    // What left before knows less than any backup.
    let backups = &shard.backups;
    shard.leaving.retain(|n| backups.contains(n));
    Some(heir)
}

/// The primary of a shard is in a view that copies are to leave. True if that changed anything.
pub(crate) fn installed(shard: &mut ShardPlan, view: u32) -> bool {
    if shard.view != view || shard.leaving.is_empty() {
        return false;
    }
    let backups = std::mem::take(&mut shard.backups);
    let leaves = |n: &NodeId| shard.leaving.contains(n);
    let (left, backups): (Vec<_>, Vec<_>) = backups.into_iter().partition(leaves);
    shard.view += u32::from(!left.is_empty());
    (shard.backups, shard.leaving) = (backups, left);
    true
}

/// Takes nodes whose copies are gone out of a shard, in a new view. If the primary is among them, a
/// backup takes over. False if no complete copy is left.
pub(crate) fn take_out(
    shard: &mut ShardPlan,
    gone: &dyn Fn(NodeId) -> bool,
    servers: &[usize],
    up: &dyn Fn(NodeId) -> bool,
) -> bool {
    shard.view += 1;
    shard.backups.retain(|n| !gone(*n));
    shard.joining.retain(|n| !gone(*n));
    shard.leaving.retain(|n| !gone(*n));
    !gone(shard.primary) || fail_over(shard, servers, up)
}

/// A backup takes over in the shard's current view. False if there is none.
fn fail_over(shard: &mut ShardPlan, servers: &[usize], up: &dyn Fn(NodeId) -> bool) -> bool {
    let Some(heir) = choose_heir(shard, up) else {
        return false;
    };
    take_over(shard, heir, false);
    stand_apart(shard, servers);
    true
}

/// A new primary in the shard's current view.
pub(crate) fn take_over(shard: &mut ShardPlan, primary: NodeId, fenced: bool) {
    shard.predecessor = Some(shard.primary);
    shard.primary = primary;
    if !deliberate::is(Fault::IncarnationKept) {
        shard.incarnation = shard.view;
    }
    shard.quiet = false;
    shard.fenced = fenced || deliberate::is(Fault::FencedAtFailover);
    shard.frozen = false;
}
