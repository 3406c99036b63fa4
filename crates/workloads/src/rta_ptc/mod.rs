//! The workload of Twitter analytics (RTA-PTC): messages are classified, and their tags are counted and
//! ranked.
//!
//! The replies to the messages of one tag carry its counts, which must have no gap and no duplicate,
//! whatever was lost or sent twice. Tags are the same in all loads, so their counts before the load are
//! read first. After the load the counts and the ranking of every shard are compared with the counts
//! before the load and the messages since.

mod oracle;
pub mod tweets;

use crate::inputs::Inputs;
use crate::load::{Generator, Load};
use crate::readback::queries::record;
use e3_loadgen::workload::Call;
use e3_random::Random;
use oracle::Analytics;
use serde::Serialize;
use tweets::{TAGS, Tweet, Tweets, tag_name};

/// Who writes: routing keys of the messages.
const AUTHORS: u64 = 5000;

#[derive(Serialize)]
struct Message<'a> {
    author: &'a str,
    tag: &'a str,
    features: &'a [f64],
    text: &'a str,
}

/// The messages of a seed.
pub(crate) struct Messages {
    stream: Tweets,
    authors: Random,
}

pub(crate) fn load(inputs: &Inputs) -> Load<Messages, Analytics> {
    let messages = Messages {
        stream: Tweets::new(inputs.seed),
        authors: Random::new(inputs.seed),
    };
    Load::new(messages, Analytics::default())
}

impl Generator<Analytics> for Messages {
    fn describe(&self) -> String {
        format!("messages with {TAGS} tags by Zipf's law, in bursts")
    }

    fn next(&mut self, _: &mut Analytics) -> Option<(Call, u32)> {
        let Tweet { tag, features } = self.stream.next_tweet();
        let author = format!("a{:04}", self.authors.below(AUTHORS));
        let payload = record(&Message {
            author: &author,
            tag: &tag_name(tag),
            features: &features,
            text: "what people say to each other in so many characters",
        });
        let call = Call {
            tag: 0,
            key: author.into_bytes(),
            payload,
        };
        Some((call, tag))
    }
}
