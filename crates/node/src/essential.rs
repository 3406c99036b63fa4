//! Threads that a node cannot do without. If one panics, the process ends: a new process is better than a
//! node that seems well and, say, never reports.

use crate::config::NodeError;
use std::thread::{self, JoinHandle};

/// Exit code of a process of which such a thread panicked, as of one whose first thread did.
const PANICKED: i32 = 101;

/// Ends the process if it is dropped by a panic.
struct Guard(&'static str);

impl Drop for Guard {
    fn drop(&mut self) {
        if thread::panicking() {
            let name = self.0;
            tracing::error!(
                "thread {name:?} panicked, and the node cannot go on without it: its process ends and must be started again"
            );
            std::process::exit(PANICKED);
        }
    }
}

/// Starts a thread whose panic ends the process.
pub(crate) fn spawn(
    name: &'static str,
    work: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NodeError> {
    let guarded = move || {
        let _guard = Guard(name);
        work();
    };
    let thread = thread::Builder::new().name(name.into());
    thread
        .spawn(guarded)
        .map_err(|source| NodeError::System { what: name, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the process that is to panic.
    const CHILD: &str = "E3_TEST_ESSENTIAL";

    #[test]
    fn a_panic_of_an_essential_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            spawn("calm", || ()).unwrap().join().unwrap();
            let _ = spawn("essential", || panic!("on purpose")).unwrap().join();
            // Without the guard the test would go on, and end well.
            return;
        }
        let ended = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "essential::tests::a_panic_of_an_essential_thread_ends_the_process",
            ])
            .arg("--nocapture")
            .env(CHILD, "1")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(PANICKED), "{errors}");
        assert!(errors.contains("on purpose"), "{errors}");
        let out = String::from_utf8_lossy(&ended.stdout);
        assert!(out.contains("running 1 test"), "{out}");
    }
}
