//! What is kept of an order: a line of text with its state, goods, quantity, price, and why it failed.

use alloc::string::{String, ToString};
use core::fmt;

/// Steps in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Hold the goods.
    Reserve,
    /// Charge the payment.
    Charge,
    /// Book the shipping.
    Ship,
}

impl Step {
    const ALL: [Step; 3] = [Step::Reserve, Step::Charge, Step::Ship];

    fn name(self) -> &'static str {
        match self {
            Step::Reserve => "reserve",
            Step::Charge => "charge",
            Step::Ship => "ship",
        }
    }

    fn from_name(name: &str) -> Option<Step> {
        Step::ALL.into_iter().find(|step| step.name() == name)
    }

    pub(crate) fn next(self) -> Option<Step> {
        match self {
            Step::Reserve => Some(Step::Charge),
            Step::Charge => Some(Step::Ship),
            Step::Ship => None,
        }
    }

    pub(crate) fn before(self) -> Option<Step> {
        match self {
            Step::Reserve => None,
            Step::Charge => Some(Step::Reserve),
            Step::Ship => Some(Step::Charge),
        }
    }
}

/// How far an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The step was asked for.
    Running(Step),
    /// A step failed; the undoing of this one was asked for.
    Undoing(Step),
    /// All steps were done. The end.
    Completed,
    /// All steps that were done, or may have been, were undone. The end.
    Compensated,
}

impl State {
    fn parse(word: &str, step: &str) -> Option<State> {
        match word {
            "running" => Step::from_name(step).map(State::Running),
            "undoing" => Step::from_name(step).map(State::Undoing),
            "completed" => Some(State::Completed),
            "compensated" => Some(State::Compensated),
            _ => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Running(step) => write!(f, "running {}", step.name()),
            State::Undoing(step) => write!(f, "undoing {}", step.name()),
            State::Completed => f.write_str("completed"),
            State::Compensated => f.write_str("compensated"),
        }
    }
}

/// What is kept of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) goods: String,
    pub(crate) quantity: u32,
    pub(crate) cents: u32,
    /// Why it is undone.
    pub(crate) reason: String,
}

impl Record {
    /// An order at its first step.
    pub(crate) fn new(goods: &str, quantity: &str, cents: &str) -> Option<Record> {
        Some(Record {
            state: State::Running(Step::Reserve),
            goods: Some(goods).filter(|goods| is_name(goods))?.into(),
            quantity: number(quantity)?,
            cents: number(cents)?,
            reason: String::new(),
        })
    }

    /// From what is kept.
    pub(crate) fn parse(kept: &[u8]) -> Option<Record> {
        let text = core::str::from_utf8(kept).ok()?;
        let mut parts = text.splitn(5, '|');
        let mut part = || parts.next();
        let state = part()?;
        let (word, step) = state.split_once(' ').unwrap_or((state, ""));
        Some(Record {
            state: State::parse(word, step)?,
            goods: part()?.into(),
            quantity: part()?.parse().ok()?,
            cents: part()?.parse().ok()?,
            reason: part()?.into(),
        })
    }

    /// As clients see it.
    pub(crate) fn told(&self) -> String {
        match self.state {
            State::Compensated => alloc::format!("compensated: {}", self.reason),
            state => state.to_string(),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Record {
            state,
            goods,
            quantity,
            cents,
            reason,
        } = self;
        write!(f, "{state}|{goods}|{quantity}|{cents}|{reason}")
    }
}

/// Whether it is fit for an order or goods: it becomes part of an address and of texts.
pub(crate) fn is_name(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(good)
}

fn number(text: &str) -> Option<u32> {
    let number = text.parse().ok()?;
    (1..=1_000_000).contains(&number).then_some(number)
}
