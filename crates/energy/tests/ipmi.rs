//! Power readings of DCMI: recorded answers, and the simulator of a management controller from OpenIPMI.

use e3_energy::ipmi::Ipmi;
use e3_energy::limits::PROCESS_MAX;
use e3_energy::{Meter, MeterError, Reading};
use e3_model::Watts;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program that stands for `ipmitool`.
struct Tool(tempfile::TempDir);

impl Tool {
    fn new(script: &str) -> Tool {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("script"), script).unwrap();
        Tool(dir)
    }

    /// The shell reads the script, so that no process can find the program open for writing.
    fn read(&self) -> Result<Reading, MeterError> {
        let script = self.0.path().join("script").display().to_string();
        Ipmi::by(Path::new("/bin/sh"), vec![script]).read()
    }

    fn fails(&self) -> String {
        self.read().unwrap_err().to_string()
    }
}

/// An answer of 220 W now, 12 W at least, 410 W at most, 217 W on average over 5 s; measuring.
const ANSWER: &str = " dc dc 00 0c 00 9a 01 d9 00 00 00 00 5b 88 13 00\n 00 40\n";

#[test]
fn a_power_reading_is_the_present_one_with_its_period() {
    let script = format!("cat <<EOT\n{ANSWER}EOT\n");
    let tool = Tool::new(&script);
    assert_eq!(tool.read().unwrap(), Reading::Power(Watts(220.0)));
    let script = tool.0.path().join("script").display().to_string();
    let mut meter = Ipmi::by(Path::new("/bin/sh"), vec![script]);
    meter.read().unwrap();
    let about = meter.about();
    assert_eq!(about.to_string(), "steps of 1 W, average over 5 s");
}

#[test]
fn a_controller_that_does_not_measure_is_told() {
    let tool = Tool::new("echo ' dc 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00'; echo ' 00 00'");
    let says = "ipmi: the management controller's power measurement is not active";
    assert_eq!(tool.fails(), says);
    let tool = Tool::new(
        "echo 'Unable to send RAW command (channel=0x0 netfn=0x2c lun=0x0 cmd=0x2 rsp=0xc1): \
         Invalid command' >&2; exit 1",
    );
    let says = "ipmi: the management controller measures no power (it has no DCMI)";
    assert_eq!(tool.fails(), says);
}

#[test]
fn garbage_is_told() {
    for garbage in ["", "dc", "hello", "zz zz", "dd 01", "-1 +2"] {
        let error = Tool::new(&format!("echo '{garbage}'")).fails();
        assert!(
            error.contains("must be 18 bytes that begin with dc"),
            "{error}"
        );
    }
    let endless = Tool::new("exec yes dc").fails();
    assert!(
        endless.starts_with("ipmitool failed: signal: 13"),
        "{endless}"
    );
}

#[test]
fn a_device_that_only_root_may_open_is_told_with_a_fix() {
    let says = "Could not open device at /dev/ipmi0 or /dev/ipmi/0: Permission denied";
    let error = Tool::new(&format!("echo '{says}' >&2; exit 1"))
        .read()
        .unwrap_err();
    assert_eq!(error.to_string(), "/dev/ipmi0 may not be read by this user");
    assert!(error.fix().unwrap().contains("run the node as root"));
}

#[test]
fn a_program_that_is_missing_or_hangs_costs_a_bounded_time() {
    let error = Ipmi::by(Path::new("/nowhere/ipmitool"), Vec::new()).read();
    let error = error.unwrap_err();
    assert_eq!(error.fix().unwrap(), "install it: apt install ipmitool");
    let begin = Instant::now();
    assert_eq!(
        Tool::new("exec sleep 60").fails(),
        "ipmitool did not answer within 5 s"
    );
    // A child of the program that keeps its output open.
    assert_eq!(
        Tool::new("sleep 7 & exit 0").fails(),
        "ipmitool did not answer within 5 s"
    );
    assert!(begin.elapsed() < 4 * PROCESS_MAX);
}

/// `ipmitool` and the simulator, if they are installed.
fn simulator() -> Option<[PathBuf; 2]> {
    let find = |name: &str| {
        let dirs = ["/usr/bin", "/usr/sbin", "/usr/local/bin"];
        let mut files = dirs.iter().map(|dir| Path::new(dir).join(name));
        files.find(|file| {
            let metadata = file.metadata();
            metadata.is_ok_and(|m| m.permissions().mode() & 0o111 != 0)
        })
    };
    let found = Option::zip(find("ipmitool"), find("ipmi_sim"));
    if found.is_none() {
        println!("SKIPPED: ipmitool or ipmi_sim is not installed (scripts/setup --checks)");
    }
    found.map(|(tool, sim)| [tool, sim])
}

/// The simulator on a free port, ended when dropped.
struct Simulator {
    tool: PathBuf,
    port: u16,
    process: Child,
    _dir: tempfile::TempDir,
}

impl Simulator {
    fn start([tool, sim]: [PathBuf; 2], has_dcmi: bool) -> Simulator {
        let dir = tempfile::tempdir().unwrap();
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = port.local_addr().unwrap().port();
        let module = if has_dcmi {
            format!("loadlib \"{}\" \"\"", module(dir.path()))
        } else {
            String::new()
        };
        let auths = "none md2 md5 straight";
        let lan = format!(
            "name \"e3\"\n{module}\nset_working_mc 0x20\nstartlan 1\naddr 127.0.0.1 {port}\n\
             priv_limit admin\nallowed_auths_admin {auths}\nallowed_auths_operator {auths}\n\
             guid a123456789abcdefa123456789abcdef\nendlan\n\
             user 2 true \"monitor\" \"secret\" admin 10 {auths}\n"
        );
        let board = "mc_setbmc 0x20\n\
             mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
             mc_enable 0x20\n";
        std::fs::write(dir.path().join("lan.conf"), lan).unwrap();
        std::fs::write(dir.path().join("sim.emu"), board).unwrap();
        let mut command = Command::new(sim);
        command.args(["-c", "lan.conf", "-f", "sim.emu", "-s", "state", "-n"]);
        command.current_dir(dir.path());
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Simulator {
            tool,
            port,
            process: command.spawn().unwrap(),
            _dir: dir,
        }
    }

    /// The first answer of a simulator. One that does not answer in time is started again: another
    /// process may have its port.
    fn read(programs: &[PathBuf; 2], has_dcmi: bool) -> Result<Reading, MeterError> {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let read = Simulator::start(programs.clone(), has_dcmi).answer();
            if !is_silent(&read) || Instant::now() > deadline {
                return read;
            }
        }
    }

    fn answer(&self) -> Result<Reading, MeterError> {
        let port = self.port.to_string();
        let words = [
            "-I",
            "lanplus",
            "-H",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "monitor",
        ];
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        words.extend(["-P", "secret", "-C", "3", "-R", "1"].map(String::from));
        let mut meter = Ipmi::by(&self.tool, words);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let read = meter.read();
            if !is_silent(&read) || Instant::now() > deadline {
                return read;
            }
        }
    }
}

fn is_silent(read: &Result<Reading, MeterError>) -> bool {
    let silence =
        |e: &MeterError| matches!(e, MeterError::Program { .. } | MeterError::TooSlow { .. });
    read.as_ref().is_err_and(silence)
}

impl Drop for Simulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Compiles the simulator's DCMI.
fn module(dir: &Path) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulator/dcmi.c");
    let module = dir.join("dcmi.so");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o"]);
    let status = command.arg(&module).arg(source).status().unwrap();
    assert!(status.success(), "cc failed");
    module.display().to_string()
}

#[test]
fn ipmitool_reads_a_simulated_controller_with_dcmi() {
    let Some(programs) = simulator() else { return };
    let read = Simulator::read(&programs, true);
    assert_eq!(read.unwrap(), Reading::Power(Watts(220.0)));
}

#[test]
fn ipmitool_tells_that_a_simulated_controller_has_no_dcmi() {
    let Some(programs) = simulator() else { return };
    let read = Simulator::read(&programs, false);
    let says = "ipmi: the management controller measures no power (it has no DCMI)";
    assert_eq!(read.unwrap_err().to_string(), says);
}
