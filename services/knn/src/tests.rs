//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_pipeline::status;
use e3_sdk::testing::{Call, Host};
use e3_testkit::{Random, fuzz, reply_to};

fn record(numbers: &[f64]) -> Vec<u8> {
    Builder::new()
        .array("features", numbers.len(), |a| {
            numbers.iter().for_each(|n| a.push(Value::Float(*n)));
        })
        .field("id", Value::Int(3))
        .bytes()
        .to_vec()
}

fn call(host: &Host, service: &mut Knn, payload: Vec<u8>) -> (u32, Vec<u8>) {
    let call = Call {
        payload,
        ..Call::default()
    };
    reply_to(host, service, &call)
}

fn asset(points: &[(String, Vec<f64>)]) -> String {
    let mut text = "# label, features\n".to_string();
    for (label, features) in points {
        let features: Vec<_> = features.iter().map(f64::to_string).collect();
        text += &format!("{label},{}\n", features.join(","));
    }
    text
}

/// Against sorting all distances, with many ties on a coarse grid.
#[test]
fn equals_sorting_everything() {
    let mut random = Random::new(1);
    for (features, count, k) in [
        (1, 9, 1),
        (2, 100, 5),
        (3, 64, 64),
        (7, 250, 4),
        (40, 33, 9),
    ] {
        let grid = |r: &mut Random| (0..features).map(|_| r.index(5) as f64 - 1.5).collect();
        let points: Vec<(String, Vec<f64>)> = (0..count)
            .map(|_| (format!("c{}", random.index(4)), grid(&mut random)))
            .collect();
        let host = Host::new()
            .asset("points", asset(&points).as_bytes())
            .config("k", &k.to_string());
        let mut service = Knn::init().unwrap();
        for round in 0..100 {
            let query: Vec<f64> = grid(&mut random);
            let mut all: Vec<(f64, usize)> = points
                .iter()
                .map(|(_, p)| {
                    p.iter()
                        .zip(&query)
                        .map(|(a, b)| (a - b).powi(2))
                        .sum::<f64>()
                })
                .zip(0..)
                .collect();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            all.truncate(k);
            let votes = |class: &str| all.iter().filter(|(_, i)| points[*i].0 == class).count();
            let classes = ["c0", "c1", "c2", "c3"];
            let most = classes.iter().map(|c| votes(c)).max().unwrap();
            let class = classes.iter().find(|c| votes(c) == most).unwrap();
            if round == 50 {
                service = Knn::init().unwrap();
            }
            let (status, reply) = call(&host, &mut service, record(&query));
            let reply = Record::parse(&reply).unwrap();
            assert_eq!(
                (status, reply.text("class")),
                (0, Ok(*class)),
                "{features} {round}"
            );
            assert_eq!(
                (reply.int("votes"), reply.int("id")),
                (Ok(most as i64), Ok(3))
            );
            let expected: Vec<f64> = all.iter().map(|(_, i)| *i as f64).collect();
            assert_eq!(reply.numbers("neighbours", k), Ok(expected));
            let distances = reply.numbers("distances", k).unwrap();
            for (got, (squared, _)) in distances.iter().zip(&all) {
                assert!((got - squared.sqrt()).abs() < 1e-12);
            }
        }
    }
}

#[test]
fn bad_assets_are_named_by_line() {
    let error = |text: &str| {
        let _host = Host::new()
            .asset("points", text.as_bytes())
            .config("k", "2");
        Knn::init().unwrap_err().to_string()
    };
    for (text, why) in [
        ("", "has no point, must have at least 1"),
        ("a,1\n", "has 1 points, must have at least k = 2"),
        (
            "a,1,2\n\nb,1\n",
            "line 3: has 1 features, must have 2, as many as the first point",
        ),
        ("a\n", "line 1: has 0 features, must have at least 1"),
        (
            "a,1\nb,1e999\n",
            "line 2: feature 1: is \"1e999\", must be a number within ±1e150",
        ),
        (
            "a,NaN\n",
            "line 1: feature 1: is \"NaN\", must be a number within ±1e150",
        ),
        (",1\n", "line 1: label: has 0 bytes, must have 1..=255"),
    ] {
        assert_eq!(error(text), format!("asset \"points\": {why}"));
    }
    let _host = Host::new();
    assert_eq!(Knn::init().unwrap_err(), Error::NoAsset("points"));
}

#[test]
fn faults_are_named() {
    let host = Host::new()
        .asset("points", b"a,1,2\nb,3,4\n")
        .config("k", "1");
    let mut service = Knn::init().unwrap();
    let mut error = |payload| {
        let (status, reply) = call(&host, &mut service, payload);
        assert_eq!(status, status::MALFORMED);
        String::from_utf8(reply).unwrap()
    };
    assert_eq!(
        error(record(&[1.0])),
        "field \"features\": has 1 elements, must have 2"
    );
    assert_eq!(
        error(record(&[1.0, -1e151])),
        "field \"features\": has -1e151, must be within ±1e150"
    );
    assert_eq!(
        error(record(&[1.0, f64::NAN])),
        "field \"features\": is array, must be an array of finite numbers"
    );
    fuzz(&host, &mut service, 2, 20_000, &[record(&[1.0, 2.0])]);
}
