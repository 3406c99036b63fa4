//! Seeds that no run has had before. The first one follows from the commit, or is `E3_SEED_BASE`;
//! `E3_SEEDS` sets how many there are.

use e3_nemesis::fleet::{self, Order};
use std::io::Write as _;

const SEEDS: u64 = 300;

/// The first seed of a commit: its first nine hexadecimal digits.
fn first_seed(commit: &str) -> u64 {
    u64::from_str_radix(commit.get(..9).unwrap_or("1"), 16).unwrap_or(1)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn fresh_seeds() {
    let order = Order {
        seeds: number("E3_SEEDS").unwrap_or(SEEDS),
        base: number("E3_SEED_BASE").unwrap_or_else(|| first_seed(&fleet::commit())),
        threads: fleet::cores(),
        failures_max: usize::MAX,
        shrink_runs: 0,
        json: None,
        record: None,
    };
    // Also if the test passes, when what tests print is not shown.
    let seeds = format!("E3_SEED_BASE={} E3_SEEDS={}\n", order.base, order.seeds);
    std::io::stderr().write_all(seeds.as_bytes()).unwrap();
    assert_eq!(fleet::run(&order), Ok(0), "seeds that failed");
}
