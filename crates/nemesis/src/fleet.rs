//! Many seeds on many threads.

use crate::record::{Record, output, source};
use e3_sim::{Failure, Scenario, Summary, draw, shrink};
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Which seeds to run, and how.
pub struct Order {
    /// How many seeds.
    pub seeds: u64,
    /// The first seed.
    pub base: u64,
    /// How many run at a time.
    pub threads: usize,
    /// Failures after which no further seed begins.
    pub failures_max: usize,
    /// Most runs for shrinking a failure; 0 to shrink none.
    pub shrink_runs: usize,
    /// The file for the figures.
    pub json: Option<PathBuf>,
    /// The file that counts the seeds that have run on this source. The first seed is then the next
    /// one of the record, if it has any.
    pub record: Option<PathBuf>,
}

/// The results so far.
#[derive(Default)]
struct Tally {
    passed: u64,
    requests: u64,
    done: u64,
    simulated_s: u64,
    requests_min: Option<u64>,
    simulated_s_min: Option<u64>,
    faults_min: Option<u64>,
    withheld: u64,
    longest_wait_ms: (u64, u64),
    forfeited: u64,
    resharded: u64,
    restored_logs: u64,
    beyond: u64,
    orchestrated: u64,
    publishing: u64,
    published: u64,
    received: u64,
    backups: [u64; 3],
    replayed: u64,
    members: [u64; 3],
    upgrades: [u64; 3],
    went_back: u64,
    recovery_ms_max: (u64, u64),
    pairs: BTreeMap<(&'static str, &'static str), u64>,
    failures: Vec<(u64, Failure)>,
}

/// The figures of a run, for a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures<'a> {
    commit: &'a str,
    base: u64,
    seeds: u64,
    failed_seeds: Vec<u64>,
    seeds_per_min: u64,
    pairs_met: usize,
    /// All runs on this source.
    record: Option<Record>,
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Records where a panic occurred, for the failure of its seed.
pub fn note_panic(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string);
    PANIC.with(|p| *p.borrow_mut() = place.unwrap_or_default());
}

/// Runs a scenario; a failure by panic says where the panic occurred.
pub fn attempt(scenario: &Scenario) -> Result<Summary, Failure> {
    PANIC.with(|p| p.borrow_mut().clear());
    e3_sim::run(scenario).map_err(|mut failure| {
        let place = PANIC.with(|p| p.borrow().clone());
        if !place.is_empty() {
            failure.0.push(format!("at {place}"));
        }
        failure
    })
}

/// The number of cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// A scenario as JSON, as its file has it.
pub fn to_json(scenario: &Scenario) -> String {
    serde_json::to_string_pretty(scenario).expect("a scenario has text keys only")
}

/// The commit that is checked out; empty if git does not say.
pub fn commit() -> String {
    output("git", ["rev-parse", "HEAD"]).unwrap_or_default()
}

/// Prints what failed, how to replay it, and the shortest script that fails too.
pub fn print_failure(scenario: &Scenario, failure: &Failure, shrink_runs: usize) {
    let seed = scenario.seed;
    println!("seed {seed} failed at commit {}:", commit());
    for line in &failure.0 {
        println!("  {line}");
    }
    let replay = format!("replay: cargo run --release -p e3-nemesis -- seed {seed}");
    if shrink_runs == 0 {
        println!("{replay} --shrink 300");
        return;
    }
    println!("{replay}");
    let small = shrink(scenario, shrink_runs, |s| attempt(s).is_err());
    println!(
        "shrunk to {} faults, {} requests, {} nodes:",
        small.script.len(),
        small.requests(),
        small.nodes()
    );
    for act in &small.script {
        println!("  {act}");
    }
    if let Err(failure) = attempt(&small) {
        for line in &failure.0 {
            println!("  {line}");
        }
    }
    let text = serde_json::to_string(&small).expect("a scenario has text keys only");
    println!("scenario: {text}");
}

/// Runs all seeds and prints the results. Returns how many seeds failed, or why the file of the figures
/// could not be written.
pub fn run(order: &Order) -> Result<usize, String> {
    let record = match &order.record {
        Some(file) => Some(Record::read(file, &source()?, order.base)?),
        None => None,
    };
    let base = record.as_ref().map_or(order.base, |r| r.next_seed);
    let start = Instant::now();
    let next = AtomicU64::new(base);
    let end = base + order.seeds;
    let tally = Mutex::new(Tally::default());
    println!("seeds {base}..{end} on {} threads", order.threads);
    std::thread::scope(|scope| {
        for _ in 0..order.threads {
            scope.spawn(|| work(order, &next, end, &tally));
        }
    });
    let tally = tally.into_inner().unwrap_or_else(|e| e.into_inner());
    report(order, base, record, &tally, start)
}

/// Writes a value to a file, as JSON. The error names the file.
pub fn write_json(file: &Path, value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).expect("it has text keys only");
    std::fs::write(file, text + "\n").map_err(|e| format!("{}: {e}", file.display()))
}

fn work(order: &Order, next: &AtomicU64, end: u64, tally: &Mutex<Tally>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let has_enough = |t: &Tally| t.failures.len() >= order.failures_max;
        if seed >= end || has_enough(&tally.lock().unwrap_or_else(|e| e.into_inner())) {
            return;
        }
        let result = attempt(&draw(seed));
        let mut tally = tally.lock().unwrap_or_else(|e| e.into_inner());
        match result {
            Ok(summary) => tally.add(seed, &summary),
            Err(failure) => {
                println!(
                    "seed {seed} failed: {}",
                    failure.0.first().map_or("", |s| s)
                );
                tally.failures.push((seed, failure));
            }
        }
    }
}

impl Tally {
    fn add(&mut self, seed: u64, summary: &Summary) {
        self.passed += 1;
        self.requests += summary.requests;
        self.done += summary.done;
        self.simulated_s += summary.simulated.as_secs();
        let least = |least: Option<u64>, n: u64| Some(least.map_or(n, |m| m.min(n)));
        if summary.is_beyond {
            self.beyond += 1;
        } else {
            self.requests_min = least(self.requests_min, summary.requests);
            self.simulated_s_min = least(self.simulated_s_min, summary.simulated.as_secs());
        }
        self.forfeited += summary.forfeited as u64;
        self.faults_min = least(self.faults_min, summary.faults as u64);
        self.withheld += summary.withheld;
        self.longest_wait_ms = self
            .longest_wait_ms
            .max((summary.longest_wait.as_millis(), seed));
        self.resharded += summary.resharded;
        self.restored_logs += summary.restored_logs;
        self.orchestrated += summary.orchestrated;
        self.replayed += summary.replayed;
        self.publishing += u64::from(summary.published > 0);
        self.published += summary.published;
        self.received += summary.received;
        for (all, here) in self.backups.iter_mut().zip(summary.backups) {
            *all += here;
        }
        for (all, here) in self.members.iter_mut().zip(summary.members) {
            *all += here;
        }
        for (all, here) in self.upgrades.iter_mut().zip(summary.upgrades) {
            *all += here;
        }
        self.went_back += summary.went_back;
        let recovery_ms = summary.recovered_after.as_millis();
        self.recovery_ms_max = self.recovery_ms_max.max((recovery_ms, seed));
        for pair in &summary.pairs {
            *self.pairs.entry(*pair).or_default() += 1;
        }
    }
}

fn report(
    order: &Order,
    base: u64,
    mut record: Option<Record>,
    tally: &Tally,
    start: Instant,
) -> Result<usize, String> {
    let spent = start.elapsed();
    let ran = tally.passed + tally.failures.len() as u64;
    let per_min = (ran as f64 * 60.0 / spent.as_secs_f64()) as u64;
    for ((a, b), count) in &tally.pairs {
        println!("{count:>7}  {a} with {b}");
    }
    let each = |n: u64| n / ran.max(1);
    println!(
        "{} pairs of faults met; each seed: {} requests (at least {}), {} handled, {} s (at least {}), at least {} faults; slowest recovery {} ms (seed {}), longest wait without a fault {} ms (seed {})",
        tally.pairs.len(),
        each(tally.requests),
        tally.requests_min.unwrap_or(0),
        each(tally.done),
        each(tally.simulated_s),
        tally.simulated_s_min.unwrap_or(0),
        tally.faults_min.unwrap_or(0),
        tally.recovery_ms_max.0,
        tally.recovery_ms_max.1,
        tally.longest_wait_ms.0,
        tally.longest_wait_ms.1,
    );
    println!(
        "{} shards lost their last copy to the script; {} services changed their number of shards; {} logs of the controller lacked decisions and were restored, and {} runs ended where hidden nodes knew of them; {} nodes without plans were replaced; {} moves of the orchestrator",
        tally.forfeited,
        tally.resharded,
        tally.restored_logs,
        tally.beyond,
        tally.withheld,
        tally.orchestrated
    );
    println!(
        "{} publications in {} seeds; subscribers handled {} copies",
        tally.published, tally.publishing, tally.received
    );
    let [complete, cancelled, restored] = tally.backups;
    println!(
        "{complete} backups were complete, {cancelled} were cancelled; {restored} applications began with one; {} replays of dead letters took effect",
        tally.replayed
    );
    let [forth, back, raised] = tally.upgrades;
    println!(
        "{forth} processes were replaced by those of the next release, {back} by those of the one before; {raised} clusters raised their format; {} versions were left for the one before",
        tally.went_back
    );
    let [added, removed, kept] = tally.members;
    println!(
        "{added} nodes were added, {removed} were removed, {kept} could not be drained after the healing"
    );
    println!("{ran} seeds in {} s: {per_min} a minute", spent.as_secs());
    for (seed, failure) in &tally.failures {
        print_failure(&draw(*seed), failure, order.shrink_runs);
    }
    println!("{} of {ran} seeds failed", tally.failures.len());
    let failed_seeds: Vec<u64> = tally.failures.iter().map(|(seed, _)| *seed).collect();
    if let (Some(record), Some(file)) = (&mut record, &order.record) {
        record.next_seed = base + ran;
        record.seeds += ran;
        record.failed_seeds.extend(&failed_seeds);
        write_json(file, record)?;
        let (seeds, failed) = (record.seeds, record.failed_seeds.len());
        println!("on this source: {failed} of {seeds} seeds failed");
    }
    if let Some(file) = &order.json {
        let figures = Figures {
            commit: &commit(),
            base,
            seeds: ran,
            failed_seeds,
            seeds_per_min: per_min,
            pairs_met: tally.pairs.len(),
            record,
        };
        write_json(file, &figures)?;
    }
    Ok(tally.failures.len())
}
