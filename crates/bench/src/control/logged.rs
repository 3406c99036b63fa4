//! A controller's state with its log, as the controller program executes commands: a command is checked
//! on a copy, appended to the log on the disk, and made visible when the log is durable.

use e3_control::{Applied, Command, CommandError, Control, Plans};
use e3_model::Timestamp;
use e3_store::Store;
use std::time::Instant;
use tempfile::TempDir;

/// Bytes of log after which the controller program replaces it by a snapshot.
const LOG_LEN_MAX: u64 = 4 << 20;

pub(super) struct Logged {
    pub(super) control: Control,
    pub(super) plans: Plans,
    store: Store,
    /// Snapshots that replaced the log.
    pub(super) snapshots: usize,
    /// Time waited until the disk had the log.
    pub(super) disk_ms: f64,
    /// Holds the log; removed at the end.
    _dir: TempDir,
}

impl Logged {
    pub(super) fn new(control: Control) -> Logged {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (store, _) = Store::open(dir.path()).expect("an empty directory");
        let mut plans = Plans::default();
        plans.note(&control);
        Logged {
            control,
            plans,
            store,
            snapshots: 0,
            disk_ms: 0.0,
            _dir: dir,
        }
    }

    /// Executes commands that arrive together, with one write to the disk. Gives what became of each.
    pub(super) fn execute_all(
        &mut self,
        now: Timestamp,
        commands: &[Command],
    ) -> Vec<Result<Applied, CommandError>> {
        let mut next = self.control.fork();
        let done = commands.iter().map(|c| self.take(&mut next, now, c));
        let done = done.collect();
        let is_changed = next.version != self.control.version;
        if is_changed {
            let start = Instant::now();
            self.store.sync().expect("the disk takes the log");
            self.disk_ms += start.elapsed().as_secs_f64() * 1e3;
        }
        self.control = next;
        if is_changed {
            self.plans.note(&self.control);
            if self.store.log_len() > LOG_LEN_MAX {
                self.snapshot();
            }
        }
        done
    }

    fn take(
        &mut self,
        next: &mut Control,
        now: Timestamp,
        command: &Command,
    ) -> Result<Applied, CommandError> {
        // Kept for the case that the log cannot be written.
        let before = next.clone();
        let command = next.at(now, command);
        let format = next.format;
        let (applied, choices) = next.apply_choosing(&command)?;
        let command = Control::logged(format, command, choices);
        if applied != Applied::Nothing {
            let bytes = serde_json::to_vec(&command).expect("commands have text keys only");
            self.store.append(&bytes).expect("the disk takes the log");
        }
        drop(before);
        Ok(applied)
    }

    /// Replaces the log by a snapshot of the state; gives its length in bytes.
    pub(super) fn snapshot(&mut self) -> usize {
        let bytes = serde_json::to_vec(&self.control).expect("state has text keys only");
        self.store.snapshot(&bytes).expect("the disk takes it");
        self.snapshots += 1;
        bytes.len()
    }
}
