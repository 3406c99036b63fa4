//! Processes of this machine, identified by id and start time, so that a process that reuses an id
//! is never signalled (Linux, proc_pid_stat(5)).

use crate::limits::POLL_INTERVAL;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A process, past or present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl Process {
    /// The process of that id, if there is one.
    pub fn of(pid: u32) -> Option<Process> {
        Some(Process {
            pid,
            start_ticks: stat(pid)?.start_ticks,
        })
    }

    /// This process.
    pub fn this() -> Option<Process> {
        Process::of(std::process::id())
    }

    /// Processor time that it has used; none if it has ended.
    pub fn cpu(&self) -> Option<Duration> {
        let stat = stat(self.pid).filter(|s| s.start_ticks == self.start_ticks)?;
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        Some(Duration::from_secs_f64(
            stat.cpu_ticks as f64 / ticks_per_second,
        ))
    }

    /// When it started, as a time since boot.
    pub fn started(&self) -> Duration {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        Duration::from_secs_f64(self.start_ticks as f64 / ticks_per_second)
    }

    /// The file that it runs, if the system says so.
    pub fn program(&self) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }

    /// Whether it runs. A zombie does not once all its threads have ended; until then it has its files.
    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|s| s.start_ticks == self.start_ticks && !s.has_ended())
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends SIGSTOP.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it has exited; false if it timed out.
    pub fn wait(&self, timeout: Duration) -> bool {
        let begin = Instant::now();
        while self.alive() {
            if begin.elapsed() > timeout {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        true
    }

    fn signal(&self, signal: Signal) {
        // Should it exit between this check and the signal, the goal is reached all the same.
        if let (true, Some(pid)) = (self.alive(), Pid::from_raw(self.pid.cast_signed())) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Allows this process as many open files as the system lets it: each connection and each file of a journal
/// is one, and the usual bound of 1024 is soon reached.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if raised == limit {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        let (now, most) = (limit.current, limit.maximum);
        tracing::warn!(?now, ?most, %error, "the bound of open files cannot be raised; it stays as it is");
    }
}

/// The time since boot, to 10 ms (Linux, proc_uptime(5)).
pub fn since_boot() -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text
        .split_ascii_whitespace()
        .next()
        .and_then(|s| s.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or_default())
}

struct Stat {
    state: char,
    /// User and system time.
    cpu_ticks: u64,
    /// The first one counts until the process is gone.
    threads: u64,
    start_ticks: u64,
}

impl Stat {
    fn has_ended(&self) -> bool {
        self.state == 'Z' && self.threads <= 1
    }
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// The name of the command is in parentheses and may contain any character, so fields are counted
/// from the last parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // Fields 14, 15, 20 and 22 of the line; the state is field 3.
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let threads = fields.nth(4)?.parse().ok()?;
    let start_ticks = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        state,
        cpu_ticks: user + system,
        threads,
        start_ticks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_parentheses_does_not_confuse() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 9 0 4242 1 1";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.state, stat.start_ticks), ('S', 4242));
        assert_eq!((stat.cpu_ticks, stat.threads), (3, 9));
    }

    #[test]
    fn a_zombie_has_ended_when_its_threads_have() {
        let parsed = |state: &str, threads: u32| {
            let text = format!("7 (e3) {state} 1 7 7 0 -1 0 0 0 0 0 1 2 0 0 20 0 {threads} 0 1 1");
            parse_stat(&text).unwrap()
        };
        assert!(parsed("Z", 1).has_ended());
        assert!(!parsed("Z", 2).has_ended());
        assert!(!parsed("S", 1).has_ended());
    }

    #[test]
    fn as_many_files_may_be_open_as_the_system_allows() {
        let limit = getrlimit(Resource::Nofile);
        if let Some(most) = limit.maximum {
            // Low enough to see a difference, high enough for the tests beside this one.
            let current = Some(most - 1);
            setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        }
        raise_open_files();
        let raised = getrlimit(Resource::Nofile);
        assert_eq!(raised.current, raised.maximum);
    }

    #[test]
    fn an_id_of_another_time_is_another_process() {
        let this = Process::this().unwrap();
        assert!(this.alive());
        assert!(this.started() <= since_boot() + Duration::from_millis(20));
        let other = Process {
            start_ticks: this.start_ticks + 1,
            ..this
        };
        assert!(!other.alive());
        // It would be this test's own process if the start time were not looked at.
        other.kill();
    }
}
