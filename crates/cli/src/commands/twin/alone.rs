//! What each service costs alone. The workload's requests run through the services one after the other,
//! each in an engine of its own, to find out what each is sent; then each handles its messages alone and is
//! measured. No node, no network and no other service takes part.

use crate::commands::run::{self, Run};
use crate::documents::Sources;
use crate::settings::Settings;
use crate::ui::failure::{Exit, Failure};
use e3_engine::{InstanceSpec, Solo};
use e3_invocation::{Completion, Invocation, Outcome};
use e3_loadgen::Workload;
use e3_model::{Application, MessageId, RequestId, ServiceId, Timestamp, Via};
use e3_wire::entry::{Outcome as Answered, Reply};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Requests that find out what services are sent, at most.
const REQUESTS: usize = 3_000;
/// How long that takes at most.
const RECORD_TIME: Duration = Duration::from_secs(3);
/// How long a service is measured, and with how many fresh starts at most.
const MEASURE_TIME: Duration = Duration::from_millis(300);
const ROUNDS_MAX: usize = 8;
/// Part of a service's messages that only warm it up.
const WARM_UP: f64 = 0.2;
/// A run that took so many times as long as the median was preempted by the machine and does not count.
const PREEMPTED_FACTOR: u64 = 100;
/// Messages that are queued together, as on a busy node.
const BATCH: usize = 64;

/// A module and the environment of its instance.
pub type Service = (Vec<u8>, InstanceSpec);

/// What was measured of a service alone.
#[derive(Clone, Debug)]
pub struct Alone {
    /// Mean processor time of its handler in nanoseconds.
    pub mean_ns: f64,
    /// Coefficient of variation.
    pub variation: f64,
    /// Messages that count; those of the warm-up do not.
    pub messages: u64,
    /// Runs that do not count, since this machine preempted them.
    pub preempted: u64,
}

/// What the workload makes of an application.
pub struct Flow {
    /// By service: its messages.
    messages: Vec<Vec<Invocation>>,
    /// Messages per request, by service.
    pub visits: Vec<f64>,
    /// The service that answers most requests.
    pub answered_by: ServiceId,
    /// Mean size of a request in bytes.
    pub request_bytes: u32,
}

/// The services of an application, with their secrets. `manifest` is its file.
pub fn services(
    manifest: &str,
    app: &Application,
    sources: &Sources,
    settings: &Settings,
    secret: impl Fn(&str) -> Result<Vec<u8>, Failure>,
) -> Result<Vec<Service>, Failure> {
    let service = |spec: &e3_model::application::Service| {
        let run = Run {
            module: spec.name.clone(),
            app: Some(manifest.into()),
            services: sources.services.clone(),
            ..Run::default()
        };
        let (wasm, mut instance) = run::service(&run, settings)?;
        for name in &spec.secrets {
            instance.secrets.push((name.clone(), secret(name)?));
        }
        Ok((wasm, instance))
    };
    app.spec.services.iter().map(service).collect()
}

/// Sends the workload's requests through the services.
pub fn flow(
    app: &Application,
    services: &[Service],
    workload: &mut dyn Workload,
    begin: Timestamp,
    rate_rps: f64,
) -> Result<Flow, Failure> {
    let solos: Result<Vec<Solo>, Failure> = services.iter().map(start).collect();
    let (ingress, _) = app
        .service_named(&app.spec.ingress)
        .expect("the manifest is valid");
    let mut recorder = Recorder {
        app,
        solos: solos?,
        messages: vec![Vec::new(); services.len()],
        answers: vec![0; services.len()],
        token: 0,
    };
    let (mut requests, mut bytes) = (0, 0);
    let started = Instant::now();
    while requests < REQUESTS && started.elapsed() < RECORD_TIME {
        let now = begin + e3_model::Nanos((requests as f64 / rate_rps * 1e9) as u64);
        workload.at(now);
        let Some(call) = workload.next() else { break };
        requests += 1;
        bytes += call.payload.len();
        let mut invocation = Invocation::new(call.key, call.payload);
        invocation.now = now;
        let answer = recorder.deliver(ingress, Via::Ingress, requests as u64, invocation)?;
        workload.on_outcome(call.tag, answer.as_ref());
    }
    if requests == 0 {
        let message = format!("the workload of {:?} sends no request", app.name);
        return Err(Failure::new(Exit::Unexpected, message));
    }
    let most = (0..services.len()).max_by_key(|s| recorder.answers[*s]);
    let of = |messages: &Vec<Invocation>| messages.len() as f64 / requests as f64;
    Ok(Flow {
        visits: recorder.messages.iter().map(of).collect(),
        messages: recorder.messages,
        answered_by: ServiceId(most.unwrap_or(0) as u16),
        request_bytes: (bytes / requests) as u32,
    })
}

struct Recorder<'a> {
    app: &'a Application,
    solos: Vec<Solo>,
    messages: Vec<Vec<Invocation>>,
    /// Answers to the client, by service.
    answers: Vec<u64>,
    token: u64,
}

impl Recorder<'_> {
    /// A service handles a message, and those after it what it sends. Gives the answer to the client.
    fn deliver(
        &mut self,
        service: ServiceId,
        via: Via,
        request: u64,
        mut invocation: Invocation,
    ) -> Result<Option<Reply>, Failure> {
        self.token += 1;
        invocation.token = self.token;
        invocation.id = MessageId {
            request: RequestId {
                client: 0,
                seq: request,
            },
            via,
            index: 0,
        };
        let at = usize::from(service.0);
        self.messages[at].push(invocation.clone());
        let now = invocation.now;
        let ended = self.solos[at].call(invocation);
        let ended = ended.map_err(|e| Failure::new(Exit::Unexpected, e))?;
        let effects = match ended.outcome {
            Outcome::Completed(effects) => effects,
            Outcome::Failed(failed) => return Err(self.failed(service, &failed)),
        };
        let mut answer = effects.reply.map(|reply| Reply {
            outcome: Answered::Done,
            status: reply.status,
            payload: reply.payload,
        });
        self.answers[at] += u64::from(answer.is_some());
        let channels: Vec<_> = self.app.channels_from(service).collect();
        for output in effects.outputs {
            let (edge, to, _) = channels[usize::from(output.channel)];
            let mut next = Invocation::new(output.key, output.payload);
            next.now = now;
            let later = self.deliver(to, Via::Edge(edge), request, next)?;
            answer = answer.or(later);
        }
        Ok(answer)
    }

    fn failed(&self, service: ServiceId, why: &dyn std::fmt::Display) -> Failure {
        let name = &self.app.service(service).name;
        Failure::new(Exit::Check, format!("service {name:?} failed alone: {why}"))
    }
}

fn start(service: &Service) -> Result<Solo, Failure> {
    let (wasm, spec) = service;
    Solo::start(wasm, spec.clone()).map_err(|e| Failure::new(Exit::Input, e))
}

/// Measures each service alone with the messages that it is sent, by name.
pub fn measure(
    app: &Application,
    services: &[Service],
    flow: &Flow,
) -> Result<BTreeMap<String, Alone>, Failure> {
    let all = app.spec.services.iter().zip(services).zip(&flow.messages);
    let measured = all.map(|((spec, service), messages)| {
        Ok((spec.name.clone(), measure_one(service, messages)?))
    });
    measured.collect()
}

/// Measures one service alone with these messages.
pub fn measure_one(service: &Service, messages: &[Invocation]) -> Result<Alone, Failure> {
    let failed = |e: &dyn std::fmt::Display| Failure::new(Exit::Unexpected, e);
    let warm = (messages.len() as f64 * WARM_UP) as u64;
    let mut times = Vec::new();
    let (mut spent, mut ended) = (Duration::ZERO, Vec::new());
    for _ in 0..ROUNDS_MAX {
        if messages.is_empty() || spent >= MEASURE_TIME {
            break;
        }
        // A fresh start, since a second run of the same messages would meet their own effects.
        let mut solo = start(service)?;
        let begin = Instant::now();
        let mut handled = 0;
        for batch in messages.chunks(BATCH) {
            solo.call_all(batch.iter().cloned(), &mut ended)
                .map_err(|e| failed(&e))?;
            for Completion { outcome, busy, .. } in ended.drain(..) {
                if let Outcome::Failed(why) = outcome {
                    return Err(failed(&why));
                }
                handled += 1;
                if handled > warm {
                    times.push(busy.0);
                }
            }
        }
        spent += begin.elapsed();
    }
    Ok(summary(times))
}

/// Mean and variation of run times.
fn summary(mut times: Vec<u64>) -> Alone {
    times.sort_unstable();
    let all = times.len();
    let median = times.get(all / 2).copied().unwrap_or(0);
    let longest = median.max(1).saturating_mul(PREEMPTED_FACTOR);
    times.truncate(times.partition_point(|ns| *ns <= longest));
    let count = times.len().max(1) as f64;
    let mean_ns = times.iter().sum::<u64>() as f64 / count;
    let squares = times.iter().map(|ns| (*ns as f64 - mean_ns).powi(2));
    let deviation = (squares.sum::<f64>() / count).sqrt();
    Alone {
        mean_ns,
        variation: if mean_ns > 0.0 {
            deviation / mean_ns
        } else {
            0.0
        },
        messages: times.len() as u64,
        preempted: (all - times.len()) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preempted_run_does_not_count() {
        let alone = summary(vec![100, 300, 200, 1_000_000]);
        assert_eq!((alone.messages, alone.preempted), (3, 1));
        assert_eq!(alone.mean_ns, 200.0);
        assert!((alone.variation - 0.408).abs() < 0.001);
        let none = summary(Vec::new());
        assert_eq!((none.mean_ns, none.variation), (0.0, 0.0));
    }
}
