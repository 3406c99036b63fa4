//! Services that handle records: CBOR of about 512 bytes, items by Zipf's law.

use super::case::{BYTES, Case, REQUESTS, SEED};
use crate::words;
use e3_collections::Kind;
use e3_pipeline::{Builder, Value};
use e3_random::Random;
use e3_service_bayes::Bayes;
use e3_service_bm25::Bm25;
use e3_service_count::Count;
use e3_service_knn::Knn;
use e3_service_kvs::Kvs;
use e3_service_topranker::TopRanker;

/// Tags of messages.
const TAGS: u64 = 2000;
/// Numbers of a message's vector; those of the points.
const FEATURES: usize = 8;
/// Items of the key-value store.
const ITEMS: u64 = 100_000;
/// Words of texts.
const VOCABULARY: u64 = 5000;
/// Classes of texts.
const CLASSES: u64 = 4;
/// Documents of the index.
const DOCUMENTS: u64 = 2000;
/// Items that a record ranks.
const RANKED: usize = 20;

/// Records: what `fill` writes, which also gives the key, and a text that makes them long enough.
fn records(mut fill: impl FnMut(&mut Random, &mut Builder) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut random = Random::new(SEED);
    let record = |_| {
        let mut record = Builder::new();
        let key = fill(&mut random, &mut record);
        // the name of the text, its length and the head of a map
        let rest = BYTES.saturating_sub(record.bytes().len() + 9);
        if rest > 0 {
            let mut text = words::text(&mut random, VOCABULARY, rest);
            text.truncate(rest);
            record.field("text", Value::Text(&text));
        }
        (key, record.bytes().to_vec())
    };
    (0..REQUESTS).map(record).collect()
}

/// A message with a tag and a vector.
fn messages() -> Vec<(Vec<u8>, Vec<u8>)> {
    records(|random, record| {
        let rank = random.zipf(TAGS);
        let tag = format!("tag{rank:04}");
        record.field("tag", Value::Text(&tag));
        record.array("features", FEATURES, |array| {
            for i in 0..FEATURES {
                let centre = if i == rank as usize % FEATURES {
                    3.0
                } else {
                    0.0
                };
                array.push(Value::Float(centre + random.unit() - 0.5));
            }
        });
        tag.into_bytes()
    })
}

pub(super) fn count() -> Case {
    let about = "messages with one of 2000 tags";
    Case::new::<Count>("count", about)
        .collection("cells", Kind::HashMap)
        .collection("bitmaps", Kind::OrderedMap)
        .config("field", "tag")
        .config("bits", "131072")
        .config("window-s", "0")
        .requests(messages())
}

pub(super) fn kvs() -> Case {
    let about = "memcached's text protocol, 100,000 keys: set and get in turn, values of 480 bytes";
    let mut random = Random::new(SEED);
    let request = |n: u64| {
        let key = format!("item:{:08}", random.zipf(ITEMS));
        let command = match n % 2 {
            0 => {
                let mut value = words::text(&mut random, VOCABULARY, 480);
                value.truncate(480);
                format!("set {key} 0 0 480\r\n{value}\r\n")
            }
            _ => format!("get {key}\r\n"),
        };
        (key.into_bytes(), command.into_bytes())
    };
    Case::new::<Kvs>("kvs", about)
        .collection("items", Kind::HashMap)
        .collection("expiries", Kind::OrderedMap)
        .collection("versions", Kind::Counter)
        .requests((0..REQUESTS).map(request))
}

pub(super) fn knn() -> Case {
    let about = "messages with 8 features, 480 points of 8 classes, k = 5";
    let points = include_bytes!("../../../../data/rta-ptc-points.csv");
    Case::new::<Knn>("knn", about)
        .asset("points", points.to_vec())
        .config("k", "5")
        .requests(messages())
}

pub(super) fn bayes() -> Case {
    let about = "texts of some 60 words, a model of 5000 words and 4 classes";
    let mut random = Random::new(SEED);
    let mut model = String::from("arts\tsports\tscience\ttrade\n250\t250\t250\t250\n");
    for rank in 0..VOCABULARY {
        model += &words::word(rank);
        for _ in 0..CLASSES {
            model += &format!("\t{}", random.below(1 + 10_000 / (rank + 1)));
        }
        model.push('\n');
    }
    Case::new::<Bayes>("bayes", about)
        .asset("model", model.into_bytes())
        .requests(records(|random, _| {
            random.next_u64().to_le_bytes().to_vec()
        }))
}

pub(super) fn topranker() -> Case {
    let about = "20 items of 20,000 with their scores, which are kept; the best 10 of them";
    let requests = records(|random, record| {
        let key = random.below(200);
        let item = |random: &mut Random| format!("item{:04}", key * 100 + random.zipf(100));
        let items: Vec<String> = (0..RANKED).map(|_| item(random)).collect();
        record.array("items", RANKED, |array| {
            for item in &items {
                array.push(Value::Text(item));
            }
        });
        record.array("scores", RANKED, |array| {
            for _ in 0..RANKED {
                array.push(Value::Float(random.unit()));
            }
        });
        key.to_le_bytes().to_vec()
    });
    Case::new::<TopRanker>("topranker", about)
        .collection("scores", Kind::OrderedMap)
        .config("k", "10")
        .config("keep", "last")
        .requests(requests)
}

/// An index as `services/bm25/src/index.rs` describes it.
fn index(random: &mut Random) -> Vec<u8> {
    let mut terms: std::collections::BTreeMap<String, std::collections::BTreeMap<u64, u32>> =
        Default::default();
    let (mut lengths, mut names) = (Vec::new(), Vec::new());
    for number in 0..DOCUMENTS {
        let words = 50 + random.below(150);
        lengths.push(words as u32);
        names.push(format!("document{number:04}"));
        for _ in 0..words {
            let term = terms.entry(words::word(random.zipf(VOCABULARY)));
            *term.or_default().entry(number).or_default() += 1;
        }
    }
    let ends = |parts: &mut dyn Iterator<Item = usize>| -> Vec<u32> {
        let mut end = 0;
        let next = |len: usize| {
            end += len as u32;
            end
        };
        parts.map(next).collect()
    };
    let postings: usize = terms.values().map(|p| p.len()).sum();
    let text = |parts: &mut dyn Iterator<Item = &String>| -> Vec<u8> {
        parts.flat_map(|p| p.bytes()).collect()
    };
    let (name_bytes, term_bytes) = (text(&mut names.iter()), text(&mut terms.keys()));
    let sizes = [
        names.len(),
        terms.len(),
        name_bytes.len(),
        term_bytes.len(),
        postings,
    ];
    let mut numbers: Vec<u32> = sizes.map(|n| n as u32).to_vec();
    numbers.extend(lengths);
    numbers.extend(ends(&mut names.iter().map(String::len)));
    numbers.extend(ends(&mut terms.keys().map(String::len)));
    numbers.extend(ends(&mut terms.values().map(|p| p.len())));
    let mut out = b"E3BM25\x00\x01".to_vec();
    out.extend(numbers.iter().flat_map(|n| n.to_le_bytes()));
    out.extend(name_bytes);
    out.extend(term_bytes);
    for (document, count) in terms.values().flatten() {
        out.extend((*document as u32).to_le_bytes());
        out.extend(count.to_le_bytes());
    }
    out
}

pub(super) fn bm25() -> Case {
    let about = "queries of 6 words, an index of 2000 documents and 5000 words";
    let mut random = Random::new(SEED);
    let index = index(&mut random);
    let requests = records(|random, record| {
        let words: Vec<String> = (0..6)
            .map(|_| words::word(random.below(VOCABULARY)))
            .collect();
        record.field("query", Value::Text(&words.join(" ")));
        random.next_u64().to_le_bytes().to_vec()
    });
    Case::new::<Bm25>("bm25", about)
        .asset("index", index)
        .requests(requests)
}
