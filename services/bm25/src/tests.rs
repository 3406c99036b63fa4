//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_pipeline::status;
use e3_sdk::testing::{Call, Host};
use e3_testkit::{Random, fuzz, reply_to};
use std::collections::BTreeMap;

/// As `index.py` writes it; documents are words separated by spaces.
fn build(documents: &[(String, String)]) -> Vec<u8> {
    let mut postings: BTreeMap<&str, Vec<(u32, u32)>> = BTreeMap::new();
    let mut lengths = Vec::new();
    for ((_, text), number) in documents.iter().zip(0..) {
        let words: Vec<&str> = text.split_whitespace().collect();
        lengths.push(words.len() as u32);
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        words
            .iter()
            .for_each(|w| *counts.entry(w).or_default() += 1);
        for (word, count) in counts {
            postings.entry(word).or_default().push((number, count));
        }
    }
    let names: String = documents.iter().map(|(n, _)| n.as_str()).collect();
    let terms: String = postings.keys().copied().collect();
    let all: Vec<(u32, u32)> = postings.values().flatten().copied().collect();
    let ends = |lens: Vec<usize>| -> Vec<u32> {
        let sums = lens.iter().scan(0, |sum, len| {
            *sum += *len as u32;
            Some(*sum)
        });
        sums.collect()
    };
    let mut bytes = index::MAGIC.to_vec();
    let sizes = [
        documents.len(),
        postings.len(),
        names.len(),
        terms.len(),
        all.len(),
    ];
    let numbers = [
        sizes.map(|n| n as u32).to_vec(),
        lengths,
        ends(documents.iter().map(|(n, _)| n.len()).collect()),
        ends(postings.keys().map(|t| t.len()).collect()),
        ends(postings.values().map(Vec::len).collect()),
    ];
    bytes.extend(numbers.concat().iter().flat_map(|n| n.to_le_bytes()));
    bytes.extend(names.bytes().chain(terms.bytes()));
    let pairs = all.iter().flat_map(|(d, c)| [*d, *c]);
    bytes.extend(pairs.flat_map(u32::to_le_bytes));
    bytes
}

fn record(query: &str) -> Vec<u8> {
    Builder::new()
        .field("query", Value::Text(query))
        .field("id", Value::Int(3))
        .bytes()
        .to_vec()
}

fn call(host: &Host, service: &mut Bm25, payload: Vec<u8>) -> (u32, Vec<u8>) {
    let call = Call {
        payload,
        ..Call::default()
    };
    reply_to(host, service, &call)
}

fn documents(texts: &[&str]) -> Vec<(String, String)> {
    let named = texts.iter().zip(0..);
    named
        .map(|(t, i)| (format!("d{i}"), t.to_string()))
        .collect()
}

/// Worked out by hand: N = 3, lengths 3, 2, 1, mean 2.
#[test]
fn knows_an_example() {
    let bytes = build(&documents(&["blue sky blue", "blue sea", "sand"]));
    let host = Host::new().asset("index", &bytes);
    let mut service = Bm25::init().unwrap();
    let (status, reply) = call(&host, &mut service, record("The BLUE sea"));
    let reply = Record::parse(&reply).unwrap();
    assert_eq!(
        (status, reply.int("matches"), reply.int("id")),
        (0, Ok(2), Ok(3))
    );
    assert_eq!(reply.texts("documents", 9), Ok(vec!["d1", "d0"]));
    let (blue, sea) = ((1.0 + 1.5 / 2.5f64).ln(), (1.0 + 2.5 / 1.5f64).ln());
    let d1 = blue / 2.2 + sea / 2.2;
    let d0 = blue * 2.0 / (2.0 + 1.2 * (0.25 + 0.75 * 1.5));
    let scores = reply.numbers("scores", 9).unwrap();
    assert!((scores[0] - d1).abs() < 1e-12 && (scores[1] - d0).abs() < 1e-12);
}

/// Against the formula on plain texts, every document scored.
#[test]
fn equals_the_formula() {
    let mut random = Random::new(1);
    for (count, k, k1, b) in [(1, 10, 1.2, 0.75), (40, 3, 0.0, 0.5), (300, 100, 2.0, 1.0)] {
        let text = |r: &mut Random, words: usize| {
            let words: Vec<_> = (0..words)
                .map(|_| format!("w{}", r.index(40) * r.index(9)))
                .collect();
            words.join(" ")
        };
        let all: Vec<_> = (0..count)
            .map(|i| {
                let words = random.index(30);
                (format!("doc {i}"), text(&mut random, words))
            })
            .collect();
        let host = Host::new()
            .asset("index", &build(&all))
            .config("k", &k.to_string())
            .config("k1", &k1.to_string())
            .config("b", &b.to_string());
        let mut service = Bm25::init().unwrap();
        let times =
            |text: &str, word: &str| text.split_whitespace().filter(|w| *w == word).count() as f64;
        let length = |text: &str| text.split_whitespace().count() as f64;
        let mean = all.iter().map(|(_, t)| length(t)).sum::<f64>() / count as f64;
        for round in 0..60 {
            if round == 30 {
                service = Bm25::init().unwrap();
            }
            let words = random.index(6);
            let query = text(&mut random, words);
            let words: Vec<(&str, f64)> = query
                .split_whitespace()
                .map(|word| {
                    let n = all.iter().filter(|(_, d)| times(d, word) > 0.0).count() as f64;
                    (word, (1.0 + (count as f64 - n + 0.5) / (n + 0.5)).ln())
                })
                .collect();
            let mut scored: Vec<(f64, usize)> = all
                .iter()
                .map(|(_, d)| {
                    let norm = k1 * (1.0 - b + b * length(d) / mean);
                    let score = |(word, idf): &(&str, f64)| match times(d, word) {
                        0.0 => 0.0,
                        f => idf * f / (f + norm),
                    };
                    words.iter().map(score).sum::<f64>()
                })
                .zip(0..)
                .filter(|(score, _)| *score > 0.0)
                .collect();
            let found = scored.len();
            scored.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap().then(a.1.cmp(&b.1)));
            let (_, reply) = call(&host, &mut service, record(&query));
            let reply = Record::parse(&reply).unwrap();
            assert_eq!(reply.int("matches"), Ok(found as i64), "{round} {query:?}");
            let scores = reply.numbers("scores", k).unwrap();
            let names = reply.texts("documents", k).unwrap();
            assert_eq!((scores.len(), names.len()), (found.min(k), found.min(k)));
            for (i, (score, name)) in scores.iter().zip(&names).enumerate() {
                assert!((score - scored[i].0).abs() < 1e-9, "{round} {query:?}");
                // sums in another order may swap what is as good as equal
                let same = scored.iter().find(|(_, d)| all[*d].0 == **name).unwrap();
                assert!((score - same.0).abs() < 1e-9, "{round} {query:?}");
            }
        }
    }
}

#[test]
fn equal_scores_come_in_the_order_of_the_index() {
    let bytes = build(&documents(&["aa", "bb", "aa", "aa", "aa"]));
    let host = Host::new().asset("index", &bytes).config("k", "3");
    let mut service = Bm25::init().unwrap();
    let (_, reply) = call(&host, &mut service, record("aa"));
    let names = Record::parse(&reply)
        .unwrap()
        .texts("documents", 9)
        .map(|n| n.join(" "));
    assert_eq!(names, Ok("d0 d2 d3".to_string()));
    let (status, reply) = call(&host, &mut service, record(""));
    let reply = Record::parse(&reply).unwrap();
    assert_eq!((status, reply.texts("documents", 9)), (0, Ok(vec![])));
}

/// Any byte of an index changed, or some cut off: refused with a reason, or still sound to search.
#[test]
fn bad_indices_are_named_by_byte() {
    let good = build(&documents(&["blue sky blue", "blue sea", "sand"]));
    let error = |bytes: &[u8]| {
        let _host = Host::new().asset("index", bytes);
        Bm25::init().map(drop).unwrap_err().to_string()
    };
    let magic = "asset \"index\": byte 0: must begin with \"E3BM25\\\\x00\\\\x01\"";
    assert_eq!(error(b""), magic);
    assert_eq!(error(b"E3BM25\0\x02............................"), magic);
    let mut bad = good.clone();
    bad[8] = 0;
    assert_eq!(
        error(&bad),
        "asset \"index\": byte 8: documents: are 0, must be 1..=1048576"
    );
    let len = good.len();
    assert_eq!(
        error(&good[..len - 1]),
        format!(
            "asset \"index\": byte 28: the sizes make {len} bytes, but there are {}",
            len - 1
        )
    );
    let mut bad = good.clone();
    bad[len - 8] = 3;
    assert!(error(&bad).starts_with(&format!(
        "asset \"index\": byte {}: posting of term 3: document 3 with 1 occurrences, must be below 3",
        len - 8
    )));
    let mut random = Random::new(9);
    for round in 0..4000 {
        let mut bytes = good.clone();
        for _ in 0..=random.index(2) {
            let at = random.index(len);
            bytes[at] = random.byte() % 8;
        }
        let host = Host::new().asset("index", &bytes);
        match Bm25::init() {
            Ok(mut service) => {
                let (status, _) = call(&host, &mut service, record("blue sky sea sand"));
                assert_eq!(status, 0, "seed 9, round {round}");
            }
            Err(error) => assert!(matches!(error, Error::Asset { .. }), "{round}: {error}"),
        }
    }
}

#[test]
fn faults_are_named() {
    let words: Vec<_> = (0..65).map(|i| format!("word{i}")).collect();
    let bytes = build(&documents(&[&words.join(" ")]));
    let host = Host::new().asset("index", &bytes);
    let mut service = Bm25::init().unwrap();
    let (status, reply) = call(&host, &mut service, record(&words.join(" ")));
    let why = b"field \"query\": has more than 64 different words of the index";
    assert_eq!((status, &*reply), (status::MALFORMED, &why[..]));
    fuzz(
        &host,
        &mut service,
        2,
        20_000,
        &[record("word1 word2"), record("")],
    );
    for (name, value) in [("k", "101"), ("k1", "-1"), ("b", "NaN")] {
        let _host = Host::new().asset("index", &bytes).config(name, value);
        assert!(matches!(Bm25::init(), Err(Error::Config { .. })), "{name}");
    }
}
