//! Power of a server from its management controller: the command Get Power Reading of DCMI 1.5 (6.6.1),
//! sent by the program `ipmitool`.
//!
//! `ipmitool` and not the kernel's `/dev/ipmi0`, because that interface needs unsafe code for its
//! `ioctl`. The answer is read as bytes, which every release of the program prints alike.

use crate::meter::{About, Meter, MeterError, Reading, Step, plausible};
use crate::process::{self, Output};
use e3_model::meter::MeterScope;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the meter.
pub const NAME: &str = "ipmi";
/// The kernel's device of the management controller.
pub const DEVICE: &str = "/dev/ipmi0";
/// Network function of group extensions, Get Power Reading, DCMI, system power statistics.
const GET_POWER_READING: [&str; 7] = ["raw", "0x2c", "0x02", "0xdc", "0x01", "0x00", "0x00"];
/// Bytes of the answer after its completion code.
const ANSWER_LEN: usize = 18;
/// Bit of the last byte: the controller measures.
const IS_ACTIVE: u8 = 1 << 6;

/// A management controller.
pub struct Ipmi {
    about: About,
    program: PathBuf,
    arguments: Vec<String>,
}

impl Ipmi {
    /// The controller of this machine.
    pub fn local() -> Ipmi {
        Ipmi::by(Path::new("ipmitool"), Vec::new())
    }

    /// A controller that another program, or `ipmitool` with further arguments, reaches.
    pub fn by(program: &Path, arguments: Vec<String>) -> Ipmi {
        Ipmi {
            about: About {
                name: NAME.into(),
                scope: MeterScope::Server,
                step: Step::Watts(1.0),
                average_s: None,
            },
            program: program.to_path_buf(),
            arguments,
        }
    }
}

impl Meter for Ipmi {
    fn about(&self) -> &About {
        &self.about
    }

    fn read(&mut self) -> Result<Reading, MeterError> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(GET_POWER_READING);
        let output = process::run("ipmitool", &mut command)?;
        if !output.status.success() {
            return Err(refused(&output));
        }
        let (watts, period_s) = power(&output.stdout).map_err(answer)?;
        self.about.average_s = Some(period_s);
        plausible(NAME, watts)
    }
}

fn answer(text: String) -> MeterError {
    MeterError::Answer {
        name: NAME.into(),
        text,
    }
}

/// What a failure of `ipmitool` means.
fn refused(output: &Output) -> MeterError {
    let stderr = output.stderr.as_str();
    if stderr.contains("Permission denied") {
        let path = DEVICE.into();
        return MeterError::Forbidden { path };
    }
    // Completion codes of IPMI 2.0, table 5-2: the command or the network function is unknown.
    if stderr.contains("rsp=0xc1") || stderr.contains("rsp=0xd6") {
        return answer("the management controller measures no power (it has no DCMI)".into());
    }
    let lines = stderr.lines().map(str::trim).filter(|l| !l.is_empty());
    let mut text: String = lines.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        text = output.status.to_string();
    }
    MeterError::Program {
        program: "ipmitool".into(),
        text: text.chars().take(200).collect(),
    }
}

/// Watts, and the seconds over which the controller averages, from the bytes that `ipmitool raw` prints.
fn power(printed: &str) -> Result<(f64, f64), String> {
    let byte = |text: &str| u8::from_str_radix(text, 16).ok();
    let bytes: Option<Vec<u8>> = printed.split_ascii_whitespace().map(byte).collect();
    let wrong = || {
        let shown: String = printed.trim().chars().take(80).collect();
        format!("answered {shown:?}, must be {ANSWER_LEN} bytes that begin with dc")
    };
    let bytes = bytes.filter(|b| b.len() == ANSWER_LEN && b[0] == 0xdc);
    let bytes = bytes.ok_or_else(wrong)?;
    if bytes[17] & IS_ACTIVE == 0 {
        return Err("the management controller's power measurement is not active".into());
    }
    let watts = u16::from_le_bytes([bytes[1], bytes[2]]);
    let period_ms = u32::from_le_bytes([bytes[13], bytes[14], bytes[15], bytes[16]]);
    Ok((f64::from(watts), f64::from(period_ms) / 1e3))
}
