//! `e3 backup`: writes an application with its state to a file, while it serves.

use crate::archive::Writer;
use crate::cluster::client::Client;
use crate::cluster::patience::Patience;
use crate::limits::POLL_INTERVAL;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::interrupt;
use crate::ui::output::{self, Format};
use crate::ui::text::{bytes, count, plural};
use crate::ui::values::duration;
use clap::Args;
use e3_model::backup::{BackupHead, BackupPhase, BackupView};
use e3_wire::part::checksum;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const INTERRUPTED: &str = "interrupted, so there is no backup";

/// `e3 backup`.
#[derive(Args, Debug, Clone)]
pub struct Backup {
    /// Application
    pub app: String,
    /// File to write [default: APP.e3b]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace the file if there is one
    #[arg(long)]
    pub force: bool,
    /// Longest time for the nodes to send the state
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "TIME")]
    pub timeout: Duration,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// What was written, or restored.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The application.
    pub app: String,
    /// The file.
    pub file: String,
    /// Bytes of the file.
    pub bytes: u64,
    /// Shards with state.
    pub shards: usize,
    /// Entries of their logs, from the first.
    pub entries: u64,
    /// The moment of the cut, in milliseconds since the Unix epoch.
    pub cut_at_unix_ms: u64,
    /// How long the shards stood still.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<f64>,
}

impl Summary {
    /// What a file holds.
    pub fn new(app: &str, path: &Path, len: u64, head: &BackupHead) -> Summary {
        Summary {
            app: app.into(),
            file: path.display().to_string(),
            bytes: len,
            shards: head.parts.len(),
            entries: head.parts.iter().map(|part| part.op).sum(),
            cut_at_unix_ms: head.cut_at_unix_ms,
            pause_ms: None,
        }
    }

    /// `12 shards, 3,456 entries, 1.2 MiB`.
    pub fn contents(&self) -> String {
        let shards = plural(self.shards, "shard");
        format!(
            "{shards}, {} entries, {}",
            count(self.entries),
            bytes(self.bytes)
        )
    }
}

/// `e3 backup`.
pub fn run(args: &Backup, settings: &Settings) -> Result<(), Failure> {
    let default = || PathBuf::from(format!("{}.e3b", args.app));
    let path = args.out.clone().unwrap_or_else(default);
    // A path with a slash at its end names a directory, even if there is none.
    let names_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if names_directory || path.file_name().is_none() {
        let message = format!("the file to write is {path:?}, must be a file and no directory");
        return Err(Failure::new(Exit::Input, message).hint("name a file with -o FILE"));
    }
    if !args.force && path.symlink_metadata().is_ok() {
        let message = format!("{} exists", path.display());
        return Err(Failure::new(Exit::Conflict, message).hint("replace it with --force"));
    }
    let client = Client::connect(settings)?;
    let stop = interrupt::flag()?;
    // Before the shards stand still: they should not do so for a file that cannot be written.
    let writer = Writer::create(&path, args.force)?;
    let begun = client.begin_backup(&args.app)?;
    let written = complete(&client, &begun, args.timeout, &stop)
        .and_then(|view| write(&client, writer, &path, view, &stop));
    // Its files take space at the controller, which removes them by itself later.
    let ended = client.end_backup(begun.backup);
    let summary = written?;
    if let Err(e) = ended {
        output::say(&format!(
            "the controller keeps its copy of the backup for now: {e}"
        ));
    }
    let format = if args.json {
        Format::Json
    } else {
        Format::Table
    };
    output::show(format, &summary, || {
        let (app, file, contents) = (&summary.app, &summary.file, summary.contents());
        let pause_ms = summary.pause_ms.unwrap_or_default();
        format!("backed up {app} to {file}: {contents}; it stood still for {pause_ms:.0} ms\n")
    })
}

/// Waits until the controller has all of the state.
fn complete(
    client: &Client,
    begun: &BackupView,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<BackupView, Failure> {
    let patience = Patience::new(timeout);
    let bar = output::spinner("backup");
    loop {
        let view = patience.ask(|| {
            interrupt::check(stop, INTERRUPTED)?;
            client.backup(begun.backup)
        });
        let view = view.map_err(|e| match e.exit {
            Exit::NotFound => {
                let message = format!(
                    "the backup of {} was cancelled: the controller started again",
                    begun.app
                );
                Failure::new(Exit::Unexpected, message).hint("try again")
            }
            _ => e,
        })?;
        bar.set_message(bytes(view.bytes));
        match view.phase {
            BackupPhase::Complete => {
                bar.finish_and_clear();
                return Ok(view);
            }
            BackupPhase::Cancelled => {
                let why = view.why.as_deref().unwrap_or("no reason is known");
                let message = format!("the backup of {} was cancelled: {why}", view.app);
                return Err(Failure::new(Exit::Unexpected, message).hint("try again"));
            }
            _ => {}
        }
        if patience.begin.elapsed() > timeout {
            let (app, came) = (&view.app, bytes(view.bytes));
            let waited_s = timeout.as_secs();
            let message =
                format!("{came} of the state of {app} came within {waited_s} s, which is not all");
            return Err(Failure::new(Exit::Timeout, message).hint("wait longer with --timeout"));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn write(
    client: &Client,
    mut writer: Writer,
    path: &Path,
    view: BackupView,
    stop: &AtomicBool,
) -> Result<Summary, Failure> {
    let unreadable = || {
        Failure::new(
            Exit::Unexpected,
            "the controller does not say what is in the backup",
        )
    };
    let head = view.head.ok_or_else(unreadable)?;
    writer.begin(&head)?;
    let files = head.files.iter();
    let files = files.map(|f| (f.digest.clone(), f.len, Sum::File(Vec::new())));
    let parts = head.parts.iter().map(|part| {
        let (crc, found) = (part.crc, 0);
        (part.file(), part.len, Sum::Part { crc, found })
    });
    let contents: Vec<(String, u64, Sum)> = files.chain(parts).collect();
    let bar = output::progress(contents.iter().map(|(_, len, _)| len).sum(), "write");
    for (file, len, mut sum) in contents {
        let mut offset = 0;
        while offset < len {
            interrupt::check(stop, INTERRUPTED)?;
            let chunk = client.backup_file(view.backup, &file, offset)?;
            if chunk.is_empty() || offset + chunk.len() as u64 > len {
                let message =
                    format!("the controller has {offset} bytes of {file}, must have {len}");
                return Err(Failure::new(Exit::Unexpected, message).hint("try again"));
            }
            writer.data(&chunk)?;
            sum.add(&chunk);
            offset += chunk.len() as u64;
            bar.inc(chunk.len() as u64);
        }
        if !sum.is_right(&file) {
            let message = format!("{file} is damaged at the controller, so there is no backup");
            return Err(Failure::new(Exit::Unexpected, message)
                .hint("check the controller's disk, then try again"));
        }
    }
    bar.finish_and_clear();
    let len = writer.finish()?;
    Ok(Summary {
        pause_ms: Some(view.pause_ms),
        ..Summary::new(&view.app, path, len, &head)
    })
}

/// What shows that bytes came as they were: a part's checksum, or the content of a file that is named after its
/// SHA-256.
enum Sum {
    Part { crc: u32, found: u32 },
    File(Vec<u8>),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Sum::Part { found, .. } => *found = checksum(*found, bytes),
            Sum::File(content) => content.extend_from_slice(bytes),
        }
    }

    fn is_right(&self, file: &str) -> bool {
        match self {
            Sum::Part { crc, found } => crc == found,
            Sum::File(content) => e3_engine::sha256(content) == file,
        }
    }
}
