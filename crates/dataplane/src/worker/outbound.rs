//! Makes the outbound requests of the primaries here: as a client of this node's own ingress, or by
//! way of the driver. Answers go back to the primary that asked, if it is here still.

use super::{Output, Worker};
use crate::ingress::{Asker, RequestEntry};
use crate::outbound::{Answered, Ask, HttpAsk, Receiver};
use crate::refusal::refuse;
use e3_model::limits::PAYLOAD_LEN_MAX;
use e3_model::outbound::{Answer, Destination};
use e3_model::{AppId, RequestId, ServiceId, ShardKey, Timestamp, TraceContext};
use e3_wire::client::Request;
use e3_wire::entry::{Outcome, Reply};
use std::collections::BTreeSet;

impl Worker {
    /// Takes the answer to an [`Output::Http`]. One to a request that is cancelled, or whose shard
    /// is not served here any more, is dropped.
    pub fn on_http_answer(
        &mut self,
        now: Timestamp,
        ticket: u64,
        answer: Answer,
        payload: Vec<u8>,
    ) {
        self.world.now = now;
        let Some((shard, id)) = self.passage.close(ticket) else {
            return;
        };
        let (answer, content) = match payload.len() {
            0..=PAYLOAD_LEN_MAX => (answer, payload),
            len => {
                let reason = format!(
                    "answer of {len} bytes, must be at most {PAYLOAD_LEN_MAX}; its status was {}",
                    answer.status
                );
                let outcome = Outcome::Failed;
                (Answer { outcome, status: 0 }, reason.into_bytes())
            }
        };
        self.passage.answers.push_back(Answered {
            shard,
            by: None,
            id,
            answer,
            content,
        });
    }

    /// Passes on an outbound request, or an answer; false if there is none.
    pub(super) fn pass_outbound(&mut self) -> bool {
        if let Some((shard, ask)) = self.passage.asks.pop_front() {
            self.ask(shard, ask);
            return true;
        }
        let Some(answered) = self.passage.answers.pop_front() else {
            return false;
        };
        let Answered {
            shard,
            by,
            id,
            answer,
            content,
        } = answered;
        if let Some(replica) = self.find(shard) {
            self.primary(replica, |p, turn| {
                p.on_answer(turn, (by, id), answer, content)
            });
        }
        true
    }

    fn ask(&mut self, from: ShardKey, ask: Ask) {
        let Ask {
            id,
            to,
            payload,
            sent,
            deadline,
            may_be_sent,
        } = ask;
        let (app, entry, key) = match to {
            Receiver::Destination(Destination::Http(request)) => {
                let ticket = self.passage.open(from, id);
                self.outputs.push_back(Output::Http(HttpAsk {
                    ticket,
                    request,
                    body: payload,
                    deadline,
                    idempotency_key: format!("{:016x}{:016x}", id.client, id.seq),
                    may_be_sent,
                }));
                return;
            }
            Receiver::Destination(to) => match self.entry_of(from, to) {
                Ok(found) => found,
                Err(reason) => return self.refuse_ask(from, id, &reason),
            },
            Receiver::Subscriber {
                subscriber,
                topic,
                key,
            } => {
                // It is in the plan, and will be here.
                if !self.world.apps.contains_key(&subscriber.app) {
                    return;
                }
                let entry = RequestEntry {
                    service: Some(subscriber.service),
                    topic: Some(topic),
                };
                (subscriber.app, entry, key)
            }
        };
        let request = Request {
            app,
            id,
            attempt: self.ingress.next_attempt((app, id)),
            deadline,
            sent,
            // Remembered for as long as anybody may ask.
            oldest_seq: 0,
            trace: TraceContext::default(),
            key,
            payload,
        };
        self.on_request(Asker::Shard(from), entry, request);
    }

    /// Where a request to a service or an application enters, and its key; or why it cannot.
    fn entry_of(
        &self,
        from: ShardKey,
        to: Destination,
    ) -> Result<(AppId, RequestEntry, Vec<u8>), String> {
        let (app, service, key) = match to {
            Destination::Service { service, key } => {
                (from.app, Some(self.service_of(from, &service)?), key)
            }
            Destination::Application { application, key } => {
                let app = self.app_named(&application);
                let app =
                    app.ok_or_else(|| format!("application {application:?} does not run here"))?;
                (app, None, key)
            }
            Destination::Http(_) => return Err("asked by the driver".into()),
        };
        let topic = None;
        Ok((app, RequestEntry { service, topic }, key))
    }

    /// Nobody waits for the answer to a request of a shard any more.
    pub(super) fn end_ask(&mut self, shard: ShardKey, id: RequestId) {
        let is_http = |ask: &Ask| matches!(ask.to, Receiver::Destination(Destination::Http(_)));
        let ends = |of: &ShardKey, ask: &Ask| *of == shard && ask.id == id && is_http(ask);
        self.passage.asks.retain(|(of, ask)| !ends(of, ask));
        self.cancel_http(self.passage.ticket(shard, id));
    }

    /// The same for all requests of shards.
    pub(super) fn end_asks_of(&mut self, shards: &BTreeSet<ShardKey>) {
        for shard in shards {
            self.cancel_http(self.passage.tickets_of(*shard));
        }
    }

    fn cancel_http(&mut self, tickets: impl IntoIterator<Item = u64>) {
        for ticket in tickets {
            self.passage.close(ticket);
            self.outputs.push_back(Output::HttpCancel { ticket });
        }
    }

    /// A service of the application of a shard, or why there is none.
    fn service_of(&self, from: ShardKey, name: &str) -> Result<ServiceId, String> {
        let app = self.world.apps.get(&from.app).map(|app| &app.plan.app);
        let app = app.ok_or("the application does not run here")?;
        let service = app.service_named(name).map(|(id, _)| id);
        service.ok_or_else(|| format!("application {:?} has no service {name:?}", app.name))
    }

    /// An application of the cluster.
    fn app_named(&self, name: &str) -> Option<AppId> {
        let mut apps = self.world.apps.iter();
        let here = apps.find(|(_, app)| app.plan.app.name == name);
        let mut listed = self.world.plan.directory.iter();
        let listed = listed.find(|(_, app)| app.name == name).map(|(id, _)| *id);
        listed.or(here.map(|(id, _)| *id))
    }

    fn refuse_ask(&mut self, from: ShardKey, id: RequestId, reason: &str) {
        self.answer_ask(from, (None, id), refuse(Outcome::Rejected, reason));
    }

    /// Answers a shard that asked; `by`: the application that was asked.
    pub(super) fn answer_ask(
        &mut self,
        shard: ShardKey,
        (by, id): (Option<AppId>, RequestId),
        reply: Reply,
    ) {
        let answer = Answer {
            outcome: reply.outcome,
            status: reply.status,
        };
        self.passage.answers.push_back(Answered {
            shard,
            by,
            id,
            answer,
            content: reply.payload,
        });
    }
}
