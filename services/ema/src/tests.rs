//! Tests of the service against the in-memory host of the SDK.

use super::*;
use e3_sdk::testing::{Call, Collection, Host, Kind, Outcome, slot_of};
use e3_testkit::{Random, fuzz};
use std::collections::BTreeMap;

fn host() -> Host {
    Host::new()
        .collection("averages", Kind::Hash)
        .collection("samples", Kind::Counter)
        .config("field", "temperature")
        .config("time-constant-s", "7200")
}

fn record(time_s: i64, value: f64) -> Vec<u8> {
    Builder::new()
        .field("time", Value::Int(time_s))
        .field("temperature", Value::Float(value))
        .field("other", Value::Text("stays"))
        .bytes()
        .to_vec()
}

fn op(op: &str) -> Vec<u8> {
    Builder::new().field("op", Value::Text(op)).bytes().to_vec()
}

fn send(host: &Host, service: &mut Ema, key: &str, payload: Vec<u8>) -> Outcome {
    let call = Call {
        key: key.into(),
        payload,
        ..Call::default()
    };
    let outcome = host.call(service, &call);
    assert_eq!((&outcome.result, outcome.replies.len()), (&Ok(()), 1));
    outcome
}

/// `ema` and `samples` of a reply that must be well.
fn answer(outcome: &Outcome) -> (f64, i64) {
    let (status, reply) = &outcome.replies[0];
    assert_eq!(*status, 0, "{}", String::from_utf8_lossy(reply));
    let reply = Record::parse(reply).unwrap();
    (reply.number("ema").unwrap(), reply.int("samples").unwrap())
}

fn refusal(outcome: &Outcome) -> (u32, String) {
    let (status, why) = &outcome.replies[0];
    (*status, String::from_utf8_lossy(why).into_owned())
}

/// Against the defining integral: a low-pass driven by each reading held since the one before,
/// integrated in steps of a second, with a fresh instance for every second reading.
#[test]
fn equals_the_low_pass_integrated_in_small_steps() {
    let host = host();
    let mut service = Ema::init().unwrap();
    let mut random = Random::new(21);
    let (mut naive, mut time_s) = (0.0, 1_700_000_000);
    for n in 1..=40 {
        let value = 40.0 * random.unit() - 10.0;
        let elapsed_s = 1 + random.index(20_000) as i64;
        time_s += elapsed_s;
        if n == 1 {
            naive = value;
        }
        for _ in 0..elapsed_s {
            naive += (value - naive) * (1.0 - (-1.0_f64 / 7200.0).exp());
        }
        if n % 2 == 0 {
            service = Ema::init().unwrap();
        }
        let outcome = send(&host, &mut service, "k", record(time_s, value));
        let (ema, samples) = answer(&outcome);
        assert!((ema - naive).abs() < 1e-9, "reading {n}: {ema} != {naive}");
        assert_eq!(samples, n);
        let said = Record::parse(&outcome.replies[0].1).unwrap();
        assert_eq!(
            (said.text("other"), said.int("time")),
            (Ok("stays"), Ok(time_s))
        );
        // and asked for
        let outcome = send(&host, &mut service, "k", op("get"));
        assert_eq!(answer(&outcome), (ema, n));
        let said = Record::parse(&outcome.replies[0].1).unwrap();
        assert_eq!((said.int("time"), said.has("other")), (Ok(time_s), false));
    }
    let outcome = send(&host, &mut service, "other", op("get"));
    let why = "ema: no reading yet for this key";
    assert_eq!(refusal(&outcome), (status::NOT_FOUND, why.into()));
}

#[test]
fn late_readings_go_on_with_what_is_there() {
    let host = host();
    let mut service = Ema::init().unwrap();
    send(&host, &mut service, "k", record(100, 10.0));
    let before = host.state();
    for late_s in [100, 99, i64::MIN] {
        let outcome = send(&host, &mut service, "k", record(late_s, 20.0));
        assert_eq!(answer(&outcome), (10.0, 1));
        assert_eq!(host.state(), before);
    }
    // the longest silence there can be
    let outcome = send(&host, &mut service, "k", record(i64::MAX, 1e150));
    assert_eq!(answer(&outcome), (1e150, 2));
}

#[test]
fn what_it_is_given_goes_on_with_its_own_fields_instead_of_forged_ones() {
    let host = host().channel("next").config("to", "next");
    let mut service = Ema::init().unwrap();
    let payload = Builder::new()
        .field("ema", Value::Float(99.0))
        .field("samples", Value::Text("many"))
        .field("temperature", Value::Int(3))
        .field("time", Value::Int(1))
        .bytes()
        .to_vec();
    let call = Call {
        payload,
        ..Call::default()
    };
    let outcome = host.call(&mut service, &call);
    assert_eq!((outcome.replies.len(), outcome.sent.len()), (0, 1));
    let sent = Record::parse(&outcome.sent[0].payload).unwrap();
    assert_eq!((sent.number("ema"), sent.int("samples")), (Ok(3.0), Ok(1)));
}

/// Two shards of the halves of the slots hold together what one shard of all holds.
#[test]
fn a_shard_can_be_split() {
    let run = |accepts: &dyn Fn(u16) -> bool| {
        let host = host();
        let mut service = Ema::init().unwrap();
        let mut random = Random::new(5);
        for n in 0..400 {
            let key = format!("key{}", random.index(40));
            let value = random.unit();
            if accepts(slot_of(key.as_bytes())) {
                send(&host, &mut service, &key, record(n, value));
            }
        }
        let state = host.state();
        let entries = state.into_iter().flat_map(|(name, c)| -> Vec<_> {
            let bytes: BTreeMap<Vec<u8>, Vec<u8>> = match c {
                Collection::Hash(map) => map,
                Collection::Counter(map) => {
                    let each = map.into_iter();
                    each.map(|(k, v)| (k, v.to_le_bytes().to_vec())).collect()
                }
                _ => unreachable!(),
            };
            let each = bytes.into_iter();
            each.map(|(k, v)| ((name.clone(), k), v)).collect()
        });
        entries.collect::<BTreeMap<_, _>>()
    };
    let (mut low, high, all) = (run(&|s| s < 2048), run(&|s| s >= 2048), run(&|_| true));
    assert!(low.keys().all(|(_, key)| slot_of(key) < 2048));
    low.extend(high);
    assert_eq!(low, all);
}

#[test]
fn faults_are_named_and_change_nothing() {
    let host = host();
    let mut service = Ema::init().unwrap();
    let empty = Builder::new().bytes().to_vec();
    let text = Builder::new()
        .field("temperature", Value::Float(1.0))
        .field("time", Value::Text("noon"))
        .bytes()
        .to_vec();
    for (payload, why) in [
        (empty, "field \"temperature\": is missing"),
        (text, "field \"time\": is string, must be a whole number"),
        (
            record(1, -2e150),
            "field \"temperature\": is -2e150, must be within ±1e150",
        ),
        (op("put"), "field \"op\": is \"put\", must be \"get\""),
    ] {
        let outcome = send(&host, &mut service, "k", payload);
        assert_eq!(refusal(&outcome), (status::MALFORMED, why.into()));
    }
    let good = [record(1, 2.0), record(500, 1e3), op("get")];
    let [passed, refused] = fuzz(&host, &mut service, 7, 20_000, &good);
    assert!(
        passed > 1000 && refused > 1000,
        "{passed} passed, {refused} refused"
    );
    for bad in ["0", "-1", "inf", "NaN"] {
        let _host = Host::new().config("time-constant-s", bad);
        let error = Ema::init().err();
        let name = "time-constant-s";
        assert!(
            matches!(&error, Some(Error::Config { name: n, .. }) if *n == name),
            "{error:?}"
        );
    }
}
