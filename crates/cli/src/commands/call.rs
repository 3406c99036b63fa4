//! `e3 call`: sends requests to an application, one after another, and prints the replies as lines
//! of JSON.

use crate::cluster::client::Client;
use crate::documents::files::read_requests;
use crate::settings::Settings;
use crate::ui::exchange::{Content, Line};
use crate::ui::failure::{Exit, Failure};
use crate::ui::output;
use crate::ui::values::duration;
use clap::Args;
use e3_client::{Client as Sender, ClientError, Completed};
use e3_model::limits::{KEY_LEN_MAX, PAYLOAD_LEN_MAX};
use e3_wire::entry::Outcome;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// `e3 call`.
#[derive(Args, Debug, Clone)]
pub struct Call {
    /// Application
    pub app: String,
    /// Routing key, at least 1 byte [default: key]
    #[arg(long)]
    pub key: Option<String>,
    /// Request, as text
    #[arg(long, conflicts_with = "record")]
    pub text: Option<String>,
    /// Request, as a record: a JSON object
    #[arg(long, value_name = "JSON", value_parser = record)]
    pub record: Option<serde_json::Value>,
    /// File of requests, one line of JSON each, as for e3 run; - stands for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "text", "record"])]
    pub input: Option<PathBuf>,
    /// Maximum wait for a reply
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub timeout: Duration,
}

fn record(text: &str) -> Result<serde_json::Value, String> {
    e3_ingress::record::parse(text.as_bytes()).map_err(|e| e.to_string())
}

/// The result of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    outcome: &'static str,
    /// What the service says of it, if it answered.
    status: Option<u32>,
    reply: Option<Content>,
    attempts: u16,
    latency_us: f64,
}

/// `e3 call`.
pub fn run(args: &Call, settings: &Settings) -> Result<(), Failure> {
    let requests = requests(args)?;
    let (client, app) = (Client::connect(settings)?, args.app.clone());
    let endpoints = client.endpoints(&app)?;
    let failed = |e: ClientError| Failure::new(Exit::Unexpected, e);
    let refresh = move || client.endpoints(&app).ok();
    let mut sender = Sender::new(&endpoints, Some(Box::new(refresh))).map_err(failed)?;
    let mut all_done = true;
    for (key, payload) in requests {
        let completed = sender.call(&key, &payload, args.timeout.into());
        let answer = answer(completed.map_err(failed)?);
        all_done &= answer.outcome == "done";
        let line = serde_json::to_string(&answer).map_err(|e| Failure::new(Exit::Unexpected, e))?;
        output::print(&(line + "\n"))?;
    }
    if !all_done {
        let message = "not every request was handled";
        return Err(Failure::new(Exit::Unexpected, message));
    }
    Ok(())
}

/// Routing key and content of a request.
type KeyAndPayload = (Vec<u8>, Vec<u8>);

fn requests(args: &Call) -> Result<Vec<KeyAndPayload>, Failure> {
    let Some(file) = &args.input else {
        let line = Line {
            key: args.key.clone(),
            text: args.text.clone(),
            record: args.record.clone(),
            ..Line::default()
        };
        let content = line.content().and_then(fits);
        let content = content.map_err(|e| Failure::new(Exit::Input, e))?;
        return Ok(vec![content]);
    };
    let text = read_requests(file)?;
    let lines = (1..)
        .zip(text.lines())
        .filter(|(_, l)| !l.trim().is_empty());
    lines
        .map(|(number, line)| {
            let wrong =
                |e: String| Failure::new(Exit::Input, format!("{}:{number}: {e}", file.display()));
            let line: Line = serde_json::from_str(line).map_err(|e| wrong(e.to_string()))?;
            match (line.now_ns, line.edge) {
                (None, None) => line.content().and_then(fits).map_err(wrong),
                _ => Err(wrong("nowNs and edge are only for e3 run".into())),
            }
        })
        .collect()
}

/// Refuses what every node would refuse, so that it is not sent and retried.
fn fits((key, payload): KeyAndPayload) -> Result<KeyAndPayload, String> {
    if !(1..=KEY_LEN_MAX).contains(&key.len()) {
        let len = key.len();
        return Err(format!(
            "the key has {len} bytes, must have 1..={KEY_LEN_MAX}"
        ));
    }
    if payload.len() > PAYLOAD_LEN_MAX {
        let len = payload.len();
        return Err(format!(
            "the request has {len} bytes, must have at most {PAYLOAD_LEN_MAX}"
        ));
    }
    Ok((key, payload))
}

fn answer(completed: Completed) -> Answer {
    let outcome = completed.reply.as_ref().map(|r| r.outcome);
    Answer {
        outcome: match outcome {
            None => "no answer",
            Some(Outcome::Done) => "done",
            Some(Outcome::Failed) => "failed",
            Some(Outcome::Unknown) => "unknown",
            Some(Outcome::Expired) => "expired",
            Some(Outcome::Overloaded) => "overloaded",
            Some(Outcome::Rejected | Outcome::Conflict) => "rejected",
        },
        status: completed
            .reply
            .as_ref()
            .filter(|r| r.outcome == Outcome::Done)
            .map(|r| r.status),
        reply: completed.reply.map(|r| Content::of(&r.payload)),
        attempts: completed.attempts,
        latency_us: completed.at.since(completed.due).0 as f64 / 1e3,
    }
}
