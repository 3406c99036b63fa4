//! Compiles a route table: `cargo run --release -p e3-service-natv4 --example routes -- IN OUT`
//! reads lines `PREFIX/LEN NEXTHOP` and writes what the service takes as its asset `routes`.

use std::process::ExitCode;

use e3_sdk::Error;
use e3_service_natv4::routes;

fn compile(from: &str, to: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(from).map_err(|error| format!("{from}: {error}"))?;
    let table = routes::compile(&text).map_err(|error| match error {
        Error::Asset { line, reason, .. } => format!("{from}:{line}: {reason}"),
        other => format!("{from}: {other}"),
    })?;
    std::fs::write(to, table).map_err(|error| format!("{to}: {error}"))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match &args[..] {
        [from, to] => compile(from, to),
        _ => Err("two files are needed: the table as text, and what is to be written".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
