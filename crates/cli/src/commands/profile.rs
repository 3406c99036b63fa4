//! `e3 profile`: what a service costs on this machine, as a document that placement, simulator and
//! planning read.

use crate::commands::run::{Run, requests, service};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use clap::Args;
use e3_bench::Machine;
use e3_energy::PowerModel;
use e3_engine::{InstanceSpec, Solo};
use e3_invocation::{Failed, Invocation, Outcome};
use e3_model::document::{API_VERSION, Document, Kind, Metadata, parse_profile};
use e3_model::profile::{NodeCost, ProfileSpec, Provenance, ServiceTime};
use e3_model::{Bytes, Nanos, NodeKind, Timestamp, Watts};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Sizes of requests that are made up.
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1500];
/// Requests of each size that are made up.
const MADE_UP: u64 = 1024;
/// Requests that are queued together, as a busy node finds them.
const BATCH: usize = 64;
/// How long each size is measured, after a first pass that warms it.
const MEASURED: Duration = Duration::from_millis(400);
/// The size whose variation is the profile's: that of the paper's tables.
const SIZE_TYPICAL: u32 = 512;

/// Where the numbers of a profile come from, one by one: its `provenance` is that of the times.
const PROVENANCE: &str = "\
# serviceTime, variation, outputs, writeBytes, memory: MEASURED on this machine.
# activePowerW: MODELLED from Table 1 of E3 (USENIX ATC 2019); no meter was read.
";

/// `e3 profile`.
#[derive(Args, Debug, Clone)]
pub struct Profile {
    /// The service, and what it is given; requests of --input are measured by their sizes.
    #[command(flatten)]
    pub run: Run,
    /// Kind of node that this machine is: host or smartnic
    #[arg(long, value_parser = kind, default_value = "host", value_name = "KIND")]
    pub kind: NodeKind,
    /// Where the profile goes; what is there about other kinds of nodes stays
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

/// What requests of one size cost.
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
    let by_size = match &args.run.input {
        Some(file) => {
            let mut by_size: BTreeMap<usize, Vec<Invocation>> = BTreeMap::new();
            for request in requests(file)? {
                by_size
                    .entry(request.payload.len())
                    .or_default()
                    .push(request);
            }
            by_size
        }
        None => SIZES.map(|len| (len, made_up(len))).into_iter().collect(),
    };
    if by_size.is_empty() {
        return Err(Failure::new(Exit::Input, "there are no requests"));
    }
    let mut totals = Totals {
        outputs: vec![0; spec.channels.len()],
        ..Totals::default()
    };
    let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::Input, e);
    let mut solo = Solo::start(&wasm, spec.clone()).map_err(|e| failed(&e))?;
    let mut counting = Solo::start_with(&wasm, spec.clone(), |c| c.count_instructions = true)
        .map_err(|e| failed(&e))?;
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
    let stats = solo.stats();
    totals.memory_bytes = (stats.memory_bytes + solo.state_bytes()) as u64;
    for size in &sizes {
        output::say(&format!(
            "{:>6} bytes: {:.2} us a request, variation {:.2}, {:.0} instructions, {} requests",
            size.bytes,
            size.mean_ns / 1e3,
            size.variation,
            size.instructions,
            size.requests
        ));
        if size.refused > 0 {
            output::say(&format!(
                "        of these {} were refused by the service",
                size.refused
            ));
        }
    }
    let name = spec.name.trim_end_matches(".wasm");
    let name = name.rsplit('/').next().unwrap_or(name).to_string();
    let text = document(args, &name, &spec, &sizes, &totals)?;
    match &args.write {
        Some(file) => {
            std::fs::write(file, &text).map_err(|e| Failure::file("write", file, &e))?;
            output::print(&format!("wrote {}\n", file.display()))
        }
        None => output::print(&text),
    }
}

/// Requests of one size with keys of their own and content that means nothing.
fn made_up(len: usize) -> Vec<Invocation> {
    let mut state = len as u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let request = |n: u64| {
        let key = n.to_le_bytes().to_vec();
        let mut payload: Vec<u8> = (0..len).map(|_| byte()).collect();
        payload[..8].copy_from_slice(&key);
        Invocation::new(key, payload)
    };
    (0..MADE_UP).map(request).collect()
}

/// Runs the requests again and again until it has been long enough.
fn measure(solo: &mut Solo, all: &[Invocation], totals: &mut Totals) -> Result<Size, Failure> {
    let (mut sum, mut squares, mut requests, mut refused) = (0.0, 0.0, 0u64, 0u64);
    let mut ended = Vec::with_capacity(BATCH);
    let mut warm = true;
    let mut begin = Instant::now();
    let mut token = totals.requests;
    while warm || begin.elapsed() < MEASURED {
        for batch in all.chunks(BATCH) {
            let batch: Vec<Invocation> = batch
                .iter()
                .map(|r| {
                    token += 1;
                    let mut request = r.clone();
                    request.token = token;
                    request.now = Timestamp(token);
                    request.request.seq = token;
                    request
                })
                .collect();
            solo.call_all(batch, &mut ended)
                .map_err(|e| Failure::new(Exit::Input, e))?;
            for completion in ended.drain(..) {
                let effects = match completion.outcome {
                    Outcome::Completed(effects) => effects,
                    Outcome::Failed(failed) => {
                        return Err(failed_request(&failed, all[0].payload.len()));
                    }
                };
                if warm {
                    continue;
                }
                let ns = completion.busy.0 as f64;
                sum += ns;
                squares += ns * ns;
                requests += 1;
                refused += u64::from(effects.reply.is_some_and(|r| r.status != 0));
                totals.write_bytes += effects.writes.as_bytes().len() as u64;
                for output in effects.outputs {
                    totals.outputs[usize::from(output.channel)] += 1;
                }
            }
        }
        if warm {
            warm = false;
            begin = Instant::now();
        }
    }
    totals.requests += requests;
    totals.keys.extend(all.iter().map(|r| r.key.clone()));
    let mean_ns = sum / requests as f64;
    let variance = (squares / requests as f64 - mean_ns * mean_ns).max(0.0);
    Ok(Size {
        bytes: 0,
        mean_ns,
        variation: variance.sqrt() / mean_ns,
        instructions: 0.0,
        refused,
        requests,
    })
}

fn failed_request(failed: &Failed, len: usize) -> Failure {
    Failure::new(Exit::Check, format!("a request of {len} bytes: {failed}"))
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

fn document(
    args: &Profile,
    name: &str,
    spec: &InstanceSpec,
    sizes: &[Size],
    totals: &Totals,
) -> Result<String, Failure> {
    let model = PowerModel::paper();
    // The whole node with one core at this service.
    let active_power_w = match args.kind {
        NodeKind::Host => Watts(model.host().fixed_w + model.host().per_core_w),
        NodeKind::SmartNic => model.smartnic(),
    };
    let typical = sizes
        .iter()
        .min_by_key(|s| s.bytes.abs_diff(SIZE_TYPICAL))
        .map_or(0.0, |s| s.variation);
    let cost = NodeCost {
        service_time: sizes
            .iter()
            .map(|s| ServiceTime {
                bytes: s.bytes,
                time: Nanos(s.mean_ns.round() as u64),
                instructions: Some(s.instructions.round() as u64),
            })
            .collect(),
        variation: (typical * 1e3).round() / 1e3,
        active_power_w: Watts((active_power_w.0 * 10.0).round() / 10.0),
        active_cores: 1.0,
        lower_bound: false,
    };
    let mut nodes = BTreeMap::from([(args.kind, cost)]);
    if let Some(old) = args.write.as_ref().filter(|f| f.is_file()) {
        let text = std::fs::read_to_string(old).map_err(|e| Failure::file("read", old, &e))?;
        let old = parse_profile(&old.display().to_string(), &text)?;
        for (kind, cost) in old.spec.nodes {
            nodes.entry(kind).or_insert(cost);
        }
    }
    let per_request = |n: u64| n as f64 / totals.requests as f64;
    let spec = ProfileSpec {
        provenance: Provenance::Measured,
        source: format!(
            "e3 profile on this machine: {}; service times measured, power from the model of Table 1 of E3 (ATC 2019)",
            Machine::here()
        ),
        nodes,
        outputs: spec
            .channels
            .iter()
            .zip(&totals.outputs)
            .map(|((name, _), n)| (name.clone(), per_request(*n)))
            .collect(),
        keys: totals.keys.len() as u64,
        write_bytes: per_request(totals.write_bytes).round() as u64,
        memory: Bytes(totals.memory_bytes),
    };
    let document = Document {
        api_version: API_VERSION.into(),
        kind: Kind::Profile.name().into(),
        metadata: Metadata {
            name: name.into(),
            description: None,
        },
        spec,
    };
    let text = serde_norway::to_string(&document);
    let text = text.map_err(|e| Failure::new(Exit::Unexpected, e))?;
    Ok(format!("{PROVENANCE}{text}"))
}
