//! `e3 logs`: the last lines of the logs, and new ones.

use crate::cluster::state_dir::StateDir;
use crate::limits::{POLL_INTERVAL, TAIL_LEN_MAX};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::Args;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `e3 logs`.
#[derive(Args, Debug, Clone)]
pub struct Logs {
    /// Process: controller, supervisor or the name of a node [default: all]
    pub name: Option<String>,
    /// Print new lines as they are written
    #[arg(short, long)]
    pub follow: bool,
    /// Lines to print from the end of each log
    #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
    pub lines: usize,
}

/// A log that is followed.
struct Log {
    name: String,
    path: PathBuf,
    reader: BufReader<File>,
    /// The beginning of an incomplete line.
    partial: String,
}

/// `e3 logs`.
pub fn run(args: &Logs, settings: &Settings) -> Result<(), Failure> {
    let state = StateDir::new(&settings.dir);
    let names = names(&state);
    let chosen: Vec<String> = match &args.name {
        None => names.clone(),
        Some(name) => names.iter().filter(|n| *n == name).cloned().collect(),
    };
    if chosen.is_empty() {
        let dir = state.logs_dir();
        let message = match &args.name {
            Some(name) => format!("no log of {name:?} in {}", dir.display()),
            None => format!("no logs in {}", dir.display()),
        };
        let failure = Failure::new(Exit::NotFound, message);
        return Err(if names.is_empty() {
            failure.hint("start a cluster with: e3 up")
        } else {
            failure.hint(format!("available: {}", names.join(", ")))
        });
    }
    let width = chosen.iter().map(String::len).max().unwrap_or(0);
    let show = |name: &str, line: &str| {
        // Services and other programs write logs: their text must not control the terminal.
        let line = e3_log::escape(line);
        match args.name {
            Some(_) => output::print(&format!("{line}\n")),
            None => output::print(&format!("{name:width$} | {line}\n")),
        }
    };
    let mut logs = Vec::new();
    for name in &chosen {
        let (log, lines) = Log::open(name, &state.log_file(name), args.lines)?;
        for line in lines {
            show(name, &line)?;
        }
        logs.push(log);
    }
    if !args.follow {
        return Ok(());
    }
    while !output::reader_is_gone() {
        follow(&mut logs, show)?;
        if args.name.is_none() {
            logs.extend(added(&state, &logs));
        }
        std::thread::sleep(POLL_INTERVAL * 4);
    }
    Ok(())
}

/// Shows the new lines of all logs. One that became long begins again, or is another file.
fn follow(
    logs: &mut [Log],
    show: impl Fn(&str, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for log in logs {
        // Found before the last lines of the earlier file are read.
        let next = log.replaced_by();
        log.show_new(&show)?;
        if let Some(next) = next {
            *log = next;
            log.show_new(&show)?;
        }
    }
    Ok(())
}

/// The logs of processes that are not among these: nodes that were added.
fn added(state: &StateDir, known: &[Log]) -> Vec<Log> {
    let mut names = names(state);
    names.retain(|name| known.iter().all(|log| log.name != *name));
    let log = |name: String| Log::begin(&name, &state.log_file(&name)).ok();
    names.into_iter().filter_map(log).collect()
}

fn names(state: &StateDir) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(state.logs_dir()) else {
        return Vec::new();
    };
    let name = |e: std::fs::DirEntry| {
        let file = e.file_name().into_string().ok()?;
        Some(file.strip_suffix(".log")?.to_string())
    };
    let mut names: Vec<String> = entries.flatten().filter_map(name).collect();
    names.sort();
    names
}

impl Log {
    /// A log from its first line on.
    fn begin(name: &str, path: &Path) -> std::io::Result<Log> {
        Ok(Log {
            name: name.to_string(),
            path: path.to_path_buf(),
            reader: BufReader::new(File::open(path)?),
            partial: String::new(),
        })
    }

    /// The log that now has this one's name, if it is another file or begins again.
    fn replaced_by(&self) -> Option<Log> {
        let now = std::fs::metadata(&self.path).ok()?;
        let mut file = self.reader.get_ref();
        let own = file.metadata().ok()?;
        let is_same = (now.dev(), now.ino()) == (own.dev(), own.ino());
        if is_same && now.len() >= file.stream_position().ok()? {
            return None;
        }
        Log::begin(&self.name, &self.path).ok()
    }

    /// Opens a log and reads its last lines.
    fn open(name: &str, path: &Path, lines: usize) -> Result<(Log, Vec<String>), Failure> {
        let failed = |e: std::io::Error| Failure::file("read", path, &e);
        let mut log = Log::begin(name, path).map_err(failed)?;
        let file = log.reader.get_mut();
        let length = file.metadata().map_err(failed)?.len();
        let from = length.saturating_sub(TAIL_LEN_MAX);
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        let mut text = Vec::new();
        file.take(TAIL_LEN_MAX)
            .read_to_end(&mut text)
            .map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        let last = &all[all.len().saturating_sub(lines)..];
        Ok((log, last.iter().map(|l| l.to_string()).collect()))
    }

    fn show_new(
        &mut self,
        show: impl Fn(&str, &str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(line) = self.next_line() {
            show(&self.name, &line)?;
        }
        Ok(())
    }

    fn next_line(&mut self) -> Option<String> {
        let mut bytes = Vec::new();
        self.reader.read_until(b'\n', &mut bytes).ok()?;
        self.partial.push_str(&String::from_utf8_lossy(&bytes));
        let line = self.partial.strip_suffix('\n')?.to_string();
        self.partial.clear();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_log_is_followed_into_its_next_file_and_added_ones_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        state.create().unwrap();
        let file = state.log_file("a");
        std::fs::write(&file, "first\n").unwrap();
        let (log, lines) = Log::open("a", &file, 20).unwrap();
        assert_eq!(lines, ["first"]);
        let mut logs = vec![log];
        let shown = RefCell::new(Vec::new());
        let show = |name: &str, line: &str| {
            shown.borrow_mut().push(format!("{name}: {line}"));
            Ok(())
        };

        std::fs::write(&file, "first\nlast\n").unwrap();
        std::fs::rename(&file, state.logs_dir().join("a.log.1")).unwrap();
        std::fs::write(&file, "next\n").unwrap();
        std::fs::write(state.log_file("b"), "new\n").unwrap();
        follow(&mut logs, show).unwrap();
        logs.extend(added(&state, &logs));
        assert_eq!(logs.len(), 2);
        follow(&mut logs, show).unwrap();
        assert_eq!(shown.take(), ["a: last", "a: next", "b: new"]);
        follow(&mut logs, show).unwrap();
        assert!(shown.take().is_empty());
    }
}
