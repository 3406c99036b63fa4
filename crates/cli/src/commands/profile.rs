//! `e3 profile`: measures what a service costs on this machine and prints its profile, which
//! placement and simulator read.

use crate::commands::run::{Run, requests, service};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::Args;
use e3_bench::Machine;
use e3_engine::{InstanceSpec, Solo};
use e3_invocation::{Completion, Invocation, Outcome};
use e3_model::document::{API_VERSION, Document, Kind, Metadata, parse_profile};
use e3_model::profile::{NodeCost, ProfileSpec, Provenance, ServiceTime};
use e3_model::{Bytes, Nanos, NodeKind, Timestamp, Watts};
use e3_power::PowerModel;
use e3_random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Sizes of generated requests.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1500];
/// Generated requests of each size.
const GENERATED: u64 = 1024;
/// Requests that are queued together, as on a busy node.
const BATCH: usize = 64;
/// How long each size is measured, after a warm-up pass.
const MEASURED: Duration = Duration::from_millis(400);
/// The size whose variation goes into the profile: that of the paper's tables.
const SIZE_TYPICAL: u32 = 512;

/// The provenance of each number; the field `provenance` is that of the service times.
const PROVENANCE: &str = "\
# serviceTime, variation, outputs, writeBytes, memory: MEASURED on this machine.
# activePowerW: MODELLED from Table 1 of E3 (USENIX ATC 2019); no meter was read.
";

/// `e3 profile`.
#[derive(Args, Debug, Clone)]
pub struct Profile {
    /// The service and its environment. Requests of --input are measured by size.
    #[command(flatten)]
    pub run: Run,
    /// Kind of node that this machine stands for: host or smartnic
    #[arg(long, value_parser = kind, default_value = "host", value_name = "KIND")]
    pub kind: NodeKind,
    /// Write the profile to this file, keeping the figures of other kinds of nodes in it
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

fn kind(text: &str) -> Result<NodeKind, String> {
    match text {
        "host" => Ok(NodeKind::Host),
        "smartnic" => Ok(NodeKind::SmartNic),
        _ => Err(format!("{text:?} is not host or smartnic")),
    }
}

/// The cost of requests of one size.
struct Size {
    bytes: u32,
    mean_ns: f64,
    variation: f64,
    instructions: f64,
    refused: u64,
    requests: u64,
}

/// Totals over all sizes.
#[derive(Default)]
struct Totals {
    requests: u64,
    write_bytes: u64,
    outputs: Vec<u64>,
    keys: BTreeSet<Vec<u8>>,
    memory_bytes: u64,
}

/// `e3 profile`.
pub fn run(args: &Profile, settings: &Settings) -> Result<(), Failure> {
    let (wasm, spec) = service(&args.run, settings)?;
    let by_size = by_size(args.run.input.as_deref())?;
    let mut totals = Totals {
        outputs: vec![0; spec.channels.len()],
        ..Totals::default()
    };
    let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::Input, e);
    let start = |count_instructions| {
        let started = Solo::start_with(&wasm, spec.clone(), |config| {
            config.accelerators = args.run.accelerators();
            config.count_instructions = count_instructions;
        });
        started.map_err(|e| failed(&e))
    };
    let (mut solo, mut counting) = (start(false)?, start(true)?);
    let bar = output::progress(by_size.len() as u64, "profile");
    let mut sizes = Vec::new();
    for (len, all) in &by_size {
        let mut size = measure(&mut solo, all, &mut totals)?;
        size.bytes = *len as u32;
        size.instructions = instructions(&mut counting, all)?;
        sizes.push(size);
        bar.inc(1);
    }
    bar.finish_and_clear();
    totals.memory_bytes = (solo.stats().memory_bytes + solo.state_bytes()) as u64;
    sizes.iter().for_each(say);
    let text = document(args, &spec, &sizes, &totals)?;
    match &args.write {
        Some(file) => {
            std::fs::write(file, &text).map_err(|e| Failure::file("write", file, &e))?;
            output::print(&format!("wrote {}\n", file.display()))
        }
        None => output::print(&text),
    }
}

/// Requests by size: those of a file, or generated ones.
fn by_size(file: Option<&Path>) -> Result<BTreeMap<usize, Vec<Invocation>>, Failure> {
    let Some(file) = file else {
        return Ok(SIZES.map(|len| (len, generated(len))).into());
    };
    let mut by_size: BTreeMap<usize, Vec<Invocation>> = BTreeMap::new();
    for request in requests(file)? {
        let len = request.payload.len();
        by_size.entry(len).or_default().push(request);
    }
    if by_size.is_empty() {
        let message = format!("{} contains no requests", file.display());
        return Err(Failure::new(Exit::Input, message));
    }
    Ok(by_size)
}

fn say(size: &Size) {
    output::say(&format!(
        "{:>6} bytes: {:.2} us per request, variation {:.2}, {:.0} instructions, {} requests",
        size.bytes,
        size.mean_ns / 1e3,
        size.variation,
        size.instructions,
        size.requests
    ));
    if size.refused > 0 {
        let refused = size.refused;
        output::say(&format!(
            "        {refused} of these were refused by the service"
        ));
    }
}

/// Requests of one size, each with its own key and random content.
fn generated(len: usize) -> Vec<Invocation> {
    let mut random = Random::new(len as u64);
    let request = |n: u64| {
        let key = n.to_le_bytes().to_vec();
        let mut payload = random.bytes(len);
        payload[..8].copy_from_slice(&key);
        Invocation::new(key, payload)
    };
    (0..GENERATED).map(request).collect()
}

/// Runs the requests repeatedly for the time of a measurement.
fn measure(solo: &mut Solo, all: &[Invocation], totals: &mut Totals) -> Result<Size, Failure> {
    let mut sums = Sums::default();
    let mut ended = Vec::with_capacity(BATCH);
    let mut token = totals.requests;
    let mut begin = None;
    while begin.is_none_or(|begin: Instant| begin.elapsed() < MEASURED) {
        for batch in all.chunks(BATCH) {
            let requests = batch.iter().map(|request| {
                token += 1;
                numbered(request, token)
            });
            let requests: Vec<Invocation> = requests.collect();
            solo.call_all(requests, &mut ended)
                .map_err(|e| Failure::new(Exit::Input, e))?;
            for completion in ended.drain(..) {
                let is_warm = begin.is_some();
                sums.add(completion, is_warm, totals)
                    .map_err(|reason| failed_request(&reason, all[0].payload.len()))?;
            }
        }
        begin.get_or_insert_with(Instant::now);
    }
    totals.requests += sums.requests;
    totals.keys.extend(all.iter().map(|r| r.key.clone()));
    Ok(sums.size())
}

/// A request with a token, a time and an id of its own.
fn numbered(request: &Invocation, token: u64) -> Invocation {
    let mut request = request.clone();
    request.token = token;
    request.now = Timestamp(token);
    request.id.request.seq = token;
    request
}

/// Sums over requests of one size.
#[derive(Default)]
struct Sums {
    ns: f64,
    ns_squared: f64,
    requests: u64,
    refused: u64,
}

impl Sums {
    /// Adds a request, unless it only warms up; the error is the reason of a failed one.
    fn add(
        &mut self,
        completion: Completion,
        is_warm: bool,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let effects = match completion.outcome {
            Outcome::Completed(effects) => effects,
            Outcome::Failed(failed) => return Err(failed.to_string()),
        };
        if !is_warm {
            return Ok(());
        }
        let ns = completion.busy.0 as f64;
        self.ns += ns;
        self.ns_squared += ns * ns;
        self.requests += 1;
        self.refused += u64::from(effects.reply.is_some_and(|r| r.status != 0));
        totals.write_bytes += effects.writes.as_bytes().len() as u64;
        for output in effects.outputs {
            totals.outputs[usize::from(output.channel)] += 1;
        }
        Ok(())
    }

    fn size(&self) -> Size {
        let mean_ns = self.ns / self.requests as f64;
        let variance = (self.ns_squared / self.requests as f64 - mean_ns * mean_ns).max(0.0);
        Size {
            bytes: 0,
            mean_ns,
            variation: variance.sqrt() / mean_ns,
            instructions: 0.0,
            refused: self.refused,
            requests: self.requests,
        }
    }
}

fn failed_request(reason: &str, len: usize) -> Failure {
    Failure::new(
        Exit::Check,
        format!("a request of {len} bytes failed: {reason}"),
    )
    .hint("give requests that the service understands with --input, as for e3 run")
}

/// WebAssembly instructions of a request, on average.
fn instructions(solo: &mut Solo, all: &[Invocation]) -> Result<f64, Failure> {
    let before = solo.stats().instructions;
    let mut ended = Vec::new();
    for batch in all.chunks(BATCH) {
        solo.call_all(batch.iter().cloned(), &mut ended)
            .map_err(|e| Failure::new(Exit::Input, e))?;
    }
    Ok((solo.stats().instructions - before) as f64 / all.len() as f64)
}

/// The profile as a YAML document.
fn document(
    args: &Profile,
    spec: &InstanceSpec,
    sizes: &[Size],
    totals: &Totals,
) -> Result<String, Failure> {
    let name = spec.name.trim_end_matches(".wasm");
    let name = name.rsplit('/').next().unwrap_or(name);
    let mut nodes = BTreeMap::from([(args.kind, cost(args.kind, sizes))]);
    if let Some(old) = args.write.as_ref().filter(|f| f.is_file()) {
        let text = std::fs::read_to_string(old).map_err(|e| Failure::file("read", old, &e))?;
        let old = parse_profile(&old.display().to_string(), &text)?;
        for (kind, cost) in old.spec.nodes {
            nodes.entry(kind).or_insert(cost);
        }
    }
    let per_request = |n: u64| n as f64 / totals.requests as f64;
    let outputs = spec.channels.iter().zip(&totals.outputs);
    let document = Document {
        api_version: API_VERSION.into(),
        kind: Kind::Profile.name().into(),
        metadata: Metadata {
            name: name.into(),
            description: None,
        },
        spec: ProfileSpec {
            provenance: Provenance::Measured,
            source: format!(
                "e3 profile on this machine: {}; service times measured, power from the model of Table 1 of E3 (ATC 2019)",
                Machine::here()
            ),
            nodes,
            outputs: outputs
                .map(|(channel, n)| (channel.name.clone(), per_request(*n)))
                .collect(),
            keys: totals.keys.len() as u64,
            write_bytes: per_request(totals.write_bytes).round() as u64,
            memory: Bytes(totals.memory_bytes),
        },
    };
    let text = serde_norway::to_string(&document);
    let text = text.map_err(|e| Failure::new(Exit::Unexpected, e))?;
    Ok(format!("{PROVENANCE}{text}"))
}

/// The cost on this kind of node. Power is that of the whole node with one core at this service.
fn cost(kind: NodeKind, sizes: &[Size]) -> NodeCost {
    let model = PowerModel::paper();
    let active_power_w = match kind {
        NodeKind::Host => Watts(model.host().fixed_w + model.host().per_core_w),
        NodeKind::SmartNic => model.smartnic(),
    };
    let typical = sizes
        .iter()
        .min_by_key(|s| s.bytes.abs_diff(SIZE_TYPICAL))
        .map_or(0.0, |s| s.variation);
    let time = |s: &Size| ServiceTime {
        bytes: s.bytes,
        time: Nanos(s.mean_ns.round() as u64),
        instructions: Some(s.instructions.round() as u64),
    };
    NodeCost {
        service_time: sizes.iter().map(time).collect(),
        variation: (typical * 1e3).round() / 1e3,
        active_power_w: Watts((active_power_w.0 * 10.0).round() / 10.0),
        active_cores: 1.0,
        lower_bound: false,
    }
}
