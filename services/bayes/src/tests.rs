//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_pipeline::{Record, status};
use e3_sdk::testing::{Call, Host};
use e3_testkit::{Random, fuzz, reply_to};
use std::collections::{BTreeMap, BTreeSet};

mod learning;

fn record(text: &str) -> Vec<u8> {
    Builder::new()
        .field("text", Value::Text(text))
        .field("id", Value::Int(3))
        .bytes()
        .to_vec()
}

fn call(host: &Host, service: &mut Bayes, payload: Vec<u8>) -> (u32, Vec<u8>) {
    let call = Call {
        payload,
        ..Call::default()
    };
    reply_to(host, service, &call)
}

/// The example of Manning, Raghavan and Schütze, table 13.1: P(c | d5) is 0.0003 to 0.0001.
#[test]
fn knows_the_textbook_example() {
    let model = "c\tj\n3\t1\nbeijing\t1\t0\nchinese\t5\t1\njapan\t0\t1\nmacao\t1\t0\n\
        shanghai\t1\t0\ntokyo\t0\t1\n";
    let host = Host::new().asset("model", model.as_bytes());
    let mut service = Bayes::init().unwrap();
    let text = "Chinese Chinese Chinese Tokyo Japan, unknown";
    let (status, reply) = call(&host, &mut service, record(text));
    let reply = Record::parse(&reply).unwrap();
    assert_eq!((status, reply.text("class")), (0, Ok("c")));
    let c = 3.0 / 4.0 * (3.0f64 / 7.0).powi(3) / 14.0 / 14.0;
    let j = 1.0 / 4.0 * (2.0f64 / 9.0).powi(5);
    let posterior = reply.number("log_posterior").unwrap();
    assert!((posterior - (c / (c + j)).ln()).abs() < 1e-12);
    assert_eq!((reply.int("known_words"), reply.int("id")), (Ok(5), Ok(3)));
}

/// Against the formula on plain maps, trained from random documents.
#[test]
fn equals_the_formula() {
    let mut random = Random::new(1);
    for (classes, alpha) in [(1, 1.0), (2, 0.5), (5, 1e-10), (64, 3.0)] {
        let text = |r: &mut Random, class: usize| -> Vec<String> {
            let shift = |r: &mut Random| r.index(60) + class % 7 * 11;
            (0..r.index(30)).map(|_| format!("w{}", shift(r))).collect()
        };
        let mut counts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut documents = vec![0u32; classes];
        for i in 0..classes * 8 {
            let class = if i < classes {
                i
            } else {
                random.index(classes)
            };
            documents[class] += 1;
            for word in text(&mut random, class) {
                counts.entry(word).or_insert_with(|| vec![0; classes])[class] += 1;
            }
        }
        let join = |numbers: &[u32]| {
            let texts: Vec<_> = numbers.iter().map(u32::to_string).collect();
            texts.join("\t")
        };
        let names: Vec<_> = (0..classes).map(|c| format!("class {c:02}")).collect();
        let mut model = format!("{}\n{}\n", names.join("\t"), join(&documents));
        for (word, numbers) in &counts {
            model += &format!("{word}\t{}\n", join(numbers));
        }
        let host = Host::new()
            .asset("model", model.as_bytes())
            .config("alpha", &alpha.to_string());
        let mut service = Bayes::init().unwrap();
        let all = f64::from(documents.iter().sum::<u32>());
        for round in 0..50 {
            let of = random.index(classes);
            let words = text(&mut random, of);
            let joint: Vec<f64> = (0..classes)
                .map(|c| {
                    let total: u32 = counts.values().map(|n| n[c]).sum();
                    let total = f64::from(total) + alpha * counts.len() as f64;
                    let known = words.iter().filter_map(|w| counts.get(w));
                    let words = known.map(|n| ((f64::from(n[c]) + alpha) / total).ln());
                    (f64::from(documents[c]) / all).ln() + words.sum::<f64>()
                })
                .collect();
            let most = joint.iter().copied().fold(f64::MIN, f64::max);
            let evidence = most + joint.iter().map(|j| (j - most).exp()).sum::<f64>().ln();
            if round == 25 {
                service = Bayes::init().unwrap();
            }
            let (_, reply) = call(&host, &mut service, record(&words.join(" ")));
            let reply = Record::parse(&reply).unwrap();
            let got = reply.numbers("log_posteriors", 64).unwrap();
            for (got, joint) in got.iter().zip(&joint) {
                assert!((got - (joint - evidence)).abs() < 1e-9, "{classes} {round}");
            }
            let best: BTreeSet<_> = (0..classes).filter(|c| joint[*c] > most - 1e-9).collect();
            assert!(best.iter().any(|c| reply.text("class") == Ok(&names[*c])));
        }
    }
}

#[test]
fn bad_models_are_named_by_line() {
    for (text, why) in [
        ("", "is empty, must begin with a line of classes"),
        (
            "a\ta\n",
            "line 1: class \"a\": is a duplicate, or not 1..=255 bytes long",
        ),
        (
            "a\tb\n1\t0\n",
            "line 2: count \"0\": must be a whole number, 1..=4294967295",
        ),
        ("a\tb\n", "line 1: documents of each class: are missing"),
        ("a\tb\n1\t2\n", "has no word, must have at least 1"),
        (
            "a\tb\n1\t2\n#\nx\t1\n",
            "line 4: has 1 counts, must have 2, one a class",
        ),
        (
            "a\tb\n1\t2\nx\t1\t-1\n",
            "line 3: count \"-1\": must be a whole number, 0..=4294967295",
        ),
        (
            "a\tb\n1\t2\nx\t1\t1\nx\t1\t1\n",
            "line 4: word \"x\": is empty or a duplicate",
        ),
    ] {
        let _host = Host::new().asset("model", text.as_bytes());
        let error = Bayes::init().unwrap_err().to_string();
        assert_eq!(error, format!("asset \"model\": {why}"));
    }
    let _host = Host::new().config("alpha", "0");
    assert!(matches!(Bayes::init(), Err(Error::Config { .. })));
}

#[test]
fn faults_are_named() {
    let host = Host::new().asset("model", b"a\tb\n1\t2\nxy\t1\t1\n");
    let mut service = Bayes::init().unwrap();
    let payload = Builder::new().field("text", Value::Int(1)).bytes().to_vec();
    let (status, reply) = call(&host, &mut service, payload);
    let why = b"field \"text\": is u8, must be text";
    assert_eq!((status, &*reply), (status::MALFORMED, &why[..]));
    fuzz(
        &host,
        &mut service,
        2,
        20_000,
        &[record("xy and zz"), record("")],
    );
}
