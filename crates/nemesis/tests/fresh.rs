//! Seeds that no run has had before: they follow from the commit, or from `E3_SEED_BASE`.
//! `E3_SEEDS` says how many there are.

use e3_sim::{draw, run};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 300;

/// The first seed: by the environment, or else from the commit.
fn base() -> u64 {
    if let Some(base) = number("E3_SEED_BASE") {
        return base;
    }
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let head = head.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let digits = head.unwrap_or_default();
    u64::from_str_radix(digits.get(..9).unwrap_or("1"), 16).unwrap_or(1)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn fresh_seeds() {
    let (base, count) = (base(), number("E3_SEEDS").unwrap_or(SEEDS));
    println!("E3_SEED_BASE={base}, {count} seeds");
    let next = AtomicU64::new(base);
    let failures = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= base + count {
                return;
            }
            if let Err(failure) = run(&draw(seed)) {
                failures.lock().unwrap().push((seed, failure));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    for (seed, failure) in &failures {
        println!("seed {seed}: {failure:#?}");
        println!("replay: cargo run --release -p e3-nemesis -- seed {seed} --shrink 300");
    }
    assert!(
        failures.is_empty(),
        "{} of {count} seeds failed",
        failures.len()
    );
}
