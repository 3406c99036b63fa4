//! Compiles a route table: `cargo run --release -p e3-service-natv4 --example routes -- IN OUT`
//! reads lines `PREFIX/LEN NEXTHOP` and writes what the service takes as its asset `routes`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err("two files are needed: the table as text, and what is to be written".into());
    };
    let text = std::fs::read_to_string(&from).map_err(|error| format!("{from}: {error}"))?;
    let table = e3_service_natv4::routes::compile(&text).map_err(|e| format!("{from}: {e}"))?;
    std::fs::write(&to, table).map_err(|error| format!("{to}: {error}"))?;
    Ok(())
}
