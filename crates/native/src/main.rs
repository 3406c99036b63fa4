//! `e3-native DIRECTORY [SERVICE...]`: measures services, whose modules are in the directory, and
//! prints a figure a line, as JSON, when a service is done. `e3 bench services` runs it.

use e3_native::cases::ALL;
use e3_native::compare::{Effort, measure};
use std::path::PathBuf;
use std::process::ExitCode;

/// Rounds of each side, and requests whose effects are compared before and after.
const EFFORT: Effort = Effort {
    rounds: 31,
    compared: 4096,
};

fn run(args: &[String]) -> Result<(), String> {
    let (services, names) = args
        .split_first()
        .ok_or("a directory with the services' modules is needed")?;
    let known = |name: &&String| ALL.iter().all(|(known, _)| known != name);
    if let Some(name) = names.iter().find(known) {
        return Err(format!("{name:?} is none of the services"));
    }
    for (name, case) in ALL {
        if !names.is_empty() && names.iter().all(|n| n != name) {
            continue;
        }
        let measured = measure(&case(), &PathBuf::from(services), EFFORT);
        let measured = measured.map_err(|e| format!("{name}: {e}"))?;
        for figure in measured.figures() {
            let line = serde_json::to_string(&figure).map_err(|e| e.to_string())?;
            println!("{line}");
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
