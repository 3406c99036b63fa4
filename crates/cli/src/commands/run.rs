//! `e3 run`: runs one service without a cluster. Requests and replies are lines of JSON, so that a
//! user can try a service by hand and a script can test it.

use crate::documents::assets::read_asset;
use crate::documents::builtin;
use crate::documents::files::without_bom;
use crate::documents::files::{read_blob, read_content, read_requests};
use crate::documents::modules;
use crate::limits::{LINE_LEN_MAX, RUN_DEADLINE, RUN_MEMORY_BYTES};
use crate::settings::Settings;
use crate::ui::exchange::{Content, Line};
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::values::duration;
use clap::Args;
use e3_clock::Clock;
use e3_engine::{ChannelSpec, InstanceSpec, Solo};
use e3_invocation::{Completion, Invocation, Outcome};
use e3_model::application::{Collection, CollectionKind};
use e3_model::{Accelerators, Bytes, EdgeId, MessageId, RequestId, Timestamp, Via};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// `e3 run`.
#[derive(Args, Debug, Clone, Default)]
pub struct Run {
    /// Module: a file or a built-in service such as echo; with --app, a service of the application
    pub module: String,
    /// Manifest with the collections, channels and configuration of the service
    #[arg(long, value_name = "FILE|NAME")]
    pub app: Option<String>,
    /// Collection: hash-map, ordered-map, array or counter
    #[arg(long = "collection", value_name = "NAME:KIND", value_parser = collection)]
    pub collections: Vec<Collection>,
    /// Outgoing channel, and the number of messages that a request may send on it [default: 1]
    #[arg(long = "channel", value_name = "NAME[:OUTPUTS]", value_parser = channel)]
    pub channels: Vec<ChannelSpec>,
    /// Value of the configuration of the service (--config is the file of e3 itself)
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub set: Vec<(String, String)>,
    /// Secret, read from a file
    #[arg(long = "secret", value_name = "NAME=FILE", value_parser = pair)]
    pub secrets: Vec<(String, String)>,
    /// Asset, read from a file
    #[arg(long = "asset", value_name = "NAME=FILE", value_parser = pair)]
    pub assets: Vec<(String, String)>,
    /// Maximum linear memory [default: that of the manifest, else 64Mi]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,
    /// Deadline of a handler [default: that of the manifest, else 1s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub deadline: Option<Duration>,
    /// Run without accelerators
    #[arg(long)]
    pub portable: bool,
    /// File of requests, one line of JSON each [default: standard input]
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Directory of modules
    #[arg(long, env = "E3_SERVICES", value_name = "DIR")]
    pub services: Option<PathBuf>,
}

impl Run {
    /// Those that the service may use.
    pub fn accelerators(&self) -> Accelerators {
        if self.portable {
            Accelerators::NONE
        } else {
            Accelerators::ALL
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not NAME=VALUE")),
    }
}

fn collection(text: &str) -> Result<Collection, String> {
    let kind = match text.split_once(':').map(|(_, kind)| kind) {
        Some("hash-map") => CollectionKind::HashMap,
        Some("ordered-map") => CollectionKind::OrderedMap,
        Some("array") => CollectionKind::Array,
        Some("counter") => CollectionKind::Counter,
        _ => {
            let kinds = "hash-map, ordered-map, array or counter";
            return Err(format!(
                "{text:?} is not NAME:KIND with one of the kinds {kinds}"
            ));
        }
    };
    let name = text.split(':').next().unwrap_or_default().to_string();
    let ttl = None;
    Ok(Collection { name, kind, ttl })
}

fn channel(text: &str) -> Result<ChannelSpec, String> {
    let of = |name: &str, outputs_max| ChannelSpec {
        name: name.into(),
        outputs_max,
    };
    match text.split_once(':') {
        None => Ok(of(text, 1)),
        Some((name, outputs)) => match e3_model::units::whole(outputs) {
            Some(n @ 1..=64) => Ok(of(name, n)),
            _ => Err(format!("{text:?}: outputs must be 1..=64")),
        },
    }
}

/// The result of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status: Option<u32>,
    reply: Option<Content>,
    sent: Vec<Sent>,
    /// Why the attempt failed.
    error: Option<String>,
    busy_us: f64,
    state_bytes: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    channel: String,
    key: Content,
    payload: Content,
}

/// `e3 run`.
pub fn run(args: &Run, settings: &Settings) -> Result<(), Failure> {
    let (wasm, spec) = service(args, settings)?;
    let channels: Vec<String> = spec.channels.iter().map(|c| c.name.clone()).collect();
    let log = Rc::new(|line: e3_engine::LogLine<'_>| output::say(&e3_log::escape(line.text)));
    let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::Input, e);
    let mut solo = Solo::start_with(&wasm, spec, |config| {
        config.log = Some(log);
        config.accelerators = args.accelerators();
    })
    .map_err(|e| failed(&e))?;
    let input: Box<dyn Read> = match &args.input {
        Some(file) => {
            Box::new(std::fs::File::open(file).map_err(|e| Failure::file("open", file, &e))?)
        }
        None => Box::new(std::io::stdin().lock()),
    };
    let mut input = BufReader::new(input);
    let mut text = String::new();
    let mut clock_ns = 0;
    for number in 1u64.. {
        text.clear();
        let read = (&mut input).take(LINE_LEN_MAX).read_line(&mut text);
        let len = read.map_err(|e| Failure::new(Exit::Input, format!("line {number}: {e}")))?;
        if len == 0 {
            break;
        }
        if text.trim().is_empty() {
            continue;
        }
        let line = match number {
            1 => without_bom(&text),
            _ => &text,
        };
        let request = request(line, number, &mut clock_ns)
            .map_err(|e| Failure::new(Exit::Input, format!("line {number}: {e}")))?;
        let ended = solo.call(request).map_err(|e| failed(&e))?;
        let answer = answer(ended, &channels, solo.state_bytes());
        let line = serde_json::to_string(&answer)
            .map_err(|e| Failure::new(Exit::Unexpected, format!("line {number}: {e}")))?;
        output::print(&(line + "\n"))?;
    }
    Ok(())
}

/// All requests of a file.
pub fn requests(file: &Path) -> Result<Vec<Invocation>, Failure> {
    let text = read_requests(file)?;
    let mut clock_ns = 0;
    let lines = text
        .lines()
        .zip(1u64..)
        .filter(|(line, _)| !line.trim().is_empty());
    lines
        .map(|(line, number)| {
            request(line, number, &mut clock_ns)
                .map_err(|e| Failure::new(Exit::Input, format!("{}:{number}: {e}", file.display())))
        })
        .collect()
}

/// The module, and the environment of its instance.
pub fn service(args: &Run, settings: &Settings) -> Result<(Vec<u8>, InstanceSpec), Failure> {
    let services = args.services.as_deref();
    let services = services.or(settings.file.services.as_deref());
    let mut spec = InstanceSpec {
        name: args.module.clone(),
        stateful: true,
        memory_bytes_max: RUN_MEMORY_BYTES,
        deadline: RUN_DEADLINE,
        ..InstanceSpec::default()
    };
    let here = builtin::Text {
        file: args.module.clone(),
        text: String::new(),
        dir: Some(PathBuf::new()),
    };
    let wasm = match &args.app {
        Some(app) => from_manifest(app, &args.module, services, &mut spec)?,
        None if args.module.ends_with(".wasm") => read_blob(Path::new(&args.module))?.into(),
        None => modules::find(&here, &format!("{}.wasm", args.module), services)?.wasm,
    };
    from_arguments(args, &mut spec)?;
    Ok((wasm.into_owned(), spec))
}

/// Takes the environment of a service from a manifest; its module.
fn from_manifest(
    app: &str,
    name: &str,
    services: Option<&Path>,
    spec: &mut InstanceSpec,
) -> Result<Cow<'static, [u8]>, Failure> {
    let (text, app) = builtin::application(app)?;
    let Some((id, service)) = app.service_named(name) else {
        let message = format!("{} has no service {name:?}", text.file);
        return Err(Failure::new(Exit::NotFound, message));
    };
    spec.stateful = service.stateful;
    spec.collections = service.collections.clone();
    spec.channels = app.channels_from(id).map(|(_, _, c)| c.into()).collect();
    spec.calls = service.calls.clone();
    spec.config = service.config.clone();
    spec.asks = service.asks.clone();
    spec.publishes = service.publishes.clone();
    spec.http = service.http.clone().unwrap_or_default();
    spec.accelerators = service.accelerators.iter().copied().collect();
    spec.memory_bytes_max = service.resources.memory.0 as usize;
    spec.deadline = Duration::from_nanos(service.deadline.0);
    for name in &service.assets {
        let asset = app.spec.assets.iter().find(|a| a.name == *name);
        let content = read_asset(&text, asset.expect("the manifest is valid"))?;
        spec.assets.push((name.clone(), content.into()));
    }
    Ok(modules::find(&text, &service.module, services)?.wasm)
}

/// Adds the environment that the command line gives.
fn from_arguments(args: &Run, spec: &mut InstanceSpec) -> Result<(), Failure> {
    spec.collections.extend(args.collections.iter().cloned());
    spec.channels.extend(args.channels.iter().cloned());
    spec.config.extend(args.set.iter().cloned());
    for (name, file) in &args.secrets {
        let value = read_blob(Path::new(file))?;
        spec.secrets.push((name.clone(), value));
    }
    for (name, file) in &args.assets {
        let content = read_content(Path::new(file))?;
        spec.assets.push((name.clone(), content.into()));
    }
    if let Some(memory) = args.memory {
        spec.memory_bytes_max = memory.0 as usize;
    }
    if let Some(deadline) = args.deadline {
        spec.deadline = deadline;
    }
    Ok(())
}

fn request(text: &str, number: u64, clock_ns: &mut u64) -> Result<Invocation, String> {
    let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let (key, payload) = line.content()?;
    *clock_ns = line
        .now_ns
        .unwrap_or_else(|| Clock::new().now().0)
        .max(*clock_ns);
    let via = match line.edge {
        None | Some(-1) => Via::Ingress,
        Some(edge) => {
            let number = u16::try_from(edge);
            Via::Edge(EdgeId(
                number.map_err(|_| format!("edge is {edge}, must be -1..=65535"))?,
            ))
        }
    };
    Ok(Invocation {
        token: number,
        id: MessageId {
            request: RequestId {
                client: 0,
                seq: number,
            },
            via,
            index: 0,
        },
        now: Timestamp(*clock_ns),
        ..Invocation::new(key, payload)
    })
}

fn answer(ended: Completion, channels: &[String], state_bytes: usize) -> Answer {
    let mut answer = Answer {
        status: None,
        reply: None,
        sent: Vec::new(),
        error: None,
        busy_us: ended.busy.0 as f64 / 1e3,
        state_bytes,
    };
    match ended.outcome {
        Outcome::Completed(effects) => {
            answer.sent = effects
                .outputs
                .into_iter()
                .map(|o| Sent {
                    channel: channels[usize::from(o.channel)].clone(),
                    key: Content::of(&o.key),
                    payload: Content::of(&o.payload),
                })
                .collect();
            if let Some(reply) = effects.reply {
                answer.status = Some(reply.status);
                answer.reply = Some(Content::of(&reply.payload));
            }
        }
        Outcome::Failed(failed) => answer.error = Some(failed.to_string()),
    }
    answer
}
