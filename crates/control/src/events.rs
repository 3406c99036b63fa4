//! The events that operators see: node lost, migration done, a decision of the orchestrator. They follow
//! from the log, so they survive a restart, and a replay gives the same ones.

use crate::command::{Applied, Command, CommandError};
use crate::migration::{Cancelled, MoveOutcome, Moved};
use crate::state::{AppState, Control};
use crate::table::Table;
use crate::waiting::Waiting;
use e3_model::event::{Event, EventKind};
use e3_model::plan::Role;
use e3_model::topology::Rack;
use e3_model::{AppId, Format, NodeId, ShardKey, Timestamp};
use std::collections::BTreeMap;

/// Nodes that an event names.
const NAMED_MAX: usize = 8;

/// What must be known from before a command to say what it changed.
pub(crate) struct Before {
    /// The applications, of which those that the command does not change stay shared.
    apps: Table<AppId, AppState>,
    next_move: u64,
    /// Incarnation of the node that joins.
    joined: Option<u32>,
    /// The node that is heard was silent.
    silent: bool,
    /// The node that is resumed was drained.
    drained: bool,
    /// Copies that wait for room.
    waiting: Vec<(ShardKey, Role)>,
}

impl Control {
    /// What a command is about to change.
    pub(crate) fn before(&self, command: &Command) -> Before {
        let joined = match command {
            Command::Join { hello, .. } => {
                let node = self.index().cluster.named(&hello.name);
                node.and_then(|node| Some(self.members.get(&node)?.incarnation))
            }
            _ => None,
        };
        let silent = matches!(command, Command::Hear { node, .. } if !self.is_up(*node));
        let drained = matches!(command, Command::Resume { node } if self.drained.contains(node));
        Before {
            apps: self.apps.clone(),
            next_move: self.next_move,
            joined,
            silent,
            drained,
            waiting: self.waiting_parts(),
        }
    }

    fn waiting_parts(&self) -> Vec<(ShardKey, Role)> {
        self.waiting.iter().map(|w| (w.key, w.role)).collect()
    }
}

pub(crate) fn event(kind: EventKind) -> Event {
    Event {
        number: 0,
        at_unix_ms: 0,
        kind,
        app: None,
        instance: None,
        node: None,
        to: None,
        why: String::new(),
        figures: BTreeMap::new(),
    }
}

impl Control {
    /// Applies a command at a time that it does not say itself.
    pub(crate) fn apply_at(
        &mut self,
        at: Timestamp,
        command: &Command,
    ) -> Result<Applied, CommandError> {
        let before = self.now;
        self.now = before.max(at);
        let applied = self.apply_here(command);
        if !matches!(&applied, Ok(done) if *done != Applied::Nothing) {
            self.now = before;
        }
        applied
    }

    /// A command as it is to be logged: with its time, if the active format has that.
    pub fn at(&self, at: Timestamp, command: &Command) -> Command {
        if self.format >= Format::ORCHESTRATED && !says_when(command) {
            Command::At {
                at,
                command: Box::new(command.clone()),
            }
        } else {
            command.clone()
        }
    }

    /// Records what a command has changed.
    pub(crate) fn note_events(&mut self, command: &Command, before: &Before) {
        if let Some(event) = self.event_of(command, before) {
            self.events.push(self.now, event);
        }
        if let Command::Lose { nodes, .. } = command {
            for node in nodes.keys() {
                let lost = self.node_event(EventKind::NodeLost, *node);
                self.events.push(self.now, lost);
            }
        }
        self.note_moves(command, before);
        self.note_waiting(before);
    }

    /// Records which copies have begun to wait for room, and which have found it.
    fn note_waiting(&mut self, before: &Before) {
        let (then, now) = (&before.waiting, self.waiting_parts());
        let begun = |w: &&Waiting| then.binary_search(&(w.key, w.role)).is_err();
        let of_shard = |kind, key: ShardKey, why: String| Event {
            app: self.apps.get(&key.app).map(|app| app.plan.app.name.clone()),
            instance: Some(self.shard_name(key)),
            why,
            ..event(kind)
        };
        let waits = |w: &Waiting| of_shard(EventKind::InstanceWaits, w.key, self.why_it_waits(w));
        let mut noted: Vec<Event> = self.waiting.iter().filter(begun).map(waits).collect();
        for (key, role) in then.iter().filter(|w| now.binary_search(w).is_err()) {
            let shard = self.apps.get(&key.app).and_then(|app| {
                let shard = app.shard(*key)?;
                (!app.is_orphan(shard)).then_some(shard)
            });
            let node = match role {
                Role::Primary => shard.map(|shard| shard.primary),
                Role::Backup | Role::Joining => shard.and_then(|s| s.joining.last().copied()),
            };
            if let Some(node) = node {
                let placed = of_shard(EventKind::InstancePlaced, *key, String::new());
                noted.push(Event {
                    node: Some(self.node_name(node)),
                    ..placed
                });
            }
        }
        for event in noted {
            self.events.push(self.now, event);
        }
    }

    fn event_of(&self, command: &Command, before: &Before) -> Option<Event> {
        let of_app = |kind, name: &str| Event {
            app: Some(name.into()),
            ..event(kind)
        };
        Some(match command {
            Command::Deploy { app, .. } => of_app(EventKind::AppDeployed, &app.name),
            Command::Delete { app } => of_app(EventKind::AppDeleted, app),
            Command::Rollback { app, why, .. } => Event {
                why: why.clone().unwrap_or_default(),
                ..of_app(EventKind::AppRolledBack, &self.apps.get(app)?.plan.app.name)
            },
            Command::Drain { node } => self.node_event(EventKind::NodeDrained, *node),
            Command::Resume { node } if before.drained => {
                self.node_event(EventKind::NodeResumed, *node)
            }
            Command::Resume { node } => self.node_event(EventKind::NodeUncordoned, *node),
            Command::AddNodes { racks } => added_event(racks),
            Command::Cordon { node } => self.node_event(EventKind::NodeCordoned, *node),
            Command::RemoveNode { node } => self.node_event(EventKind::NodeRemoved, *node),
            Command::Hear { node, .. } if before.silent => {
                self.node_event(EventKind::NodeReturned, *node)
            }
            Command::Exit { node, .. } => self.node_event(EventKind::NodeExited, *node),
            Command::Join { hello, .. } => {
                let node = self.index().cluster.named(&hello.name)?;
                let incarnation = self.members.get(&node).map(|m| m.incarnation);
                if incarnation == before.joined {
                    return None;
                }
                self.node_event(EventKind::NodeJoined, node)
            }
            Command::SetOrchestrator { settings, .. } => Event {
                why: format!("mode {}", settings.mode),
                ..event(EventKind::OrchestratorSet)
            },
            Command::SetPowerCap { domain, cap_w } => Event {
                why: match cap_w {
                    Some(cap_w) => format!("{domain}: {cap_w} W"),
                    None => format!("{domain}: none"),
                },
                ..event(EventKind::PowerCapSet)
            },
            Command::Orchestrate(decided) => Event {
                to: decided.to.map(|to| self.node_name(to)),
                why: decided.why.clone(),
                figures: decided.figures.clone(),
                ..self.move_event(decided.kind(), decided.key, decided.from)
            },
            _ => return None,
        })
    }

    fn node_event(&self, kind: EventKind, node: NodeId) -> Event {
        Event {
            node: Some(self.node_name(node)),
            ..event(kind)
        }
    }

    fn move_event(&self, kind: EventKind, key: Option<ShardKey>, node: NodeId) -> Event {
        let app = key.and_then(|key| self.apps.get(&key.app));
        Event {
            app: app.map(|app| app.plan.app.name.clone()),
            instance: key.map(|key| self.shard_name(key)),
            ..self.node_event(kind, node)
        }
    }

    /// Records the moves that have begun and ended.
    fn note_moves(&mut self, command: &Command, before: &Before) {
        let changed = self.apps.unshared(&before.apps);
        let then = changed.iter().filter_map(|id| before.apps.get(id));
        let in_flight = then.flat_map(|app| &app.migrations).map(|m| m.id);
        let in_flight: Vec<u64> = in_flight.collect();
        let mut noted = Vec::new();
        let announced = matches!(command, Command::Orchestrate(decided) if decided.to.is_some());
        for app in changed.iter().filter_map(|id| self.apps.get(id)) {
            for m in app.migrations.iter().filter(|m| m.id >= before.next_move) {
                if !announced {
                    let begun = self.move_event(EventKind::MigrationBegun, Some(m.key), m.from);
                    noted.push(Event {
                        to: Some(self.node_name(m.to)),
                        ..begun
                    });
                }
            }
            let is_new = |m: &&Moved| m.id >= before.next_move || in_flight.contains(&m.id);
            noted.extend(app.moved.iter().filter(is_new).map(|m| self.moved_event(m)));
        }
        for event in noted {
            self.events.push(self.now, event);
        }
    }

    fn moved_event(&self, moved: &Moved) -> Event {
        let (kind, why) = match moved.outcome {
            MoveOutcome::Done => (EventKind::MigrationDone, String::new()),
            MoveOutcome::Cancelled(why) => (EventKind::MigrationCancelled, reason(why).to_string()),
        };
        Event {
            to: Some(self.node_name(moved.to)),
            why,
            ..self.move_event(kind, Some(moved.key), moved.from)
        }
    }
}

/// Hardware that comes together is one event, so that a large cluster's list keeps the others.
fn added_event(racks: &[Rack]) -> Event {
    let servers = racks.iter().flat_map(|rack| &rack.servers);
    let nodes = servers.flat_map(|server| &server.nodes);
    let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
    let named = names[..names.len().min(NAMED_MAX)].join(", ");
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names[..] {
        [name] => Event {
            node: Some(name.into()),
            ..event(EventKind::NodeAdded)
        },
        _ => Event {
            why: format!("{} nodes: {named}{more}", names.len()),
            ..event(EventKind::NodeAdded)
        },
    }
}

/// Whether a command says itself when it was given.
fn says_when(command: &Command) -> bool {
    matches!(
        command,
        Command::Rollback { .. }
            | Command::Join { .. }
            | Command::Lose { .. }
            | Command::Hear { .. }
            | Command::Reach { .. }
            | Command::Exit { .. }
            | Command::Forget { .. }
            | Command::SetSecret { .. }
            | Command::At { .. }
            | Command::With { .. }
            | Command::SetOrchestrator { .. }
            | Command::Orchestrate(_)
    )
}

fn reason(why: Cancelled) -> &'static str {
    match why {
        Cancelled::TargetLost => "the destination was lost",
        Cancelled::SourceLost => "the source was lost",
        Cancelled::PrimaryLost => "the node of the primary was lost",
        Cancelled::Stalled => "it made no progress",
        Cancelled::Drained => "the destination was drained",
        Cancelled::Scaled => "the service was scaled to fewer replicas",
    }
}
