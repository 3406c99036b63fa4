//! A durable workflow of several steps with compensation: an order holds goods in a stock, charges a payment
//! over HTTP, and books the shipping. If a step fails, or nobody knows whether it did, the order undoes
//! this step and those before it, in reverse. So each order ends in one of two states, `completed` or
//! `compensated`. docs/workflows.md walks through the code.
//!
//! Requests are text; their key is the order, 1 to 64 letters, digits and hyphens. `place GOODS QUANTITY
//! CENTS` places it; a repetition changes nothing. `status` tells how far it is. The reply is the state:
//! `running STEP`, `undoing STEP`, `completed`, or `compensated` and why. The status is 0, or 1 for an order
//! that nobody placed, or 2 for a text that is none of these.
//!
//! `supply SERVICE GOODS N` and `left SERVICE GOODS` go on to `stock` or `shipping`, which replies.
//!
//! Configuration: `payments`, the address of the payment server; `timeout-ms`, how long a step may take;
//! `retry-ms`, the wait before an undo that failed is tried again.

#![cfg_attr(target_arch = "wasm32", no_std)]

extern crate alloc;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;
use e3_sdk::outbound::{Answer, HttpRequest, Method, Outbound, Outcome};
use e3_sdk::{Channel, Error, HashMap, Request, Service, config, config_or, reply, timers};

mod record;

use record::{Record, State, Step};

/// Status of the reply if nobody placed the order.
pub const STATUS_ABSENT: u32 = 1;
/// Status of the reply to a text that is no command.
pub const STATUS_MALFORMED: u32 = 2;
/// Name of the timer after which an undo is tried again.
const RETRY: &str = "retry";

/// Orders.
#[derive(Debug)]
pub struct Orders {
    records: HashMap,
    payments: String,
    timeout: Duration,
    retry: Duration,
}

impl Orders {
    fn load(&self, order: &str) -> Option<Record> {
        Record::parse(&self.records.get_vec(order.as_bytes())?)
    }

    /// Notes where the order is, and asks for what comes next. Both take effect together.
    fn go(&self, order: &str, record: &Record) -> Result<(), Error> {
        self.records
            .put(order.as_bytes(), record.to_string().as_bytes())?;
        match record.state {
            State::Running(step) => self.ask(order, record, step, false),
            State::Undoing(step) => self.ask(order, record, step, true),
            State::Completed | State::Compensated => Ok(()),
        }
    }

    /// Asks for a step, or for its undoing. Its name is that of the state, so that an answer that is
    /// no longer of interest can be told from others.
    fn ask(&self, order: &str, record: &Record, step: Step, undo: bool) -> Result<(), Error> {
        let name = record.state.to_string();
        let outbound = Outbound::new(&name, self.timeout);
        let quantity = match step {
            Step::Ship => 1,
            _ => record.quantity,
        };
        let text = if undo {
            format!("release {order}")
        } else {
            format!("hold {order} {quantity}")
        };
        match step {
            Step::Reserve => outbound.to_service("stock", record.goods.as_bytes(), text.as_bytes()),
            Step::Ship => outbound.to_service("shipping", b"parcels", text.as_bytes()),
            Step::Charge => {
                let url = format!("{}/charges/{order}", self.payments);
                let cents = record.cents.to_string();
                if undo {
                    outbound.over_http(&HttpRequest::new(Method::Delete, &url), b"")
                } else {
                    // A PUT of the same charge is the same charge.
                    outbound.over_http(&HttpRequest::new(Method::Put, &url), cents.as_bytes())
                }
            }
        }
    }

    fn on_answer(&self, order: &str, answer: &Answer) -> Result<(), Error> {
        let Some(mut record) = self.load(order) else {
            return Ok(());
        };
        if answer.name != record.state.to_string() {
            return Ok(());
        }
        let (step, undo) = match record.state {
            State::Running(step) => (step, false),
            State::Undoing(step) => (step, true),
            State::Completed | State::Compensated => return Ok(()),
        };
        let is_ok = match step {
            Step::Charge => answer.is_http_ok(),
            Step::Reserve | Step::Ship => answer.is_ok(),
        };
        record.state = match (undo, is_ok) {
            (false, true) => step.next().map_or(State::Completed, State::Running),
            // Also where nothing was done, for an undo is idempotent and harmless. In particular where
            // nobody knows.
            (false, false) => {
                record.reason = format!("{} {}", answer.name, how(answer));
                State::Undoing(step)
            }
            (true, true) => step.before().map_or(State::Compensated, State::Undoing),
            // An undo must succeed in the end: again, after a while.
            (true, false) => return timers::set_after(RETRY, b"", self.retry, b""),
        };
        self.go(order, &record)
    }

    fn on_command(&self, order: &str, text: &str) -> Result<(), Error> {
        let words: Vec<&str> = text.split(' ').collect();
        match words.as_slice() {
            ["supply", service, goods, count] => {
                return pass_on(service, goods, &format!("add {count}"));
            }
            ["left", service, goods] => return pass_on(service, goods, "left"),
            _ => {}
        }
        match (words.as_slice(), self.load(order)) {
            (["status"], None) => reply(STATUS_ABSENT, b"nobody placed this order"),
            (["status"] | ["place", ..], Some(record)) => reply(0, record.told().as_bytes()),
            (["place", goods, quantity, cents], None) => {
                let Some(record) = Record::new(goods, quantity, cents) else {
                    return malformed();
                };
                self.go(order, &record)?;
                reply(0, record.told().as_bytes())
            }
            _ => malformed(),
        }
    }
}

/// Passes a command on to a service of stocks.
fn pass_on(service: &str, goods: &str, text: &str) -> Result<(), Error> {
    match Channel::named(service) {
        Some(channel) if record::is_name(goods) => channel.send(goods.as_bytes(), text.as_bytes()),
        _ => malformed(),
    }
}

fn malformed() -> Result<(), Error> {
    reply(
        STATUS_MALFORMED,
        b"must be: place GOODS QUANTITY CENTS, status, supply SERVICE GOODS N, or left SERVICE GOODS; \
          numbers are 1 to 1000000, names 1 to 64 letters, digits and hyphens",
    )
}

/// How an answer ended, for people.
fn how(answer: &Answer) -> String {
    match answer.outcome {
        Outcome::Done => format!("refused with status {}", answer.status),
        Outcome::Overloaded => "overloaded".into(),
        Outcome::Expired => "expired".into(),
        Outcome::Failed => "failed".into(),
        Outcome::Rejected => "rejected".into(),
        Outcome::Conflict => "in conflict".into(),
        Outcome::Unknown => "unknown".into(),
    }
}

impl Service for Orders {
    fn init() -> Result<Self, Error> {
        let millis = |name, default| config_or(name, default).map(Duration::from_millis);
        Ok(Self {
            records: HashMap::open("orders")?,
            payments: config("payments").unwrap_or_default(),
            timeout: millis("timeout-ms", 10_000)?,
            retry: millis("retry-ms", 1_000)?,
        })
    }

    fn handle(&mut self, request: &Request<'_>) -> Result<(), Error> {
        let order = request.with_key(|key| Ok(String::from_utf8_lossy(key).into_owned()))?;
        if !record::is_name(&order) {
            return malformed();
        }
        if let Some(answer) = request.answer() {
            return self.on_answer(&order, &answer);
        }
        match (request.timer(), self.load(&order)) {
            (None, _) => {
                let text = core::str::from_utf8(request.payload()).unwrap_or_default();
                self.on_command(&order, text)
            }
            // The timer of an undo that failed.
            (Some(_), Some(record)) => self.go(&order, &record),
            (Some(_), None) => Ok(()),
        }
    }
}

e3_sdk::service!(Orders, request_capacity = 33_000);

#[cfg(test)]
mod tests;
