//! Backups over the API: the states of shards come from nodes and go to the owner.

use crate::append::append;
use crate::core::Core;
use crate::limits::{BACKUP_KEPT, CHUNK_LEN_MAX};
use crate::parts::{Parts, Written, read_from};
use crate::refusal::bad_json;
use crate::shared::{Shared, unblocked};
use crate::taking::{Progress, Taking};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use e3_control::limits::PROGRESS_TIMEOUT;
use e3_control::{AppState, Applied, Backup, Command, CommandError};
use e3_http::Refusal;
use e3_model::api::*;
use e3_model::backup::part_file;
use e3_model::document::{API_VERSION, Document, Metadata};
use e3_model::timing::BACKUP_FREEZE_TIMEOUT;
use e3_model::{AppId, Application, Nanos, ShardKey, Timestamp};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Offset {
    #[serde(default)]
    pub(crate) offset: u64,
}

pub(crate) async fn begin(
    State(s): State<Shared>,
    body: Result<Json<BackupRequest>, JsonRejection>,
) -> Result<Json<BackupView>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    s.core().begin_backup(&request.app).map(Json)
}

pub(crate) async fn view(
    State(s): State<Shared>,
    Path(number): Path<u64>,
) -> Result<Json<BackupView>, Refusal> {
    let mut core = s.core();
    core.touch(number);
    core.backup_view(number).map(Json)
}

pub(crate) async fn fetch(
    State(s): State<Shared>,
    Path((number, file)): Path<(u64, String)>,
    Query(Offset { offset }): Query<Offset>,
) -> Result<Vec<u8>, Refusal> {
    let path = {
        let mut core = s.core();
        core.touch(number);
        core.backup_file(number, &file)?
    };
    let read = unblocked(move || read_from(&path, offset, CHUNK_LEN_MAX as u64)).await?;
    read.ok_or_else(|| no_backup(number))
}

pub(crate) async fn end(
    State(s): State<Shared>,
    Path(number): Path<u64>,
) -> Result<Json<DeleteResponse>, Refusal> {
    let mut core = s.core();
    let taking = core.taking.iter().find(|t| t.number == number);
    let app = taking.map(|t| t.app).ok_or_else(|| no_backup(number))?;
    let why = "its owner gave it up".into();
    // The decision may need the room.
    core.backups.remove(number);
    core.execute(&Command::CancelBackup { app, number, why })?;
    core.drop_backup(number);
    Ok(Json(DeleteResponse {}))
}

/// A node sends bytes of a shard's state.
pub(crate) async fn take(
    State(s): State<Shared>,
    Path((_, number, file)): Path<(u32, u64, String)>,
    Query(Offset { offset }): Query<Offset>,
    bytes: Bytes,
) -> Result<Json<ChunkResponse>, Refusal> {
    if !s.core().backups.takes(number) || !is_part(&file) {
        return Err(no_backup(number));
    }
    check_chunk(&bytes)?;
    let taken = append(&s, |core| &mut core.backups, (number, file), offset, bytes).await;
    let mut core = s.core();
    if let Some(taking) = core.taking.iter_mut().find(|t| t.number == number) {
        let refusal = taken.as_ref().err();
        taking.refused = refusal.map(|refusal| refusal.error().to_string());
    }
    Ok(Json(ChunkResponse { len: taken? }))
}

pub(crate) fn check_chunk(bytes: &Bytes) -> Result<(), Refusal> {
    if !bytes.is_empty() {
        return Ok(());
    }
    let error = format!("the body is empty, must have 1 to {CHUNK_LEN_MAX} bytes");
    Err(Refusal::new(StatusCode::BAD_REQUEST, error))
}

fn no_backup(number: u64) -> Refusal {
    let error = format!("there is no backup {number}, or its files are gone");
    Refusal::new(StatusCode::NOT_FOUND, error)
}

/// Whether this is the name of a part, see [`Part::file`]: no other path may follow from it.
pub(crate) fn is_part(file: &str) -> bool {
    let is_number = |n: &str| n.parse::<u16>().is_ok_and(|value| value.to_string() == n);
    let parts = file.split_once('-');
    parts.is_some_and(|(service, shard)| is_number(service) && is_number(shard))
}

impl Core {
    fn begin_backup(&mut self, name: &str) -> Result<BackupView, Refusal> {
        let none = || {
            Refusal::new(
                StatusCode::NOT_FOUND,
                CommandError::NoApp(name.into()).to_string(),
            )
        };
        let app = self.control.app_named(name).ok_or_else(none)?;
        let Applied::BackingUp(number) = self.execute(&Command::Backup { app })? else {
            unreachable!("a backup begins or is refused");
        };
        let now = self.clock.now();
        let before: Vec<u64> = self
            .taking
            .iter()
            .filter(|t| t.app == app)
            .map(|t| t.number)
            .collect();
        before
            .into_iter()
            .for_each(|number| self.drop_backup(number));
        self.backups.create(number)?;
        self.taking.push(Taking::new(app, number, now));
        self.look_at_backups(now);
        tracing::info!(app = name, number, "owner takes a backup");
        self.backup_view(number)
    }

    /// Notes that the owner is still there.
    fn touch(&mut self, number: u64) {
        let now = self.clock.now();
        if let Some(taking) = self.taking.iter_mut().find(|t| t.number == number) {
            taking.used = now;
        }
    }

    fn drop_backup(&mut self, number: u64) {
        self.taking.retain(|t| t.number != number);
        self.backups.remove(number);
    }

    fn backup_of(&self, number: u64) -> Option<(&Taking, &AppState, &Backup)> {
        let taking = self.taking.iter().find(|t| t.number == number)?;
        let app = self.control.apps.get(&taking.app)?;
        let backup = app.backup.as_ref().filter(|b| b.number == number)?;
        Some((taking, app, backup))
    }

    fn backup_view(&self, number: u64) -> Result<BackupView, Refusal> {
        let found = self.backup_of(number);
        let (taking, app, backup) = found.ok_or_else(|| no_backup(number))?;
        let is_freezing = app.plan.backup.is_some_and(|b| b.is_freezing);
        let missing = self.missing_part(taking.app, number, backup);
        let damage = missing.as_ref().err().cloned().or(taking.failed.clone());
        let (phase, why) = match (&backup.outcome, damage) {
            (Some(Err(why)), _) => (BackupPhase::Cancelled, Some(why.clone())),
            (Some(Ok(())), Some(why)) => (BackupPhase::Cancelled, Some(why)),
            (Some(Ok(())), None) if missing == Ok(true) => (BackupPhase::Finishing, None),
            (Some(Ok(())), None) => (BackupPhase::Complete, None),
            (None, _) if is_freezing => (BackupPhase::Freezing, None),
            (None, _) => (BackupPhase::Copying, None),
        };
        let pause = taking.froze_at.zip(taking.cut_at);
        let pause = pause.map_or(Nanos::ZERO, |(froze, cut)| cut.since(froze));
        let head = match phase {
            BackupPhase::Complete => taking.head.clone(),
            _ => None,
        };
        Ok(BackupView {
            backup: number,
            app: app.plan.app.name.clone(),
            phase,
            why,
            bytes: self.backups.bytes(number),
            shards: backup.shards() as u32,
            pause_ms: pause.0 as f64 / 1e6,
            head,
        })
    }

    /// Whether bytes of a backup whose shards go on are still to come. An error if what came is not
    /// what was sent.
    fn missing_part(&self, app: AppId, number: u64, backup: &Backup) -> Result<bool, String> {
        let mut is_missing = false;
        for part in &backup.cut {
            let Written { len, crc } = self.backups.written(number, &part.file());
            if len > part.len || (len == part.len && crc != part.crc) {
                let (service, shard) = (part.service, part.shard);
                let key = ShardKey {
                    app,
                    service,
                    shard,
                };
                return Err(format!(
                    "the state of {} arrived damaged",
                    self.shard_name(key)
                ));
            }
            is_missing |= len < part.len;
        }
        Ok(is_missing)
    }

    fn backup_head(
        &self,
        taking: &Taking,
        app: &AppState,
        backup: &Backup,
    ) -> Result<BackupHead, String> {
        let plan = &app.plan;
        let mut files: Vec<BackupFile> = Vec::new();
        let modules = plan.app.spec.services.iter().map(|s| (false, &s.module));
        let modules = modules.zip(&plan.modules);
        let assets = plan
            .assets
            .iter()
            .map(|(name, digest)| ((true, name), digest));
        for ((is_asset, name), digest) in modules.chain(assets) {
            if files
                .iter()
                .any(|f| (f.is_asset, &f.name) == (is_asset, name))
            {
                continue;
            }
            // The shards stand still, so it is not read here. Its owner checks what it is sent.
            let error = |why| format!("{name:?} of application {:?}: {why}", plan.app.name);
            let len = self.blobs.len(digest).map_err(|e| error(e.to_string()))?;
            let len = len.ok_or_else(|| error("it is not stored".into()))?;
            files.push(BackupFile {
                is_asset,
                name: name.clone(),
                digest: digest.clone(),
                len,
            });
        }
        let cut_at = taking.cut_at.unwrap_or(self.clock.now());
        let profiles = app.profiles.values();
        let profiles = profiles.map(|p| document("Profile", &p.name, &p.spec));
        Ok(BackupHead {
            app: plan.app.name.clone(),
            identity: plan.identity(),
            cut_at_unix_ms: cut_at.since(Timestamp::ZERO).as_millis(),
            manifest: manifest(&app.manifest()),
            profiles: profiles.collect(),
            files,
            parts: backup.cut.clone(),
        })
    }

    /// The file of a part, or of a module or asset by its digest.
    fn backup_file(&self, number: u64, file: &str) -> Result<PathBuf, Refusal> {
        let (taking, ..) = self.backup_of(number).ok_or_else(|| no_backup(number))?;
        let mut files = taking.head.iter().flat_map(|head| &head.files);
        if files.any(|known| known.digest == file) {
            Ok(self.blobs.file(file))
        } else if is_part(file) {
            Ok(self.backups.file(number, file))
        } else {
            Err(no_backup(number))
        }
    }

    /// Notes how far backups are, gives up those that make no progress, and removes what nobody needs.
    pub(crate) fn look_at_backups(&mut self, now: Timestamp) {
        let backups = &self.backups;
        let mut cut = Vec::new();
        for taking in &mut self.taking {
            let app = self.control.apps.get(&taking.app);
            let Some(app) = app else { continue };
            if app.plan.backup.is_some_and(|b| b.is_freezing) {
                taking.froze_at.get_or_insert(now);
            }
            let backup = app.backup.as_ref().filter(|b| b.number == taking.number);
            let progress = backup.map(|backup| progress(backups, backup));
            // A shard that is copied sends what it writes, so its bytes say nothing of the others.
            if progress > Some(taking.moved.1) {
                taking.moved = (now, progress.unwrap_or_default());
            }
            if backup.is_some_and(|b| b.outcome == Some(Ok(()))) && taking.cut_at.is_none() {
                taking.cut_at = Some(now);
                taking.moved.0 = now;
                cut.push(taking.number);
            }
        }
        for number in cut {
            self.note_head(number);
        }
        let apps = self.control.apps.values();
        let running = apps.filter_map(|a| Some((a.plan.id, a.plan.backup?)));
        let late = running.filter_map(|(app, order)| {
            let taking = self.taking.iter().find(|t| t.number == order.number);
            let why = match taking {
                None => "the controller started again meanwhile".to_string(),
                Some(Taking {
                    froze_at: Some(at), ..
                }) if now > *at + BACKUP_FREEZE_TIMEOUT => {
                    format!(
                        "its shards did not all stop within {} s",
                        BACKUP_FREEZE_TIMEOUT.as_secs()
                    )
                }
                Some(Taking { used, .. }) if now > *used + BACKUP_KEPT => {
                    let seconds = BACKUP_KEPT.as_secs();
                    format!("its owner has not asked for it for {seconds} s")
                }
                Some(Taking { moved: (at, _), .. }) if now > *at + PROGRESS_TIMEOUT => {
                    format!("no state came for {} s", PROGRESS_TIMEOUT.as_secs())
                }
                Some(_) => return None,
            };
            Some((app, order.number, why))
        });
        let late: Vec<(AppId, u64, String)> = late.collect();
        for (app, number, why) in late {
            tracing::warn!(number, why, "backup cancelled");
            // The decision may need the room.
            self.backups.remove(number);
            if let Err(e) = self.execute(&Command::CancelBackup { app, number, why }) {
                self.complain(format!("the end of backup {number} is not stored: {e}"));
            }
        }
        self.forget_parts(now);
    }

    /// Notes what the file of a backup is to hold, at the moment of the cut.
    fn note_head(&mut self, number: u64) {
        let found = self.backup_of(number);
        let head = found.map(|(taking, app, backup)| self.backup_head(taking, app, backup));
        let taking = self.taking.iter_mut().find(|t| t.number == number);
        match (taking, head) {
            (Some(taking), Some(Ok(head))) => taking.head = Some(head),
            (Some(taking), Some(Err(why))) => drop(taking.failed.get_or_insert(why)),
            _ => {}
        }
    }

    fn forget_parts(&mut self, now: Timestamp) {
        let is_late = |t: &Taking| {
            let found = self.backup_of(t.number);
            let misses = |b| self.missing_part(t.app, t.number, b) == Ok(true);
            let is_cut = t.cut_at.is_some() && now > t.moved.0 + PROGRESS_TIMEOUT;
            is_cut && found.is_some_and(|(.., backup)| misses(backup))
        };
        let late: Vec<bool> = self.taking.iter().map(is_late).collect();
        for (taking, is_late) in self.taking.iter_mut().zip(late) {
            if is_late {
                let seconds = PROGRESS_TIMEOUT.as_secs();
                let refused = taking.refused.as_ref();
                let refused = refused.map_or_else(String::new, |why| format!(": {why}"));
                let why = format!("the rest of the state did not come within {seconds} s{refused}");
                taking.failed.get_or_insert(why);
            }
        }
        let is_old = |t: &&Taking| {
            let runs = self
                .control
                .apps
                .get(&t.app)
                .is_some_and(AppState::is_backing_up);
            !runs && now > t.used + BACKUP_KEPT
        };
        let old: Vec<u64> = self
            .taking
            .iter()
            .filter(is_old)
            .map(|t| t.number)
            .collect();
        old.into_iter().for_each(|number| self.drop_backup(number));
        self.uploads.retain(|_, used| now <= *used + BACKUP_KEPT);
        let apps = self.control.apps.values();
        let restored = apps.filter_map(|a| a.plan.restored.as_ref());
        let needed: Vec<u64> = restored
            .filter(|r| !r.parts.is_empty())
            .map(|r| r.number)
            .collect();
        let is_idle = |n: &u64| !needed.contains(n) && !self.uploads.contains_key(n);
        // A log that lacks decisions may lack the one that needs them.
        let knows_all = self.knows_all();
        let idle: Vec<u64> = self.restores.numbers().filter(is_idle).collect();
        idle.into_iter()
            .filter(|_| knows_all)
            .for_each(|number| self.restores.remove(number));
    }
}

/// How far a backup is.
fn progress(parts: &Parts, backup: &Backup) -> Progress {
    if backup.outcome.is_some() {
        return Progress {
            is_cut: true,
            copied: backup.shards(),
            bytes: parts.bytes(backup.number),
        };
    }
    let files = backup
        .uncopied()
        .map(|(service, shard)| part_file(service, shard));
    let bytes = files.map(|file| parts.written(backup.number, &file).len);
    Progress {
        is_cut: false,
        copied: backup.shards() - backup.uncopied().count(),
        bytes: bytes.sum(),
    }
}

fn manifest(app: &Application) -> String {
    document("Application", &app.name, &app.spec)
}

fn document<S: Serialize>(kind: &str, name: &str, spec: &S) -> String {
    let document = Document {
        api_version: API_VERSION.into(),
        kind: kind.into(),
        metadata: Metadata {
            name: name.into(),
            description: None,
        },
        spec,
    };
    serde_json::to_string_pretty(&document).expect("documents have text keys only")
}
