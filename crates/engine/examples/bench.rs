//! Prints the engine's benchmarks: `cargo run --release -p e3-engine --example bench`.

fn main() {
    for r in e3_engine::bench::run() {
        let value = r.value.map_or("none".into(), |v| format!("{v:.2}"));
        let pass = if r.pass { "pass" } else { "MISS" };
        println!(
            "{pass} {} = {value} {} (aim {}): {}",
            r.name, r.unit, r.aim, r.note
        );
    }
}
