//! Placement comes back to a node that returned: that was resumed, restarted or heard again.
//!
//! Fail-over and draining take replicas to where there is room, which may be worse: farther away, on
//! the costlier kind of node, or together on one node. When a node returns, the replicas that stand
//! better there by the placer's own measure move to it, one at a time and only while nothing else
//! moves. Every such move lowers that measure ([`better_primary`]), so the series ends; and
//! [`RETURN_MOVES_MAX`] bounds it in any case. Design: docs/design/011.

use crate::choice::Question;
use crate::limits::RETURN_MOVES_MAX;
use crate::state::{AppState, Control};
use e3_model::plan::{Role, ShardPlan};
use e3_model::{AppId, NodeId, ShardKey};
use e3_placement::{Request, better_backup, better_primary};

/// A replica that stands better on another node.
struct Better {
    key: ShardKey,
    from: NodeId,
    to: NodeId,
}

impl Control {
    /// A node is in service again.
    pub(crate) fn note_return(&mut self, node: NodeId) {
        self.stalled.clear();
        if !self.is_out_of_service(node) {
            self.returned.insert(node, RETURN_MOVES_MAX);
        }
    }

    /// Begins to move a replica to a node that returned, if it stands better there. Those without
    /// state have moved at once.
    pub(crate) fn move_back(&mut self) {
        let members = &self.members;
        let is_up = |node: &NodeId| members.get(node).is_some_and(|m| m.up);
        self.returned.retain(|node, _| is_up(node));
        while !self.returned.is_empty() && !self.is_busy() {
            let chosen = self.choose(Question::Return, |control| {
                let Better { key, from, to } = control.better()?;
                Some((key, Some(from), to))
            });
            let Some((key, Some(from), to)) = chosen else {
                self.returned.clear();
                return;
            };
            // What the log chose may be gone where another release replays it.
            let Some(left) = self.returned.get_mut(&to) else {
                self.returned.clear();
                return;
            };
            *left -= 1;
            let is_last = *left == 0;
            let is_refused = self.migrate(key, from, to, false).is_err();
            if is_last || is_refused {
                self.returned.remove(&to);
            }
        }
    }

    /// Whether anything moves, is being copied, split or merged, waits or is cut off.
    fn is_busy(&self) -> bool {
        let mut apps = self.apps.values();
        let is_unsettled = !self.index().busy.is_empty();
        is_unsettled
            || apps.any(|app| app.resharding.is_some())
            || self.moves() > 0
            || !self.ways().are_whole()
    }

    /// The first replica that stands better on a node that returned: primaries from the source of
    /// each application on, then backups.
    fn better(&self) -> Option<Better> {
        let roles = [Role::Primary, Role::Backup];
        roles.into_iter().find_map(|role| {
            let mut apps = self.apps.iter();
            apps.find_map(|(id, app)| self.better_in(*id, app, role))
        })
    }

    fn better_in(&self, id: AppId, app: &AppState, role: Role) -> Option<Better> {
        let request = Request::new(&app.plan.app, &app.profiles);
        for &(service, _) in request.walk() {
            let shards = app.plan.shards.iter().filter(|s| s.service == service);
            for shard in shards.filter(|s| !self.stalled.contains(&app.plan.key(s))) {
                let replicas: Vec<NodeId> = match role {
                    Role::Primary => vec![shard.primary],
                    _ => shard.backups.clone(),
                };
                let found = replicas.into_iter().find_map(|from| {
                    let to = self.better_node(id, &request, shard, role, from)?;
                    let key = app.plan.key(shard);
                    Some(Better { key, from, to })
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// The node that returned on which a replica stands better.
    fn better_node(
        &self,
        id: AppId,
        request: &Request<'_>,
        shard: &ShardPlan,
        role: Role,
        from: NodeId,
    ) -> Option<NodeId> {
        let (service, number) = (shard.service, shard.shard);
        let parents = self.primaries_of_parent(id, request, service);
        let mut others = vec![shard.primary];
        others.extend(shard.backups.iter().copied());
        others.retain(|n| *n != from);
        let decision = self.try_resources(|cluster| {
            cluster.remove(request, service, role, from);
            match role {
                Role::Primary => {
                    better_primary(request, cluster, service, number, from, &others, &parents)
                }
                _ => better_backup(request, cluster, service, number, from, &others),
            }
        })?;
        let to = decision.node;
        self.returned.contains_key(&to).then_some(to)
    }
}
