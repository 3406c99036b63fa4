//! Learning from documents whose class is given.

use super::*;
use e3_sdk::testing::{Collection, Kind, slot_of};

const MODEL: &str = "ham\tspam\n5\t4\nalpha\t9\t1\nbeta\t3\t3\ngamma\t0\t7\ndelta\t2\t0\n";
const WORDS: [&str; 5] = ["alpha", "beta", "gamma", "delta", "unknown"];
const CLASSES: [&str; 2] = ["ham", "spam"];

fn learner() -> Host {
    Host::new()
        .asset("model", MODEL.as_bytes())
        .collection("words", Kind::Hash)
        .collection("totals", Kind::Ordered)
        .config("learn", "told")
}

fn ask(host: &Host, service: &mut Bayes, key: &str, text: &str, told: Option<&str>) -> Vec<u8> {
    let mut b = Builder::new();
    b.field("text", Value::Text(text));
    if let Some(told) = told {
        b.field("told", Value::Text(told));
    }
    let call = Call {
        key: key.as_bytes().to_vec(),
        payload: b.bytes().to_vec(),
        ..Call::default()
    };
    let mut outcome = host.call(service, &call);
    assert_eq!((outcome.result, outcome.replies[0].0), (Ok(()), 0));
    outcome.replies.remove(0).1
}

fn text(random: &mut Random) -> Vec<&'static str> {
    (0..random.index(12))
        .map(|_| WORDS[random.index(5)])
        .collect()
}

/// Against a model of each slot, retrained with the documents that it learned.
#[test]
fn equals_a_model_trained_with_the_documents() {
    for weight in [1u32, 7] {
        let host = learner().config("learn-weight", &weight.to_string());
        let mut service = Bayes::init().unwrap();
        let mut learned: BTreeMap<u16, Vec<(usize, Vec<&str>)>> = BTreeMap::new();
        let mut random = Random::new(3);
        for round in 0..1500 {
            if random.index(20) == 0 {
                service = Bayes::init().unwrap();
            }
            let key = format!("k{}", random.index(20));
            let documents = learned.entry(slot_of(key.as_bytes())).or_default();
            let words = text(&mut random);
            let mut counts = [[9.0, 1.0], [3.0, 3.0], [0.0, 7.0], [2.0, 0.0]];
            let mut number = [5.0, 4.0];
            for (class, words) in documents.iter() {
                number[*class] += f64::from(weight);
                for known in words
                    .iter()
                    .filter_map(|w| WORDS[..4].iter().position(|x| x == w))
                {
                    counts[known][*class] += f64::from(weight);
                }
            }
            let joint = [0, 1].map(|c| {
                let total: f64 = counts.iter().map(|n| n[c] + 1.0).sum();
                let known = words
                    .iter()
                    .filter_map(|w| WORDS[..4].iter().position(|x| x == w));
                let likely: f64 = known.map(|w| ((counts[w][c] + 1.0) / total).ln()).sum();
                (number[c] / (number[0] + number[1])).ln() + likely
            });
            let evidence = (joint[0].exp() + joint[1].exp()).ln();
            let class = (random.index(2) == 0).then(|| random.index(2));
            let told = class.map(|c| CLASSES[c]);
            let reply = ask(&host, &mut service, &key, &words.join(" "), told);
            let reply = Record::parse(&reply).unwrap();
            let got = reply.numbers("log_posteriors", 2).unwrap();
            for (got, joint) in got.iter().zip(joint) {
                assert!((got - (joint - evidence)).abs() < 1e-9, "{weight} {round}");
            }
            if let Some(class) = class {
                documents.push((class, words));
                assert_eq!(reply.int("learned"), Ok(documents.len() as i64));
            } else {
                assert!(!reply.has("learned"));
            }
        }
        let all = || learned.values().flatten();
        let expected = [0, 1].map(|c| all().filter(|(class, _)| *class == c).count() as f64);
        let mut b = Builder::new();
        let report = b.field("op", Value::Text("report")).bytes().to_vec();
        let (_, reply) = call(&host, &mut service, report);
        let reply = Record::parse(&reply).unwrap();
        assert_eq!(reply.numbers("documents", 2), Ok(expected.to_vec()));
        assert_eq!(reply.texts("classes", 2), Ok(CLASSES.to_vec()));
    }
}

#[test]
fn a_shard_can_be_split() {
    let entries = |serves: &dyn Fn(u16) -> bool| {
        let host = learner();
        let mut service = Bayes::init().unwrap();
        let mut random = Random::new(4);
        for _ in 0..500 {
            let key = format!("k{}", random.index(200));
            let (words, class) = (text(&mut random), random.index(2));
            if serves(slot_of(key.as_bytes())) {
                ask(
                    &host,
                    &mut service,
                    &key,
                    &words.join(" "),
                    Some(CLASSES[class]),
                );
            }
        }
        let mut all = BTreeMap::new();
        for (name, collection) in host.state() {
            match collection {
                Collection::Hash(map) | Collection::Ordered(map) => {
                    all.extend(map.into_iter().map(|(k, v)| ((name.clone(), k), v)));
                }
                other => panic!("{other:?}"),
            }
        }
        all
    };
    let mut both = entries(&|s| s < 2048);
    both.extend(entries(&|s| s >= 2048));
    assert_eq!(both, entries(&|_| true));
}

/// A model with another number of classes knows nothing of what was learned for the old ones.
#[test]
fn another_model_begins_anew() {
    let host = learner();
    let mut service = Bayes::init().unwrap();
    ask(&host, &mut service, "k", "alpha gamma", Some("spam"));
    let three = "ham\tspam\tlist\n1\t1\t1\nalpha\t1\t1\t4\nbeta\t3\t3\t0\n";
    let host = host.asset("model", three.as_bytes());
    let mut service = Bayes::init().unwrap();
    for learned in 1..3 {
        let reply = ask(&host, &mut service, "k", "alpha gamma", Some("list"));
        let reply = Record::parse(&reply).unwrap();
        assert_eq!(
            (reply.text("class"), reply.int("learned")),
            (Ok("list"), Ok(learned))
        );
    }
}

#[test]
fn many_words_fit_into_the_writes_of_one_document() {
    let words: Vec<String> = (0..5000).map(|i| format!("word{i}")).collect();
    let rows: String = words.iter().map(|w| format!("{w}\t1\t1\n")).collect();
    let model = format!("ham\tspam\n1\t1\n{rows}");
    let host = Host::new()
        .asset("model", model.as_bytes())
        .collection("words", Kind::Hash)
        .collection("totals", Kind::Ordered)
        .config("learn", "told");
    let mut service = Bayes::init().unwrap();
    let text = words[..2500].join(" ");
    let reply = ask(&host, &mut service, "k", &text, Some("spam"));
    assert_eq!(Record::parse(&reply).unwrap().int("learned"), Ok(1));
    let written: usize = host
        .state()
        .iter()
        .map(|(_, c)| match c {
            Collection::Hash(map) | Collection::Ordered(map) => map
                .iter()
                .map(|(k, v)| k.len() + v.len() + 16)
                .sum::<usize>(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(
        (5_000..learned::WRITES_BYTES_MAX + 64).contains(&written),
        "{written}"
    );
}

#[test]
fn wrong_labels_change_nothing() {
    let host = learner();
    let mut service = Bayes::init().unwrap();
    let mut b = Builder::new();
    b.field("text", Value::Text("alpha"));
    let bad = b.field("told", Value::Text("eggs")).bytes().to_vec();
    let why = b"field \"told\": is \"eggs\", must be one of ham, spam";
    assert_eq!(
        call(&host, &mut service, bad),
        (status::MALFORMED, why.to_vec())
    );
    let good = [("alpha beta", "ham"), ("gamma", "spam")].map(|(text, told)| {
        let mut b = Builder::new();
        b.field("text", Value::Text(text))
            .field("told", Value::Text(told))
            .bytes()
            .to_vec()
    });
    let report = Builder::new()
        .field("op", Value::Text("report"))
        .bytes()
        .to_vec();
    let mut all = good.to_vec();
    all.push(report);
    let [accepted, refused] = fuzz(&host, &mut service, 5, 20_000, &all);
    assert!(accepted > 1000 && refused > 1000, "{accepted} {refused}");
    let _host = learner().config("learn-weight", "0");
    assert!(matches!(Bayes::init(), Err(Error::Config { .. })));
}
