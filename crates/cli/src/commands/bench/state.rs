//! `e3 bench state`: runs clusters and peers, and measures what the state layer promises.

mod moves;
mod recover;
mod reshard;
mod stage;
mod windows;
mod writes;

use super::Bench;
use super::part::Part;
use crate::commands::chaos;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use e3_bench::Figure;
use e3_bench::state::{Measured, figures};
use rustix::fs::statfs;
use std::path::Path;

/// Bytes of values of the moves.
const SMALL_BYTES: u64 = 16_000_000;
const LARGE_BYTES: u64 = 256_000_000;
/// `f_type` of a file system that is in memory (Linux, statfs(2)).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Measures all parts, or one; each on a cluster of its own.
pub fn run(args: &Bench, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let parts = args.parts()?;
    if parts
        .iter()
        .any(|p| matches!(p, Part::Writes | Part::Commits | Part::Recovery))
    {
        check_disk(&std::env::temp_dir())?;
    }
    let has_network = if parts.contains(&Part::Failover) {
        chaos::bench::enter_network()
    } else {
        Ok(())
    };
    let sources = &args.sources;
    let mut measured = Measured::default();
    for part in parts {
        match part {
            Part::Failover => {
                let (failovers, missing) =
                    chaos::bench::failovers(args.rounds, has_network.clone(), sources, settings)?;
                (measured.failovers, measured.missing) = (failovers, missing);
            }
            Part::Migration => {
                let moves =
                    |bytes, cold| moves::measure(bytes, cold, args.rounds, sources, settings);
                measured.small = Some(moves(SMALL_BYTES, true)?);
                measured.large = Some(moves(LARGE_BYTES, false)?);
            }
            Part::Reshard => {
                measured.reshard = Some(reshard::measure(args.rounds, sources, settings)?);
            }
            Part::Writes => {
                let length = args.length();
                measured.etcd = Some(writes::against_etcd(length, sources, settings)?);
                measured.redis = Some(writes::against_redis(length, sources, settings)?);
            }
            Part::Commits => {
                measured.sharing = Some(writes::sharing(args.length(), sources, settings)?);
            }
            Part::Recovery => measured.recovery = Some(recover::measure(sources, settings)?),
            // Of the group chaos.
            _ => {}
        }
    }
    Ok(figures(&measured))
}

/// A disk that is memory says nothing about waits for the disk.
fn check_disk(dir: &Path) -> Result<(), Failure> {
    let found = statfs(dir).map_err(|e| Failure::file("look at", dir, &e.into()))?;
    if found.f_type as i64 != TMPFS_MAGIC {
        return Ok(());
    }
    let message = format!("{} is in memory; journals must be on a disk", dir.display());
    Err(Failure::new(Exit::Input, message)
        .hint("name a directory on a disk: TMPDIR=DIR e3 bench state"))
}
