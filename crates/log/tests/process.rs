//! A process logs to a disk that is full, and to a reader that is gone.

use std::fs::OpenOptions;
use std::process::{Command, Stdio};

/// What the process of the tests does, in this variable.
const ROLE: &str = "E3_TEST_LOG";

/// Run as a process of its own by the other tests only.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("lines") => {
            e3_log::init("s1-host");
            tracing::info!(app = "a", "begun\nforged line \x1b[31m");
            tracing::debug!("seldom wanted");
            let _ = std::thread::spawn(|| panic!("over\nthere")).join();
        }
        Ok("lost") => {
            e3_log::init("s1-host");
            for _ in 0..3 {
                tracing::info!("into the void");
                e3_log::say("and this");
            }
            assert_eq!(e3_log::lines_lost(), 6);
            let _ = std::thread::spawn(|| panic!("nor does this one end the process")).join();
            assert_eq!(e3_log::lines_lost(), 7);
        }
        _ => {}
    }
}

fn process(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env_remove(e3_log::VARIABLE)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn is_line(line: &str, level: &str, text: &str) -> bool {
    let (time, rest) = line.split_once(' ').unwrap();
    let shape: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    shape.starts_with("0000-00-00T00:00:00.")
        && shape.ends_with('Z')
        && rest.starts_with(&format!("{level:5} s1-host: {text}"))
}

#[test]
fn a_line_has_time_level_and_process_and_no_control_characters() {
    let output = process("lines").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let begun = r#"begun\nforged line \x1b[31m app="a""#;
    assert!(is_line(lines[0], "INFO", begun), "{text}");
    assert!(is_line(lines[1], "ERROR", "panicked at "), "{text}");
    assert!(lines[1].ends_with(r"over\nthere"), "{text}");

    let output = process("lines").env(e3_log::VARIABLE, "debug").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("DEBUG s1-host: seldom wanted"), "{text}");
    let output = process("lines").env(e3_log::VARIABLE, "loud").output();
    let text = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(text.contains("WARN  s1-host: E3_LOG is \"loud\""), "{text}");
    assert!(text.contains("INFO  s1-host: begun"), "{text}");
}

/// A process whose lines are lost goes on.
fn goes_on(stderr: impl Into<Stdio>) {
    let status = process("lost").stderr(stderr).status().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_full_disk_ends_no_process() {
    goes_on(OpenOptions::new().write(true).open("/dev/full").unwrap());
}

#[test]
fn a_reader_that_is_gone_ends_no_process() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    goes_on(writer);
}
