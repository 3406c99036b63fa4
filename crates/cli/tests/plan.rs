//! `e3 plan` as its users run it.

use crate::common::E3;

const QUICK: [&str; 2] = ["--requests", "1000"];

fn words<'a>(candidates: &'a str, load: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["plan", "iot-ts", "--candidates", candidates, "--load", load];
    words.extend(QUICK);
    words.extend(more);
    words
}

#[test]
fn a_plan_compares_candidates_with_ranges_and_gives_the_same_bytes_each_time() {
    let e3 = E3::new();
    let asked = words("Beefy,type1-smartnic", "9000", &["--day", "900"]);
    let view = e3.json(&asked);
    let candidates = view["candidates"].as_array().unwrap();
    assert_eq!(candidates[1]["name"], "Type1-SmartNIC");
    for c in candidates {
        assert_eq!(c["service_times"], "paper");
        let cost = &c["figures"]["ownership_usd"];
        assert_eq!(cost["from"], "modelled");
        let number = |field: &str| cost[field].as_f64().unwrap();
        assert!(number("low") < number("value") && number("value") < number("high"));
    }
    assert!(view["cheapest"].is_string() && view["least_carbon"].is_string());
    let json: Vec<&str> = asked.iter().copied().chain(["-o", "json"]).collect();
    assert_eq!(e3.good(&json), e3.good(&json));
    let text = e3.good(&asked);
    for part in [
        "modelled, nothing ran",
        "paper, Table 1",
        "cost of ownership, $",
        "CO2 of electricity, kg",
        "Cheapest by years and price of electricity",
        "Break-even",
        "host_linger_us",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn servers_of_the_present_day_say_that_their_service_times_are_a_guess() {
    let e3 = E3::new();
    let text = e3.good(&words("epyc-9124+bluefield-2", "5000", &[]));
    assert!(text.contains("guess, not measured: host core x"), "{text}");
    let profiles = E3::new();
    let dir = profiles.dir.path().join("measured");
    std::fs::create_dir(&dir).unwrap();
    let shipped = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/paper");
    for service in ["apigw", "sql", "ema", "spike", "recommend"] {
        let file = format!("{service}.yaml");
        let text = std::fs::read_to_string(shipped.join(&file)).unwrap();
        let text = text.replace("provenance: paper", "provenance: measured");
        std::fs::write(dir.join(file), text).unwrap();
    }
    let own = format!("epyc-9124+bluefield-2={}", dir.display());
    let more = ["--profiles", own.as_str()];
    let view = e3.json(&words("epyc-9124+bluefield-2", "5000", &more));
    assert_eq!(view["candidates"][0]["service_times"], "measured");
    std::fs::copy(shipped.join("sql.yaml"), dir.join("sql.yaml")).unwrap();
    let ended = e3.run(&words("epyc-9124+bluefield-2", "5000", &more));
    assert_eq!(ended.code, 2, "{ended:?}");
    assert!(
        ended.err.contains("\"sql\" is of the paper's hardware"),
        "{ended:?}"
    );
}

#[test]
fn topologies_are_candidates_too() {
    let e3 = E3::new();
    let view = e3.json(&words("2x-beefy-2x-wimpy", "5000", &[]));
    let servers = &view["candidates"][0]["figures"]["servers"]["value"];
    assert_eq!(servers.as_f64().unwrap() % 4.0, 0.0);
}

#[test]
fn a_load_that_nobody_carries_is_refused_with_its_reason() {
    let e3 = E3::new();
    let ended = e3.run(&words("Beefy,Type1-SmartNIC", "5000000", &[]));
    assert_eq!(ended.code, 5, "{ended:?}");
    assert!(ended.out.contains("neither carries this load"), "{ended:?}");
    assert!(ended.err.contains("a shard of service"), "{ended:?}");
    assert!(ended.err.contains("--grow-shards"), "{ended:?}");
}

#[test]
fn bad_questions_are_refused_with_their_bounds() {
    let e3 = E3::new();
    for (candidates, load, more, code, part) in [
        (
            "abacus",
            "9000",
            [].as_slice(),
            3,
            "there are Beefy, SuperBeefy",
        ),
        ("Beefy,Beefy", "9000", &[], 2, "given twice"),
        ("Beefy", "-5", &[], 2, "load is -5 requests/s, must be 1 to"),
        ("Beefy", "many", &[], 2, "is not a number"),
        (
            "Beefy",
            "9000",
            &["--years", "0"],
            2,
            "time of ownership is 0 years",
        ),
        (
            "Beefy",
            "9000",
            &["--years", "-1"],
            2,
            "time of ownership is -1 years",
        ),
        (
            "Beefy",
            "9000",
            &["--price", "-0.1"],
            2,
            "price of electricity is -0.1 $/kWh",
        ),
        ("Beefy", "9000", &["--price", "3:2:1"], 2, "must ascend"),
        ("Beefy", "9000", &["--price", "1:2"], 2, "LOW:VALUE:HIGH"),
        (
            "Beefy",
            "9000",
            &["--carbon", "9999"],
            2,
            "carbon intensity is 9999 g/kWh",
        ),
        (
            "Beefy",
            "9000",
            &["--pue", "0.5"],
            2,
            "power usage effectiveness is 0.5",
        ),
        (
            "Beefy",
            "9000",
            &["--day", "9001"],
            2,
            "lowest load of the day is 9001",
        ),
        (
            "Beefy",
            "9000",
            &["--p99-ms", "0"],
            2,
            "objective on p99 is 0 ms",
        ),
        (
            "Beefy",
            "9000",
            &["--profiles", "Wimpy=x"],
            2,
            "none of the candidates",
        ),
    ] {
        let ended = e3.run(&words(candidates, load, more));
        assert_eq!(ended.code, code, "{candidates} {more:?}: {ended:?}");
        assert!(ended.err.contains(part), "{part}: {ended:?}");
    }
}
