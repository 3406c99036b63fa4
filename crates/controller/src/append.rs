//! Appends what nodes and owners send of the states of shards, without the controller's lock.

use crate::core::Core;
use crate::parts::Parts;
use crate::shared::{Shared, unblocked};
use axum::body::Bytes;
use e3_http::Refusal;

/// Appends a chunk to a part of `parts`; gives the length of the part. One that came before changes nothing.
pub(crate) async fn append(
    s: &Shared,
    parts: impl Fn(&mut Core) -> &mut Parts,
    (number, name): (u64, String),
    offset: u64,
    bytes: Bytes,
) -> Result<u64, Refusal> {
    // It is held until the chunk is written, even if nobody waits for the answer any more.
    let writer = s.parts_writer.clone().lock_owned().await;
    let begun = parts(&mut s.core()).begin_append((number, &name), offset, bytes)?;
    if let Some(append) = begun {
        let (written, _writer) = unblocked(move || (append.write(), writer)).await;
        parts(&mut s.core()).end_append(number, name.clone(), written?);
    }
    Ok(parts(&mut s.core()).written(number, &name).len)
}
