//! The workload against a spam filter that is right, and against ones that are not.

use super::super::questions::done;
use super::*;

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    CountsTwice,
    LearnsTwice,
    Forgets,
    MistakesSpam,
    SleepsThroughBursts,
}

/// A message as the application reads it.
#[derive(Deserialize)]
struct Said {
    sender: String,
    recipient: String,
    rate: f64,
    text: String,
    told: Option<String>,
}

#[derive(Serialize)]
struct Reported<'a> {
    sender: &'a str,
    spike: u8,
    count: u64,
    verdict: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_verdict: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_count: Option<u64>,
}

#[derive(Serialize)]
struct Found {
    done: bool,
    last_verdict: Option<String>,
    last_count: Option<u64>,
}

#[derive(Default)]
struct Filter {
    counts: BTreeMap<String, u64>,
    learned: BTreeMap<u16, u64>,
    last: BTreeMap<String, Verdict>,
    rates: BTreeMap<String, f64>,
}

fn run(wrong: Wrong) -> Verified {
    let inputs = Inputs {
        seed: 11,
        now: Nanos(1_700_000_000_000_000_000),
        ..Inputs::default()
    };
    let mut load = RtaSf::new(&inputs).unwrap();
    let mut filter = Filter::default();
    for n in 0..6000u32 {
        let call = load.next().unwrap();
        let said: Said = ciborium::from_reader(&call.payload[..]).unwrap();
        assert_eq!(call.key, said.sender.as_bytes());
        let count = filter.counts.entry(said.sender.clone()).or_default();
        *count += 1 + u64::from(wrong == Wrong::CountsTwice && n == 3000);
        let slot = Slot::of(said.recipient.as_bytes()).0;
        let learned = said.told.is_some().then(|| {
            let learned = filter.learned.entry(slot).or_default();
            *learned += 1 + u64::from(wrong == Wrong::LearnsTwice && n > 3000);
            *learned
        });
        // knows what is spam: the workload itself told it
        let spam = load.under_way[&call.tag].spam && wrong != Wrong::MistakesSpam;
        let verdict = if spam { "spam" } else { "ham" };
        let before = filter.rates.insert(said.sender.clone(), said.rate);
        let sudden = before.is_some_and(|rate| (said.rate - rate).abs() > 12.0);
        let (last_verdict, last_count) = filter.last.get(&said.sender).cloned().unzip();
        let remembered = (verdict.to_owned(), *count);
        if wrong != Wrong::Forgets || !n.is_multiple_of(50) {
            filter.last.insert(said.sender.clone(), remembered);
        }
        assert!(!said.text.is_empty());
        let reply = done(&Reported {
            sender: &said.sender,
            spike: u8::from(sudden && wrong != Wrong::SleepsThroughBursts),
            count: *count,
            verdict,
            learned,
            last_verdict,
            last_count,
        });
        let judged = load.on_outcome(call.tag, Some(&reply));
        assert!(judged.expected);
    }
    while let Check::Ask(call) = load.next_check(Nanos(0)) {
        let sender = String::from_utf8(call.key).unwrap();
        let (last_verdict, last_count) = filter.last.get(&sender).cloned().unzip();
        let reply = done(&Found {
            done: last_count.is_some(),
            last_verdict,
            last_count,
        });
        load.on_check(Nanos(0), call.tag, Some(&reply));
    }
    load.verify()
}

fn share(verified: &Verified, what: &str) -> f64 {
    let finding = verified.findings.iter().find(|f| f.what == what).unwrap();
    assert!(finding.of > 0, "{what}");
    finding.right as f64 / finding.of as f64
}

#[test]
fn a_filter_that_is_right_is_found_right() {
    let verified = run(Wrong::Nothing);
    for finding in &verified.findings {
        assert!(finding.of > 0 && finding.right == finding.of, "{finding:?}");
    }
    let rows = verified.rows;
    assert_eq!((rows.expected, rows.found), (6000, 6000));
    assert_eq!((rows.missing, rows.repeated), (0, 0));
}

#[test]
fn what_is_wrong_is_found_wrong() {
    assert!(run(Wrong::CountsTwice).rows.repeated == 1);
    assert!(share(&run(Wrong::LearnsTwice), "learned once") < 0.9);
    let forgetful = run(Wrong::Forgets);
    assert!(share(&forgetful, "verdicts remembered") < 1.0);
    assert!(share(&forgetful, "verdicts read back") < 1.0);
    let sleepy = run(Wrong::SleepsThroughBursts);
    assert_eq!(share(&sleepy, "bursts found"), 0.0);
    let blind = run(Wrong::MistakesSpam);
    assert_eq!(share(&blind, "spam found"), 0.0);
}

#[test]
fn a_mail_without_an_answer_leaves_its_sender_unjudged() {
    let mut load = RtaSf::new(&Inputs::default()).unwrap();
    let call = load.next().unwrap();
    let sender = load.under_way[&call.tag].sender;
    assert!(load.busy.contains(&sender));
    load.senders.get_mut(&sender).unwrap().last = Some(("ham".into(), 7));
    let judged = load.on_outcome(call.tag, None);
    assert_eq!(judged.verdict, None);
    assert!(!load.busy.contains(&sender));
    assert_eq!(load.senders[&sender].last, None);
}
