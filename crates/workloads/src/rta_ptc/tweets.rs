//! Messages as a microblogging service sees them, from a seed: tags follow Zipf's law and come in bursts,
//! and a message has a vector of features around the centre of its tag's topic.
//!
//! Sources: word frequencies fall with the rank, `1 / rank` (Zipf, "Human Behavior and the Principle of
//! Least Effort", 1949); attention to a topic comes in bursts (Kleinberg, "Bursty and hierarchical
//! structure in streams", 2002), here a tag that has a third of the traffic for some hundred messages.

use e3_random::Random;

/// Topics.
pub const TOPICS: usize = 8;
/// Numbers of a vector.
pub const FEATURES: usize = 8;
/// Tags.
pub const TAGS: u32 = 2000;
/// Distance of a topic's centre from the origin, in standard deviations of a vector.
const CENTRE: f64 = 3.0;
/// One message in so many begins a burst.
const BURST_ONE_IN: u64 = 2000;
/// Messages of a burst's time, and the part of them that has its tag, in percent.
const BURST: (u32, u64) = (400, 33);

/// A message.
#[derive(Clone, PartialEq, Debug)]
pub struct Tweet {
    /// Rank of its tag, from 0.
    pub tag: u32,
    /// Its vector.
    pub features: [f64; FEATURES],
}

/// A stream of messages.
#[derive(Clone, Debug)]
pub struct Tweets {
    random: Random,
    /// Cumulative frequency by rank.
    cumulative: Vec<f64>,
    burst: Option<(u32, u32)>,
}

/// Name of a topic, as a label.
pub fn topic_name(topic: usize) -> String {
    format!("topic{topic}")
}

/// The topic of a tag.
pub fn topic_of(tag: u32) -> usize {
    tag as usize % TOPICS
}

/// A tag as text.
pub fn tag_name(tag: u32) -> String {
    format!("tag{tag:04}")
}

/// A vector of a topic.
pub fn vector(topic: usize, random: &mut Random) -> [f64; FEATURES] {
    std::array::from_fn(|i| {
        let centre = if i == topic { CENTRE } else { 0.0 };
        centre + random.normal()
    })
}

impl Tweets {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Tweets {
        let mut sum = 0.0;
        let cumulative = (1..=TAGS)
            .map(|rank| {
                sum += 1.0 / f64::from(rank);
                sum
            })
            .collect();
        Tweets {
            random: Random::new(seed),
            cumulative,
            burst: None,
        }
    }

    /// The next message.
    pub fn next_tweet(&mut self) -> Tweet {
        let tag = self.tag();
        Tweet {
            tag,
            features: vector(topic_of(tag), &mut self.random),
        }
    }

    fn tag(&mut self) -> u32 {
        if self.random.one_in(BURST_ONE_IN) {
            let tag = self.random.below(u64::from(TAGS)) as u32;
            self.burst = Some((tag, BURST.0));
        }
        if let Some((tag, left)) = self.burst {
            self.burst = (left > 1).then(|| (tag, left - 1));
            if self.random.below(100) < BURST.1 {
                return tag;
            }
        }
        let all = self.cumulative.last().copied().unwrap_or_default();
        let at = self.random.unit() * all;
        let rank = self.cumulative.partition_point(|c| *c <= at) as u32;
        rank.min(TAGS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_fall_with_their_rank_and_come_in_bursts() {
        let mut stream = Tweets::new(1);
        let mut counts = vec![0u32; TAGS as usize];
        let mut most_in_a_row_of_100 = 0;
        for _ in 0..1000 {
            let mut here = vec![0u32; TAGS as usize];
            for _ in 0..100 {
                here[stream.next_tweet().tag as usize] += 1;
            }
            let rare = here[100..].iter().max().copied().unwrap_or(0);
            most_in_a_row_of_100 = most_in_a_row_of_100.max(rare);
            for (all, n) in counts.iter_mut().zip(here) {
                *all += n;
            }
        }
        // harmonic number of 2000 is 8.18: the first tag has 12 % of what is no burst
        assert!((9_000..13_500).contains(&counts[0]), "{}", counts[0]);
        assert!(counts[0] > counts[1] && counts[1] > counts[9]);
        assert!(most_in_a_row_of_100 > 20, "{most_in_a_row_of_100}");
    }

    #[test]
    fn the_seed_decides_everything() {
        let stream = |seed| {
            let mut s = Tweets::new(seed);
            (0..500).map(|_| s.next_tweet()).collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }
}
