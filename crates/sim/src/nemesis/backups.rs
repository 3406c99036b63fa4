//! Backups that an operator takes in the middle of faults, and applications that begin with one.
//!
//! The product decides when shards stop and go on. What its programs do beside is done here: states of
//! shards go to the controller in chunks, and it gives up what makes no progress. Its own part of that
//! is in memory, and lost when it restarts.

use super::Run;
use super::controller::ControllerProcess;
use super::taken::{Cut, Taken, Taking};
use crate::cluster::{Cluster, Export, Fetch};
use crate::network::Party;
use crate::scenario::{Fault, app_id};
use crate::service::Service;
use e3_control::limits::PROGRESS_TIMEOUT;
use e3_control::{Applied, Backup, Command};
use e3_model::backup::Restored;
use e3_model::timing::BACKUP_FREEZE_TIMEOUT;
use e3_model::{AppId, Application, Nanos, Timestamp};
use e3_wire::part::checksum;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Bytes that a node sends, or gets, in a turn of the controller; the product sends more.
const CHUNK_LEN_MAX: usize = 256 << 10;
/// How often an operator tries again.
const RETRY_INTERVAL: Nanos = Nanos::from_millis(100);

impl Run<'_> {
    /// One turn of the operator and of what the controller does beside its decisions.
    pub(super) fn step_backups(&mut self) {
        self.take_exports();
        self.look_at_backups();
        self.send_parts();
        if self.cluster.now >= self.backups.next_try {
            self.backups.next_try = self.cluster.now + RETRY_INTERVAL;
            self.follow_script();
        }
    }

    fn follow_script(&mut self) {
        let acts = self.active.iter();
        let due = acts.filter_map(|act| match act.fault {
            Fault::Backup(app) => Some((app, Some(self.begin + Nanos::from_millis(act.at_ms)))),
            Fault::Restore(app) => Some((app, None)),
            _ => None,
        });
        let due: Vec<(usize, Option<Timestamp>)> = due.collect();
        for (app, since) in due {
            match since {
                Some(since) => self.back_up(app, since),
                None => self.restore(app),
            }
        }
    }

    /// Begins a backup, unless one was taken since then.
    fn back_up(&mut self, app: usize, since: Timestamp) {
        let is_taken = |(taken, _): &(Rc<Taken>, bool)| taken.cut_at >= since;
        if self.backups.taking.iter().any(|t| t.app == app)
            || self.backups.taken.get(&app).is_some_and(is_taken)
        {
            return;
        }
        let now = self.cluster.now;
        let backup = Command::Backup { app: app_id(app) };
        if let Some(Applied::BackingUp(number)) = self.controller.execute(now, &backup) {
            self.backups.taking.push(Taking {
                app,
                number,
                process: self.controller.process,
                froze_at: None,
                cut: None,
                moved_at: now,
                parts: BTreeMap::new(),
            });
        }
    }

    /// Deploys an application with the state of the last backup, unless that was done.
    fn restore(&mut self, app: usize) {
        let now = self.cluster.now;
        // By an older log the application would get an identity that another one has.
        if !self.controller.can_decide(now) {
            return;
        }
        let taken = self.backups.taken.get(&app);
        let Some((taken, false)) = taken.map(|(taken, is_done)| (taken.clone(), *is_done)) else {
            return;
        };
        let number = now.0 + app as u64;
        let mut manifest = Application::clone(&taken.manifest);
        manifest.name = format!("copy{number}");
        let command = Command::Deploy {
            modules: vec![String::new(); manifest.spec.services.len()],
            app: Box::new(manifest),
            assets: BTreeMap::new(),
            profiles: BTreeMap::new(),
            overcommit: true,
            restored: Some(Restored {
                number,
                identity: taken.identity,
                shift: taken.cut_at.until(now),
                at: now,
                parts: taken.parts.clone(),
            }),
            placed: Vec::new(),
        };
        // What it will be is known before, since a torn write may have been written.
        let Ok(Applied::Deployed(id)) = self.controller.control.clone().apply(&command) else {
            return;
        };
        let services = self.cluster.services[app].clone();
        let count = self.cluster.services.len().max(usize::from(id.0));
        self.cluster.services.resize(count, Vec::<Service>::new());
        self.cluster.services[usize::from(id.0) - 1] = services;
        self.backups.restored.insert(number, taken);
        if self.controller.execute(now, &command).is_some()
            && let Some((_, is_done)) = self.backups.taken.get_mut(&app)
        {
            *is_done = true;
        }
    }

    /// Restores what was backed up and not restored.
    pub(super) fn restore_rest(&mut self) {
        let apps: Vec<usize> = self.backups.taken.keys().copied().collect();
        for app in apps {
            self.restore(app);
        }
    }

    /// The applications that began with a backup, each with the backup.
    pub(super) fn copies(&self) -> Vec<(AppId, Rc<Taken>)> {
        let apps = self.controller.control.apps.values();
        let copies = apps.filter_map(|app| {
            let restored = app.plan.restored.as_ref()?;
            let taken = self.backups.restored.get(&restored.number)?;
            Some((app.plan.id, taken.clone()))
        });
        copies.collect()
    }

    /// Whether an application ever began with a backup of this one.
    pub(super) fn has_copy(&self, app: usize) -> bool {
        self.backups.restored.values().any(|taken| taken.app == app)
    }

    /// Deletes the applications that began with a backup.
    pub(super) fn delete_copies(&mut self) {
        for (id, _) in self.copies() {
            let app = self.controller.control.apps[&id].plan.app.name.clone();
            let now = self.cluster.now;
            self.controller.execute(now, &Command::Delete { app });
        }
    }

    /// Whether a backup is still being taken.
    pub(super) fn is_backing_up(&self) -> bool {
        let mut apps = self.controller.control.apps.values();
        apps.any(|app| app.is_backing_up()) || !self.backups.taking.is_empty()
    }

    /// Takes what nodes send.
    fn take_exports(&mut self) {
        let mut later = Vec::new();
        for export in std::mem::take(&mut self.cluster.exports) {
            let (node, incarnation) = (export.node, export.incarnation);
            match is_connected(&self.cluster, &self.controller, node, incarnation) {
                Some(true) => self.take_export(export),
                Some(false) => later.push(export),
                None => {}
            }
        }
        // What nodes had more meanwhile comes after.
        self.cluster.exports.splice(0..0, later);
    }

    fn take_export(&mut self, export: Export) {
        let (now, process) = (self.cluster.now, self.controller.process);
        let Export {
            key,
            number,
            offset,
            bytes,
            ..
        } = export;
        let mut taking = self.backups.taking.iter_mut();
        let taking = taking.find(|t| (t.number, t.process) == (number, process));
        // The controller wants no more of other backups.
        let Some(taking) = taking else { return };
        let part = taking.parts.entry((key.service, key.shard)).or_default();
        if part.len() as u64 == offset {
            part.extend(bytes);
            taking.moved_at = now;
        }
        let len = part.len() as u64;
        self.cluster.on_exported(export.node, key, number, len);
    }

    /// Gives up backups that make no progress, and keeps those that are complete.
    fn look_at_backups(&mut self) {
        let (now, process) = (self.cluster.now, self.controller.process);
        if !self.controller.hears() {
            return;
        }
        let is_late = |t: &Taking| {
            t.froze_at
                .is_some_and(|at| now > at + BACKUP_FREEZE_TIMEOUT)
        };
        self.backups.taking.retain(|t| t.process == process);
        let mut due = Vec::new();
        for app in self.controller.control.apps.values() {
            let Some(order) = app.plan.backup else {
                continue;
            };
            let mut taking = self.backups.taking.iter_mut();
            let taking = taking.find(|t| t.number == order.number);
            if let Some(taking) = taking {
                if order.is_freezing {
                    taking.froze_at.get_or_insert(now);
                }
                if !is_late(taking) && now <= taking.moved_at + PROGRESS_TIMEOUT {
                    continue;
                }
            }
            due.push((app.plan.id, order.number));
        }
        for (app, number) in due {
            let why = "it makes no progress".into();
            let cancel = Command::CancelBackup { app, number, why };
            self.controller.execute(now, &cancel);
        }
        for mut taking in std::mem::take(&mut self.backups.taking) {
            // The product takes no positions that come so late: shards may have gone on.
            let is_over = taking.cut.is_none() && is_late(&taking);
            match self.is_complete(&mut taking).filter(|_| !is_over) {
                Some(true) => self.keep(taking),
                Some(false) => self.backups.taking.push(taking),
                None => self.backups.cancelled += 1,
            }
        }
    }

    fn backup_of(&self, taking: &Taking) -> Option<&Backup> {
        let app = self.controller.control.apps.get(&app_id(taking.app))?;
        app.backup.as_ref().filter(|b| b.number == taking.number)
    }

    /// Whether all of a backup has come; None if it is given up.
    fn is_complete(&mut self, taking: &mut Taking) -> Option<bool> {
        let now = self.cluster.now;
        let backup = self.backup_of(taking)?;
        match &backup.outcome {
            None => return Some(false),
            Some(Err(_)) => return None,
            Some(Ok(())) => {}
        }
        if taking.cut.is_none() {
            let app = &self.controller.control.apps[&app_id(taking.app)];
            taking.moved_at = now;
            taking.cut = Some(Cut {
                at: now,
                manifest: app.manifest(),
                identity: app.plan.identity(),
            });
        }
        let (mut is_missing, mut damaged) = (false, None);
        for part in &backup.cut {
            let bytes = taking.parts.get(&part.id()).map_or(&[][..], Vec::as_slice);
            is_missing |= (bytes.len() as u64) < part.len;
            let is_right = bytes.len() as u64 == part.len && checksum(0, bytes) == part.crc;
            if bytes.len() as u64 >= part.len && !is_right {
                damaged = Some(*part);
            }
        }
        if let Some(part) = damaged {
            let app = taking.app;
            let what = format!("backup of application {app}: {part:?} is not what its shard sent");
            self.cluster.ledger.violation(what);
        }
        if is_missing && now > taking.moved_at + PROGRESS_TIMEOUT {
            None
        } else {
            Some(!is_missing)
        }
    }

    fn keep(&mut self, taking: Taking) {
        let parts = self.backup_of(&taking).map(|b| b.cut.clone());
        let (Some(cut), Some(parts)) = (taking.cut, parts) else {
            return;
        };
        let taken = Taken {
            app: taking.app,
            froze_at: taking.froze_at.unwrap_or(cut.at),
            cut_at: cut.at,
            identity: cut.identity,
            manifest: cut.manifest,
            parts,
            bytes: taking.parts,
        };
        self.backups.complete += 1;
        self.backups
            .taken
            .insert(taking.app, (Rc::new(taken), false));
    }

    /// Sends nodes the states with which their shards begin.
    fn send_parts(&mut self) {
        let mut later = Vec::new();
        for mut fetch in std::mem::take(&mut self.cluster.fetches) {
            let (node, incarnation) = (fetch.node, fetch.incarnation);
            match is_connected(&self.cluster, &self.controller, node, incarnation) {
                None => continue,
                Some(true) => self.send_part(&mut fetch),
                Some(false) => {}
            }
            if fetch.len < fetch.part.len {
                later.push(fetch);
            }
        }
        // What the nodes ask for meanwhile.
        self.cluster.fetches.splice(0..0, later);
    }

    fn send_part(&mut self, fetch: &mut Fetch) {
        let taken = self.backups.restored.get(&fetch.number);
        let bytes = taken.and_then(|taken| taken.bytes.get(&fetch.part.id()));
        let Some(bytes) = bytes else {
            fetch.len = fetch.part.len;
            let what = format!("{}: nobody has its part of a backup", fetch.key);
            return self.cluster.ledger.violation(what);
        };
        let from = fetch.len as usize;
        let chunk = &bytes[from..bytes.len().min(from + CHUNK_LEN_MAX)];
        fetch.len += chunk.len() as u64;
        self.cluster
            .on_part(fetch.node, fetch.key, fetch.order, chunk);
    }
}

/// Whether a node's process and the controller hear each other now; None if the process is gone.
fn is_connected(
    cluster: &Cluster,
    controller: &ControllerProcess,
    node: u32,
    incarnation: u32,
) -> Option<bool> {
    let (me, it) = (Party::Node(node), Party::Controller);
    let is_cut = cluster.cuts.is_cut(me, it) || cluster.cuts.is_cut(it, me);
    let runs = cluster.runs(node, incarnation)?;
    Some(runs && !is_cut && controller.hears())
}
