//! `e3 replay`, and the dead letters of `e3 get dead-letters`: requests that failed too often or
//! expired, and their retry.

use crate::cluster::client::Client;
use crate::limits::{ROUTE_AGE_MAX, SHOWN_LEN_MAX};
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use crate::ui::output::{self, Table};
use crate::ui::text::{bytes, plural};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use e3_client::{ClientError, DeadLetterClient};
use e3_model::api::AppView;
use e3_model::plan::Role;
use e3_model::{AppId, MessageId, ServiceId, ShardId, ShardKey};
use e3_wire::dead_letter::DeadLetter;
use e3_wire::entry::Outcome;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// `e3 replay`.
#[derive(Args, Debug, Clone)]
pub struct Replay {
    /// Application
    pub app: String,
    /// Dead letters, by the names that `e3 get dead-letters` prints
    #[arg(
        value_name = "DEAD-LETTER",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub dead_letters: Vec<String>,
    /// All dead letters of the application
    #[arg(long)]
    pub all: bool,
}

/// A dead letter as it is shown.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LetterView {
    /// Its name within the application.
    pub letter: String,
    /// `app/service/shard` where it failed.
    pub instance: String,
    /// Milliseconds since it was dead-lettered.
    pub age_ms: u64,
    /// Why it failed.
    pub reason: String,
    /// Routing key, in Base64.
    pub key: String,
    /// Content, in Base64.
    pub payload: String,
    /// Bytes of the content.
    pub payload_bytes: usize,
}

/// A dead letter, and the shard that keeps it.
struct Found {
    shard: ShardKey,
    instance: String,
    letter: (MessageId, DeadLetter),
}

/// Dead letters, and why those of some shards are missing.
pub struct Letters<T> {
    /// Those that were read.
    pub all: Vec<T>,
    /// The first shard that did not answer.
    pub missing: Option<Failure>,
}

/// The dead letters of one application, or of all.
pub fn views(client: &Client, app: Option<&str>) -> Result<Letters<LetterView>, Failure> {
    let apps = match app {
        Some(name) => vec![client.app(name)?],
        None => client.apps()?,
    };
    let mut letters = DeadLetterClient::new().map_err(failure)?;
    let mut routes = Routes::default();
    let (mut views, mut missing) = (Vec::new(), None);
    for app in &apps {
        let found = read(client, &mut letters, &mut routes, app)?;
        missing = missing.or(found.missing);
        for found in found.all {
            let (id, letter) = found.letter;
            let age = letters.now().since(letter.at);
            views.push(LetterView {
                letter: id.to_string(),
                instance: found.instance,
                age_ms: age.as_millis(),
                reason: letter.reason,
                key: STANDARD.encode(&letter.key),
                payload: STANDARD.encode(&letter.payload),
                payload_bytes: letter.payload.len(),
            });
        }
    }
    Ok(Letters {
        all: views,
        missing,
    })
}

/// Dead letters as a table.
pub fn table(all: &[LetterView]) -> String {
    let mut table = Table::new(&["DEAD LETTER", "INSTANCE", ">AGE", "KEY", ">SIZE", "REASON"]);
    for l in all {
        let key = STANDARD.decode(&l.key).unwrap_or_default();
        table.row([
            l.letter.clone(),
            l.instance.clone(),
            format!("{:.1} s", l.age_ms as f64 / 1e3),
            shown(&key.escape_ascii().to_string()),
            bytes(l.payload_bytes as u64),
            shown(&l.reason),
        ]);
    }
    table.render()
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_LEN_MAX) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}

/// `e3 replay`.
pub fn run(args: &Replay, settings: &Settings) -> Result<(), Failure> {
    let client = Client::connect(settings)?;
    let app = client.app(&args.app)?;
    let mut letters = DeadLetterClient::new().map_err(failure)?;
    let mut routes = Routes::default();
    let read = read(&client, &mut letters, &mut routes, &app)?;
    let (mut found, mut missing) = (read.all, read.missing);
    if !args.all {
        let all: Vec<String> = found.iter().map(|f| f.letter.0.to_string()).collect();
        if let Some(unknown) = args.dead_letters.iter().find(|l| !all.contains(l)) {
            if let Some(missing) = missing {
                return Err(missing);
            }
            let message = format!("application {} has no dead letter {unknown}", args.app);
            let hint = format!("list them with: e3 get dead-letters --app {}", args.app);
            return Err(Failure::new(Exit::NotFound, message).hint(hint));
        }
        found.retain(|f| args.dead_letters.contains(&f.letter.0.to_string()));
        missing = None;
    }
    let bar = output::progress(found.len() as u64, "replay");
    let (mut done, mut failed, mut again) = (0, 0, None);
    for f in &found {
        let mut route = routes.to(&client, &f.instance);
        let reply = match letters.replay(f.shard, &f.letter, &mut route) {
            Ok(reply) => reply,
            Err(e) => {
                missing.get_or_insert(failure(e));
                continue;
            }
        };
        match reply.outcome {
            Outcome::Done => done += 1,
            _ => {
                failed += 1;
                let why = String::from_utf8_lossy(&reply.payload).into_owned();
                again.get_or_insert(format!("{} of {}: {why}", f.letter.0, f.instance));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let total = plural(found.len(), "dead letter");
    output::print(&format!("replayed {done} of {total}\n"))?;
    match again {
        None => missing.map_or(Ok(()), Err),
        Some(first) => {
            let message = format!("{failed} failed again; the first: {first}");
            Err(Failure::new(Exit::Check, message).hint("see: e3 get dead-letters, e3 logs"))
        }
    }
}

fn read(
    client: &Client,
    letters: &mut DeadLetterClient,
    routes: &mut Routes,
    app: &AppView,
) -> Result<Letters<Found>, Failure> {
    let (mut all, mut missing) = (Vec::new(), None);
    for (i, service) in app.services.iter().enumerate() {
        for shard in 0..service.shards {
            let instance = format!("{}/{}/{shard}", app.name, service.name);
            let shard = ShardKey {
                app: AppId(app.id),
                service: ServiceId(i as u16),
                shard: ShardId(shard),
            };
            let found = match letters.read(shard, &mut routes.to(client, &instance)) {
                Ok(found) => found,
                // The other shards' letters are there all the same.
                Err(e @ ClientError::NotServed { .. }) => {
                    missing.get_or_insert(failure(e));
                    continue;
                }
                Err(e) => return Err(failure(e)),
            };
            all.extend(found.into_iter().map(|letter| Found {
                shard,
                instance: instance.clone(),
                letter,
            }));
        }
    }
    Ok(Letters { all, missing })
}

/// Addresses of primaries, and when the controller reported each.
#[derive(Default)]
struct Routes(BTreeMap<String, (Instant, SocketAddr)>);

impl Routes {
    /// Addresses of the primary of a shard: the known one first, then those that the controller reports. A
    /// process that was replaced may not know it, so none is known for long.
    fn to(&mut self, client: &Client, instance: &str) -> impl FnMut() -> Option<SocketAddr> {
        let known = self.0.get(instance);
        let mut known = known.filter(|k| k.0.elapsed() < ROUTE_AGE_MAX).map(|k| k.1);
        move || {
            if let Some(address) = known.take() {
                return Some(address);
            }
            let asked = Instant::now();
            let all = client.instances().ok()?;
            let primary = all
                .iter()
                .find(|i| i.instance == instance && i.role == Role::Primary)?;
            let address = client.node(&primary.node).ok()?.address?.parse().ok()?;
            self.0.insert(instance.to_string(), (asked, address));
            Some(address)
        }
    }
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::NotServed { .. } => {
            Failure::new(Exit::Timeout, error).hint("see: e3 get instances")
        }
        _ => Failure::new(Exit::Unexpected, error),
    }
}
