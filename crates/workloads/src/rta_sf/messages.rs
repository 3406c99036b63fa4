//! Records that the spam filter receives and sends.

use serde::{Deserialize, Serialize};

/// Mails that a shard has learned from: ham and spam.
pub(super) type Told = [u64; 2];

#[derive(Serialize)]
pub(super) struct Message<'a> {
    pub(super) sender: &'a str,
    pub(super) recipient: &'a str,
    pub(super) serial: i64,
    pub(super) rate: f64,
    pub(super) bytes: u32,
    pub(super) text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct Query<'a> {
    pub(super) op: &'a str,
    pub(super) at: &'a str,
    pub(super) sender: &'a str,
}

#[derive(Serialize)]
pub(super) struct Report<'a> {
    pub(super) op: &'a str,
    pub(super) at: &'a str,
}

#[derive(Deserialize)]
pub(super) struct Spikes {
    pub(super) times: Vec<i64>,
}

#[derive(Deserialize)]
pub(super) struct Learned {
    pub(super) classes: Vec<String>,
    pub(super) documents: Vec<u64>,
}

#[derive(Deserialize)]
pub(super) struct Answer {
    pub(super) sender: String,
    pub(super) spike: u8,
    pub(super) count: u64,
    pub(super) verdict: String,
    pub(super) learned: Option<u64>,
    pub(super) last_verdict: Option<String>,
    pub(super) last_count: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Remembered {
    pub(super) done: bool,
    pub(super) last_verdict: Option<String>,
    pub(super) last_count: Option<u64>,
}

impl Learned {
    pub(super) fn told(&self) -> Told {
        let of = |class| {
            let pairs = self.classes.iter().zip(&self.documents);
            pairs.filter(|(c, _)| *c == class).map(|(_, n)| n).sum()
        };
        [of("ham"), of("spam")]
    }
}
