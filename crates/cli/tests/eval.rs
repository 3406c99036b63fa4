//! `e3 eval` as its users run it. The report is looked at in a browser by checks/test_report.py.

use crate::common::E3;

/// Measured times differ from run to run.
const MEASURED: &str = "scale";

fn names(e3: &E3) -> Vec<String> {
    let list = e3.json(&["eval"]);
    let list = list.as_array().unwrap().iter();
    list.map(|e| e["name"].as_str().unwrap().to_string())
        .collect()
}

#[test]
fn without_a_name_the_experiments_are_listed() {
    let e3 = E3::new();
    let text = e3.good(&["eval"]);
    let known = names(&e3);
    assert!(known.len() >= 8, "{known:?}");
    for name in known {
        assert!(text.contains(&name), "{text}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let e3 = E3::new();
    let run =
        |name: &str, seed: &str| e3.good(&["eval", name, "--quick", "--seed", seed, "-o", "json"]);
    for name in ["efficiency", "hops"] {
        let first = run(name, "1");
        assert_eq!(first, run(name, "1"), "{name}");
        assert_ne!(first, run(name, "2"), "{name}");
    }
}

#[test]
fn every_outcome_has_figures_with_provenance_and_a_quick_run_says_so() {
    let e3 = E3::new();
    let out = e3.dir.path().join("out");
    let view = e3.json(&["eval", "all", "--quick", "--out", out.to_str().unwrap()]);
    assert_eq!(view["quick"], true);
    for outcome in view["outcomes"].as_array().unwrap() {
        let name = outcome["experiment"].as_str().unwrap();
        assert!(!outcome["plots"].as_array().unwrap().is_empty(), "{name}");
        for table in outcome["tables"].as_array().unwrap() {
            let columns = table["columns"].as_array().unwrap();
            let rows = table["rows"].as_array().unwrap();
            assert!(!rows.is_empty(), "{name}: {table}");
            for (at, column) in columns.iter().enumerate() {
                let has_numbers = rows.iter().any(|r| r[at].is_number());
                let is_setting = ["bytes", "servers"]
                    .map(Into::into)
                    .contains(&column["name"]);
                let is_said = column["provenance"].is_string() || is_setting;
                assert!(is_said || !has_numbers, "{name}: {column}");
            }
            for row in rows {
                assert_eq!(row.as_array().unwrap().len(), columns.len(), "{name}");
            }
        }
        let measured = outcome["tables"][0].to_string().contains("measured");
        assert_eq!(measured, name == MEASURED, "{name}");
    }
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    for part in [
        "This is a quick run",
        "e3 eval all --quick --seed 1",
        "up to 3 times",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn an_application_of_the_user_takes_the_place_of_the_paper_s() {
    let e3 = E3::new();
    let words = ["eval", "efficiency", "--quick", "--app", "iot-ts"];
    let view = e3.json(&words);
    let rows = view["outcomes"][0]["tables"][1]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][0], "iot-ts");
}

#[test]
fn bad_input_is_refused_in_one_line_before_anything_runs() {
    let e3 = E3::new();
    let file = e3.file("file", "");
    for (words, code, says, hint) in [
        (
            &["eval", "luck"][..],
            3,
            "no experiment is named \"luck\"",
            "efficiency, power",
        ),
        (
            &["eval", "hops", "--out", &format!("{file}/out")],
            2,
            "/file/out: ",
            "--out",
        ),
        (
            &["eval", "efficiency", "--quick", "--app", "hello"],
            2,
            "there is no profile",
            "e3 profile",
        ),
        (
            &["eval", "efficiency", "--app", "missing.yaml"],
            3,
            "missing.yaml",
            "built in: ",
        ),
    ] {
        let ended = e3.run(words);
        assert_eq!(ended.code, code, "{words:?}: {ended:?}");
        assert_eq!(ended.out, "");
        let first = ended.err.lines().next().unwrap();
        assert!(first.contains(says), "{words:?}: {first}");
        assert!(ended.err.contains(hint), "{words:?}: {ended:?}");
    }
}
