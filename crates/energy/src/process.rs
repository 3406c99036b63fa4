//! Runs a program for its output, with a time limit.

use crate::limits::{OUTPUT_LEN_MAX, PROCESS_MAX, PROCESS_POLL};
use crate::meter::MeterError;
use std::io::{ErrorKind, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

/// What a program printed.
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program without input. It is killed if it takes too long.
pub(crate) fn run(program: &str, command: &mut Command) -> Result<Output, MeterError> {
    let failed = |e: std::io::Error| MeterError::Program {
        program: program.to_string(),
        text: e.to_string(),
    };
    let command = command.stdin(Stdio::null());
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|e| match e.kind() {
        ErrorKind::NotFound => MeterError::NoProgram {
            program: program.to_string(),
        },
        _ => failed(e),
    })?;
    let deadline = Instant::now() + PROCESS_MAX;
    // Threads read, because a program may leave its pipes open to another one for ever.
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let slow = || MeterError::TooSlow {
        name: program.to_string(),
        limit: PROCESS_MAX,
    };
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(PROCESS_POLL),
            Ok(None) => {
                end(&mut child);
                return Err(slow());
            }
            Err(e) => {
                end(&mut child);
                return Err(failed(e));
            }
        }
    };
    let text = |bytes: Receiver<Vec<u8>>| {
        let left = deadline.saturating_duration_since(Instant::now());
        let bytes = bytes.recv_timeout(left).map_err(|_| slow())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(Output {
        status,
        stdout: text(stdout)?,
        stderr: text(stderr)?,
    })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(OUTPUT_LEN_MAX).read_to_end(&mut bytes);
        }
        let _ = sender.send(bytes);
    });
    receiver
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
