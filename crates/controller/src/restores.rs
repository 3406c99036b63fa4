//! Restores over the API: the states of shards come from the owner and go to nodes.

use crate::append::append;
use crate::backups::{Offset, check_chunk, is_part};
use crate::core::Core;
use crate::limits::CHUNK_LEN_MAX;
use crate::parts::{Written, read_from};
use crate::refusal::bad_json;
use crate::shared::{Shared, unblocked};
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use e3_control::CommandError;
use e3_http::Refusal;
use e3_model::api::*;
use e3_model::backup::{Part, Restored};
use e3_model::{Application, Nanos, Timestamp};

pub(crate) async fn begin(
    State(s): State<Shared>,
    body: Result<Json<BackupRequest>, JsonRejection>,
) -> Result<Json<RestoreResponse>, Refusal> {
    let Json(request) = body.map_err(|e| bad_json(&e))?;
    let mut core = s.core();
    if let Err(error) = core.control.check_restored_name(&request.app) {
        let refusal = Refusal::new(StatusCode::CONFLICT, error.to_string());
        return Err(match error {
            CommandError::Exists(_) => refusal.hint(EXISTS_HINT),
            _ => refusal,
        });
    }
    let now = core.clock.now();
    // Differs from all before: the clock does not go back, and one thread serves all.
    let number = now.since(Timestamp::ZERO).0 / 1_000;
    core.restores.create(number)?;
    core.uploads.insert(number, now);
    Ok(Json(RestoreResponse { restore: number }))
}

pub(crate) const EXISTS_HINT: &str =
    "restore it under another name with --as NAME, or delete that one first: e3 delete";

const BEGIN_AGAIN_HINT: &str = "the controller may have restarted; begin again: e3 restore";

/// The owner sends bytes of a shard's state.
pub(crate) async fn upload(
    State(s): State<Shared>,
    Path((number, file)): Path<(u64, String)>,
    Query(Offset { offset }): Query<Offset>,
    bytes: Bytes,
) -> Result<Json<ChunkResponse>, Refusal> {
    {
        let mut core = s.core();
        let now = core.clock.now();
        let used = core.uploads.get_mut(&number).filter(|_| is_part(&file));
        let Some(used) = used else {
            return Err(no_restore(number).hint(BEGIN_AGAIN_HINT));
        };
        check_chunk(&bytes)?;
        *used = now;
    }
    let appended = append(&s, |core| &mut core.restores, (number, file), offset, bytes).await;
    let refused = appended.as_ref().err().map(Refusal::status);
    if refused == Some(StatusCode::INSUFFICIENT_STORAGE) {
        // Without the rest it only takes space.
        let mut core = s.core();
        core.uploads.remove(&number);
        core.restores.remove(number);
    }
    Ok(Json(ChunkResponse { len: appended? }))
}

/// A node fetches the state with which a shard begins.
pub(crate) async fn fetch(
    State(s): State<Shared>,
    Path((_, number, file)): Path<(u32, u64, String)>,
    Query(Offset { offset }): Query<Offset>,
) -> Result<Vec<u8>, Refusal> {
    if !is_part(&file) {
        return Err(no_restore(number));
    }
    let path = s.core().restores.file(number, &file);
    let read = unblocked(move || read_from(&path, offset, CHUNK_LEN_MAX as u64)).await;
    if read.is_err() {
        let what = format!("part {file} of restore {number} cannot be read");
        s.core().complain(what);
    }
    read?.ok_or_else(|| no_restore(number))
}

fn no_restore(number: u64) -> Refusal {
    let error = format!("there is no restore {number}, or its files are gone");
    Refusal::new(StatusCode::NOT_FOUND, error)
}

impl Core {
    /// The state that an application is deployed with, if all of it is here.
    pub(crate) fn restored(
        &self,
        app: &Application,
        q: &RestoreRequest,
        dry_run: bool,
    ) -> Result<Restored, Refusal> {
        let is_here = |part: &Part| {
            let Part { len, crc, .. } = *part;
            self.restores.written(q.restore, &part.file()) == Written { len, crc }
        };
        if let Some(part) = q.parts.iter().find(|p| !dry_run && !is_here(p)) {
            let (name, shard) = (&app.name, part.shard);
            let services = &app.spec.services;
            let service = services.get(usize::from(part.service.0));
            let service = service.map_or("?", |service| &service.name);
            let error = format!("the state of {name}/{service}/{shard} is not all here");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error));
        }
        let cut_at_max_ms = Nanos(u64::MAX).as_millis();
        if q.cut_at_unix_ms > cut_at_max_ms {
            let at_ms = q.cut_at_unix_ms;
            let error = format!("cutAtUnixMs is {at_ms}, must be at most {cut_at_max_ms}");
            return Err(Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, error));
        }
        let cut_at = Timestamp::ZERO + Nanos::from_millis(q.cut_at_unix_ms);
        let now = self.clock.now();
        Ok(Restored {
            number: q.restore,
            identity: q.identity,
            shift: now.since(cut_at),
            at: now,
            parts: q.parts.clone(),
        })
    }
}
