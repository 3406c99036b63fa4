//! Mails as a mail server sees them, from a seed. Senders follow Zipf's law, and some are spammers. Now
//! and then the account of an honest sender is hijacked and sends a burst of spam.
//!
//! Sources: the words of a mail are drawn from those of real spam or real mail, as many as a real one has
//! (`data/README.md`: SpamAssassin's corpus, the half that the classifier's model was not made from).
//! E-mail traffic by sender is heavy-tailed, and spammers stand out by their rate (Gomes, Cazita,
//! Almeida, Almeida, Meira, "Characterizing a spam traffic", 2004). A sender's rate is the number of its
//! mails in the last minute, as mail servers measure it (Postfix, `anvil(8)`).

use crate::error::WorkloadError;
use e3_random::Random;
use std::collections::BTreeSet;

const TSV: &str = include_str!("../../../../data/spam-words.tsv");

/// Senders.
pub const SENDERS: u32 = 600;
/// Recipients.
pub const RECIPIENTS: u32 = 120;
/// One sender in so many is a spammer.
const SPAMMER_ONE_IN: u32 = 6;
/// Percentage of spam in what spammers, others, and those that are taken over send.
const SPAM_PERCENT: (u64, u64, u64) = (90, 4, 96);
/// Of so many mails that are no part of a burst one begins one.
const BURST_ONE_IN: u64 = 250;
/// Fewest mails of a burst, and how many more there may be.
const BURST_MAILS: (u64, u64) = (8, 16);
/// Part of all mails that a burst has, in percent.
const BURST_PERCENT: u64 = 33;
/// Mails a minute by which a burst exceeds what its sender sends else, at the least.
const BURST_RATE: f64 = 25.0;
/// Of one mail in so many, its recipient says what it is: few people label their mail.
const TOLD_ONE_IN: u64 = 50;
/// Most words of a mail that are drawn; longer ones are cut, so that requests are some 500 bytes.
const WORDS_MAX: f64 = 48.0;
/// Draws for a sender that is not busy.
const DRAWS_MAX: u32 = 64;

/// A mail.
#[derive(Clone, PartialEq, Debug)]
pub struct Mail {
    /// Rank of its sender, from 0.
    pub sender: u32,
    /// Its recipient.
    pub recipient: u32,
    /// Mails that the sender sent in the last minute.
    pub rate: f64,
    /// Length on the wire.
    pub bytes: u32,
    /// Its words.
    pub text: String,
    /// Whether it is spam.
    pub spam: bool,
    /// Whether its recipient labels it.
    pub told: bool,
    /// Number in its burst, from 1; 0 = in none.
    pub burst: u32,
}

/// What a class of mails looks like.
#[derive(Clone, Debug, Default)]
struct Class {
    /// Cumulative occurrences by word.
    cumulative: Vec<u64>,
    /// Deciles of the number of words and of the length.
    words: Vec<f64>,
    bytes: Vec<f64>,
}

/// A stream of mails.
#[derive(Clone, Debug)]
pub struct Mails {
    random: Random,
    words: Vec<&'static str>,
    /// Mails, and spam.
    classes: [Class; 2],
    /// Cumulative activity by sender.
    senders: Vec<f64>,
    /// Sender, mails sent, mails still to be sent.
    burst: Option<(u32, u32, u32)>,
}

/// Whether a sender is a spammer.
pub fn is_spammer(sender: u32) -> bool {
    sender % SPAMMER_ONE_IN == SPAMMER_ONE_IN - 1
}

fn parse(tsv: &'static str) -> Result<(Vec<&'static str>, [Class; 2]), WorkloadError> {
    let mut words = Vec::new();
    let mut classes = [Class::default(), Class::default()];
    for (n, line) in tsv.lines().enumerate() {
        if line.starts_with('#') {
            continue;
        }
        let fault = || WorkloadError::MailWords {
            line: n + 1,
            text: line.to_owned(),
        };
        let mut cells = line.split('\t');
        let name = cells.next().filter(|n| !n.is_empty()).ok_or_else(fault)?;
        let numbers: Result<Vec<u32>, _> = cells.map(str::parse).collect();
        let numbers = numbers.map_err(|_| fault())?;
        let deciles = numbers.iter().copied().map(f64::from).collect();
        let rising = numbers.len() == 11 && numbers.is_sorted();
        match (name, &numbers[..]) {
            ("=ham-words", _) if rising => classes[0].words = deciles,
            ("=ham-bytes", _) if rising => classes[0].bytes = deciles,
            ("=spam-words", _) if rising => classes[1].words = deciles,
            ("=spam-bytes", _) if rising => classes[1].bytes = deciles,
            (word, [ham, spam]) if !word.starts_with('=') => {
                words.push(word);
                for (class, count) in classes.iter_mut().zip([*ham, *spam]) {
                    let before = class.cumulative.last().copied().unwrap_or_default();
                    class.cumulative.push(before + u64::from(count));
                }
            }
            _ => return Err(fault()),
        }
    }
    let whole = |c: &Class| {
        let counted = c.cumulative.last().is_some_and(|n| *n > 0);
        counted && !c.words.is_empty() && !c.bytes.is_empty()
    };
    if classes.iter().all(whole) {
        Ok((words, classes))
    } else {
        Err(WorkloadError::MailWords {
            line: tsv.lines().count(),
            text: "the end".into(),
        })
    }
}

/// A number whose deciles are these, linear between them.
fn by_deciles(deciles: &[f64], random: &mut Random) -> f64 {
    let at = random.unit() * (deciles.len() - 1) as f64;
    let (low, high) = (deciles[at as usize], deciles[at as usize + 1]);
    low + (high - low) * at.fract()
}

impl Mails {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Result<Mails, WorkloadError> {
        let (words, classes) = parse(TSV)?;
        let mut sum = 0.0;
        let senders = (1..=SENDERS).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        Ok(Mails {
            random: Random::new(seed),
            words,
            classes,
            senders: senders.collect(),
            burst: None,
        })
    }

    /// The next mail of a sender that is not busy; none if all that are drawn are.
    pub fn next_mail(&mut self, busy: &BTreeSet<u32>) -> Option<Mail> {
        let (sender, burst) = self.sender(busy)?;
        let random = &mut self.random;
        let percent = match (burst, is_spammer(sender)) {
            (1.., _) => SPAM_PERCENT.2,
            (_, true) => SPAM_PERCENT.0,
            (_, false) => SPAM_PERCENT.1,
        };
        let spam = random.below(100) < percent;
        let class = &self.classes[usize::from(spam)];
        let words = by_deciles(&class.words, random).clamp(1.0, WORDS_MAX) as usize;
        let all = class.cumulative.last().copied().unwrap_or_default();
        let mut text = String::new();
        for _ in 0..words {
            let at = random.below(all);
            let word = class.cumulative.partition_point(|c| *c <= at);
            text.push_str(self.words[word]);
            text.push(' ');
        }
        let usual = 2.0 + f64::from(sender % 5);
        let more = match burst {
            0 => 0.0,
            _ => BURST_RATE * (1.0 + 0.2 * random.unit()),
        };
        let rate = (usual + more + random.normal()).max(1.0);
        Some(Mail {
            sender,
            recipient: random.below(u64::from(RECIPIENTS)) as u32,
            rate: (rate * 10.0).round() / 10.0,
            bytes: by_deciles(&class.bytes, random) as u32,
            text,
            spam,
            told: random.one_in(TOLD_ONE_IN),
            burst,
        })
    }

    /// Who sends next, and the number in the burst.
    fn sender(&mut self, busy: &BTreeSet<u32>) -> Option<(u32, u32)> {
        if self.burst.is_none() && self.random.one_in(BURST_ONE_IN) {
            let sender = self.by_activity();
            if !is_spammer(sender) {
                let (least, more) = BURST_MAILS;
                self.burst = Some((sender, 0, (least + self.random.below(more)) as u32));
            }
        }
        if let Some((sender, sent, left)) = self.burst
            && !busy.contains(&sender)
            && self.random.below(100) < BURST_PERCENT
        {
            self.burst = (left > 1).then_some((sender, sent + 1, left - 1));
            return Some((sender, sent + 1));
        }
        // whoever is in a burst sends nothing else meanwhile
        let bursting = self.burst.map(|b| b.0);
        let free = |s: &u32| !busy.contains(s) && Some(*s) != bursting;
        let mut draws = (0..DRAWS_MAX).map(|_| self.by_activity());
        Some((draws.find(free)?, 0))
    }

    fn by_activity(&mut self) -> u32 {
        let all = self.senders.last().copied().unwrap_or_default();
        let at = self.random.unit() * all;
        let rank = self.senders.partition_point(|c| *c <= at) as u32;
        rank.min(SENDERS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(seed: u64, mails: usize) -> Vec<Mail> {
        let mut stream = Mails::new(seed).unwrap();
        let next = |_| stream.next_mail(&BTreeSet::new()).unwrap();
        (0..mails).map(next).collect()
    }

    #[test]
    fn mails_look_like_those_of_the_corpus() {
        let mails = stream(1, 20_000);
        let spam: Vec<_> = mails.iter().filter(|m| m.spam).collect();
        assert!((3_000..8_000).contains(&spam.len()), "{}", spam.len());
        let with = |word: &str, spam: bool| {
            let of = mails.iter().filter(|m| m.spam == spam);
            let with = of.clone().filter(|m| m.text.split(' ').any(|w| w == word));
            with.count() as f64 / of.count() as f64
        };
        assert!(with("remove", true) > 3.0 * with("remove", false));
        assert!(with("wrote", false) > 4.0 * with("wrote", true));
        let lengths = mails.iter().map(|m| m.text.len());
        assert!(lengths.max().unwrap() < 48 * 21);
        let first = mails.iter().filter(|m| m.sender == 0).count();
        assert!((2_000..4_500).contains(&first), "{first}");
    }

    #[test]
    fn bursts_are_of_one_sender_and_stand_out() {
        let mails = stream(2, 20_000);
        let begun: Vec<_> = mails.iter().filter(|m| m.burst == 1).collect();
        assert!(begun.len() > 30, "{}", begun.len());
        assert!(begun.iter().all(|m| !is_spammer(m.sender)));
        for mail in &mails {
            assert_eq!(mail.burst > 0, mail.rate > 18.0, "{mail:?}");
        }
        let mut last: Option<&Mail> = None;
        for mail in mails.iter().filter(|m| m.burst > 0) {
            if mail.burst > 1 {
                let before = last.unwrap();
                let next = (before.sender, before.burst + 1);
                assert_eq!((mail.sender, mail.burst), next);
            }
            last = Some(mail);
        }
    }

    #[test]
    fn the_busy_send_nothing() {
        let mut stream = Mails::new(3).unwrap();
        let busy: BTreeSet<u32> = (0..10).collect();
        for _ in 0..2000 {
            let mail = stream.next_mail(&busy).unwrap();
            assert!(!busy.contains(&mail.sender));
        }
        let all = (0..SENDERS).collect();
        assert_eq!(stream.next_mail(&all), None);
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(stream(7, 300), stream(7, 300));
        assert_ne!(stream(7, 300), stream(8, 300));
    }

    #[test]
    fn a_bad_line_is_named() {
        for bad in [
            "word\t1\n",
            "word\tx\t1\n",
            "=ham-words\t1\t2\n",
            "\t1\t1\n",
        ] {
            let found = parse(bad);
            assert!(
                matches!(found, Err(WorkloadError::MailWords { line: 1, .. })),
                "{bad}"
            );
        }
        assert!(parse("word\t1\t1\n").is_err());
    }
}
